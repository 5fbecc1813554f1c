"""Data-dependent reads and writes, and writes into inputs."""
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from checking import array_of, call_library, check, lower

from aotcompile.ir.reference.evaluate import evaluate
from aotcompile.ir.nodes import Compute
from aotcompile.ir.reference.scalar_math import KernelFailure


def test_reads() -> None:
    def run(a: torch.Tensor, i: torch.Tensor, g: torch.Tensor) -> Any:
        return (a[i], a[:, i], a[i, i], a[None, i], a[i[0], :, None], a[i, 1:3], a.index_select(0, i[1]), F.embedding(i.abs(), a), a.take(i.abs()), a.gather(1, g),
                a.gather(0, g), torch.take_along_dim(a, g, 1), (a + 1)[i] * 2)
    check(run, torch.randn(4, 6), torch.tensor([[0, -1, 2], [1, 3, 0]]), torch.tensor([[0, 1], [2, 3], [3, 0], [1, 1]]), kernels_only=True)


def test_writes() -> None:
    def run(a: torch.Tensor, g: torch.Tensor, s: torch.Tensor) -> Any:
        return (a.scatter(1, g, s), a.scatter(0, g, 2.0), a.scatter_add(0, g, s), a.index_add(0, g[:, 0], s[:, :1].expand(4, 6)),
                a.index_copy(0, g[:1, 0], s[:1, :1].expand(1, 6)), a.index_fill(0, g[0], 3.0))
    g = torch.tensor([[0, 1], [2, 3], [3, 0], [1, 1]])
    check(run, torch.randn(4, 6), g, torch.randn(4, 2), kernels_only=True)
    check(lambda a, g, s: a.scatter_reduce(0, g, s, "amax"), torch.randn(4, 6), g, torch.randn(4, 2))


def test_index_put() -> None:
    def run(a: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> Any:
        b, c, d = a.clone(), a + 1, a.clone()
        b[i] = v
        c[i] += v
        d[d > 0] = 0
        return b, c, d, a.index_put((i,), v, accumulate=True), a.index_put((i, i), v[0], accumulate=True)
    check(run, torch.randn(4, 6), torch.tensor([0, 2, 2]), torch.randn(6), kernels_only=True)


def test_a_read_and_write_with_duplicates_into_an_input() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> None:
        x = x + 10
        y[x] += y[x]
        return ()
    check(run, torch.full((1, 2), -10), torch.arange(64.0).reshape(2, 32) + 1, dynamic=True)


@pytest.mark.parametrize("function", [lambda a, i: a[i], lambda a, i: a.gather(0, i), lambda a, i: a.index_put((i,), a[0]), lambda a, i: (a[i] * 2)[:1]])
def test_an_index_out_of_range_stops_the_kernel(function: Any) -> None:
    good, bad = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 4])
    program = lower(function, torch.randn(4), good)
    with pytest.raises(KernelFailure, match="status 1"):
        evaluate(program, [array_of(torch.randn(4)), array_of(bad)], call_library)


@pytest.mark.parametrize("function", [lambda a, b: a // b, lambda a, b: a % b, lambda a, b: torch.fmod(a, b), lambda a, b: (a // b)[:1] + 1])
def test_division_by_zero_stops_the_kernel(function: Any) -> None:
    program = lower(function, torch.tensor([5, 6]), torch.tensor([1, 2]))
    with pytest.raises(KernelFailure, match="status 2"):
        evaluate(program, [array_of(torch.tensor([5, 6])), array_of(torch.tensor([1, 0]))], call_library)


def test_inputs_are_changed_in_order() -> None:
    def first(a: torch.Tensor, b: torch.Tensor) -> Any:
        a.add_(b)
        a.mul_(2)
        b.copy_(b.flip(0))
        return a + b

    def second(a: torch.Tensor, b: torch.Tensor) -> Any:
        c = a + b
        a.copy_(b)
        return c, a * c

    def third(a: torch.Tensor, b: torch.Tensor) -> Any:
        a[1] = 5
        a.t()[2] += 1
        a.view(-1)[3:5].zero_()
        return a.sum()
    for function in (first, second, third):
        check(function, torch.randn(4, 6), torch.randn(4, 6), kernels_only=True)


def test_an_update_at_the_same_place_needs_no_copy() -> None:
    program = check(lambda a: a.mul_(2).sum(), torch.randn(4, 6))
    updates = [operation for operation in program.operations if isinstance(operation, Compute) and operation.updates]
    assert len(updates) == 1 and len(program.operations) == 2


def test_a_strided_input_is_changed() -> None:
    def run(a: torch.Tensor) -> Any:
        a.mul_(2)
        return a + 1
    check(run, torch.randn(8, 6)[::2, 1::3])
