from __future__ import annotations

import torch


def inference(arg0: f32[s0, 256]):
    # pipeline.py:11  window = 0.5 - 0.5 * torch.cos(2 * torch.pi * torch.arange(samples, dtype=blocks.dtype) / samples)
    arange = torch.ops.aten.arange.start_step(0, 256, dtype=torch.float32, layout=torch.strided, device=torch.device('cpu'), pin_memory=False)  # f32[256]
    mul = torch.ops.aten.mul.Tensor(arange, 6.283185307179586)  # f32[256]
    div = torch.ops.aten.div.Tensor(mul, 256)  # f32[256]
    cos = torch.ops.aten.cos.default(div)  # f32[256]
    mul_1 = torch.ops.aten.mul.Tensor(cos, 0.5)  # f32[256]
    sub = torch.ops.aten.sub.Tensor(0.5, mul_1)  # f32[256]

    # pipeline.py:12  return (blocks - blocks.mean(dim=-1, keepdim=True)) * window
    mean = torch.ops.aten.mean.dim(arg0, [-1], True)  # f32[s0, 1]
    sub_1 = torch.ops.aten.sub.Tensor(arg0, mean)  # f32[s0, 256]
    mul_2 = torch.ops.aten.mul.Tensor(sub_1, sub)  # f32[s0, 256]

    # pipeline.py:21  loudness = torch.sqrt(tapered.square().mean(dim=-1) + 1e-12)
    pow_1 = torch.ops.aten.pow.Tensor_Scalar(mul_2, 2)  # f32[s0, 256]
    mean_1 = torch.ops.aten.mean.dim(pow_1, [-1])  # f32[s0]
    add = torch.ops.aten.add.Tensor(mean_1, 1e-12)  # f32[s0]
    sqrt = torch.ops.aten.sqrt.default(add)  # f32[s0]

    # pipeline.py:22  roughness = (tapered[:, 1:] - tapered[:, :-1]).abs().mean(dim=-1) / loudness
    slice_1 = torch.ops.aten.slice.Tensor(mul_2, 1, 1, 9223372036854775807)  # f32[s0, 255][256, 1]
    slice_2 = torch.ops.aten.slice.Tensor(mul_2, 1, 0, -1)  # f32[s0, 255][256, 1]
    sub_2 = torch.ops.aten.sub.Tensor(slice_1, slice_2)  # f32[s0, 255]
    abs_1 = torch.ops.aten.abs.default(sub_2)  # f32[s0, 255]
    mean_2 = torch.ops.aten.mean.dim(abs_1, [-1])  # f32[s0]
    div_1 = torch.ops.aten.div.Tensor(mean_2, sqrt)  # f32[s0]
    return (sqrt, div_1)
