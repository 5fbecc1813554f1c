"""native.Guards: every kind of guard, hit and missed; paths; references."""
from __future__ import annotations

import contextvars
import enum
import gc
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotcompile.ir.guards import constant_json

from .conftest import argument, tensor_facts

MakeGuards = Callable[..., Any]
X = argument("x")


def holds(guard: Any, *arguments: Any) -> bool:
    result = guard.check(arguments)
    assert result == () or result == 0
    return result == ()


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Holder:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    @property
    def computed(self) -> int:
        return self.__dict__["value"] + 1

    @property
    def broken(self) -> int:
        raise RuntimeError("not now")


def function(x: int) -> int:
    return x + 1


def other_function(x: int) -> int:
    return x + 2


@pytest.mark.parametrize("value", [3, -(2 ** 70), True, False, None, "text", 1.5, -0.0, float("nan"), float("inf"), 1 + 2j, b"ab", (1, (2.0, "a")), frozenset({1, "b"}),
                                   torch.float32, torch.device("cpu"), torch.channels_last, Color.RED, torch.Size([2, 3])])
def test_equals(guards: MakeGuards, value: Any) -> None:
    guard = guards(("x",), [("equals", X, constant_json(value))])
    assert holds(guard, value) and holds(guard, value)
    others = [4, 0, 1, "other", 2.5, 0.0, 1 + 3j, b"ac", (1, (2.0, "b")), (1,), frozenset({1}), torch.float64, torch.device("meta"), Color.BLUE, (2, 3), [], object]
    for different in [*others, *([] if value is None else [None]), *([] if value is True else [True])]:
        assert not holds(guard, different), different


def test_equals_of_recomputed_values(guards: MakeGuards) -> None:
    assert holds(guards(("x",), [("equals", X, constant_json("ab" * 3))]), "".join(["ab", "ab", "ab"]))
    assert holds(guards(("x",), [("equals", X, constant_json(float("nan")))]), -float("nan"))


def test_type(guards: MakeGuards) -> None:
    guard = guards(("x",), [("type", X, f"{__name__}:Holder")])
    assert holds(guard, Holder()) and not holds(guard, 3) and holds(guard, Holder())

    class Sub(Holder):
        pass
    assert not holds(guard, Sub())


def test_type_is_remapped_and_stands_in(guards: MakeGuards) -> None:
    copy = type("Net", (), {"__module__": "generated.mypkg.model"})
    original = type("Net", (), {"__module__": "mypkg.model"})
    twin = type("Net2", (), {"__module__": "elsewhere", "__aotcompile_original__": original})
    inheriting = type("Net3", (twin,), {})
    guard = guards(("x",), [("type", X, "mypkg.model:Net")])
    assert holds(guard, copy()) and holds(guard, twin()) and not holds(guard, inheriting()) and not holds(guard, original())


@pytest.mark.parametrize(("facts", "good", "bad"), [
    (tensor_facts([2, 3], [3, 1]), torch.empty(2, 3),
     [torch.empty(2, 4), torch.empty(2, 3, dtype=torch.float64), torch.empty(3, 2).t(), torch.empty(2, 3, 1), torch.empty(2, 3, device="meta"), 5, None,
      torch.empty(2, 3).to_sparse(), torch.nn.Buffer(torch.empty(2, 3)) if type(torch.nn.Buffer(torch.empty(1))) is not torch.Tensor else 1]),
    (tensor_facts([1, 3], [3, 1]), torch.empty(3, 1).t(), [torch.empty(2, 3)]),
    (tensor_facts([0, 3], [3, 1]), torch.empty(3, 0).t(), [torch.empty(1, 3)]),
    (tensor_facts([], [], dtype="i64"), torch.tensor(3), [torch.tensor(3.0), torch.tensor([3])]),
    (tensor_facts([2], [1], requires_grad=True, is_leaf=True), torch.nn.Parameter(torch.empty(2)), [torch.empty(2), torch.empty(2, requires_grad=True) * 2]),
    (tensor_facts([2], [1], requires_grad=False), torch.empty(2), [torch.nn.Parameter(torch.empty(2))]),
    (tensor_facts([2], [1], dtype="c64"), torch.empty(2, dtype=torch.complex64), [torch.empty(2, dtype=torch.complex64).conj(), torch.empty(2)]),
    (tensor_facts(["s0", "2*s0"], ["2*s0", 1]), torch.empty(3, 6), [torch.empty(3, 5), torch.empty(6, 3).t()]),
    (tensor_facts(["s0", "s0"], ["s0", 1]), torch.empty(3, 3), [torch.empty(3, 4)]),
])
def test_tensor(guards: MakeGuards, facts: dict[str, Any], good: torch.Tensor, bad: list[Any]) -> None:
    guard = guards(("x",), [("tensor", X, facts)])
    assert holds(guard, good) and holds(guard, good)
    for value in bad:
        assert not holds(guard, value), value


