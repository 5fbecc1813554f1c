"""When objects are made, asked what they are, closed and dropped: code of the program's that Python runs by itself, at the call and never at the build."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import aotcompile

LOG: list[Any] = []


def numbers(count: int) -> Iterator[int]:
    try:
        yield from range(count)
    finally:
        LOG.append("closed")


def zipped(x: torch.Tensor) -> torch.Tensor:
    for number, (left, right) in enumerate(zip(numbers(5), (x, x * 2))):
        x = x + left * right + number
    LOG.append("after")
    return x


class Logging(type):
    def __call__(cls, *arguments: Any) -> Any:
        LOG.append("call")
        return super().__call__(*arguments)

    def __instancecheck__(cls, instance: Any) -> bool:
        LOG.append("instance")
        return hasattr(instance, "scale")

    def __subclasscheck__(cls, subclass: type) -> bool:
        LOG.append("subclass")
        return True


class Scale(metaclass=Logging):
    def __init__(self, scale: float) -> None:
        LOG.append("init")
        self.scale = scale


def of_a_metaclass(x: torch.Tensor) -> torch.Tensor:
    if issubclass(int, Scale) and isinstance(SimpleNamespace(scale=1), Scale) and not isinstance(x, (Scale, str)):
        x = x * Scale(3.0).scale
    return x


class Finalized:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __del__(self) -> None:
        LOG.append("dropped")


def finalized(x: torch.Tensor) -> torch.Tensor:
    scale = Finalized(2.0)
    x = torch.relu(x) * scale.scale
    del scale
    LOG.append("after")
    return x + 1


@pytest.mark.parametrize("function", [zipped, of_a_metaclass, finalized])
def test_code_that_python_runs_by_itself(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.tensor([1.0, -2.0])
    LOG.clear()
    compiled = aotcompile.compile(function, example_inputs=((x,), {}), backend="eager")
    assert LOG == []
    expected = function(x)
    logged = LOG[:]
    LOG.clear()
    assert torch.equal(compiled(x), expected) and LOG == logged
    assert all(region.hits == 1 for region in aotcompile.info(compiled).report().regions if not region.eager)


class Slotted:
    __slots__ = ("other", "scale")


def borrowed_attributes(x: torch.Tensor, owner: SimpleNamespace, slotted: Slotted, module: nn.Module) -> torch.Tensor:
    owner.scale = x
    slotted.scale = 3
    module.scale = owner.scale * slotted.scale
    y = module.scale + 1
    del owner.scale, slotted.scale, module.scale
    owner.kept = 1
    return y


def test_attributes_that_are_put_and_taken_away_again() -> None:
    owner, slotted, module, x = SimpleNamespace(), Slotted(), nn.Identity(), torch.ones(2)
    compiled = aotcompile.compile(borrowed_attributes, example_inputs=((x, owner, slotted, module), {}), backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(x, owner, slotted, module), x * 3 + 1)
    assert vars(owner) == {"kept": 1} and not hasattr(slotted, "scale") and not hasattr(module, "scale")
    [region] = aotcompile.info(compiled).report().regions
    assert region.hits == 2
