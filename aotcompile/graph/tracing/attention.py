"""Attention for a GPU target that is traced without a GPU.

On a GPU torch chooses a fused attention kernel by looking at the device; the stand-in device would get the composite form: other memory layout, many
kernels. Here the choice is made from shapes and dtypes as torch makes it for a current GPU, and the fused operator stays one library call (with its
own backward).
"""
from __future__ import annotations

from typing import Any

import torch

HEAD_LIMIT = 256


def fused_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0,
                    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Any:
    """`torch.nn.functional.scaled_dot_product_attention` through a fused operator; NotImplemented where torch would use the composite form.

    query, key, value: (batch, heads, length, head size). Flash attention for f16/bf16, memory-efficient attention for f32."""
    if query.dim() != 4 or query.shape[-1] != value.shape[-1] or query.shape[-1] % 8 or query.shape[-1] > HEAD_LIMIT:
        return NotImplemented
    if enable_gqa and key.shape[1] != query.shape[1]:
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    if attn_mask is not None or query.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return NotImplemented
    if query.dtype == torch.float32:
        needs_sum = any(tensor.requires_grad for tensor in (query, key, value))
        return torch.ops.aten._scaled_dot_product_efficient_attention(query, key, value, None, needs_sum, dropout_p, is_causal, scale=scale)[0]
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]


def in_fused_layout(result: torch.Tensor) -> torch.Tensor:
    """The composite form's result in the memory layout of the fused kernels: (batch, length, heads, size), seen transposed."""
    return result.transpose(1, 2).contiguous().transpose(1, 2) if result.dim() == 4 else result