def test_tensor_subclasses_and_wrappers_miss(guards: MakeGuards) -> None:
    guard = guards(("x",), [("tensor", X, tensor_facts([2], [1]))])

    class Sub(torch.Tensor):
        pass
    assert not holds(guard, torch.empty(2).as_subclass(Sub))
    seen: list[bool] = []

    def inside(x: torch.Tensor) -> torch.Tensor:
        seen.append(holds(guard, x))
        return x
    torch.func.vmap(inside)(torch.empty(4, 2))
    with torch.autograd.forward_ad.dual_level():
        inside(torch.autograd.forward_ad.make_dual(torch.empty(2), torch.ones(2)))
    assert seen == [False, False] and holds(guard, torch.empty(2))


def test_symbols_across_tensors(guards: MakeGuards) -> None:
    late = guards(("x", "y"), [("tensor", X, tensor_facts(["2*s0", 4], [4, 1])), ("expression", None, "s0 >= 2 and s0 % 2 == 0"),
                               ("tensor", argument("y"), tensor_facts(["s0"], [1]))])
    check = lambda rows, size: late.check((torch.empty(rows, 4), torch.empty(size)))      # noqa: E731
    assert check(8, 4) == () and check(9, 4) == 0 and check(6, 3) == 1 and check(0, 0) == 1
    early = guards(("x",), [("tensor", X, tensor_facts(["s0"], [1])), ("expression", None, "1 < s0 < 5")])
    assert [early.check((torch.empty(size),)) for size in (1, 2, 4, 5)] == [1, (), (), 1]
    zero = guards(("x",), [("tensor", X, tensor_facts(["s0"], [1])), ("expression", None, "8 // s0 == 4")])
    assert zero.check((torch.empty(2),)) == () and zero.check((torch.empty(0),)) == 1


def test_expressions_speak_of_a_number(guards: MakeGuards) -> None:
    named = guards(("x", "n"), [("number", argument("n"), {"kind": "int", "symbol": "n1"}), ("tensor", X, tensor_facts(["s0"], [1])),
                                ("expression", None, "0 <= n1 and n1 <= s0")])
    assert [named.check((torch.empty(4), number)) for number in (0, 4, 5, -1, 2.0, True, 2**70)] == [(), (), 2, 2, 0, 0, 0]
    with pytest.raises(NotImplementedError, match="float"):
        guards(("x",), [("number", X, {"kind": "float", "symbol": "n0"})])


def test_undefined_symbol_is_refused(guards: MakeGuards) -> None:
    with pytest.raises(NotImplementedError, match="symbol"):
        guards((), [("expression", None, "s0 > 1")])


def test_number(guards: MakeGuards) -> None:
    integer, real = guards(("x",), [("number", X, "int")]), guards(("x",), [("number", X, "float")])
    assert [holds(integer, v) for v in (3, -(2 ** 63), 2 ** 63, True, 1.0)] == [True, True, False, False, False]
    assert [holds(real, v) for v in (1.0, float("nan"), 1, True)] == [True, True, False, False]


