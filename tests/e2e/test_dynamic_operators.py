"""Operators and Python arithmetic on dynamic sizes: one variant for all sizes where that can be said exactly, else the size that was seen."""
from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import aotcompile


def enlarged(x: torch.Tensor) -> Any:
    return F.interpolate(x, scale_factor=2, mode="nearest"), F.interpolate(x, size=(x.shape[2] * 2, 5), mode="bilinear", align_corners=False)


def middle(x: torch.Tensor) -> Any:
    y = x.clone()
    y[:, :, x.shape[2] // 2] = 0
    return x[:, :, x.shape[2] // 2] * 2, y


def padded(x: torch.Tensor) -> Any:
    return F.pad(x[x[:, 0, 0, 0] > 0], (0, 1)).sum(0)


def rounded(x: torch.Tensor) -> Any:
    return x[:, :, :int(x.shape[2] * 0.3)] + 1, math.ceil(x.shape[2] / 2), round(x.shape[2] / 3)


@pytest.mark.parametrize(("function", "all_sizes"), [(enlarged, True), (middle, True), (padded, True), (rounded, False)])
def test_sizes(function: Any, all_sizes: bool) -> None:
    def example(size: int) -> torch.Tensor:
        return torch.randn(3, 2, size, 4, generator=torch.Generator().manual_seed(size))

    built = aotcompile.compile(function, example_inputs=((example(8),), {}), dynamic_shapes=({2: "H"},))
    for size in (8, 5, 2, 13):
        torch.testing.assert_close(built(example(size)), function(example(size)))
    regions = aotcompile.info(built).report().regions
    assert sum(region.hits for region in regions) >= (4 if all_sizes else 1)
    assert not all_sizes or sum(region.misses for region in regions) == 0
