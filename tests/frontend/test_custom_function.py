"""Custom autograd functions: the backward that the user wrote runs, and what its methods read is guarded."""
from __future__ import annotations

from typing import Any

import pytest
import torch

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")
FACTOR = 100.0
calls: list[str] = []


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, k: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, = ctx.saved_tensors
        return grad * 2 * x * ctx.k * FACTOR, None


class Product(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * y, x.argmax()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> Any:
        x, y = ctx.saved_tensors
        return (grad * y * 3 if ctx.needs_input_grad[0] else None), (grad * x * 7 if ctx.needs_input_grad[1] else None)


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        calls.append("forward")
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 5


def square(x: torch.Tensor) -> torch.Tensor:
    return Square.apply(x.sin(), 3) + 1


def product(x: torch.Tensor, y: torch.Tensor) -> Any:
    value, index = Product.apply(x, y)
    return value.cos(), index


def noisy(x: torch.Tensor) -> torch.Tensor:
    return Noisy.apply(x) + 1


def gradients(function: Any, *arguments: torch.Tensor) -> Any:
    given = [argument.clone().requires_grad_() for argument in arguments]
    result = function(*given)
    first = result[0] if isinstance(result, tuple) else result
    first.sum().backward()
    return result, [argument.grad for argument in given]


@pytest.mark.parametrize("function, count", [(square, 1), (product, 2), (noisy, 1)])
def test_the_users_backward_runs(function: Any, count: int) -> None:
    arguments = [torch.arange(1.0, 4.0) * (k + 1) for k in range(count)]
    calls.clear()
    made = aotcompile.compile(function, example_inputs=(tuple(a.clone().requires_grad_() for a in arguments), {}), backend="aot_eager")
    assert calls == []
    torch.testing.assert_close(gradients(made, *arguments), gradients(function, *arguments))
    assert calls == (["forward"] * 2 if function is noisy else [])


def test_what_the_backward_reads_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = aotcompile.compile(square, example_inputs=((torch.ones(3, requires_grad=True),), {}), backend="aot_eager")
    _, (before,) = gradients(made, torch.ones(3))
    monkeypatch.setattr(f"{__name__}.FACTOR", 1.0)
    _, (after,) = gradients(made, torch.ones(3))
    torch.testing.assert_close(after * 100, before)
    assert sum(region.misses for region in aotcompile.info(made).report().regions) == 1


def test_without_a_gradient_it_is_inlined() -> None:
    made = aotcompile.compile(square, example_inputs=((torch.ones(3),), {}), backend="aot_eager")
    torch.testing.assert_close(made(torch.ones(3)), square(torch.ones(3)))
    assert sum(region.hits for region in aotcompile.info(made).report().regions) == 1
