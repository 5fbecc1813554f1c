"""A model that is on the GPU when it is built: ``native`` means this machine's GPU too."""
from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import aotcompile


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = nn.functional.gelu(self.norm(self.first(x))) + x
        return torch.softmax(self.last(h), -1)


@pytest.mark.parametrize("training", [False, True])
def test_model_on_the_gpu(training: bool) -> None:
    torch.manual_seed(0)
    model = Net().cuda().train(training)
    reference, x = copy.deepcopy(model), torch.randn(16, 64, device="cuda")
    with torch.set_grad_enabled(training):
        compiled = aotcompile.compile(model, example_inputs=((x,), {}), training=training)
        result, expected = compiled(x), reference(x)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
        if training:
            (result ** 2).sum().backward()
            (expected ** 2).sum().backward()
            for one, other in zip(model.parameters(), reference.parameters()):
                torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (1, 0)
