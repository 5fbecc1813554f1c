"""Double backward through regions that change buffers: a gradient penalty on a critic with batch and spectral norm."""
from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn.utils import spectral_norm

import aotcompile


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = spectral_norm(nn.Linear(4, 6)), nn.BatchNorm1d(6), nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(x)))).squeeze(-1)


def penalty(critic: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    score = critic(x)
    gradient, = torch.autograd.grad(score, x, torch.ones_like(score), create_graph=True)
    return (gradient.norm(2, 1) - 1).square().mean() + score.mean()


def test_as_eager() -> None:
    torch.manual_seed(0)
    eager = Critic()
    module = copy.deepcopy(eager)
    example = torch.randn(5, 4, requires_grad=True)
    built = aotcompile.compile(module, example_inputs=((example,), {}))
    for _ in range(3):
        x = torch.randn(5, 4)
        losses = [penalty(critic, x) for critic in (eager, built)]
        for loss in losses:
            loss.backward()
        torch.testing.assert_close(losses[1], losses[0])
    for (name, expected), found in zip(eager.named_parameters(), module.parameters()):
        torch.testing.assert_close(found.grad, expected.grad, msg=name)
    torch.testing.assert_close(dict(module.named_buffers()), dict(eager.named_buffers()))
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 3 and not region.misses
