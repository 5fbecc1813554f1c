"""Operators that torch's Python dispatcher takes apart before anything else sees them, kept whole where eager computes otherwise.

Eager resizes 8-bit images with whole numbers (bilinear, bicubic); torch's Python form computes in f32 and rounds, and is off by one in places::

    upsample_bilinear2d.vec(x: u8, sizes)     torch's form: index, sub, mul, add, ..., round, to u8
                                              here: aten.upsample_bilinear2d.default(x, sizes, ...), a library call
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aotcompile.graph.torch_private import below_autograd, upsample_size

aten = torch.ops.aten


def whole_kernels() -> dict[torch._ops.OpOverload, Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """Operator -> maker of the kernel to use instead of torch's Python one, which is given."""
    kernels: dict[torch._ops.OpOverload, Callable[[Callable[..., Any]], Callable[..., Any]]] = {}
    for packet in (aten.upsample_bilinear2d, aten.upsample_bicubic2d):
        kernels[packet.vec] = _by_factors(packet.default)
        kernels[packet.default] = _by_size(packet.default)
    return kernels


def _is_eight_bit(x: torch.Tensor) -> bool:
    return x.dtype is torch.uint8


def _by_factors(operator: torch._ops.OpOverload) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(torch_form: Callable[..., Any]) -> Callable[..., Any]:
        def resize(x: torch.Tensor, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Any:
            if not _is_eight_bit(x):
                return torch_form(x, output_size, align_corners, scale_factors)
            scales = scale_factors if scale_factors else (None, None)
            with below_autograd():
                return operator(x, upsample_size(x.shape, output_size, scale_factors), align_corners, *scales)
        return resize
    return make


def _by_size(operator: torch._ops.OpOverload) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(torch_form: Callable[..., Any]) -> Callable[..., Any]:
        def resize(x: torch.Tensor, output_size: Any, align_corners: bool, scales_h: Any = None, scales_w: Any = None) -> Any:
            if not _is_eight_bit(x):
                return torch_form(x, output_size, align_corners, scales_h, scales_w)
            with below_autograd():
                return operator(x, output_size, align_corners, scales_h, scales_w)
        return resize
    return make
