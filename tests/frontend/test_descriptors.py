"""Descriptors and class attributes: what they hold and count is the program's, changed by calls and not by builds."""
from __future__ import annotations

import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
import torch

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


class Counted:
    """A method decorator that counts calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.calls += 1
        return self.function(*arguments, **keywords)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else functools.partial(self, owner)


class Lazy:
    """Computes once, then an attribute of the instance is in front of it."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function, self.calls = function, 0

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self
        self.calls += 1
        value = owner.__dict__["ones"] = self.function(owner)
        return value


class Checked:
    """A data descriptor that counts assignments."""

    def __init__(self) -> None:
        self.stored = 0

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else owner._size

    def __set__(self, owner: Any, value: Any) -> None:
        self.stored += 1
        owner._size = value


class ClassProperty(property):
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self.fget(kind if kind is not None else type(owner))           # type: ignore[misc]


class Layer:
    made = 0
    size = Checked()

    def __init__(self) -> None:
        type(self).made += 1
        self.size = 2

    @ClassProperty
    def kinds(cls) -> int:                                                     # noqa: N805
        return cls.made * 10

    @Counted
    def scaled(self, x: torch.Tensor, by: float = 1) -> torch.Tensor:
        return x * by

    @Lazy
    def ones(self) -> torch.Tensor:
        return torch.ones(2) * 4


def use(x: torch.Tensor, layer: Layer) -> Any:
    other = Layer()
    layer.size = layer.size + other.size
    y = layer.scaled(other.scaled(x, by=3)) + layer.made + other.made + Layer.made
    return y + layer.ones + layer.ones + layer.kinds + Layer.kinds + layer.size


def reset() -> Layer:
    Layer.made = 0
    for name in ("size", "scaled", "ones"):
        vars(vars(Layer)[name]).update({"stored": 0} if name == "size" else {"calls": 0})
    return Layer()


def state(layer: Layer) -> Any:
    held = vars(Layer)
    return held["made"], held["size"].stored, held["scaled"].calls, held["ones"].calls, layer._size, sorted(vars(layer))


def test_what_descriptors_and_classes_count() -> None:
    x, layer = torch.tensor([1.0, 2.0]), reset()
    before = state(layer)
    compiled = aotcompile.compile(use, example_inputs=((x, layer), {}), backend="eager")
    assert state(layer) == before, "the build leaves no trace"
    found = [(compiled(x, layer).tolist(), state(layer)) for _ in range(3)]
    layer = reset()
    assert found == [(use(x, layer).tolist(), state(layer)) for _ in range(3)]
    [region] = aotcompile.info(compiled).report().regions
    assert region.hits >= 1 and not aotcompile.info(compiled).breaks


def exact(x: torch.Tensor, count: int) -> Any:
    return x * count, Decimal("0.1") * count, pow(count, 3, 5), count.bit_length()


def test_numbers_of_classes_in_c() -> None:
    compiled = aotcompile.compile(exact, example_inputs=((torch.ones(2), 6), {}), backend="eager")
    assert repr(compiled(torch.ones(2), 6)) == repr(exact(torch.ones(2), 6))
    assert repr(compiled(torch.ones(2), 7)) == repr(exact(torch.ones(2), 7))
    assert aotcompile.info(compiled).report().regions[0].hits >= 1 and not aotcompile.info(compiled).breaks


class Doubling(type):
    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__(name, value * 2)


class Plain:
    calls = 0

    def run(self, x: torch.Tensor) -> torch.Tensor:
        type(self).calls += 1
        self.__class__.last = self.calls                                       # type: ignore[attr-defined]
        return x * self.calls


class Metered(metaclass=Doubling):
    calls = 1
    run = Plain.run


@pytest.mark.parametrize("cls", [Plain, Metered])
def test_a_class_that_only_its_objects_lead_to(cls: Any) -> None:
    def call(x: torch.Tensor, owner: Any) -> torch.Tensor:
        return owner.run(x)

    x, owner = torch.tensor([1.0, 2.0]), cls()
    first = cls.calls
    compiled = aotcompile.compile(call, example_inputs=((x, owner), {}), backend="eager")
    assert cls.calls == first, "the build leaves no trace"
    found = [(compiled(x, owner).tolist(), cls.calls, cls.last) for _ in range(3)]
    type.__setattr__(cls, "calls", first)
    assert found == [(call(x, owner).tolist(), cls.calls, cls.last) for _ in range(3)]
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (3, 0) and not aotcompile.info(compiled).breaks
