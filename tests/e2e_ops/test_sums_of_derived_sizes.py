"""Sums over a length that is an expression of a size: the work of each part of a split reduction is told in whole expressions."""
from __future__ import annotations

import pytest
import torch

import aotcompile


@pytest.mark.parametrize("sizes", [(6, 7, 3, 4, 2, 1, 50000)])
def test_sum_of_what_is_left(sizes: tuple[int, ...]) -> None:
    def rest(x: torch.Tensor) -> torch.Tensor:
        return x[(x.shape[0] + 2) // 3:].sum() + x[:x.shape[0] // 2].sum()

    dimension = torch.export.Dim("n", min=1)
    compiled = aotcompile.compile(rest, example_inputs=((torch.randn(6),), {}), dynamic_shapes={"x": {0: dimension}})
    for size in sizes:
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), rest(x), rtol=1e-5, atol=1e-4)


def test_chunks() -> None:
    def chunks(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([part.sum() for part in x.chunk(3)])

    compiled = aotcompile.compile(chunks, example_inputs=((torch.randn(6),), {}), dynamic_shapes={"x": {0: torch.export.Dim("n", min=1)}})
    for size in (6, 7, 3, 4, 2, 1, 25):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), chunks(x))
