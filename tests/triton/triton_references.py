"""What each scalar operator is in torch."""
from __future__ import annotations

from collections.abc import Callable

import torch

_NAMED = {"truediv": torch.true_divide, "neg": torch.negative, "sub": torch.subtract, "mul": torch.multiply, "logical_not": torch.logical_not,
          "left_shift": lambda a, b: _shift(torch.bitwise_left_shift, a, b, left=True), "right_shift": lambda a, b: _shift(torch.bitwise_right_shift, a, b, left=False),
          "truncdiv": lambda a, b: _divide(a, b), "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
          "fma": lambda a, b, c: (a.double() * b.double() + c.double()).to(a.dtype) if a.dtype is not torch.float64 else torch.addcmul(c, a, b)}


def _shift(function: Callable[..., torch.Tensor], a: torch.Tensor, b: torch.Tensor, left: bool) -> torch.Tensor:
    width = 8 * a.element_size()
    outside = (b < 0) | (b >= width)
    shifted = function(a, b.masked_fill(outside, 0))
    return torch.where(outside, torch.zeros_like(a) if left else torch.where(a < 0, torch.full_like(a, -1 if a.dtype.is_signed else 0), torch.zeros_like(a)), shifted)


def _divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """By `ir.operators`, f16 and bf16 are rounded once: after the truncation."""
    if a.dtype in (torch.float16, torch.bfloat16):
        return torch.div(a.float(), b.float(), rounding_mode="trunc").to(a.dtype)
    return torch.div(a, b, rounding_mode="trunc")


def reference(name: str) -> Callable[..., torch.Tensor]:
    return _NAMED.get(name) or getattr(torch, name, None) or getattr(torch.special, name)
