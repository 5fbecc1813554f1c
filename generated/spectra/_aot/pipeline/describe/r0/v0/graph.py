# describe:r0, as captured: 19 operators.
#   arg0 = blocks
from __future__ import annotations

import torch


def computation(arg0: f32[s0, 256]):
    # pipeline.py:11  window = 0.5 - 0.5 * torch.cos(2 * torch.pi * torch.arange(samples, dtype=blocks.dtype) / samples)
    arange = torch.arange(256, dtype=torch.float32)
    mul = arange.mul(6.283185307179586)
    div = mul.div(256)
    cos = torch.cos(div)
    mul_1 = cos.mul(0.5)
    rsub = mul_1.__rsub__(0.5)

    # pipeline.py:12  return (blocks - blocks.mean(dim=-1, keepdim=True)) * window
    mean = arg0.mean(dim=-1, keepdim=True)
    sub = arg0.sub(mean)
    mul_2 = sub.mul(rsub)

    # pipeline.py:21  loudness = torch.sqrt(tapered.square().mean(dim=-1) + 1e-12)
    square = mul_2.square()
    mean_1 = square.mean(dim=-1)
    add = mean_1.add(1e-12)
    sqrt = torch.sqrt(add)

    # pipeline.py:22  roughness = (tapered[:, 1:] - tapered[:, :-1]).abs().mean(dim=-1) / loudness
    getitem = mul_2.__getitem__((slice(None, None, None), slice(1, None, None)))
    getitem_1 = mul_2.__getitem__((slice(None, None, None), slice(None, -1, None)))
    sub_1 = getitem.sub(getitem_1)
    abs_1 = sub_1.abs()
    mean_2 = abs_1.mean(dim=-1)
    div_1 = mean_2.div(sqrt)
    return (sqrt, div_1)
