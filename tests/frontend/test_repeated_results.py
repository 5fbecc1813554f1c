"""Results that are made from the looks of an earlier one: the same in every respect as those that the operator makes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import aotcompile
from aotcompile.frontend.capture.operators.repeated import PURE, RepeatedResults
from aotcompile.frontend.torch_private import FakeTensorMode, is_view_unseen, new_fake_mode

pytestmark = pytest.mark.filterwarnings("ignore")


class Counted:
    """A `RepeatedResults`, with the number of operators that really ran."""

    def __init__(self) -> None:
        self.mode: FakeTensorMode = new_fake_mode()
        self._results = RepeatedResults(self.mode)
        self.ran = 0

    def __call__(self, function: Any, *arguments: Any, **keywords: Any) -> Any:
        def compute() -> Any:
            self.ran += 1
            with self.mode:
                return function(*arguments, **keywords)
        return self._results.run(function, arguments, keywords, False, compute)

    def tensor(self, *sizes: int, dtype: torch.dtype = torch.float32, requires_grad: bool = False) -> torch.Tensor:
        with self.mode:
            return torch.empty(sizes, dtype=dtype).requires_grad_(requires_grad)


def looks(x: torch.Tensor) -> tuple[Any, ...]:
    return (type(x), x.shape, x.stride(), x.storage_offset(), x.dtype, x.device, x.requires_grad, x.is_leaf, x._version, x._is_view() or is_view_unseen(x),
            x.untyped_storage().nbytes(), x.is_contiguous(), x.grad_fn is None)


CALLS: dict[str, Callable[[Callable[..., torch.Tensor]], tuple[Any, ...]]] = {
    "linear": lambda t: (torch._C._nn.linear, t(2, 3, 8), t(16, 8), t(16)),
    "linear of a transposed": lambda t: (torch._C._nn.linear, t(8, 3).t(), t(16, 8)),
    "add of two types": lambda t: (torch.Tensor.add, t(3, 4, dtype=torch.bfloat16), t(4)),
    "add of a number": lambda t: (torch.Tensor.add, t(3, dtype=torch.int32), 1.5),
    "mul of transposed": lambda t: (torch.mul, t(3, 4).t(), t(3, 4).t()),
    "pow": lambda t: (torch.Tensor.__pow__, t(3, 4), 2),
    "cat": lambda t: (torch.cat, [t(2, 3), t(4, 3)]),
    "mean": lambda t: (torch.Tensor.mean, t(2, 3, 4), -1, True),
    "softmax": lambda t: (F.softmax, t(2, 3), -1),
    "reshape that copies": lambda t: (torch.Tensor.reshape, t(3, 4).t(), (12,)),
    "comparison": lambda t: (torch.Tensor.__lt__, t(3), 2),
    "nothing in it": lambda t: (torch.exp, t(0, 4)),
    "channels last": lambda t: (F.gelu, t(2, 3, 4, 5).to(memory_format=torch.channels_last)),
    "an expanded operand": lambda t: (torch.neg, t(3, 1).expand(3, 4)),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_the_second_result_is_as_the_first(name: str, requires_grad: bool) -> None:
    call = Counted()

    def tensor(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return call.tensor(*sizes, dtype=dtype, requires_grad=requires_grad and dtype.is_floating_point)
    with call.mode:
        first_call, second_call = CALLS[name](tensor), CALLS[name](tensor)
    first, second = call(*first_call), call(*second_call)
    assert call.ran == 1
    assert looks(second) == looks(first) and second is not first
    assert second.untyped_storage()._cdata != first.untyped_storage()._cdata
    with torch.no_grad(), call.mode:
        second.add_(1) if second.dtype.is_floating_point else second.logical_not_()
    assert second._version == 1 and first._version == 0


def test_other_arguments_are_another_result() -> None:
    call = Counted()
    x, y = call.tensor(2, 3, requires_grad=True), call.tensor(2, 3)
    assert call(torch.Tensor.add, y, 1).dtype is torch.float32
    counted = call.tensor(2, 3, dtype=torch.int64)
    assert [call(torch.Tensor.add, counted, n).dtype for n in (1, 1.0, True)] == [torch.int64, torch.float32, torch.int64]
    assert call(torch.Tensor.mean, y, 1).shape == (2,) and call(torch.Tensor.mean, y, 0).shape == (3,)
    assert call(torch.Tensor.mean, y, 1, True).shape == (2, 1) and call(torch.Tensor.mean, y, dim=1, keepdim=True).shape == (2, 1)
    assert call(torch.mul, x, y).requires_grad
    with torch.no_grad():
        assert not call(torch.mul, x, y).requires_grad
    with torch.autocast("cpu", torch.bfloat16):
        assert call(torch.mm, y, call.tensor(3, 4)).dtype is torch.bfloat16
    assert call(torch.mm, y, call.tensor(3, 4)).dtype is torch.float32


def test_what_shares_memory_or_writes_is_done_each_time() -> None:
    call = Counted()
    with call.mode:
        x = torch.empty(3, 4)
    assert all(call(torch.Tensor.reshape, x, (12,)).untyped_storage()._cdata == x.untyped_storage()._cdata for _ in range(2))
    assert call(torch.Tensor.contiguous, x) is x and call(torch.Tensor.contiguous, x) is x
    assert [call(F.relu, x, inplace=True) is x for _ in range(2)] == [True, True] and x._version == 2
    assert call.ran == 6
    assert torch.Tensor.add_ not in PURE and torch.Tensor.view not in PURE and torch.rand not in PURE


class Blocks(torch.nn.Module):
    """Equal layers, with what looks at a result in between."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(5))

    def forward(self, x: torch.Tensor) -> Any:
        seen = []
        for number, layer in enumerate(self.layers):
            with torch.set_grad_enabled(number != 2):
                y = layer(x)
            seen.append((y.requires_grad, y.is_leaf, y.dtype, y.stride(), y._is_view(), (y + 1)._is_view()))
            y.mul_(2) if number % 2 else y.add_(1)
            with torch.autocast("cpu", torch.bfloat16, enabled=number > 2):
                x = x + layer(y)
            x = torch.cat([x[:, :4], F.relu(x[:, 4:])], 1)
            x = x.t().contiguous().t() if number == 3 else x
        return x, x.stride(), seen


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_model_of_equal_layers(requires_grad: bool) -> None:
    torch.manual_seed(0)
    model, x = Blocks().requires_grad_(requires_grad), torch.randn(3, 8)
    compiled = aotcompile.compile(model, example_inputs=((x,), {}), backend="eager", training=None)
    expected, got = model(x), compiled(x)
    assert got[1:] == expected[1:] and torch.equal(got[0], expected[0])
    assert all(region.hits == region.calls for region in aotcompile.info(compiled).report().regions)
    if requires_grad:
        got[0].sum().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        expected[0].sum().backward()
        assert all(torch.allclose(a, b.grad) for a, b in zip(gradients, model.parameters(), strict=True))


def test_the_base_of_a_result_that_is_a_view_is_not_none() -> None:
    def bases(x: torch.Tensor, w: torch.Tensor) -> Any:
        return [F.linear(x, w)._base is None for _ in range(3)]
    x, w = torch.randn(2, 3, 8, requires_grad=True), torch.randn(8, 8)
    compiled = aotcompile.compile(bases, example_inputs=((x, w), {}), backend="eager", training=True)
    assert compiled(x, w) == bases(x, w)
