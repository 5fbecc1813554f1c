"""Operators that move elements along the last dimension: small ones in kernels, large ones by whole rows."""
from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import aotcompile


def moved(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 1
    return (torch.cat([y, x, -x], -1), torch.stack([x, y], -1), F.pad(y, (1, 2)), F.pad(x, (-1, 0, 2, 1), value=3.0), y.roll(3, -1), x.roll((-1, 900), (0, 1)),
            x.roll(5), torch.cat([x[:, :7], y.double()], -1) * 2, x.roll(1, 0).sum(0))


@pytest.mark.parametrize("sizes", [(6, 10), (32, 600)])
@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.t().contiguous().t()])
def test_values_and_gradients(sizes: tuple[int, int], layout: Callable[[torch.Tensor], torch.Tensor]) -> None:
    given = layout(torch.randn(sizes))
    compiled = aotcompile.compile(moved, example_inputs=((given.clone().requires_grad_(),), {}), training=True)
    outcomes = []
    for function in (compiled, moved):
        x = given.clone().requires_grad_()
        results = function(x)
        sum((result * result).sum() for result in results).backward()
        outcomes.append(([result.detach() for result in results], x.grad))
    torch.testing.assert_close(outcomes[0], outcomes[1], check_stride=True)


@pytest.mark.parametrize("sizes, kernels_only", [((6, 10), True), ((64, 600), False)])
def test_large_results_are_copied_by_rows(sizes: tuple[int, int], kernels_only: bool) -> None:
    x = torch.randn(sizes)
    lowered = aotcompile.trace(lambda x: (torch.cat([x, x], -1), x.roll(1, -1)), example_inputs=((x,), {})).lower()
    assert ("aten.cat" in lowered.as_text() and "call" in lowered.as_text()) is not kernels_only
