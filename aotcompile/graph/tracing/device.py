"""Moves a graph traced on the stand-in device to CUDA: device arguments and the fake values of its nodes."""
from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from aotcompile.graph.record import map_arguments
from aotcompile.graph.torch_private import FakeTensor, FakeTensorMode
from aotcompile.graph.tracing.inputs import STAND_IN


def retarget(module: fx.GraphModule, mode: FakeTensorMode) -> None:
    """In place; everything on the stand-in device is on "cuda" afterwards, CPU values stay."""

    def argument(value: Any) -> Any:
        return torch.device("cuda") if isinstance(value, torch.device) and value.type == STAND_IN else value

    def fake(value: Any) -> Any:
        if isinstance(value, FakeTensor) and value.device.type == STAND_IN:
            with torch.no_grad():
                return FakeTensor(mode, _meta_of(value), torch.device("cuda", 0))
        return value

    for node in module.graph.nodes:
        node.args = map_arguments(tuple(node.args), argument)
        node.kwargs = map_arguments(dict(node.kwargs), argument)
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(fake, node.meta["val"])
        node.meta.pop("tensor_meta", None)
    module.recompile()


def _meta_of(value: FakeTensor) -> torch.Tensor:
    """A meta tensor on the same storage at the same offset: which values share memory must stay as it was."""
    with torch._C._DisableTorchDispatch():
        meta = torch.empty(0, dtype=value.dtype, device="meta")
        return meta.set_(value.untyped_storage(), value.storage_offset(), value.shape, value.stride())  # type: ignore[call-overload]
