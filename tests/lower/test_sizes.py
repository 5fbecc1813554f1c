"""Symbolic sizes, and numbers that come out of tensors."""
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from checking import array_of, call_library, check, lower

from aotcompile.ir.nodes import Check, ReadScalar
from aotcompile.ir.reference.evaluate import evaluate
from aotcompile.ir.reference.scalar_math import KernelFailure


def common(x: torch.Tensor) -> Any:
    return (x + 1, x.sum(0), x.softmax(-1), x.mean(), x.t().reshape(-1) + 1, x.view(-1) * 2, torch.cat([x, x]), torch.zeros(x.shape[0]), x.shape[0] * 2,
            F.pad(x, (1, 1)), x[:-1] + 1)


@pytest.mark.parametrize("rows", [0, 1, 2, 7])
def test_one_program_for_all_sizes(rows: int) -> None:
    check(lambda x: common(x)[:-1] if rows < 2 else common(x), torch.randn(5, 6), dynamic=True, run_on=[torch.randn(rows, 4)])


def test_arithmetic_with_sizes() -> None:
    def run(x: torch.Tensor) -> Any:
        return (x * x.shape[0], x + x.shape[1] / x.shape[0], torch.arange(x.shape[0]), torch.full((x.shape[1],), x.shape[0]), x[:x.shape[0] // 2] + 1,
                x.unfold(0, 2, 1) + 1, x.repeat(x.shape[0], 1), x.var(0), x.argmax(1))
    check(run, torch.randn(6, 5), dynamic=True, run_on=[torch.randn(4, 2)])


def test_calls_and_indices_with_symbolic_sizes() -> None:
    check(lambda x, w: (x @ w, F.layer_norm(x, (x.shape[-1],)), (x @ w).relu().view(-1, 2, 2) + 0), torch.randn(6, 5), torch.randn(5, 4), dynamic=True,
          run_on=[torch.randn(3, 2), torch.randn(2, 4)])
    check(lambda x, i: (x[i], F.embedding(i.abs(), x), x.index_add(0, i, x[i])), torch.randn(6, 4), torch.tensor([0, 1, 5]), dynamic=True,
          run_on=[torch.randn(3, 2), torch.tensor([2, 0, 1, 1])])

    def halves(x: torch.Tensor) -> Any:
        a, b = x.chunk(2, 1)
        return a * b.sigmoid(), torch.stack([a, b], 1), x.expand(3, *x.shape) + 1
    check(halves, torch.randn(6, 8), dynamic=True, run_on=[torch.randn(3, 4)])


def test_float_items() -> None:
    def run(x: torch.Tensor) -> Any:
        s = x.sum().item()
        return x * s, x + s * 2, torch.full((2,), s), x.clamp(max=s), x.to(torch.float64) / (s * s + 1)
    program = check(run, torch.randn(3, 4), dynamic=True, kernels_only=True)
    assert not any(isinstance(operation, ReadScalar) for operation in program.operations)


def test_integer_items_as_sizes_and_numbers() -> None:
    def run(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.max().item()
        torch._check(k >= 2)
        torch._check(k <= x.shape[0])
        return x * k, x[:k] + 1, torch.zeros(k), torch.arange(k), x + (k * 2 + 1), x / (k / 2)
    program = check(run, torch.randn(5, 4), torch.tensor([1, 3, 2]), dynamic=True, run_on=[torch.randn(6, 4), torch.tensor([4, 0, 1])])
    assert len([operation for operation in program.operations if isinstance(operation, ReadScalar)]) == 1


def test_boolean_items_and_items_of_changed_inputs() -> None:
    check(lambda x: x * (x.sum() > 0).item(), torch.randn(3, 4), dynamic=True)

    def run(x: torch.Tensor, c: torch.Tensor) -> Any:
        k = c.item()
        c.add_(1)
        return x * k
    check(run, torch.randn(3, 4), torch.tensor(3.5), dynamic=True)


def test_programs_are_deterministic() -> None:
    from aotcompile.ir.text.print import program_text
    first, second = (program_text(lower(common, torch.randn(5, 6), dynamic=False)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("count", "fails"), [(3, False), (0, False), (5, False), (6, True), (-1, True)])
def test_what_eager_checks_of_a_size_is_checked(count: int, fails: bool) -> None:
    def run(x: torch.Tensor, n: torch.Tensor) -> Any:
        k = n.item()
        torch.ops.aten._assert_scalar(k >= 0, "too small")
        torch.ops.aten._assert_scalar(k <= x.shape[0], "too large")
        return torch.zeros(k) + x.sum()

    program = lower(run, torch.randn(5), torch.tensor(3), dynamic=True)
    read, *checks = [operation for operation in program.operations if isinstance(operation, (ReadScalar, Check))]
    assert isinstance(read, ReadScalar) and len(checks) == 2
    arrays = [array_of(torch.randn(5)), array_of(torch.tensor(count))]
    if fails:
        with pytest.raises(KernelFailure):
            evaluate(program, arrays, call_library)
    else:
        assert evaluate(program, arrays, call_library)[0].sizes == (count,)