def test_length_keys_contains(guards: MakeGuards) -> None:
    length = guards(("x",), [("length", X, {"type": "builtins:list", "length": 2})])
    assert [holds(length, v) for v in ([1, 2], [1], (1, 2), 5)] == [True, False, False, False]
    keys = guards(("x",), [("keys", X, {"type": "builtins:dict", "keys": [constant_json("a"), constant_json(1)]})])
    assert [holds(keys, v) for v in ({"a": 0, 1: 0}, {1: 0, "a": 0}, {"a": 0}, {"a": 0, 1.0: 0}, {"a": 0, 1: 0, 2: 0}, OrderedDict(a=0), 3)] == [True] + [False] * 6
    ordered = guards(("x",), [("keys", X, {"type": "collections:OrderedDict", "keys": [constant_json("a"), constant_json("b")]})])
    moved = OrderedDict(a=1, b=2)
    assert holds(ordered, moved)
    moved.move_to_end("a")
    assert not holds(ordered, moved)
    present = guards(("x",), [("contains", X, {"key": constant_json("a"), "present": True})])
    absent = guards(("x",), [("contains", X, {"key": constant_json((1, "b")), "present": False})])
    assert [holds(present, v) for v in ({"a": 1}, {"b": 1}, {"a"}, 3)] == [True, False, True, False]
    assert [holds(absent, v) for v in ({}, {(1, "b")}, {(1, "b"): 0})] == [True, False, False]


def test_has_dictionary(guards: MakeGuards) -> None:
    guard = guards(("x",), [("has_dictionary", X, {"name": "value", "present": True})])
    missing = guards(("x",), [("has_dictionary", X, {"name": "computed", "present": False})])
    assert holds(guard, Holder(value=1)) and not holds(guard, Holder()) and holds(missing, Holder()) and not holds(missing, Holder(computed=1))


def test_function(guards: MakeGuards) -> None:
    asked: list[tuple[Any, ...]] = []

    def matches(candidate: Any, name: str, digest: str) -> bool:
        asked.append((candidate, name, digest))
        return candidate is function
    guard = guards(("x",), [("function", X, {"name": "mypkg.model:function", "digest": "d"})], matches=matches)
    assert holds(guard, function) and holds(guard, function)
    assert asked == [(function, "generated.mypkg.model:function", "d")]
    assert holds(guard, types.MethodType(function, 1)) and holds(guard, types.FunctionType(function.__code__, {})) and len(asked) == 1
    assert not holds(guard, other_function) and not holds(guard, len) and not holds(guard, Holder) and len(asked) == 2


def test_same_and_different(guards: MakeGuards) -> None:
    same = guards(("x", "y"), [("same", X, argument("y", ["item", 0]))])
    one = object()
    assert same.check((one, [one])) == () and same.check((one, [object()])) == 0 and same.check((one, [])) == 0
    different = guards(("x", "y", "z"), [("different", X, [argument("y"), argument("z")])])
    base = torch.empty(10)
    assert different.check((base[:4], base[4:], torch.empty(3))) == () and different.check((base[:4], base[3:], torch.empty(3))) == 0
    assert different.check((base, torch.empty(2), base)) == 0 and different.check((base, base[:0], torch.empty(3))) == ()
    distinct = guards(("x", "y", "z"), [("distinct", X, [argument("y"), argument("z")])])
    assert distinct.check((base, base[:], one)) == () and distinct.check((base, one, base)) == 0 and distinct.check((base, one, one)) == 0
    table = OrderedDict({5: "a", 7: "b"})
    for position, right, wrong in ((1, 7, 5), (None, 6, 7)):
        at = guards(("x", "y"), [("position", X, {"table": argument("y"), "position": position})])
        assert at.check((right, table)) == () and at.check((wrong, table)) == 0 and at.check((right, 3)) == 0


def test_state(guards: MakeGuards) -> None:
    def in_state(expected: dict[str, Any]) -> bool:
        return guards((), [("state", None, expected)]).check(()) == ()
    assert in_state({"grad_enabled": True}) and not in_state({"grad_enabled": False}) and in_state({"name": "inference_mode", "value": False})
    assert in_state({"autocast_cpu": None}) and in_state({"autocast_cpu": False}) and not in_state({"autocast_cpu": "bfloat16"})
    with torch.no_grad():
        assert in_state({"grad_enabled": False})
    with torch.inference_mode():
        assert in_state({"inference_mode": True}) and in_state({"grad_enabled": False})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert in_state({"autocast_cpu": "bfloat16"}) and not in_state({"autocast_cpu": "float16"}) and not in_state({"autocast_cpu": None})
        assert in_state({"autocast_cpu": True}) and in_state({"autocast_cuda": None})


