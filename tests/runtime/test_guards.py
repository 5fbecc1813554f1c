"""Each guard kind accepts what it must and refuses the rest; paths are followed safely; failures read as source."""
from __future__ import annotations

import collections
import contextvars
import enum
import functools
import itertools
import weakref
from types import FunctionType
from typing import Any

import pytest
import torch
from runtime_tests import argument, facts, guard

from aotcompile.codegen.python.guards import guards_source
from aotcompile.ir.guards import Guard, constant_json
from aotcompile.ir.paths import Path
from aotcompile.runtime import digest, explain
from aotcompile.runtime.guards import Context, Guards, UnsupportedPlan, single

X = argument("x")
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=5)
SCALE = 2.0


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Plain:
    def method(self) -> int:
        return 1


class Other(Plain):
    @property
    def broken(self) -> int:
        raise ZeroDivisionError


def helper(a: int) -> int:
    return a + 1


def impostor(a: int) -> int:
    return a + 2


def name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def holds(record: dict[str, Any], *values: Any) -> bool:
    names = ("x", "y")[:len(values)]
    return not isinstance(Guards([record], [], Context(names, globals(), {})).check(values), int)


CONSTANTS = [0, 1, -1, True, False, None, 0.0, -0.0, 1.0, float("nan"), float("inf"), 1e-300, "", "a", b"a", 1j, (), (1,), (1, 2.0), (True,), ((1,), "a"),
             frozenset({1, 2}), torch.float32, torch.float64, torch.device("cpu"), torch.strided, Colour.RED, Colour.BLUE, range(3), slice(1, None), ...]


def test_equals_tells_all_constants_apart() -> None:
    for (i, expected), (j, value) in itertools.product(enumerate(CONSTANTS), enumerate(CONSTANTS)):
        assert holds(guard("equals", X, constant_json(expected)), value) == (i == j), (expected, value)


