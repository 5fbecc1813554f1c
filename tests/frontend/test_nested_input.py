"""Tensors without sizes that a region can speak of."""
from __future__ import annotations

import pytest
import torch

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


def padded(x: torch.Tensor) -> torch.Tensor:
    return torch.nested.to_padded_tensor(x * 2, 0.0)


def test_nested_tensor_runs_eagerly() -> None:
    x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    made = aotcompile.compile(padded, example_inputs=[((x,), {}), ((x,), {})], backend="eager")
    torch.testing.assert_close(made(x), padded(x))
