"""Removes nodes without users. Kept: placeholders, writes to inputs, checks, and random operators (each draw moves the generator)."""
from __future__ import annotations

import torch
from torch import fx

from aotcompile.graph.tracing.checks import CHECKS


def remove_dead_code(module: fx.GraphModule) -> None:
    for node in reversed(list(module.graph.nodes)):
        if node.op in ("placeholder", "output") or node.users or _has_effect(node):
            continue
        module.graph.erase_node(node)
    for name in sorted(set(_attributes(module)) - {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}):
        delattr(module, name)


def _has_effect(node: fx.Node) -> bool:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        if target is torch.ops.aten._assert_scalar.default:
            return isinstance(node.args[0], fx.Node)
        return target._schema.is_mutable or target in CHECKS or torch.Tag.nondeterministic_seeded in target.tags
    return isinstance(target, torch._ops.HigherOrderOperator)


def _attributes(module: fx.GraphModule) -> list[str]:
    return [name for name in (*vars(module), *module._buffers) if name.startswith("_tensor_constant")]
