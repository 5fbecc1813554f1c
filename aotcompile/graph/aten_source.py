"""Readable text of an ATen graph, for forward.py and backward.py::

    # model.py:14  h = torch.relu(x @ self.weight)
    mm = torch.ops.aten.mm.default(x, permute)  # f32[s0, 128]
"""
from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aotcompile.frontend.types import NodeRecord
from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.printer import FunctionPrinter
from aotcompile.graph.record import contiguous_strides, nodes_of
from aotcompile.graph.tracing.relations import size_text
from aotcompile.ir.dtypes import BY_TORCH_NAME


_UNKNOWN = "?"                                               # a size that has no text


def aten_source(graph_module: fx.GraphModule, name: str) -> str:
    """The graph as a Python function called ``name`` ("forward", "backward", "inference"), shapes as comments; the text can be executed."""
    values = {node.name: node.meta.get("val") for node in graph_module.graph.nodes}

    def annotation(record: NodeRecord) -> str:
        return _description(values.get(record.name))

    return FunctionPrinter(name, annotation, comment_shapes=True).text(nodes_of(graph_module.graph), "")


def _description(value: Any) -> str:
    """"f32[8, s0][s0, 1]cuda" for a tensor (strides where they are not the contiguous ones), "s0" for a size, "" for anything else."""
    if isinstance(value, torch.Tensor):
        dtype = BY_TORCH_NAME.get(str(value.dtype).removeprefix("torch."))
        sizes, strides = (tuple(map(_size, numbers)) for numbers in (value.shape, value.stride()))
        text = f"{dtype.value if dtype else value.dtype}[{', '.join(sizes)}]"
        if _UNKNOWN in sizes or strides != contiguous_strides(sizes):
            text += f"[{', '.join(strides)}]"
        return text + ("" if value.device.type == "cpu" else value.device.type)
    if isinstance(value, torch.SymInt):
        return _size(value)
    if isinstance(value, torch.SymFloat):
        return "float"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_description, value))})"
    return ""


def _size(value: Any) -> str:
    if not isinstance(value, torch.SymInt):
        return str(value)
    try:
        return size_text(value.node.expr)
    except UnsupportedGraph:
        return _UNKNOWN                                           # a comment only: what computes the size is in the text
