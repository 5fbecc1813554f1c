"""Operators between tensors and Python numbers that come in as arguments."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")

OPERATORS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.add, operator.sub, operator.mul, operator.truediv,
    operator.floordiv, operator.mod, operator.pow)


def both_ways(x: torch.Tensor, number: float) -> list[torch.Tensor]:
    return [operate(*sides) for operate in OPERATORS for sides in ((x, number), (number, x))]


def only_compared(x: torch.Tensor, number: float) -> torch.Tensor:
    return (x == number) & (number != x + 1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
@pytest.mark.parametrize("number", [2, -3, 2.0, 2.5])
@pytest.mark.parametrize("function", [both_ways, only_compared])
def test_operators_on_a_number_argument(function: Callable[..., Any], number: float, dtype: torch.dtype) -> None:
    x = torch.tensor([1, 2, 3], dtype=dtype)
    if function is both_ways and dtype is torch.int64 and number < 0:
        x = x.double()                                   # integers have no negative powers
    made = aotcompile.compile(function, example_inputs=((x, number), {}), backend="eager")
    torch.testing.assert_close(made(x, number), function(x, number), equal_nan=True)
    region, = aotcompile.info(made).report().regions
    assert region.hits == 1
