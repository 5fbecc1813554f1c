"""Decompositions of our own, for operators that are another one in disguise.

    view_copy(x, sizes)          clone(view(x, sizes)): one kernel, or none where the copy is fused into what reads it
    take(x, index)               index(reshape(x, [-1]), [index]): torch's form reads an index without dimensions as a Python number
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

aten = torch.ops.aten

COPIES = ("as_strided_copy", "narrow_copy", "permute_copy", "split_copy", "split_with_sizes_copy", "unbind_copy", "view_copy")
"""``<view>_copy``: the view's sizes in memory of its own, in row-major order."""


def with_plain_forms(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The decomposition table with those of this file in front of its own."""
    return {**table, **dict(_copies()), aten.take.default: _take}


def _copies() -> Iterator[tuple[Any, Callable[..., Any]]]:
    for name in COPIES:
        packet, view = getattr(aten, name, None), getattr(aten, name.removesuffix("_copy"))
        for overload in packet.overloads() if packet is not None else ():
            if not overload.endswith("out") and overload in view.overloads():
                yield getattr(packet, overload), _copying(getattr(view, overload))


def _copying(view: Any) -> Callable[..., Any]:
    def copied(*arguments: Any, **keywords: Any) -> Any:
        result = view(*arguments, **keywords)
        if isinstance(result, (list, tuple)):
            return [part.clone(memory_format=torch.contiguous_format) for part in result]
        return result.clone(memory_format=torch.contiguous_format)
    return copied


def _take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return aten.index.Tensor(aten.reshape.default(x, [-1]), [index])