def test_rare_kinds_ask_python(guards: MakeGuards) -> None:
    records: list[dict[str, Any]] = []

    def single(record: dict[str, Any], context: dict[str, Any]) -> Callable[[Any], bool]:
        assert context["package"] == "mypkg"
        records.append(record)
        return lambda value: value is (torch.relu if record["kind"] == "builtin" else None)
    builtin = guards(("x",), [("builtin", X, "torch:relu")], single=single)
    assert holds(builtin, torch.relu) and holds(builtin, torch.relu) and not holds(builtin, torch.sin)
    assert guards((), [("state", None, {"num_threads": 4})], single=single).check(()) == ()
    assert [record["kind"] for record in records] == ["builtin", "state"]


@pytest.mark.parametrize(("steps", "value", "expected"), [
    ([["attribute", "computed"]], Holder(value=2), 3), ([["dictionary", "value"]], Holder(value=2), 2), ([["item", "k"]], {"k": 7}, 7), ([["item", 1]], [1, 8], 8),
    ([["item", -1]], (1, 8), 8), ([["item", {"tuple": [1, "a"]}]], {(1, "a"): 4}, 4), ([["item", 0]], range(5, 9), 5), ([["type"]], 3, int), ([["item", True]], {True: 5}, 5),
    ([["keys"]], {"a": 1, 2: 3}, ("a", 2)), ([["attribute", "weight"]], torch.nn.Linear(1, 1), torch.nn.Parameter), ([["item", None]], {None: 6}, 6),
])
def test_paths(guards: MakeGuards, steps: list[Any], value: Any, expected: Any) -> None:
    (found,) = guards(("x",), [], [argument("x", *steps)]).check((value,))
    assert found == expected or type(found) is expected


def test_module_attributes_without_running_getattr(guards: MakeGuards) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    get = guards(("x",), [], [argument("x", ["attribute", "0"], ["attribute", "weight"]), argument("x", ["attribute", "1"], ["attribute", "running_mean"]),
                              argument("x", ["attribute", "training"])])
    assert all(a is b for a, b in zip(get.check((net,)), (net[0].weight, net[1].running_mean, True), strict=True))
    del net[0].weight
    assert get.check((net,)) == 0

    class Custom(torch.nn.Module):
        def __getattr__(self, name: str) -> Any:
            return 42 if name == "answer" else super().__getattr__(name)
    assert guards(("x",), [], [argument("x", ["attribute", "answer"])]).check((Custom(),)) == (42,)


def test_items_past_a_derived_class(guards: MakeGuards) -> None:
    class Doubling(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: str) -> object:
            raise AssertionError("code of the program")

    class Reversed(list):  # type: ignore[type-arg]
        def __getitem__(self, position: object) -> object:
            raise AssertionError("code of the program")
    assert guards(("x",), [], [argument("x", ["own_item", "dict", "k"])]).check((Doubling(k=4),)) == (4,)
    assert guards(("x",), [], [argument("x", ["own_item", "list", 1])]).check((Reversed([1, 2]),)) == (2,)
    assert guards(("x",), [], [argument("x", ["own_item", "tuple", 1])]).check(((1, 2),)) == (2,)
    assert guards(("x",), [], [argument("x", ["own_item", "dict", "n"])]).check((Doubling(k=4),)) == 0
    assert guards(("x",), [], [argument("x", ["own_item", "list", 0])]).check((3,)) == 0


