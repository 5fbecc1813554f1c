from __future__ import annotations

import torch


def inference(arg0: f32[256], n1: "i64[]", arg2: "f32[]"):
    # pipeline.py:40  energy = torch.sqrt(block.square().mean())
    pow_1 = torch.ops.aten.pow.Tensor_Scalar(arg0, 2)  # f32[256]
    mean = torch.ops.aten.mean.default(pow_1)  # f32[]
    sqrt = torch.ops.aten.sqrt.default(mean)  # f32[]

    # pipeline.py:41  self.level = energy if self.blocks == 0 else self.decay * self.level + (1 - self.decay) * energy
    mul = torch.ops.aten.mul.Tensor(arg2, 0.9)  # f32[]
    mul_1 = torch.ops.aten.mul.Tensor(sqrt, 0.09999999999999998)  # f32[]
    add = torch.ops.aten.add.Tensor(mul, mul_1)  # f32[]

    # pipeline.py:43  if energy > self.ratio * self.level:
    mul_2 = torch.ops.aten.mul.Tensor(add, 1.5)  # f32[]
    gt = torch.ops.aten.gt.Tensor(sqrt, mul_2)  # b8[]
    return (sqrt, gt, add)
