# describe:r1, as captured: 4 operators.
#   arg0 = loudness
#   n1 = _t0
#   arg2 = roughness
from __future__ import annotations

import torch


def computation(arg0: f32[s0], n1: float, arg2: f32[s0]):
    # pipeline.py:24  distance = torch.log(loudness / float(typical)).abs()
    div = arg0.div(n1)
    log = torch.log(div)
    abs_1 = log.abs()

    # pipeline.py:25  return torch.stack((loudness, roughness, distance), dim=-1)
    stack = torch.stack((arg0, arg2, abs_1), dim=-1)
    return (stack,)
