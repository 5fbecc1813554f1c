"""native.Guards remember checks that held (guard_cache.h): whatever changes between two calls is noticed, and what did not change is not followed again."""
from __future__ import annotations

import gc
import random
import weakref
from collections import OrderedDict
from types import ModuleType, SimpleNamespace
from typing import Any, Callable

import pytest
import torch
from torch import nn

from aotcompile.runtime.guards import Context, Guards
from tests.native.conftest import argument, tensor_facts

Change = Callable[[nn.Module], Any]
FLOAT = {"type": "builtins:float", "value": (0.5).hex()}


class Unit(nn.Module):
    kind = "unit"

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("count", torch.zeros(()))
        self.scale, self.shape, self.sizes, self.table = 0.5, (1, 2), [3, 4], {"a": 5}
        self.function = make_function(7)


class Other(Unit):
    pass


def make_function(number: int) -> Callable[[], int]:
    return lambda: number


class Net(nn.Module):
    def __init__(self, count: int = 4) -> None:
        super().__init__()
        self.units = nn.ModuleList(Unit() for _ in range(count))


def constant(value: Any) -> dict[str, Any]:
    return {"type": f"builtins:{type(value).__name__}", "value": value}


def records(count: int = 4) -> list[tuple[str, Any, Any]]:
    """Guards as a build writes them for a loop over `self.units`."""
    found: list[tuple[str, Any, Any]] = [("type", argument("self"), f"{__name__}:Net")]
    for number in range(count):
        steps = [["attribute", "units"], ["attribute", "_modules"], ["item", str(number)]]
        unit = argument("self", *steps)

        def at(*more: list[Any], steps: list[list[Any]] = steps) -> list[Any]:
            return argument("self", *steps, *more)
        found += [
            ("type", unit, f"{__name__}:Unit"),
            ("equals", at(["attribute", "training"]), constant(True)),
            ("equals", at(["dictionary", "scale"]), FLOAT),
            ("equals", at(["attribute", "kind"]), constant("unit")),
            ("has_dictionary", unit, {"name": "forward", "present": False}),
            ("length", at(["attribute", "_forward_hooks"]), {"type": "collections:OrderedDict", "length": 0}),
            ("keys", at(["attribute", "table"]), {"type": "builtins:dict", "keys": [constant("a")]}),
            ("equals", at(["attribute", "table"], ["item", "a"]), constant(5)),
            ("length", at(["attribute", "sizes"]), {"type": "builtins:list", "length": 2}),
            ("equals", at(["attribute", "sizes"], ["item", 1]), constant(4)),
            ("equals", at(["attribute", "shape"], ["item", 0]), constant(1)),
            ("equals", at(["attribute", "function"], ["cell", 0]), constant(7)),
            ("tensor", at(["attribute", "weight"]), tensor_facts([4], [1], requires_grad=True)),
            ("tensor", at(["attribute", "count"]), tensor_facts([], [])),
        ]
    return [*found, ("tensor", argument("x"), tensor_facts([2], [1]))]


def unit(net: nn.Module) -> Unit:
    return net.units[2]                                                                       # type: ignore[no-any-return, index, operator]


def replace_dictionary(net: nn.Module) -> None:
    unit(net).__dict__ = {**unit(net).__dict__, "scale": 2.5}


def fill_cell(net: nn.Module) -> None:
    unit(net).function.__closure__[0].cell_contents = 8                                       # type: ignore[attr-defined]


def replace_unit(net: nn.Module) -> None:
    other = Unit()
    other.scale = 0.25
    net.units[2] = other                                                                      # type: ignore[index, operator]


