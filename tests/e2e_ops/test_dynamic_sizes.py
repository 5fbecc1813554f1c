"""Operators that must leave a dynamic size dynamic, down to 1."""
from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import aotcompile

WEIGHT = torch.linspace(-1, 1, 32).reshape(8, 4)
PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "linear without a bias": lambda x: F.linear(x, WEIGHT).split(4, dim=2)[0] * x.shape[1],
    "layer_norm": lambda x: F.layer_norm(x, (4,)).view(-1, 4).mean(0),
    "matmul": lambda x: x @ x.transpose(1, 2),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True).contiguous().view(2, x.shape[1], 4),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_size_stays_dynamic(name: str) -> None:
    program = PROGRAMS[name]

    def run(x: torch.Tensor) -> torch.Tensor:
        return program(x)

    compiled = aotcompile.compile(run, example_inputs=((torch.randn(2, 5, 4),), {}), dynamic_shapes={"x": {1: "T"}}, backend="eager")
    for size in (5, 9, 2, 1):
        x = torch.randn(2, size, 4)
        torch.testing.assert_close(compiled(x), program(x))
    region, = aotcompile.info(compiled).report().regions
    assert region.hits == 4, region.last_miss
