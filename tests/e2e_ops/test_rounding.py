"""Where eager rounds, and what it computes instead of what was written, to the bit."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import aotcompile

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
COUNT = 64                                  # whole vectors: eager's loop over the rest of a tensor rounds otherwise in places


def check(function: Any, *arguments: Any) -> None:
    compiled = aotcompile.compile(function, example_inputs=(arguments, {}))
    for number, (found, expected) in enumerate(zip(compiled(*arguments), function(*arguments), strict=True)):
        assert found.dtype == expected.dtype
        same = (found == expected) | (found != found) & (expected != expected)
        if found.is_floating_point():
            same &= (torch.signbit(found) == torch.signbit(expected)) | (found != found)
        assert same.all(), f"result {number}: {found[~same][:3]}, eager {expected[~same][:3]}"
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (1, 0)


def test_linspace() -> None:
    """Whole numbers from whole ends: 5.5 counts as 5."""
    def f() -> tuple[torch.Tensor, ...]:
        return tuple(torch.linspace(start, end, steps, dtype=dtype) for start, end, steps in ((-1, 1, 4), (-3, 5.5, 33), (2, 7, 1), (-5, 100, 50))
                     for dtype in (*FLOATS, torch.int32, torch.int64))
    check(f)


@pytest.mark.parametrize("dtype", FLOATS)
def test_products_added(dtype: torch.dtype) -> None:
    x, a, b = (torch.randn(COUNT, generator=torch.Generator().manual_seed(seed)).mul(2).to(dtype) for seed in range(3))
    whole, one = torch.arange(100, 100 + COUNT, dtype=torch.int32), torch.tensor(70001, dtype=torch.int32)

    def f(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, whole: torch.Tensor, one: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (torch.addcdiv(x, a, b), torch.addcdiv(x, a, b, value=0.3), torch.addcdiv(x, a, whole), torch.addcdiv(x, a, one),
                torch.addcmul(x, a, whole), torch.addcmul(x, one, b), torch.lerp(x, a, 0.3), torch.lerp(x, a, 0.7),
                torch.lerp(x, a, b), one * x, x * one, one / x, x / one)
    check(f, x, a, b, whole, one)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("known", [True, False])
def test_powers(dtype: torch.dtype, known: bool) -> None:
    """``x ** 0.5`` is a square root, also where the exponent is an argument; not in f16."""
    x = torch.tensor([float("-inf"), -0.0, 0.0, -1.0, 4.0, float("nan"), float("inf"), 2.75] * 8).to(dtype)

    def f(x: torch.Tensor, *exponents: float) -> tuple[torch.Tensor, ...]:
        return x ** exponents[0], x ** exponents[1], x ** exponents[2], x ** exponents[3], x ** exponents[4]

    def g(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x ** 0.5, x ** -0.5, x ** -1.0, x ** -2.0, x ** 3.0

    check(*((g, x) if known else (f, x, 0.5, -0.5, -1.0, -2.0, 3.0)))


def test_arange_counts_without_arithmetic() -> None:
    def f() -> tuple[torch.Tensor, ...]:
        return torch.arange(7.0), torch.arange(1.0, 8.0), torch.arange(0.0, 2.0, 0.3), torch.arange(-0.0, 4.0), torch.arange(5, dtype=torch.float16)
    check(f)
    compiled = aotcompile.compile(lambda: torch.arange(7.0), example_inputs=((), {}))
    [kernels] = Path(aotcompile.info(compiled).out).rglob("kernels.cpp")
    kernel = kernels.read_text().rpartition('extern "C"')[2]
    assert "index_sequence" in kernel and "splat" not in kernel