CHANGES: dict[str, Change] = {
    "attribute": lambda net: setattr(unit(net), "scale", 0.75),
    "training": lambda net: unit(net).eval(),
    "whole dictionary": replace_dictionary,
    "class": lambda net: setattr(unit(net), "__class__", Other),
    "instance attribute over the class's": lambda net: unit(net).__dict__.__setitem__("kind", "own"),
    "method on the instance": lambda net: setattr(unit(net), "forward", make_function(0)),
    "hook": lambda net: unit(net).register_forward_hook(lambda *arguments: None),
    "key": lambda net: unit(net).table.__setitem__("b", 6),
    "item": lambda net: unit(net).table.__setitem__("a", 6),
    "table": lambda net: setattr(unit(net), "table", {"a": 6}),
    "longer list": lambda net: unit(net).sizes.append(5),
    "list item": lambda net: unit(net).sizes.__setitem__(1, 5),
    "tuple": lambda net: setattr(unit(net), "shape", (2, 2)),
    "cell": fill_cell,
    "function": lambda net: setattr(unit(net), "function", make_function(9)),
    "parameter": lambda net: setattr(unit(net), "weight", nn.Parameter(torch.ones(5))),
    "parameter's data": lambda net: setattr(unit(net).weight, "data", torch.ones(6)),
    "frozen": lambda net: unit(net).weight.requires_grad_(False),
    "buffer": lambda net: setattr(unit(net), "count", torch.zeros(1)),
    "deleted": lambda net: delattr(unit(net), "scale"),
    "module": replace_unit,
    "fewer modules": lambda net: net.units._modules.popitem(),                                # type: ignore[union-attr, operator]
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_noticed(guards: Callable[..., Any], change: Change) -> None:
    check = guards(("self", "x"), records()).check
    net, x = Net(), torch.ones(2)
    for _ in range(3):
        assert check((net, x)) == ()
    change(net)
    assert isinstance(check((net, x)), int) and isinstance(check((net, x)), int)


def test_what_did_not_change_is_remembered(guards: Callable[..., Any]) -> None:
    made = guards(("self", "x"), records(), fetch=[argument("self", ["attribute", "units"], ["attribute", "_modules"], ["item", "1"], ["attribute", "weight"])])
    net = Net()
    assert [made.check((net, torch.ones(2)))[0] is net.units[1].weight for _ in range(5)] == [True] * 5 and made.remembered == 4  # type: ignore[union-attr]
    assert isinstance(made.check((net, torch.ones(3))), int) and made.remembered == 5              # the input alone is looked at
    net.extra = 1                                                                                # what no guard speaks of
    unit(net).extra = 1
    assert len(made.check((net, torch.ones(2)))) == 1 and made.remembered == 6
    unit(net).scale = float("0.5")                                                               # an equal object: noticed, checked in full, remembered again
    assert len(made.check((net, torch.ones(2)))) == 1 and made.remembered == 6
    assert len(made.check((net, torch.ones(2)))) == 1 and made.remembered == 7


def test_class_attributes(guards: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made = guards(("self", "x"), records())
    arguments = (Net(), torch.ones(2))
    assert made.check(arguments) == () and made.check(arguments) == ()
    monkeypatch.setattr(Unit, "kind", "another")
    assert isinstance(made.check(arguments), int)
    monkeypatch.undo()
    assert made.check(arguments) == ()
    monkeypatch.setattr(Unit, "training", property(lambda self: False), raising=False)
    assert isinstance(made.check(arguments), int)


def test_several_instances_and_none_is_kept_alive(guards: Callable[..., Any]) -> None:
    made, x = guards(("self", "x"), records()), torch.ones(2)
    nets = [Net() for _ in range(5)]
    for _ in range(3):
        assert all(made.check((net, x)) == () for net in nets)
    assert made.remembered == 10
    unit(nets[3]).scale = 3.0
    assert [made.check((net, x)) == () for net in nets] == [True, True, True, False, True]
    alive = [weakref.ref(net) for net in nets] + [weakref.ref(unit(net).weight) for net in nets]
    del nets
    gc.collect()
    assert not any(reference() for reference in alive)


def test_objects_at_the_addresses_of_others(guards: Callable[..., Any]) -> None:
    """Modules made and dropped in a loop take each other's memory; every second one has another setting."""
    made, x = guards(("self", "x"), records(), fetch=[]), torch.ones(2)
    for number in range(40):
        net = Net()
        unit(net).scale = 0.5 if number % 2 else 0.25
        assert [made.check((net, x)) == () for _ in range(2)] == [bool(number % 2)] * 2
        del net


def test_globals_and_modules(guards: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"setting_{number}" for number in range(30)]
    settings: dict[str, Any] = {name: number for number, name in enumerate(names)}
    library = ModuleType("library_of_settings")
    library.limit = 3                                                                            # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "library_of_settings", library)
    made = guards(("x",), [("equals", [["global", name], []], constant(number)) for number, name in enumerate(names)]
                  + [("equals", [["module", "library_of_settings"], [["attribute", "limit"]]], constant(3)),
                     ("type", [["global", "len"], []], "builtins:builtin_function_or_method")], globals=settings)
    assert made.check((0,)) == () and made.check((0,)) == () and made.remembered == 1
    settings["counter"] = 1
    assert made.check((0,)) == () and made.remembered == 2
    settings["len"] = abs
    assert made.check((0,)) == ()
    settings["len"] = 4
    assert isinstance(made.check((0,)), int)
    del settings["len"]
    assert made.check((0,)) == ()
    library.limit = 4                                                                            # type: ignore[attr-defined]
    assert made.check((0,)) == 30
    library.limit = 3                                                                            # type: ignore[attr-defined]
    settings["setting_7"] = 8
    assert made.check((0,)) == 7


def test_random_changes_agree_with_checks_without_memory(guards: Callable[..., Any]) -> None:
    """The Python twin remembers nothing."""
    listed = [{"kind": kind, "path": path, "expected": expected, "span": None} for kind, path, expected in records()]
    made, plain, generator = guards(("self", "x"), records()), Guards(listed, [], Context(("self", "x"), {}, {})), random.Random(0)
    held = 0
    for _ in range(60):
        net, x = Net(), torch.ones(2)
        for _ in range(8):
            expected = plain.check((net, x))
            assert made.check((net, x)) == expected
            held += expected == ()
            if generator.random() < 0.4:
                try:
                    generator.choice(list(CHANGES.values()))(net)
                except (AttributeError, KeyError, IndexError, RuntimeError):
                    pass                                                                         # an earlier change took away what this one changes
    assert held > 100 and made.remembered > 50


class Ordered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = [OrderedDict(a=1, b=2) for _ in range(30)]
        self.holder = SimpleNamespace(values=tuple(range(30)))


def test_an_order_that_changes_without_a_change_of_the_dictionary(guards: Callable[..., Any]) -> None:
    listed = [("keys", argument("self", ["attribute", "tables"], ["item", number]), {"type": "collections:OrderedDict", "keys": [constant("a"), constant("b")]})
              for number in range(30)]
    made, model = guards(("self",), listed), Ordered()
    assert made.check((model,)) == () and made.check((model,)) == ()
    model.tables[20].move_to_end("a")
    assert made.check((model,)) == 20