def test_roots(guards: MakeGuards, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, empty, variable = types.CellType(5), types.CellType(), contextvars.ContextVar[int]("variable")
    outer = lambda: cell                                         # noqa: E731
    monkeypatch.setitem(sys.modules, "generated.mypkg.tools", types.ModuleType("tools"))
    get = lambda path, **context: guards((), [], [path], **context).check(())              # noqa: E731
    assert get([["closure", "k"], []], closure={"k": cell}) == (5,) and get([["closure", "k"], []], closure={"k": empty}) == 0
    assert get([["global", "g"], []], globals={"g": 6}) == (6,) and get([["global", "len"], []]) == (len,) and get([["global", "nothing"], []]) == 0
    assert get([["module", "mypkg.tools"], []])[0].__name__ == "tools" and get([["module", "absent"], []]) == 0
    assert get([["global", "f"], [["cell", 0]]], globals={"f": outer}) == (cell,) and get([["global", "f"], [["cell", 1]]], globals={"f": outer}) == 0
    assert get([["global", "v"], [["context_variable"]]], globals={"v": variable}) == 0
    assert get([["global", "d"], [["values"]]], globals={"d": {5: "a", 7: "b"}}) == (("a", "b"),)
    assert get([["global", "r"], [["referent"]]], globals={"r": weakref.ref(outer)}) == (outer,)
    assert get([["global", "f"], [["call", {"tuple": [3, "a"]}]]], globals={"f": lambda *given: [*given]}) == ([3, "a"],)
    assert get([["global", "f"], [["call", {"tuple": []}]]], globals={"f": lambda given: 0}) == 0
    variable.set(9)
    assert get([["global", "v"], [["context_variable"]]], globals={"v": variable}) == (9,)


@pytest.mark.parametrize(("steps", "value"), [
    ([["attribute", "broken"]], Holder()), ([["attribute", "absent"]], Holder()), ([["dictionary", "a"]], 3), ([["item", 5]], [1]), ([["item", "a"]], {}), ([["item", 0]], 3),
    ([["keys"]], 3), ([["values"]], 3), ([["referent"]], 3), ([["cell", 0]], function), ([["context_variable"]], 3), ([["item", 0]], ())])
def test_paths_that_lead_nowhere_are_misses(guards: MakeGuards, steps: list[Any], value: Any) -> None:
    assert guards(("x",), [], [argument("x", *steps)]).check((value,)) == 0
    assert guards(("x",), [("number", argument("x", *steps), "int"), ("number", X, "int")], []).check((value,)) == 0
    assert guards(("x", "y"), [], [argument("y")]).check((value,)) == 0


def test_a_missing_key_is_not_inserted(guards: MakeGuards) -> None:
    from collections import defaultdict
    table: dict[str, list[int]] = defaultdict(list)
    assert guards(("x",), [], [argument("x", ["item", "a"])]).check((table,)) == 0 and not table


def test_interrupts_are_not_swallowed(guards: MakeGuards) -> None:
    class Interrupting:
        @property
        def value(self) -> int:
            raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        guards(("x",), [], [argument("x", ["attribute", "value"])]).check((Interrupting(),))


@pytest.mark.parametrize(("record", "error"), [
    (("tensor", X, tensor_facts([1], [1], dtype="f3")), NotImplementedError), (("tensor", X, tensor_facts([1], [])), ValueError), (("type", X, "no colon"), ValueError),
    (("type", argument("unknown"), "a:b"), ValueError), (("type", X, 5), TypeError), (("expression", None, "s0 +"), ValueError), (("number", [["planet", "x"], []], "int"), NotImplementedError)])
def test_records_that_are_refused(guards: MakeGuards, record: tuple[str, Any, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        guards(("x",), [record])


def test_references_do_not_leak(guards: MakeGuards) -> None:
    inner, tensor = {"k": "some text that is not shared"}, torch.empty(3)
    holder = Holder(table=inner, tensor=tensor)
    guard = guards(("x",), [("tensor", argument("x", ["dictionary", "tensor"]), tensor_facts(["s0"], [1])), ("type", argument("x", ["dictionary", "table"]), "builtins:dict"),
                            ("expression", None, "s0 == 3"), ("type", argument("x", ["attribute", "broken"]), "a:b")], [argument("x", ["dictionary", "tensor"])])
    objects = (inner, inner["k"], tensor, holder, Holder, guard)
    guard.check((holder,))
    before = [sys.getrefcount(o) for o in objects]
    for _ in range(300):
        assert guard.check((holder,)) == 3
    assert [sys.getrefcount(o) for o in objects] == before


def test_cycles_are_collected(guards: MakeGuards) -> None:
    table: dict[str, Any] = {}
    table["guards"] = guards((), [], [], globals=table)
    marker = Holder()
    table["marker"] = marker
    seen = weakref.ref(marker)
    del table, marker
    gc.collect()
    assert seen() is None
