"""Operators that torch's Python dispatcher takes apart before anything else sees them, kept whole where eager computes otherwise.

torch's Python form of interpolation rounds in another order than the operator: an image of bytes is off by one in places, an infinite element
spoils its neighbours, and ``nearest-exact`` takes the other neighbour of some::

    upsample_bilinear2d.vec(x, sizes)         torch's form: index, sub, mul, add, ...
                                              here: aten.upsample_bilinear2d.default(x, sizes, ...), a library call

Its form of the multi-label margin loss also counts the labels after the first -1, which eager leaves out; both margin losses count NaN, which eager
does not.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aotcompile.graph.torch_private import upsample_size

aten = torch.ops.aten

_INTERPOLATING = (aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d, aten.upsample_bicubic2d)
_NEAREST = (aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d)

WITH_OWN_DERIVATIVE = (*(packet.default for packet in (*_INTERPOLATING, *_NEAREST)), aten.multilabel_margin_loss_forward.default,
                       aten.multi_margin_loss.default)
"""Operators that autograd takes as they are."""


def whole_kernels() -> dict[torch._ops.OpOverload, Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """Operator -> maker of the kernel to use instead of torch's Python one, which is given."""
    return {packet.vec: _by_factors(packet.default, packet in _NEAREST) for packet in (*_INTERPOLATING, *_NEAREST)}


def _by_factors(operator: torch._ops.OpOverload, takes_symbols: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The form that takes sizes or factors, by way of the one that takes sizes. ``takes_symbols``: so does its derivative."""
    def make(torch_form: Callable[..., Any]) -> Callable[..., Any]:
        def resize(x: torch.Tensor, output_size: Any, *rest: Any) -> Any:
            *align_corners, scale_factors = rest
            sizes = upsample_size(x.shape, output_size, scale_factors)
            if not takes_symbols and x.requires_grad and any(isinstance(size, torch.SymInt) for size in (*x.shape, *sizes)):
                return torch_form(x, output_size, *rest)
            scales = scale_factors if scale_factors else (None,) * (x.dim() - 2)
            return operator(x, sizes, *align_corners, *scales)
        return resize
    return make
