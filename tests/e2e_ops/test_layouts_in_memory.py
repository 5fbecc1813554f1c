"""What counts in the memory of a result (as_strided) sees it laid out as eager lays it out, also where torch's shape rule says otherwise."""
from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import aotcompile


def rolled(x: torch.Tensor) -> torch.Tensor:
    return torch.roll(x, shifts=-1, dims=0).as_strided((5, 10), (4, 1), 0)


def of_a_view(x: torch.Tensor) -> torch.Tensor:
    rolled = torch.roll(x, shifts=1, dims=1)
    part = rolled[1]
    return torch.as_strided(part, (3, 4), (2, 5)) + part.as_strided((3, 4), (1, 3))


def written_before(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rolled = torch.roll(x, shifts=1, dims=1)
    rolled[0].mul_(2)
    window = rolled.as_strided((2, 15), (20, 1), 4)
    window.add_(1)
    return rolled, window.clone()


def transposed(x: torch.Tensor) -> torch.Tensor:
    return torch.copysign(x[0, :, 0], x[1, :, 1]).as_strided((6,), (2,))


@pytest.mark.parametrize("function", [rolled, of_a_view, written_before, transposed])
@pytest.mark.parametrize("training", [False, True])
def test_channels_last(function: Callable[[torch.Tensor], object], training: bool) -> None:
    example = torch.arange(100.0).sub(30).reshape(2, 5, 2, 5).to(memory_format=torch.channels_last)
    compiled = aotcompile.compile(function, example_inputs=((example.clone().requires_grad_(training),), {}), training=training)
    one, other = (example.clone().requires_grad_(training) for _ in range(2))
    expected, found = function(one), compiled(other)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, check_stride=True)
    if training:
        for result in (expected, found):
            sum(part.square().sum() for part in (result if isinstance(result, tuple) else (result,))).backward()
        torch.testing.assert_close(other.grad, one.grad)
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (1, 0)
