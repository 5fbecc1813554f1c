"""Removes operations whose result is their argument, bit for bit and with the same sizes and strides.

    clone(x)                        x       unless the copy, or a view of it, is an output (outputs are fresh memory)
    _to_copy(x, dtype=x.dtype)      x       likewise
    conj(conj(x))                   x
    expand(x, x.shape), view(x, x.shape), slice(x, d, 0, end >= size), alias(x), detach(x)          x
"""
from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aotcompile.graph.tracing.partition import is_view

aten = torch.ops.aten
_VIEWS = frozenset({aten.expand.default, aten.view.default, aten._unsafe_view.default, aten.slice.Tensor, aten.alias.default, aten.detach.default,
                    aten.permute.default, aten.as_strided.default, aten.lift_fresh.default})
_COPIES = frozenset({aten.clone.default, aten._to_copy.default, aten.lift_fresh_copy.default})


def remove_no_operations(module: fx.GraphModule) -> None:
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
            continue
        before = node.args[0]
        if node.target is aten._conj.default and before.target is aten._conj.default and isinstance(before.args[0], fx.Node):
            node.replace_all_uses_with(before.args[0])
            module.graph.erase_node(node)
            continue
        removable = node.target in _VIEWS or node.target in _COPIES and not _reaches_output(node)
        if removable and _same(node.args[0].meta.get("val"), node.meta.get("val")) and not _is_permutation(node):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)


def _is_permutation(node: fx.Node) -> bool:
    """permute of equal sizes and strides is not the identity (dimensions of size 1 aside); as_strided may start elsewhere."""
    if node.target is aten.permute.default:
        dimensions: Any = node.args[1]
        return [d % len(dimensions) for d in dimensions] != list(range(len(dimensions)))
    if node.target is aten.as_strided.default:
        return node.meta["val"].storage_offset() is not node.args[0].meta["val"].storage_offset() and \
            str(node.meta["val"].storage_offset()) != str(node.args[0].meta["val"].storage_offset())
    return False


def _reaches_output(node: fx.Node) -> bool:
    """Whether the node's memory may be that of an output: it is one, or a view of it is (also through operators that are views only sometimes)."""
    for user in node.users:
        if user.op == "output":
            return True
        target = user.target
        passes_on = not isinstance(target, torch._ops.OpOverload) or target in _VIEWS or target in _COPIES or is_view(target)
        if passes_on and _reaches_output(user):
            return True
    return False


def _same(before: Any, after: Any) -> bool:
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    if before.dtype != after.dtype or before.device != after.device or before.dim() != after.dim() or before.layout != after.layout:
        return False
    return _text(before.shape) == _text(after.shape) and _text(before.stride()) == _text(after.stride()) and before.is_conj() == after.is_conj()


def _text(sizes: Any) -> list[str]:
    return [str(size) for size in sizes]                         # as text: comparing SymInts would make guards
