"""Constants: small tensor constants become creation operators (no tensor data is stored beside the text); exact arithmetic on them is folded.

    _tensor_constant0 = tensor([1., 2.])     cat([full([1], 1.0), full([1], 2.0)])
    mul(full([8, 4], 3.0), 2.0)              full([8, 4], 6.0)
"""
from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.torch_private import no_dispatch_modes

aten = torch.ops.aten
LARGEST_CONSTANT = 1024                                          # elements; a run of equal values is one operator
_EXACT = frozenset({aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.neg.default, aten.eq.Scalar, aten.ne.Scalar, aten.lt.Scalar,
                    aten.le.Scalar,
                    aten.gt.Scalar, aten.ge.Scalar, aten.logical_not.default, aten.bitwise_not.default, aten.abs.default, aten.maximum.default,
                    aten.minimum.default, aten.where.self, aten.eq.Tensor, aten.ne.Tensor})


def inline_tensor_constants(module: fx.GraphModule) -> None:
    """Replaces get_attr nodes. Raises UnsupportedGraph (AOT314) for a constant with too many different runs of values."""
    for node in list(module.graph.nodes):
        if node.op == "get_attr" and isinstance(value := getattr(module, str(node.target), None), torch.Tensor):
            _inline(module.graph, node, value)


def _inline(graph: fx.Graph, node: fx.Node, value: torch.Tensor) -> None:
    with no_dispatch_modes():
        items = value.detach().reshape(-1).tolist()
    runs: list[tuple[Any, int]] = []
    for item in items:
        if runs and repr(runs[-1][0]) == repr(item):
            runs[-1] = (item, runs[-1][1] + 1)
        else:
            runs.append((item, 1))
    if len(runs) > LARGEST_CONSTANT:
        raise UnsupportedGraph("AOT314", f"a tensor constant of {value.numel()} elements is part of the graph.",
                               "Register it as a buffer of the module.")
    options = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
    fake = node.meta.get("val")
    mode = getattr(fake, "fake_mode", None)

    def call(target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> fx.Node:
        made = graph.call_function(target, arguments, keywords)
        made.meta.update({key: node.meta[key] for key in ("stack_trace", "place", "source") if key in node.meta})
        if mode is not None:
            values, named = fx.node.map_arg((arguments, keywords), lambda n: n.meta["val"])
            with mode:
                made.meta["val"] = target(*values, **named)
        return made

    with graph.inserting_before(node):
        if len(runs) <= 1:
            item = runs[0][0] if runs else 0
            result = call(aten.full.default, (list(value.shape), item), options)
        else:
            parts = [call(aten.full.default, ([count], item), options) for item, count in runs]
            result = call(aten.cat.default, (parts,), {})
            if value.dim() != 1:
                result = call(aten.view.default, (result, list(value.shape)), {})
    node.replace_all_uses_with(result)
    graph.erase_node(node)


def fold_constants(module: fx.GraphModule) -> None:
    """Arithmetic that is exact on every device, on tensors of one repeated value."""
    for node in list(module.graph.nodes):
        if node.target not in _EXACT or not isinstance(value := node.meta.get("val"), torch.Tensor) or value.dtype.is_complex:
            continue
        arguments = [_uniform(argument) for argument in node.args]
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        if not tensors or any(a is None for a in arguments) or node.kwargs:
            continue
        with no_dispatch_modes(), torch.no_grad():
            result = node.target(*arguments)
        if result.dtype != value.dtype:
            continue
        sizes = next((list(n.args[0]) for n in node.all_input_nodes if _text(n.meta["val"].shape) == _text(value.shape)), None)
        if sizes is None:
            continue
        with module.graph.inserting_before(node):
            options = {"dtype": value.dtype, "device": value.device, "pin_memory": False}
            made = module.graph.call_function(aten.full.default, (sizes, result.item()), options)
        made.meta.update(node.meta)
        node.replace_all_uses_with(made)
        module.graph.erase_node(node)


def _uniform(argument: Any) -> Any:
    """A 1-element (dimension kept: type promotion) CPU tensor for a ``full`` node, a number for a number, None for anything else."""
    if isinstance(argument, (bool, int, float)):
        return argument
    if not isinstance(argument, fx.Node) or argument.target is not aten.full.default or not isinstance(argument.args[1], (bool, int, float)):
        return None
    value = argument.meta["val"]
    with no_dispatch_modes():
        return torch.full([1] * value.dim(), argument.args[1], dtype=value.dtype)


def _text(sizes: Any) -> list[str]:
    return [str(size) for size in sizes]
