"""Decompositions for results that are laid out like their argument, down to the strides of dimensions of size 1.

Eager's ``*_like`` operators keep all strides of a dense argument. torch's own decomposition goes through a permutation of dimensions and loses those
of size 1::

    ones_like(x: f32[7, 1] with strides [1, 7])      strides [1, 7] in eager, [1, 1] in torch's fake run
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def keeps_unit_strides(x: torch.Tensor, memory_format: Any, layout: Any) -> bool:
    """Whether eager gives the result the strides of ``x`` where torch's decomposition does not: ``x`` is dense, of known sizes, and a dimension of
    size 1 has a stride of its own."""
    if memory_format not in (None, torch.preserve_format) or layout not in (None, torch.strided) or x.layout is not torch.strided:
        return False
    if not all(isinstance(number, int) for number in (*x.shape, *x.stride())) or 1 not in x.shape or 0 in x.shape:
        return False
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(x.stride(), x.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _full_like(x: torch.Tensor, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
               memory_format: Any = None) -> Any:
    if not keeps_unit_strides(x, memory_format, layout) or isinstance(fill_value, complex):
        return NotImplemented
    memory = aten.empty_strided.default(x.shape, x.stride(), dtype=dtype or x.dtype, device=device or x.device)
    return aten.copy.default(memory,
                             aten.full.default([], fill_value, dtype=memory.dtype, layout=torch.strided, device=memory.device, pin_memory=False))


def with_layouts(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The decomposition table with those of this file in front of its own."""
    empty_like = table[aten.empty_like.default]

    def laid_out(x: torch.Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, memory_format: Any = None, **rest: Any) -> Any:
        if keeps_unit_strides(x, memory_format, layout):
            return aten.empty_strided.default(x.shape, x.stride(), dtype=dtype or x.dtype, device=device or x.device)
        given = {"dtype": dtype, "layout": layout, "device": device, "memory_format": memory_format, **rest}
        return empty_like(x, **{name: value for name, value in given.items() if value is not None})

    return {**table, aten.empty_like.default: laid_out, aten.full_like.default: _full_like}
