# Follower.feed:r1, as captured: 7 operators.
#   arg0 = block
#   arg1 = energy
#   arg2 = self.level
from __future__ import annotations

import torch


def computation(arg0: f32[256], arg1: "f32[]", arg2: "f32[]"):
    # pipeline.py:45  gain = torch.sigmoid(8.0 * (energy / (self.level + 1e-6) - 1.0))
    add = arg2.add(1e-06)
    div = arg1.div(add)
    sub = div.sub(1.0)
    mul = sub.mul(8.0)
    sigmoid = torch.sigmoid(mul)

    # pipeline.py:46  return torch.tanh(block * gain)
    mul_1 = arg0.mul(sigmoid)
    tanh = torch.tanh(mul_1)
    return (tanh,)
