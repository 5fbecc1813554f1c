"""Operators, properties, items, iteration and construction whose Python code has a graph break of its own: it is split like any callee."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import aotcompile
from aotcompile.runtime.twins.operations import operation

LOG: list[str] = []


def note(text: str) -> None:
    LOG.append(text)
    print(text)


class Vector:
    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def __add__(self, other: Any) -> Vector:
        scaled = torch.tanh(self.values)
        note("add")
        return Vector(scaled + (other.values if isinstance(other, Vector) else other))

    __radd__ = __add__

    def __iadd__(self, other: Any) -> Vector:
        scaled = self.values.exp()
        note("iadd")
        self.values = scaled * 2 + other
        return self

    def __neg__(self) -> Vector:
        scaled = self.values.exp()
        note("neg")
        return Vector(scaled * -1)

    def __lt__(self, other: Vector) -> torch.Tensor:
        scaled = self.values.exp()
        note("lt")
        return scaled.cos() < other.values

    def __getitem__(self, key: Any) -> torch.Tensor:
        scaled = self.values.exp()
        note(f"get {key}")
        return scaled[key] * 2

    def __setitem__(self, key: int, value: torch.Tensor) -> None:
        scaled = value.exp()
        note(f"set {key}")
        self.values[key] = scaled * 2

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        scaled = self.values.exp()
        note("call")
        return scaled * x

    def __contains__(self, value: torch.Tensor) -> bool:
        scaled = self.values.exp()
        note("contains")
        return bool((scaled * 2 == value).any())

    def __len__(self) -> int:
        scaled = self.values.exp()
        note("len")
        return (scaled * 2).shape[0]

    @property
    def norm(self) -> torch.Tensor:
        scaled = self.values.exp()
        note("norm")
        return scaled.norm()

    @norm.setter
    def norm(self, value: torch.Tensor) -> None:
        scaled = value.exp()
        note("set norm")
        self.values = self.values * scaled.sum()

    @functools.cached_property
    def total(self) -> torch.Tensor:
        scaled = self.values.exp()
        note("total")
        return scaled.sum() * 2

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("times"):
            raise AttributeError(name)
        scaled = self.values.exp()
        note(name)
        return scaled * int(name.removeprefix("times"))


class Steps:
    def __init__(self, x: torch.Tensor) -> None:
        scaled = x.exp()
        note("init")
        self.x, self.count = scaled * 2, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        self.count += 1
        if self.count > 2:
            raise StopIteration
        scaled = self.x.exp()
        note("next")
        return scaled * self.count


def augmented(x: torch.Tensor) -> torch.Tensor:
    vector = Vector(x.cos())
    vector += 1
    return vector.values * 2


def stored(x: torch.Tensor) -> torch.Tensor:
    vector = Vector(x.cos())
    vector[0] = x[1] * 2
    vector.norm = x.sin() * 3
    return vector.values * 2


def iterated(x: torch.Tensor) -> torch.Tensor:
    steps, total = Steps(x), x * 2
    for step in steps:
        total = total + step.cos()
    return total


def added(x: torch.Tensor) -> Any:
    return (Vector(x) + Vector(x * 2)).values * 2


def added_to(x: torch.Tensor) -> Any:
    return (1.0 + Vector(x)).values * 2


def negated(x: torch.Tensor) -> Any:
    return (-Vector(x)).values * 2


def compared(x: torch.Tensor) -> Any:
    return (Vector(x) < Vector(x * 2)).float() * 2


def one_item(x: torch.Tensor) -> Any:
    return Vector(x)[0] * 2


def two_indices(x: torch.Tensor) -> Any:
    return Vector(x[None])[0, 1] * 2


def called(x: torch.Tensor) -> Any:
    return Vector(x)(x * 2) * 2


def contained(x: torch.Tensor) -> Any:
    return (x if x[0] in Vector(x) else -x) * 2


def measured(x: torch.Tensor) -> Any:
    return x * len(Vector(x))


def read(x: torch.Tensor) -> Any:
    return Vector(x).norm * 2


def read_by_name(x: torch.Tensor) -> Any:
    return getattr(Vector(x), "norm") * 2              # noqa: B009


def remembered(x: torch.Tensor) -> Any:
    return Vector(x).total * 2


def fallen_back(x: torch.Tensor) -> Any:
    return Vector(x).times3 * 2


def partially(x: torch.Tensor) -> Any:
    return functools.partial(Vector(x), x)() * 2


OPERATIONS: dict[Callable[[torch.Tensor], Any], int] = {
    added: 4, added_to: 3, negated: 3, compared: 4, one_item: 3, two_indices: 4, called: 4, contained: 4, measured: 3, read: 3, read_by_name: 3,
    remembered: 3, fallen_back: 3, partially: 3, augmented: 4, stored: 7, iterated: 6}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", OPERATIONS)
def test_an_operation_with_a_break_is_split(function: Callable[[torch.Tensor], Any]) -> None:
    x = torch.tensor([0.5, 1.5])
    LOG.clear()
    compiled = aotcompile.compile(function, example_inputs=((x,), {}), backend="eager")
    assert not LOG, "the build leaves no trace"
    expected, noted = function(x.clone()), LOG[:]
    LOG.clear()
    torch.testing.assert_close(compiled(x.clone()), expected)
    assert LOG == noted
    regions = aotcompile.info(compiled).report().regions
    assert sum(region.hits > 0 for region in regions) == OPERATIONS[function] and not any(region.misses for region in regions)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    @property
    def scale(self) -> torch.Tensor:
        scaled = self.linear.weight.exp()
        note("scale")
        return scaled.sum()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).relu()
        return y * self.scale


def test_a_property_of_a_module_is_trained_through() -> None:
    module, x = Scaled(), torch.ones(1, 2)
    compiled = aotcompile.compile(module, example_inputs=((x,), {}))
    module(x).sum().backward()
    expected = module.linear.weight.grad.clone()
    module.linear.weight.grad = None
    compiled(x).sum().backward()
    torch.testing.assert_close(module.linear.weight.grad, expected)
    assert all(region.hits == 1 for region in aotcompile.info(compiled).report().regions)


class Left:
    def __add__(self, other: Any) -> Any:
        return NotImplemented

    def __eq__(self, other: object) -> Any:
        return NotImplemented

    __hash__ = None                                                       # type: ignore[assignment]


class Right(Left):
    def __radd__(self, other: Any) -> Any:
        return "right first"

    @property
    def failing(self) -> Any:
        return self.missing

    def __getattr__(self, name: str) -> Any:
        return f"fallback {name}"

    def __lt__(self, other: Any) -> Any:
        return NotImplemented

    def __len__(self) -> int:
        return -1                                                         # noqa: PLE0303 - len() refuses it


@pytest.mark.parametrize(("symbol", "plain", "operands"), [
    ("+", lambda a, b: a + b, (Left(), Right())), ("+", lambda a, b: a + b, (Left(), Left())), ("+", lambda a, b: a + b, (Left(), 3)),
    ("+=", lambda a, b: a + b, (Left(), Right())), ("==", lambda a, b: a == b, (Left(), Right())), ("!=", lambda a, b: a != b, (Left(), Left())),
    ("<", lambda a, b: a < b, (Right(), Right())), ("<", lambda a, b: a < b, (3, Right())), (".", lambda a, b: getattr(a, b), (Right(), "failing")),
    (".", lambda a, b: getattr(a, b), (Left(), "gone")), ("in", lambda a, b: a in b, (3, Right())), ("[]", lambda a, b: a[b], (Left(), 0)),
    (len, lambda a: len(a), (Right(),)), (len, lambda a: len(a), (Left(),))])
def test_operations_follow_pythons_rules(symbol: Any, plain: Callable[..., Any], operands: tuple[Any, ...]) -> None:
    def outcome(function: Callable[..., Any]) -> tuple[str, str]:
        try:
            return "result", repr(function(*operands))
        except Exception as error:  # noqa: BLE001 - which one it is is compared
            return type(error).__name__, str(error)

    assert outcome(operation(symbol, lambda function: function)) == outcome(plain)
