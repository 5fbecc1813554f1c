"""Operators without a lowering become calls with exactly their arguments."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from checking import check, lower

from aotcompile.ir.nodes import LibraryCall


def calls(program: Any) -> list[str]:
    return [operation.operator for operation in program.operations if isinstance(operation, LibraryCall)]


def test_products_and_convolutions() -> None:
    def run(a: torch.Tensor, b: torch.Tensor) -> Any:
        return (a @ b.t(), F.linear(a, b), torch.bmm(a[None], b.t()[None]), torch.addmm(a.new_zeros(4, 4), a, b.t()), torch.einsum("ij,kj->ik", a, b), a.mv(b[0]),
                a[0].dot(b[0]))
    program = check(run, torch.randn(4, 6), torch.randn(4, 6))
    assert {"aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten.mv.default", "aten.dot.default"} <= set(calls(program))
    check(lambda a, w: (F.conv1d(a, w), F.max_pool1d(a, 2), F.avg_pool1d(a, 2)), torch.randn(2, 3, 8), torch.randn(4, 3, 3))
    check(lambda q: F.scaled_dot_product_attention(q, q, q), torch.randn(1, 2, 4, 8))


def test_several_results_lists_and_keywords() -> None:
    def run(a: torch.Tensor) -> Any:
        return (*a.sort(1), *a.topk(2), a.cumsum(0), a.argsort(0), *a.kthvalue(1), a.median(), *torch.linalg.qr(a[:, :4]), torch.linalg.inv(a[:, :4]),
                torch.bucketize(a, a[0].sort().values), *torch.aminmax(a), a.logcumsumexp(0))
    check(run, torch.randn(4, 6))


def test_unused_results_are_none() -> None:
    program = check(lambda a: a.sort(1)[1], torch.randn(4, 6))
    call = next(operation for operation in program.operations if isinstance(operation, LibraryCall))
    assert call.results[0] is None and call.results[1] is not None


def test_random_operators_stay_whole_and_in_order() -> None:
    program = lower(lambda x: (F.dropout(x, 0.5), torch.rand_like(x), torch.bernoulli(x.sigmoid()), torch.randn(3)), torch.randn(3, 4))
    assert [name for name in calls(program) if name != "aten.bernoulli.default"] and "aten.bernoulli.default" in calls(program)
    again = lower(lambda x: (F.dropout(x, 0.5), torch.rand_like(x), torch.bernoulli(x.sigmoid()), torch.randn(3)), torch.randn(3, 4))
    assert calls(program) == calls(again)


def test_other_element_types() -> None:
    check(lambda a: (a * 2 + 1j, a.real + 1, a.conj() * a, a.abs()), torch.randn(3, 4, dtype=torch.complex64))
    program = lower(lambda a: a.to(torch.float8_e4m3fn).to(torch.float32), torch.randn(3))
    assert calls(program) == ["aten._to_copy.default", "aten._to_copy.default"]


def test_data_dependent_sizes() -> None:
    x = torch.tensor([[1.0, 0.0], [2.0, 3.0]])
    check(lambda a: (a.nonzero() * 2, a.nonzero().sum()), x, dynamic=True)
    check(lambda a: a[a > 0] + 1, x, dynamic=True)


def test_custom_operators() -> None:
    @torch.library.custom_op("aotcompile_test::double", mutates_args=())
    def double(x: torch.Tensor, times: int, name: str = "a") -> torch.Tensor:
        return x * 2 * times

    @double.register_fake
    def _(x: torch.Tensor, times: int, name: str = "a") -> torch.Tensor:
        return torch.empty_like(x)
    program = check(lambda x: torch.ops.aotcompile_test.double(x + 1, 3, name="b") + 1, torch.randn(3, 4))
    assert calls(program) == ["aotcompile_test.double.default"]
