from __future__ import annotations

import torch


def inference(arg0: f32[256]):
    # pipeline.py:40  energy = torch.sqrt(block.square().mean())
    pow_1 = torch.ops.aten.pow.Tensor_Scalar(arg0, 2)  # f32[256]
    mean = torch.ops.aten.mean.default(pow_1)  # f32[]
    sqrt = torch.ops.aten.sqrt.default(mean)  # f32[]

    # pipeline.py:43  if energy > self.ratio * self.level:
    mul = torch.ops.aten.mul.Tensor(sqrt, 1.5)  # f32[]
    gt = torch.ops.aten.gt.Tensor(sqrt, mul)  # b8[]
    return (sqrt, gt)
