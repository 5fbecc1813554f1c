"""Where autograd's graph of a region is cut: ``later = cut(value, number)`` in a captured graph.

``later`` is ``value``, and what is computed from it. Its gradient is one of the results of the backward graph instead of going on into ``value``;
`value` itself, a result of the region or an *edge* (a value that nobody but later stages sees), gets a gradient from outside.
"""
from __future__ import annotations

from typing import Any

import torch


def cut(value: torch.Tensor, number: int) -> torch.Tensor:
    """Marks cut ``number`` in a captured graph. Run as it is, it changes nothing."""
    return value


class Cut(torch.autograd.Function):                                # type: ignore[misc]
    """``apply(value, anchor)``: ``value``, with all of its gradient going to ``anchor``, a leaf of the same kind."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[None, Any]:
        return None, gradients[0]


class Edge(torch.autograd.Function):                               # type: ignore[misc]
    """``apply(value)``: a tensor of its own that only stands for ``value`` in autograd's graph."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]
