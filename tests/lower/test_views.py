"""Views of memory and of recipes, copies that move elements, joining, creation: values and strides as eager's."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from checking import check, lower

from aotcompile.ir.nodes import Compute, IndexValue, Load
from aotcompile.ir.traverse import walk


def test_views_of_recipes() -> None:
    def run(a: torch.Tensor) -> Any:
        b = a + 1
        return (b.t() * 1, b.view(2, 2, 6) + 1, b.view(-1) + 1, b.reshape(3, 8) * 2, b[1:3] * 2, b[:, ::2] + 1, b[-1] * 3, b.unsqueeze(1).expand(4, 3, 6) * 2,
                b.flip(0, 1) * 2, b.diagonal() + 1, b.unfold(1, 2, 3) * 1, b.repeat(2, 3), b.roll(1, 0) + 1, b.tril(), b.rot90(), b.movedim(0, 1) + 1)
    check(run, torch.randn(4, 6), kernels_only=True)


def test_single_use_views_are_inlined() -> None:
    program = check(lambda a: (a + 1).t().reshape(2, 12)[:, ::3] * 2, torch.randn(4, 6), kernels_only=True)
    assert len(program.operations) == 1


def test_parts_of_lists() -> None:
    def run(a: torch.Tensor) -> Any:
        b = a + 1
        return (*(t * 2 for t in a.split(2)), *(t + 1 for t in b.split([1, 3])), *(t + 1 for t in b.unbind(1)), *(t * 1 for t in b.chunk(3, 1)))
    check(run, torch.randn(4, 6), kernels_only=True)


def test_reshape_of_permuted() -> None:
    def run(a: torch.Tensor) -> Any:
        return ((a + 1).t().contiguous().view(-1) + 1, (a.t() + 1).reshape(-1) * 2, a.transpose(0, 1).reshape(4, 6) + 1,
                (a + 1).view(4, 2, 3).permute(2, 0, 1).reshape(3, 8) + 0, a.t().contiguous())
    check(run, torch.randn(4, 6), kernels_only=True)


def test_views_of_memory_divide_nothing() -> None:
    program = lower(lambda a: a.transpose(0, 1).unflatten(0, (2, 3))[1].reshape(3, 2, 2) + 1, torch.randn(4, 6))
    indices = [str(node.index) for operation in program.operations if isinstance(operation, Compute) for node in walk(operation.body) if isinstance(node, Load)]
    assert indices and not any("//" in index or "%" in index for index in indices)


def test_views_as_arguments_of_calls() -> None:
    check(lambda a: (a.t() @ a, (a + 1).t() @ a, (a * 2)[:, 1:3] @ a[:2], a.view(-1)[3:].sum()), torch.randn(4, 6))


def test_as_strided_and_reinterpretation() -> None:
    check(lambda a: (torch.as_strided(a, (2, 3), (1, 2), 1) + 1, torch.as_strided(a + 1, (2, 3), (1, 2), 1) + 1), torch.randn(4, 6))
    check(lambda x: torch.as_strided(torch.flip(x, (0,)) + 1, (6, 7), (5, 1), 2), torch.arange(96).reshape(2, 4, 3, 4).to(memory_format=torch.channels_last))
    check(lambda a: (a.t().contiguous().view(torch.uint8) + 1, (a + 1).view(torch.int32) ^ 1), torch.randn(2, 3))
    check(lambda a: (torch.view_as_real(torch.complex(a, a + 1) * 2) + 1, torch.fft.rfft(a).abs()), torch.randn(2, 4))


def test_strides_of_results() -> None:
    check(lambda t: (torch.ones_like(t), t + 1, t.clone(), torch.zeros_like(t) + 1), torch.arange(7.0)[None].t(), kernels_only=True)
    x = torch.randn(2, 3, 4, 6).to(memory_format=torch.channels_last)
    check(lambda x: (x * 2, F.pad(x, (1, 2, 1, 1)), F.pad(x, (2, 2, 1, 1), mode="reflect"), x.permute(0, 2, 3, 1) + 1, x.mean((2, 3)),
                     F.interpolate(x, scale_factor=2)), x, kernels_only=True)


def test_joining() -> None:
    def run(a: torch.Tensor, b: torch.Tensor) -> Any:
        return (torch.cat([a, b]), torch.cat([a + 1, b * 2, a], 1), torch.stack([a, b], 1), torch.cat([a, a.new_zeros(0)]), torch.cat([a.t(), b.t()], 1),
                torch.cat([a, b.double()]), F.pad(a, (1, 2)), F.pad(a, (1, 2, -1, 3), value=3.0), F.pad(a, (-1, -1)), F.pad(a[None], (2, 1), mode="reflect"),
                F.pad(a[None], (2, 1), mode="replicate"))
    check(run, torch.randn(4, 6), torch.randn(4, 6), kernels_only=True)
    check(lambda *parts: torch.cat(parts), *(torch.randn(1, 2) for _ in range(12)))
    check(lambda a: (torch.cat([a, a]), torch.stack([a, a]), F.pad(a, (1, 1))), torch.zeros(0, 3))


def test_partial_writes() -> None:
    def run(a: torch.Tensor) -> Any:
        b, c, d, e = a.clone(), a.clone(), a.clone(), a.clone()
        b[1:3] = 2
        b[:, 0] = 7
        c[:, ::2] = c[:, 1::2]
        d[-1] = a[0]
        e.diagonal().fill_(3)
        return b, c, d, e
    check(run, torch.randn(4, 6))


def test_creation() -> None:
    def run(a: torch.Tensor) -> Any:
        return (a.new_zeros(2), torch.ones(3) + a[0, :3], torch.full((2, 2), 3), torch.arange(5), torch.arange(0, 1, 0.25), torch.arange(6, 0, -2),
                torch.arange(3, dtype=torch.float64), torch.eye(3), torch.linspace(0, 1, 5), torch.full_like(a, 2.5), torch.tensor([1.0, 2.0, float("inf")]) + 1,
                torch.tensor(5), torch.triu(a), a[torch.tensor([2, 0])], torch.zeros(0))
    program = check(run, torch.randn(3, 4), kernels_only=True)
    assert any(isinstance(node, IndexValue) for operation in program.operations if isinstance(operation, Compute) for node in walk(operation.body))


def test_offsets_beyond_32_bits() -> None:
    program = lower(lambda x: x[2**31 - 4:].to(torch.int32) * x.stride(0), torch.empty(1, dtype=torch.int8).expand(2**31 + 8))
    assert isinstance(program.operations[0], Compute) and str(program.operations[0].loops[0].size) == "12"
