"""A region that computes several things is several nodes: a backward pass through one of them frees nothing of the others."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as criterion

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


def adversarial_step(generator: nn.Module, discriminator: nn.Module, optimizers: list[Any], noise: torch.Tensor, real: torch.Tensor) -> Any:
    fake = generator(noise)
    loss = criterion(discriminator(real), torch.ones(5, 1)) + criterion(discriminator(fake.detach()), torch.zeros(5, 1))
    optimizers[1].zero_grad()
    loss.backward()
    optimizers[1].step()
    other = criterion(discriminator(fake), torch.ones(5, 1))
    optimizers[0].zero_grad()
    other.backward()
    optimizers[0].step()
    return loss.detach(), other.detach()


def adversarial_step_in_parts(generator: nn.Module, discriminator: nn.Module, optimizers: list[Any], noise: torch.Tensor, real: torch.Tensor) -> Any:
    fake = generator(noise)
    optimizers[1].zero_grad()                                    # a region takes `fake` without giving it a gradient
    loss = criterion(discriminator(real), torch.ones(5, 1)) + criterion(discriminator(fake.detach()), torch.zeros(5, 1))
    loss.backward()
    optimizers[1].step()
    optimizers[0].zero_grad()
    other = criterion(discriminator(fake), torch.ones(5, 1))
    other.backward()
    optimizers[0].step()
    return loss.detach(), other.detach()


def networks() -> tuple[Any, ...]:
    torch.manual_seed(0)
    generator, discriminator = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), nn.Linear(3, 1)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (generator, discriminator)]
    return generator, discriminator, optimizers, torch.randn(5, 4), torch.randn(5, 3)


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.parametrize("step", [adversarial_step, adversarial_step_in_parts])
def test_two_networks_trained_in_one_function(step: Any, backend: str) -> None:
    compiled = aotcompile.compile(step, example_inputs=(networks(), {}), backend=backend)
    ours, theirs = networks(), networks()
    for _ in range(2):
        torch.testing.assert_close(compiled(*ours), step(*theirs))
    for mine, plain in zip(ours[:2], theirs[:2]):
        torch.testing.assert_close(mine.state_dict(), plain.state_dict())
    assert all(region.hits and not region.misses for region in aotcompile.info(compiled).report().regions)


def two_layers(first: nn.Module, last: nn.Module, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return first(x).tanh(), last(y).sin(), x.detach() + 1


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_each_output_goes_back_to_its_own_inputs(backend: str) -> None:
    first, last = nn.Linear(3, 3), nn.Linear(3, 3)
    x, y = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    compiled = aotcompile.compile(two_layers, example_inputs=((first, last, x, y), {}), backend=backend)
    mine, plain = compiled(first, last, x, y), two_layers(first, last, x, y)
    assert [each.requires_grad for each in mine] == [each.requires_grad for each in plain] == [True, True, False]
    inputs = [x, *first.parameters(), *last.parameters()]
    for number in (1, 0):                                        # one after the other
        found, wanted = (torch.autograd.grad(each[number].sum(), inputs, allow_unused=True) for each in (mine, plain))
        torch.testing.assert_close(found, wanted)
    with pytest.raises(RuntimeError, match="second time"):
        mine[0].sum().backward()
    mine, plain = compiled(first, last, x, y), two_layers(first, last, x, y)
    with torch.no_grad():
        first.weight.add_(1)                                     # nothing that the other output needs
    for each in (mine, plain):
        each[1].sum().backward()
    torch.testing.assert_close(last.weight.grad, torch.autograd.grad(two_layers(first, last, x, y)[1].sum() * 2, last.weight)[0])
