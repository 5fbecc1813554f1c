"""Reductions against eager."""
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from checking import check



def reductions(a: torch.Tensor) -> Any:
    return (a.sum(), a.sum(0), a.sum(1, keepdim=True), a.mean(), a.mean(1), a.amax(0), a.amin((0, 1)), a.max(), *a.max(1), *a.min(0), a.argmax(), a.argmax(1),
            a.argmin(0, keepdim=True), a.prod(), a.prod(1), (a > 0).any(1), (a > 0).all(), a.count_nonzero(), a.nansum())


def moments(a: torch.Tensor) -> Any:
    return (a.var(1), a.std(), a.var(0, unbiased=False, keepdim=True), *torch.var_mean(a, (0, 1)), *torch.var_mean(a, 1, keepdim=True), *torch.std_mean(a, 1),
            torch.logsumexp(a, 1), a.norm(), a.norm(dim=1), torch.linalg.vector_norm(a, 1, 0), torch.linalg.vector_norm(a, float("inf")))


def test_f32() -> None:
    check(lambda a: (*reductions(a), *moments(a)), torch.randn(4, 6), kernels_only=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats(dtype: torch.dtype) -> None:
    check(lambda a: (*reductions(a)[:-2], *moments(a)), torch.randn(3, 5).to(dtype), kernels_only=True)


def test_integers_and_bools() -> None:
    def run(a: torch.Tensor) -> Any:
        p = a > 0
        return (a.sum(), a.sum(0, dtype=torch.int32), a.prod(1), a.amax(0), *a.max(1), a.float().mean(1), a.any(0), a.sum(1, dtype=torch.float64), p.sum(), p.any(),
                p.amax(0), *p.max(1), p.to(torch.uint8).any(0), p.float().mean())
    check(run, torch.tensor([[-7, 7, 0], [3, 5, -1]], dtype=torch.int32), kernels_only=True)


def test_nan_and_infinities() -> None:
    nan, inf = float("nan"), float("inf")
    check(lambda a: (*reductions(a), a.relu(), a.clamp(0, 1), a.maximum(a.flip(0))), torch.tensor([[1.0, nan, 3.0], [inf, -1.0, nan], [-inf, 2.0, 2.0]]))


def test_empty_and_single() -> None:
    check(lambda a: (a.sum(), a.sum(0), a.sum(1), a.mean(), a.prod(0), a.any(), a.all(1), a.sum(1).sum()), torch.zeros(0, 3))
    check(lambda a: (a.sum(0), a.mean(0), a.softmax(1), a.amax(0)), torch.zeros(3, 0, 2))
    check(lambda a: (a.var(), a.softmax(0), a.sum(0), a.amax(), a.argmax(1), a.var(2)), torch.randn(1, 1, 3))
    check(lambda a: (a.sum(), a.mean(), a.amax(), a.argmax(), a.sum(0), a.softmax(0), a.prod()), torch.tensor(2.5))




def test_softmax_and_norms() -> None:
    def run(a: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
        return (a.softmax(0), a.log_softmax(1), F.softmin(a, 1), F.softmax(a, 1, dtype=torch.float64), F.layer_norm(a, (6,), w, b), F.layer_norm(a, (4, 6)),
                F.rms_norm(a, (6,), w), F.normalize(a, dim=1))
    check(run, torch.randn(4, 6), torch.randn(6), torch.randn(6), kernels_only=True)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_group_and_batch_norm(memory_format: torch.memory_format) -> None:
    x = torch.randn(2, 4, 3, 2).to(memory_format=memory_format)
    check(lambda a, w, b: (F.group_norm(a, 2, w, b), F.instance_norm(a)), x, torch.randn(4), torch.randn(4), kernels_only=True, tolerance=1e-5)
    check(lambda a, m, v: F.batch_norm(a, m, v), x, torch.randn(4), torch.rand(4), kernels_only=True)
    check(lambda a, m, v: F.batch_norm(a, m, v, training=True), x, torch.randn(4), torch.rand(4), kernels_only=True, tolerance=1e-5)


def test_equal_sums_are_computed_once() -> None:
    program = check(lambda a: a.var(1) + a.std(1), torch.randn(4, 6), kernels_only=True)
    assert len([operation for operation in program.operations if getattr(operation, "reduction", None)]) == 2