@pytest.mark.parametrize(("record", "good", "bad"), [
    (guard("type", X, name_of(Plain)), [Plain()], [Other(), 1, Plain]),
    (guard("number", X, "int"), [0, -5, 2**63 - 1], [True, 1.0, 2**63, -2**63 - 1, None]),
    (guard("number", X, "float"), [0.0, float("nan")], [1, True, "1"]),
    (guard("length", X, {"type": "builtins:list", "length": 2}), [[1, 2]], [[1], (1, 2), {1: 1, 2: 2}]),
    (guard("keys", X, {"type": "builtins:dict", "keys": [constant_json("a"), constant_json("b")]}), [{"a": 1, "b": 2}],
     [{"b": 1, "a": 2}, {"a": 1}, collections.OrderedDict(a=1, b=2)]),
    (guard("keys", X, {"type": "builtins:dict", "keys": ["a"]}), [{"a": 1}], [{"b": 1}, {}]),
    (guard("keys", X, {"type": "builtins:dict", "keys": [constant_json(1)]}), [{1: 0}], [{True: 0}, {1.0: 0}]),
    (guard("contains", X, {"key": constant_json("a"), "present": True}), [{"a": 1}, {"a"}], [{}, {"b"}, 3]),
    (guard("contains", X, {"key": constant_json(torch.float32), "present": False}), [{}, {torch.float64}], [{torch.float32}]),
    (guard("has_dictionary", X, {"name": "n", "present": False}), [Plain()], ["with n"]),
    (guard("builtin", X, "torch:relu"), [torch.relu], [torch.sigmoid, helper]),
    (guard("builtin", X, "torch._C:TensorBase.add"), [torch.Tensor.add], [torch.Tensor.mul]),
    (guard("builtin", X, name_of(Plain)), [Plain], [Other, Plain()]),
    (guard("builtin", X, "torch.nn.functional"), [torch.nn.functional], [torch]),
    (guard("function", X, {"name": f"{__name__}:helper", "digest": digest.code_digest(helper.__code__)}), [helper], [impostor, torch.relu, 3]),
    (guard("function", X, {"name": f"{__name__}:Plain.method", "digest": digest.code_digest(Plain.method.__code__)}), [Plain.method, Plain().method], [helper]),
    (guard("state", None, {"grad_enabled": True}), [0], []),
    (guard("state", None, {"name": "default_dtype", "value": "torch.float64"}), [], [0]),
    (guard("state", None, {"inference_mode": False, "autocast_cpu": False, "autocast_cuda": None}), [0], []),
], ids=lambda value: value["kind"] if isinstance(value, dict) else "")
def test_kinds(record: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert holds(record, value), value
    for value in bad:
        if record["kind"] == "has_dictionary":
            value = Plain()
            value.n = 1                                          # type: ignore[attr-defined]
        assert not holds(record, value), value
        assert explain.reason(Guards([record], [], Context(("x",), {}, {})), 0, (value,)).endswith(" model.py:3")
        if record["path"] is not None:
            assert not single(record, Context(("x",), {}, {}))(value)


def test_a_function_replaced_later_is_noticed_also_behind_the_cache() -> None:
    record = guard("function", X, {"name": f"{__name__}:helper", "digest": digest.code_digest(helper.__code__)})
    guards = Guards([record], [], Context(("x",), {}, {}))
    again = FunctionType(helper.__code__, {}, "helper")
    again.__module__, again.__qualname__ = helper.__module__, helper.__qualname__
    assert guards.check((helper,)) == () and guards.check((again,)) == () and guards.check((impostor,)) == 0 and guards.check((helper,)) == ()
    renamed = FunctionType(impostor.__code__, {}, "helper")
    renamed.__module__, renamed.__qualname__ = helper.__module__, helper.__qualname__
    assert guards.check((renamed,)) == 0


def test_a_wrapper_does_not_inherit_the_digest_of_what_it_wraps() -> None:
    wanted = digest.code_digest(helper.__code__)
    record = guard("function", X, {"name": f"{__name__}:helper", "digest": wanted})

    class Stub:
        __aotcompile_stub__ = True
    space: dict[str, Any] = {"_r0": Stub(), "__name__": __name__}
    exec("def helper(a):\n    return _r0(a)\n", space)
    rewritten = space["helper"]
    setattr(rewritten, digest.DIGEST_ATTRIBUTE, wanted)
    assert holds(record, rewritten)

    @functools.wraps(rewritten)
    def wrapper(a: int) -> int:
        return impostor(a)
    assert digest.DIGEST_ATTRIBUTE in wrapper.__dict__ and wrapper.__qualname__ == "helper" and not holds(record, wrapper)


def test_digest_ignores_places_and_sees_everything_else() -> None:
    def code(text: str, filename: str = "a.py") -> str:
        space: dict[str, Any] = {}
        exec(compile(text, filename, "exec"), space)
        return digest.code_digest(space["f"].__code__, source=False)
    base = code("def f(x):\n    return x + 1\n")
    assert base == code("\n\n# moved\ndef f(x):\n    return x + 1\n", "b.py")
    texts = ["def f(x):\n    return x + 2\n", "def f(x):\n    return x - 1\n", "def f(y):\n    return y + 1\n", "def f(x):\n    return x + 1.0\n",
             "def f(x):\n    return x + True\n", "def f(x):\n    return [x + 1 for _ in 'a']\n", "def f(x):\n    return [x + 2 for _ in 'a']\n",
             "def f(*x):\n    return x + 1\n", "def f(x):\n    return x.a\n", "def f(x):\n    return x.b\n"]
    assert len({base, *map(code, texts)}) == len(texts) + 1


def test_digest_of_another_cpython_falls_back_to_the_source() -> None:
    own = digest.code_digest(helper.__code__)
    tag, source = own.split(";")
    assert tag.startswith(f"{digest.TAG}:") and source.startswith("source:")
    assert digest.same_digest(f"cp399:0123456789abcdef;{source}", helper)
    assert not digest.same_digest(f"cp399:0123456789abcdef;{source}", impostor)
    assert not digest.same_digest("cp399:0123456789abcdef", helper)
    assert not digest.same_digest(f"{digest.TAG}:0123456789abcdef;{source}", helper)


def test_same_different_and_distinct() -> None:
    base = torch.zeros(8)
    same, different = guard("same", X, argument("y")), guard("different", X, [argument("y")])
    assert holds(same, base, base) and not holds(same, base, base.view(8))
    assert holds(different, base[:4], base[4:]) and holds(different, base, torch.zeros(8)) and holds(different, base, torch.zeros(0))
    assert not holds(different, base[:5], base[4:]) and not holds(different, base, base[2:3])
    distinct = guard("distinct", X, [argument("y")])
    assert holds(distinct, base, base[:]) and not holds(distinct, base, base)
    for position, right, wrong in ((1, 7, 5), (None, 6, 7)):
        at = guard("position", X, {"table": argument("y"), "position": position})
        assert holds(at, right, {5: "a", 7: "b"}) and not holds(at, wrong, {5: "a", 7: "b"}) and not holds(at, right, 3)


def test_paths_are_followed_and_a_failure_is_a_failed_guard() -> None:
    value = Other()
    value.__dict__.update(items=[{"k": (10, 11)}], n=3, reference=weakref.ref(Other), table=lambda *given: [*given])
    cell = (lambda: value).__closure__
    assert cell is not None
    steps = Path(("argument", "x")).attribute("items").item(0).item("k").item(1)
    paths = [(steps, 11), (Path(("argument", "x")).dictionary("n"), 3), (Path(("argument", "x")).then("type"), Other), (Path(("global", "SCALE")), 2.0),
             (Path(("global", "len")), len), (Path(("closure", "c")), value), (Path(("module", "torch.nn")), torch.nn),
             (Path(("global", "VARIABLE")).then("context_variable"), 5), (Path(("argument", "x")).attribute("items").item(0).then("keys"), ("k",)),
             (Path(("argument", "x")).attribute("items").item(0).then("values"), ((10, 11),)),
             (Path(("argument", "x")).attribute("reference").then("referent"), Other),
             (Path(("argument", "x")).attribute("table").then("call", (3, "a")), [3, "a"]),
             (Path(("argument", "x")).attribute("items").item(0).then("own_item", "dict", "k"), (10, 11))]
    space = {**globals(), "__builtins__": __builtins__}
    context = Context(("x",), space, {"c": cell[0]})
    assert Guards([], [path.as_json() for path, _ in paths], context).check((value,)) == tuple(expected for _, expected in paths)
    for path, _ in paths:
        assert explain.path_text(path.as_json()) == str(path)
    for broken in (Path(("argument", "x")).attribute("broken"), Path(("argument", "x")).attribute("no"), Path(("module", "no.such")), Path(("global", "no_such"))):
        guards = Guards([guard("type", X, name_of(Other)), guard("equals", broken.as_json(), constant_json(1))], [], context)
        assert guards.check((value,)) == 1
        assert str(broken) in explain.reason(guards, 1, (value,))


def test_checking_does_not_grow_a_defaultdict() -> None:
    value: Any = collections.defaultdict(list)
    guards = Guards([guard("length", [["argument", "x"], [["item", "k"]]], {"type": "builtins:list", "length": 0})], [], Context(("x",), {}, {}))
    assert guards.check((value,)) == 0 and not value


def test_names_of_the_package_lead_to_the_generated_one() -> None:
    context = Context(("x",), {}, {}, "mypkg", "generated.mypkg")
    assert [context.module_name(n) for n in ("mypkg", "mypkg.a", "mypkgs", "os")] == ["generated.mypkg", "generated.mypkg.a", "mypkgs", "os"]
    cls = type("Net", (), {"__module__": "generated.mypkg.a"})
    assert not isinstance(Guards([guard("type", X, "mypkg.a:Net")], [], context).check((cls(),)), int)
    twin = type("Net", (cls,), {"__aotcompile_original__": cls, "__module__": "elsewhere"})
    assert not isinstance(Guards([guard("type", X, "mypkg.a:Net")], [], context).check((twin(),)), int)
    child = type("Child", (twin,), {})
    assert Guards([guard("type", X, "mypkg.a:Net")], [], context).check((child(),)) == 0


def test_symbols_across_tensors_and_expressions_before_their_symbols() -> None:
    records = [guard("tensor", X, facts(["2*s0", 3])), guard("tensor", argument("y"), facts(["s0"]))]
    guards = Guards(records, [], Context(("x", "y"), {}, {}))
    assert guards.check((torch.ones(8, 3), torch.ones(4))) == ()
    assert guards.check((torch.ones(8, 3), torch.ones(5))) == 0
    assert explain.reason(guards, 0, (torch.ones(8, 3), torch.ones(5))) == "x.shape[0] == 2*s0 (got 8) model.py:3"
    equal = Guards([guard("tensor", X, facts(["s0", "s0"]))], [], Context(("x",), {}, {}))
    assert equal.check((torch.ones(3, 3),)) == () and equal.check((torch.ones(3, 4),)) == 0


def test_unknown_things_are_refused_not_ignored() -> None:
    context = Context(("x",), {}, {})
    for record in (guard("mystery", X, 1), guard("state", None, {"moon_phase": 1}), guard("type", [["argument", "z"], []], "a:b"),
                   guard("type", [["argument", "x"], [["teleport"]]], "a:b"), guard("tensor", X, facts([1], dtype="f4")), guard("number", X, "complex")):
        with pytest.raises(UnsupportedPlan):
            Guards([record], [], context)


def test_guards_text_is_python_and_names_every_guard() -> None:
    x = Path(("argument", "x"))
    records = [Guard("type", x, "m:Net"), Guard("tensor", x.attribute("w"), facts(["s0", 4])), Guard("equals", x.attribute("n"), constant_json(1.5)),
               Guard("same", x, Path(("argument", "y")).as_json()), Guard("expression", None, "s0 >= 2"), Guard("state", None, {"grad_enabled": True}),
               Guard("keys", x, {"type": "builtins:dict", "keys": [constant_json("a")]}), Guard("different", x, [Path(("argument", "y")).as_json()])]
    text = guards_source(records, "f:r0")
    compile(text, "guards.py", "exec")
    assert "def guards(x, y):" in text and 'is_tensor(x.w, "f32[s0, 4][4, 1]")' in text and "same_constant(x.n, 1.5)" in text and "(s0 >= 2)" in text
    assert guards_source([]).endswith("return True\n")
