# Follower.feed:r0, as captured: 8 operators.
#   arg0 = block
#   n1 = self.blocks
#   arg2 = self.level
from __future__ import annotations

import torch


def computation(arg0: f32[256], n1: int, arg2: "f32[]"):
    # pipeline.py:40  energy = torch.sqrt(block.square().mean())
    square = arg0.square()
    mean = square.mean()
    sqrt = torch.sqrt(mean)

    # pipeline.py:41  self.level = energy if self.blocks == 0 else self.decay * self.level + (1 - self.decay) * energy
    mul = arg2.mul(0.9)
    mul_1 = sqrt.mul(0.09999999999999998)
    add = mul.add(mul_1)

    # pipeline.py:43  if energy > self.ratio * self.level:
    mul_2 = add.mul(1.5)
    gt = sqrt.gt(mul_2)
    return (sqrt, gt, add)
