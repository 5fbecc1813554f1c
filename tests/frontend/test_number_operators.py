"""Operators between tensors and Python numbers that come in as arguments."""
# ruff: noqa: UP031 - "%s" % x is what is tested
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


class Named:
    def __str__(self) -> str:
        return "named"


NAMED = Named()
WORDS = {"a": 1, "b": 2.5}


def in_python(x: torch.Tensor, number: float) -> tuple[Any, ...]:
    large = number > 2
    return (x + number, "%s-%d" % (number, number), "%s" % number, "%(a)s %(b).1f" % WORDS, min(number, 2), max(number, 5, 1.5), min(number, number * 2),
            large is True, large is (number < 9), large is not False)


@pytest.mark.parametrize("number", [3, 3.0])
def test_numbers_in_python_code(number: float) -> None:
    x = torch.ones(2)
    made = aotcompile.compile(in_python, example_inputs=((x, number), {}), backend="eager")
    want, got = in_python(x, number), made(x, number)
    torch.testing.assert_close(got[0], want[0])
    assert [(type(value), value) for value in got[1:]] == [(type(value), value) for value in want[1:]]


def named(x: torch.Tensor) -> tuple[torch.Tensor, str, str]:
    y = x.sin()
    return y.cos(), "%s" % NAMED, "%s" % x.sum()


def test_interpolated_objects() -> None:
    x = torch.ones(2)
    made = aotcompile.compile(named, example_inputs=((x,), {}), backend="eager")
    want, got = named(x), made(x)
    torch.testing.assert_close(got[0], want[0])
    assert got[1:] == want[1:]
