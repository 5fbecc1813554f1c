"""Tensors that require grad, written where autograd does not look: in no_grad mode, through ``.data`` and ``.detach()``; views made in no_grad mode."""
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import aotcompile

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.layer = nn.Parameter(torch.tensor([1.0, 2.0, 3.0])), nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))


class Normalized(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.div_(self.weight.norm())
            self.count += 1
        return self.layer(x) * self.weight


class Clamped(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for parameter in self.parameters():
            parameter.data.clamp_(-0.3, 0.3)
        self.layer.weight.detach()[0] = 0.5
        return self.layer(x) * self.weight


class UsedBefore(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x) * self.weight
        self.weight.data.mul_(0.5)           # the backward pass of the line before finds these values
        return y.tanh() + self.weight


class Views(Net):
    def forward(self, x: torch.Tensor) -> Any:
        with torch.no_grad():
            row = self.layer.weight[0]
        return row, self.layer(x) * self.weight


@pytest.mark.parametrize(("kind", "breaks"), [(Normalized, 0), (Clamped, 0), (UsedBefore, 1), (Views, 0)], ids=lambda kind: getattr(kind, "__name__", ""))
def test_as_eager(kind: type[Net], breaks: int) -> None:
    torch.manual_seed(0)
    eager = kind()
    module = copy.deepcopy(eager)
    built = aotcompile.compile(module, example_inputs=((X,), {}))
    for _ in range(2):
        results = []
        for call in (eager, built):
            outputs = call(X)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            sum(output.square().sum() for output in outputs).backward()
            results.append((outputs, [output.requires_grad for output in outputs]))
        torch.testing.assert_close(results[1], results[0])
        for (name, a), b in zip(eager.named_parameters(), module.parameters()):
            torch.testing.assert_close((b, b.grad), (a, a.grad), msg=name)
    torch.testing.assert_close(module.count, eager.count)
    assert len(aotcompile.info(built).breaks) == breaks
    regions = aotcompile.info(built).report().regions
    assert sum(region.misses for region in regions) == 0 and all(region.hits for region in regions)


def test_scaled_gradients() -> None:
    """`torch.amp.GradScaler` keeps what it scales by: its methods read and change attributes of an object from outside."""
    def make_step() -> Any:
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()
        return step

    eager = make_step()
    built = aotcompile.compile(make_step(), example_inputs=((X,), {}))
    for _ in range(3):
        torch.testing.assert_close(built(X), eager(X), rtol=1e-3, atol=1e-3)
    regions = aotcompile.info(built).report().regions
    assert regions and (all(region.hits == 3 and not region.misses for region in regions) or torch.__version__ < "2.12")


def scaled_step(model: nn.Module, optimizer: Any, scaler: Any, x: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def test_a_scaler_that_is_given() -> None:
    """What it makes at the first call is there at the second; its table of optimizers has their addresses as keys, which no guard may name."""
    def arguments() -> tuple[Any, ...]:
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu"), X

    built = aotcompile.compile(scaled_step, example_inputs=(arguments(), {}), backend="aot_eager")
    mine, plain = arguments(), arguments()
    for _ in range(3):
        torch.testing.assert_close(built(*mine), scaled_step(*plain))
    torch.testing.assert_close(list(mine[0].parameters()), list(plain[0].parameters()))
    regions = aotcompile.info(built).report().regions
    assert regions and all(region.hits == 3 and not region.misses for region in regions)
