"""Outputs in the memory layout that the captured run gave.

Decompositions keep values, not always layout: ``ones_like(t)`` of a (7, 1) tensor with strides (1, 7) becomes ``full([7, 1])`` with strides (1, 1).

    return (full,)   ->   as_strided = as_strided(full, [7, 1], [1, 7]); return (as_strided,)          only sizes of 1 differ: the same elements
    return (add,)    ->   permute, clone, permute back                                                 the order of the dimensions differs: a copy

The gradient of an output comes in the output's layout. Where AOTAutograd has traced the backward graph for another one (before torch 2.13 for
contiguous ones, whatever the output is), it is copied into that first.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aotcompile.graph.errors import UnsupportedGraph

aten = torch.ops.aten
Strides = Sequence["int | str"]


def restore_output_strides(module: fx.GraphModule, expected: Sequence[Strides], mode: Any) -> None:
    """``expected``: strides of the first outputs, a text for a symbolic one (those are not compared)."""
    output = module.graph.output_node()
    results = list(output.args[0])
    for number, strides in enumerate(expected):
        node = results[number]
        if isinstance(node, fx.Node) and isinstance(value := node.meta.get("val"), torch.Tensor) and value.layout is torch.strided:
            with module.graph.inserting_before(output):
                results[number] = _restored(module.graph, node, value, strides, mode)
    output.args = (tuple(results),)
    module.recompile()


def accept_tangents(forward: fx.GraphModule, backward: fx.GraphModule, tangents: Sequence[int], output_count: int, mode: Any) -> None:
    """Make the backward graph take the gradients of the outputs numbered ``tangents``, its last inputs, in the strides that the outputs have. What is
    counted on behind the ``output_count`` outputs has no strides of its own.

    Raises UnsupportedGraph (AOT302) where no copy gives the layout that was traced."""
    outputs = list(forward.graph.output_node().args[0])
    placeholders = list(backward.graph.find_nodes(op="placeholder"))
    first = next(node for node in backward.graph.nodes if node.op != "placeholder")
    for number, node in zip(tangents, placeholders[len(placeholders) - len(tangents):], strict=True):
        if number >= output_count:
            continue
        traced, given = node.meta["val"], outputs[number].meta["val"]
        if not isinstance(given, torch.Tensor) or _same_strides(traced, given):
            continue
        users = list(node.users)
        with mode, torch.no_grad():
            node.meta["val"] = torch.empty_strided(traced.shape, given.stride(), dtype=traced.dtype, device=traced.device)
        with backward.graph.inserting_before(first):
            if traced.is_contiguous():
                copied = _call(backward.graph, node, mode, aten.clone.default, memory_format=torch.contiguous_format)
            else:
                copied = _restored(backward.graph, node, node.meta["val"], traced.stride(), mode)
        if copied is node:
            raise UnsupportedGraph("AOT302", f"the gradient of output {number} is traced with strides {tuple(traced.stride())}, "
                                             f"and comes with {tuple(given.stride())}.")
        for user in users:
            user.replace_input_with(node, copied)
    backward.recompile()


def _same_strides(first: torch.Tensor, second: torch.Tensor) -> bool:
    def text(value: Any) -> str:
        return str(value.node.expr) if isinstance(value, torch.SymInt) else str(value)

    return all(text(a) == text(b) or type(size) is int and size <= 1 for a, b, size in zip(first.stride(), second.stride(), first.shape))


def _restored(graph: fx.Graph, node: fx.Node, value: torch.Tensor, strides: Strides, mode: Any) -> fx.Node:
    if len(strides) != value.dim():
        return node                                              # not relied on: sizes that are data
    known = [d for d in range(value.dim()) if type(value.shape[d]) is int and type(value.stride(d)) is int and type(strides[d]) is int]
    differing = [d for d in known if value.stride(d) != strides[d]]
    if not differing or value.numel() == 0 and len(known) < value.dim():
        return node
    if value.numel() == 0 or all(value.shape[d] == 1 for d in differing):
        wanted = [strides[d] if d in differing else value.stride(d) for d in range(value.dim())]
        return _call(graph, node, mode, aten.as_strided.default, list(value.shape), wanted)
    if len(known) < value.dim():
        return node
    order = sorted(range(value.dim()), key=lambda d: (-int(strides[d]), d))
    back = [order.index(d) for d in range(value.dim())]
    permuted = _call(graph, node, mode, aten.permute.default, order)
    copied = _call(graph, permuted, mode, aten.clone.default, memory_format=torch.contiguous_format)
    restored = _call(graph, copied, mode, aten.permute.default, back)
    again = restored.meta["val"]
    if all(again.stride(d) == strides[d] or again.shape[d] == 1 for d in range(value.dim())):
        return _restored(graph, restored, again, strides, mode)
    return node                                                  # gaps or overlaps: eager's layout cannot be had with a copy


def _call(graph: fx.Graph, node: fx.Node, mode: Any, operator: Any, *arguments: Any, **keywords: Any) -> fx.Node:
    made = graph.call_function(operator, (node, *arguments), keywords)
    made.meta.update({key: node.meta[key] for key in ("place", "source") if key in node.meta})
    with mode, torch.no_grad():
        made.meta["val"] = operator(node.meta["val"], *arguments, **keywords)
    return made
