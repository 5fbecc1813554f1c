from __future__ import annotations

import torch


def inference(arg0: f32[s0], n1: "f64[]", arg2: f32[s0]):
    _local_scalar_dense = torch.ops.aten._local_scalar_dense.default(n1)  # float

    # pipeline.py:24  distance = torch.log(loudness / float(typical)).abs()
    div = torch.ops.aten.div.Tensor(arg0, _local_scalar_dense)  # f32[s0]
    log = torch.ops.aten.log.default(div)  # f32[s0]
    abs_1 = torch.ops.aten.abs.default(log)  # f32[s0]

    # pipeline.py:25  return torch.stack((loudness, roughness, distance), dim=-1)
    unsqueeze = torch.ops.aten.unsqueeze.default(arg0, 1)  # f32[s0, 1]
    unsqueeze_1 = torch.ops.aten.unsqueeze.default(arg2, 1)  # f32[s0, 1]
    unsqueeze_2 = torch.ops.aten.unsqueeze.default(abs_1, 1)  # f32[s0, 1]
    cat = torch.ops.aten.cat.default([unsqueeze, unsqueeze_1, unsqueeze_2], -1)  # f32[s0, 3]
    return (cat,)
