"""Conditions on dynamic sizes as arguments of torch's functions, which take a bool and nothing that stands for one; numbers that no size of 0 has."""
from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F

import aotcompile


def in_c(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x, is_causal=x.size(1) > 1)


def positional(x: torch.Tensor) -> torch.Tensor:
    return torch.sum(x, 1, x.size(1) > 3)


def method(x: torch.Tensor) -> torch.Tensor:
    return x.argsort(dim=1, descending=x.size(1) > 3)


def in_python(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(F.dropout(x, 0.0, x.size(1) > 3), size=x.size(2) * 2, mode="linear", align_corners=x.size(1) > 3)


def listed(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([x.size(1) > 3, True]) & (x[0, 0, :2] > 0)


def never_of_zero(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=-1 / x.size(1), max=x.size(1) / 10)


@pytest.mark.parametrize("function", [in_c, positional, method, in_python, listed, never_of_zero], ids=lambda function: function.__name__)
def test_as_eager(function: Callable[..., Any]) -> None:
    examples = [torch.randn(2, size, 8, generator=torch.Generator().manual_seed(0)) for size in (5, 7)]
    built = aotcompile.compile(function, example_inputs=[((x,), {}) for x in examples])
    assert not aotcompile.info(built).breaks
    for size in (4, 9):
        x = torch.randn(2, size, 8, generator=torch.Generator().manual_seed(size))
        torch.testing.assert_close(built(x), function(x))
    [region] = aotcompile.info(built).report().regions
    assert (region.hits, region.misses) == (2, 0)


@pytest.mark.filterwarnings("ignore:AOT701")
def test_the_condition_and_the_size_that_raises_are_guarded() -> None:
    for function in (positional, never_of_zero):
        built = aotcompile.compile(function, example_inputs=[((torch.randn(2, size, 8),), {}) for size in (5, 7)])
        torch.testing.assert_close(built(torch.ones(2, 2, 8)), function(torch.ones(2, 2, 8)))
    with pytest.raises(ZeroDivisionError):
        built(torch.ones(2, 0, 8))
