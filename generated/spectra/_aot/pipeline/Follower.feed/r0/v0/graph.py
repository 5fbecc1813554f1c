# Follower.feed:r0, as captured: 5 operators.
#   arg0 = block
from __future__ import annotations

import torch


def computation(arg0: f32[256]):
    # pipeline.py:40  energy = torch.sqrt(block.square().mean())
    square = arg0.square()
    mean = square.mean()
    sqrt = torch.sqrt(mean)

    # pipeline.py:43  if energy > self.ratio * self.level:
    mul = sqrt.mul(1.5)
    gt = sqrt.gt(mul)
    return (sqrt, gt)
