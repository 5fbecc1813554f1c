"""Sizes for which the graph's operators raise: a guard keeps the compiled graph from being used there.

    amax(x[s0, 4], [0])         needs s0 != 0 (also as a part of softmax, which itself would not)
    mkldnn_rnn_layer(x[s0, 4])  needs s0 != 0 (eager takes another way there)
    2.0 / sym_float(4*s0)       needs s0 != 0 (C++ gives inf, Python raises)
"""
from __future__ import annotations

import operator
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy.functions import ToFloat

from aotcompile.graph.torch_private import hints_of

aten = torch.ops.aten
_OVER_DIMENSIONS = {aten.amax.default: 1, aten.amin.default: 1, aten.argmax.default: 1, aten.argmin.default: 1, aten.max.dim: 1, aten.min.dim: 1,
                    aten.max.default: None, aten.min.default: None, aten.median.dim: 1, aten.median.default: None, aten.mode.default: 1,
                    aten.kthvalue.default: 2, aten.mkldnn_rnn_layer.default: None}


def required_sizes(module: fx.GraphModule) -> list[Any]:
    """sympy relations "size != 0" that the graph's operators need, in the order of the nodes."""
    relations: list[Any] = []
    for node in module.graph.nodes:
        if node.target in (operator.truediv, operator.floordiv, operator.mod) and isinstance(node.args[1], fx.Node):
            relations += _not_zero(node.args[1].meta["val"])
        if node.target not in _OVER_DIMENSIONS:
            continue
        shape = node.args[0].meta["val"].shape
        position = _OVER_DIMENSIONS[node.target]
        given = node.args[position] if position is not None and len(node.args) > position else node.kwargs.get("dim")
        dimensions = range(len(shape)) if given is None or given == [] else [given] if isinstance(given, int) else given
        for dimension in dimensions:
            relations += _not_zero(shape[dimension]) if len(shape) else []
    return relations


def _not_zero(size: Any) -> list[Any]:
    if not isinstance(size, (torch.SymInt, torch.SymFloat)):
        return []
    value = size.node.expr
    value = sympy.nsimplify(value.replace(ToFloat, lambda integer: integer))
    environment = size.node.shape_env
    if not value.is_integer or any(symbol not in hints_of(environment) for symbol in value.free_symbols):
        return []                                                # no relation between the sizes of inputs
    relation = sympy.Ne(value, 0)
    return [] if relation is sympy.true else [relation]
