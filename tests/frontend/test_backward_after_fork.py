"""Backward passes in a process where torch's engine refuses them because of the fork: the nodes called one by one give the same gradients."""
from __future__ import annotations

import copy
from typing import Any, Callable

import pytest
import torch
from torch import nn

from aotcompile.frontend.record.backward import EngineAfterFork
from aotcompile.frontend.torch_private import autograd_engine, put_autograd_engine
from aotcompile.pipeline.verify import _isolated

REFUSAL = "Unable to handle autograd's threading in combination with fork-based multiprocessing."


class Refusing:
    """torch's engine in a forked process of a CUDA build."""

    def run_backward(self, *arguments: Any, **keywords: Any) -> None:
        raise RuntimeError(REFUSAL)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor, factor: float, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        context.factor = factor
        return x * factor, y + x

    @staticmethod
    def backward(context: Any, first: torch.Tensor, second: torch.Tensor) -> tuple[Any, ...]:
        return first * context.factor + second, None, second


def broadcast_and_shared(net: nn.Module, x: torch.Tensor) -> Any:
    h = net(x)
    (h.tanh() * h + net(h)[:1] + x.double().sum(0).float()).square().sum().backward()
    return x.grad


def custom_function(net: nn.Module, x: torch.Tensor) -> Any:
    first, _ = Scaled.apply(net(x), 3.0, x)
    first.sum().backward()
    return x.grad


def several_roots(net: nn.Module, x: torch.Tensor) -> Any:
    parts = net(x).split(2)
    torch.autograd.backward(parts[:2], [torch.ones_like(parts[0]), None if parts[1].dim() == 0 else parts[1].detach()])
    return x.grad


def some_inputs(net: nn.Module, x: torch.Tensor) -> Any:
    net(x).square().sum().backward(inputs=[x])
    return x.grad, [parameter.grad for parameter in net.parameters()]


def second_order(net: nn.Module, x: torch.Tensor) -> Any:
    hidden = net(x)
    gradients = torch.autograd.grad(hidden.pow(3).sum(), (x, hidden), create_graph=True)
    (gradients[0].norm() + gradients[1].mean()).backward()
    return gradients, x.grad


def unused(net: nn.Module, x: torch.Tensor) -> Any:
    return torch.autograd.grad(net(x).sum(), (x, torch.ones(2, requires_grad=True)), allow_unused=True)


def checkpointed(net: nn.Module, x: torch.Tensor) -> Any:
    torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False).square().sum().backward()
    return x.grad


@pytest.mark.parametrize("program", [broadcast_and_shared, custom_function, several_roots, some_inputs, second_order, unused, checkpointed],
                         ids=lambda program: program.__name__)
def test_as_torch(program: Callable[[nn.Module, torch.Tensor], Any]) -> None:
    torch.manual_seed(0)
    net, example = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)), torch.randn(5, 3)
    engine, found = autograd_engine(), []
    for used in (engine, EngineAfterFork(Refusing())):
        mine = copy.deepcopy(net)
        put_autograd_engine(used)
        try:
            result = program(mine, example.clone().requires_grad_())
        finally:
            put_autograd_engine(engine)
        found.append((result, [parameter.grad for parameter in mine.parameters()]))
    torch.testing.assert_close(found[1], found[0], allow_subclasses=False)


def test_only_the_refusal_is_answered() -> None:
    x = torch.ones(3)
    engine = EngineAfterFork(autograd_engine())
    put_autograd_engine(engine)
    try:
        with pytest.raises(RuntimeError, match="does not require grad"):
            x.sum().backward()
    finally:
        put_autograd_engine(engine._engine)


def test_verify_runs_backward_in_a_child() -> None:
    def gradient() -> torch.Tensor:
        x = torch.ones(3, requires_grad=True)
        (x * 2).sum().backward()
        assert x.grad is not None
        return x.grad

    torch.testing.assert_close(_isolated(gradient), gradient())         # here first: torch's engine has started then
    torch.testing.assert_close(_isolated(gradient), gradient())
