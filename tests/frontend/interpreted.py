"""Runs a function through the interpreter alone: capture on fake tensors, then the captured graph and epilogue on real ones, against plain CPython."""
from __future__ import annotations

import copy
import importlib
import sys
import types
from typing import Any

import torch

from aotcompile.frontend.capture.region import BreakFound, Capture, Captured, Refused
from aotcompile.graph.record import graph_module, nodes_of
from aotcompile.ir.paths import Path
from aotcompile.runtime.digest import code_digest


class State:
    """What a sample finds outside and may change."""

    def __init__(self) -> None:
        self.items: list[Any] = [1, 2]
        self.table: dict[str, Any] = {"a": 1.5, "b": torch.tensor([3.0, 4.0])}
        self.names = {"x", "y"}
        self.count = 3
        self.pair = (2, "two")
        self.scale = torch.tensor([2.0, 0.5])
        self.nested = {"deep": [{"k": 1}]}
        self.flag = True

    def doubled(self, x: Any) -> Any:
        return x * 2 + self.count

    @property
    def total(self) -> int:
        return self.count + len(self.items)

    @total.setter
    def total(self, value: int) -> None:
        self.count = value


def run_captured(captured: Captured, function: types.FunctionType, arguments: tuple[Any, ...]) -> Any:
    variant = captured.variant
    named = dict(zip(function.__code__.co_varnames, arguments))
    values = [_fetch(given.path, function, named) for given in variant.inputs]
    fetched = [_fetch(path, function, named) for path in variant.fetches]
    outputs = graph_module(variant.nodes)(*values)
    symbols = {symbol.name: values[symbol.input].shape[symbol.dimension] for symbol in variant.symbols}
    space: dict[str, Any] = {"torch": torch}
    for alias, target in variant.epilogue_imports.items():
        module, _, name = target.partition(":")
        value: Any = importlib.import_module(module)
        for part in filter(None, name.split(".")):
            value = getattr(value, part)
        space[alias] = value
    exec(variant.epilogue, space)
    return space["epilogue"](values, outputs, symbols, fetched)


def _fetch(path: Path, function: types.FunctionType, named: dict[str, Any]) -> Any:
    kind, name = path.root
    if kind == "argument":
        value = named[name]
    elif kind == "global":
        value = function.__globals__ if name == "__dict__" else function.__globals__[name]
    elif kind == "closure":
        value = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))[name].cell_contents
    else:
        value = sys.modules[name]
    for step in path.steps:
        match step:
            case ("attribute", part):
                value = getattr(value, part)
            case ("dictionary", part):
                value = value.__dict__[part]
            case ("item", part):
                value = value[part]
            case ("own_item", "dict" | "OrderedDict" | "defaultdict", part):
                value = dict.__getitem__(value, part)
            case ("own_item", "tuple", part):
                value = tuple.__getitem__(value, part)
            case ("own_item", "list", part):
                value = list.__getitem__(value, part)
            case ("type",):
                value = type(value)
            case ("keys",):
                value = tuple(value.keys())
            case ("values",):
                value = tuple(value.values())
            case ("referent",):
                value = value()
            case ("cell", index):
                value = value.__closure__[index].cell_contents
            case ("context_variable",):
                value = value.get()
            case _:
                raise AssertionError(f"unknown step {step!r}")
    return value


def capture(function: types.FunctionType, *arguments: Any) -> Captured | BreakFound | Refused:
    return Capture("sample:r0", function, {}, code_digest, nodes_of).run(arguments)


def plain(value: Any) -> Any:
    """``value`` in a form that ``==`` compares deeply, tensors and order of dicts included."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), tuple(value.shape), value.detach().tolist(), value.requires_grad)
    if isinstance(value, dict):
        return (type(value).__name__, [(plain(k), plain(v)) for k, v in value.items()])
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, sorted(map(repr, value)))
    if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        return (type(value).__name__, [plain(v) for v in value])
    if isinstance(value, (bool, int, float, str, bytes, type(None), type, types.FunctionType, torch.dtype, torch.device)):
        return (type(value).__name__, repr(value))
    if hasattr(value, "__dict__"):
        return (type(value).__name__, plain(vars(value)))
    return (type(value).__name__, repr(value))


def check(function: types.FunctionType, *, wanted: str = "captured") -> None:
    """``wanted``: "captured", or the code of the break or refusal expected. Whatever happens, the objects outside stay as they were."""
    def arguments() -> tuple[Any, ...]:
        return (torch.tensor([1.0, -2.0]), State())

    globals_before = plain(function.__globals__.get("shared"))
    given = arguments()
    before = plain(given)
    outcome = capture(function, *given)
    assert plain(given) == before, "capturing changed what is outside"
    assert plain(function.__globals__.get("shared")) == globals_before, "capturing changed a global"
    found = "captured" if isinstance(outcome, Captured) else outcome.signal.code if isinstance(outcome, BreakFound) else outcome.code
    detail = "" if isinstance(outcome, Captured) else outcome.signal.reason if isinstance(outcome, BreakFound) else outcome.reason
    assert found == wanted, f"{found} {detail}"
    if not isinstance(outcome, Captured):
        return
    first, second = arguments(), arguments()
    kept = copy.deepcopy(function.__globals__.get("shared"))
    expected = function(*first)
    eager_global = plain(function.__globals__.get("shared"))
    function.__globals__["shared"] = kept
    result = run_captured(outcome, function, second)
    assert plain(result) == plain(expected)
    assert plain(second) == plain(first)
    assert plain(function.__globals__.get("shared")) == eager_global


__all__ = ["State", "capture", "check", "plain", "run_captured"]
