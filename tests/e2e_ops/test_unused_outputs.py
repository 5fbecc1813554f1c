"""A backward that starts from some of the outputs only: what leads to the others alone gets no gradient, as in eager."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import aotcompile


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.trunk(x))
        return self.left(hidden), torch.sin(self.right(hidden)).sum(1)


@pytest.fixture(scope="module")
def compiled() -> tuple[TwoHeads, nn.Module]:
    model = TwoHeads()
    return model, aotcompile.compile(model, example_inputs=((torch.randn(3, 4),), {}))


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_gradients(used: tuple[int, ...], compiled: tuple[TwoHeads, nn.Module]) -> None:
    model, ours = compiled
    x = torch.randn(3, 4)
    found = []
    for function in (model, ours):
        model.zero_grad(set_to_none=True)
        outputs = function(x)
        torch.stack([outputs[index].sum() for index in used]).sum().backward()
        found.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, wanted in found[0].items():
        got = found[1][name]
        assert (got is None) == (wanted is None), name
        if wanted is not None:
            torch.testing.assert_close(got, wanted)
    region, = aotcompile.info(ours).report().regions
    assert region.hits > 0 and region.misses == 0
