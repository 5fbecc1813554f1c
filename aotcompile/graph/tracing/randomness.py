"""Random operators stay what eager calls, so that the same seed gives the same numbers."""
from __future__ import annotations

from typing import Any, Callable

import torch

from aotcompile.graph.torch_private import size_hint

aten = torch.ops.aten


def keep_random_operators(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """``table`` without decompositions of random operators, and with eager's dropout on the CPU.

    Tracing turns ``dropout`` into ``native_dropout``. Eager on the CPU draws ``empty_like(x).bernoulli_(1 - p)`` instead: other rounding in 16-bit
    types and another order for strided inputs. On CUDA eager does call ``native_dropout``."""
    kept = {operator: rule for operator, rule in table.items()
            if not (isinstance(operator, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in operator.tags)}
    kept[aten.native_dropout.default] = _dropout
    return kept


def _dropout(input: torch.Tensor, p: float, train: bool | None) -> Any:
    if input.device.type != "cpu" or train is False or p == 0:
        return NotImplemented
    if p == 1:
        zero = torch.zeros((), dtype=input.dtype)
        return input * zero, torch.zeros_like(input, dtype=torch.bool)
    draw = _draw(torch.empty_like(input), 1 - p)
    return input * (draw / (1 - p)), draw.to(torch.bool)


def _draw(memory: torch.Tensor, probability: float) -> torch.Tensor:
    """``memory.bernoulli_(probability)`` without the mutation: the generator runs through the elements as they lie in memory,
    where the functional operator would run through them by index."""
    strides = [size_hint(stride) for stride in memory.stride()]
    order = sorted(range(memory.dim()), key=lambda dimension: -strides[dimension])
    if order == list(range(memory.dim())):
        return torch.bernoulli(memory, probability)
    back = [order.index(dimension) for dimension in range(memory.dim())]
    return torch.bernoulli(memory.permute(order), probability).permute(back)
