"""Writes into memory that exists: ``copy_`` to a graph input.

AOTAutograd ends a functional graph with ``copy_(input, new_value)`` for each mutated input. Here that is a `Compute` with ``updates``. Whatever
else still reads the input's old value is computed before (`Context.before_mutation`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotcompile.ir.nodes import Compute, Store
from aotcompile.ir.simplify import simplify
from aotcompile.ir.traverse import loads
from aotcompile.lower.graph_facts import node_origin
from aotcompile.lower.operands import element
from aotcompile.lower.registry import lowering
from aotcompile.lower.tensors import Tensor, flat_index

if TYPE_CHECKING:
    from torch.fx import Node

    from aotcompile.lower.context import Context


@lowering("aten.copy_.default")
def _copy(context: "Context", node: "Node", target: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
    buffer = context.realize_root(target.root)
    if (
        target.root.buffer == source.root.buffer
        and target.sizes == source.sizes
        and target.strides == source.strides
        and target.offset == source.offset
    ):
        return target  # copying something onto itself
    if source.device != target.device and source.rank:
        return NotImplemented
    loops, index = context.loops(target.sizes)
    origin = node_origin(node)
    context.before_mutation(buffer, keep=source.root if source.root.pending <= 1 else None)
    store = simplify(flat_index(index, target.strides, target.offset), context.ranges(loops))
    body, origins = context.body(lambda at: element(context, source, at, target.dtype, target.device), index, loops, origin)
    memory = context.memory(buffer)
    if any(context.memory(load.buffer) == memory and load.index != store for load in loads(body)):
        copy = context.temporary(f"{node.name}_source", source.dtype, source.sizes, source.device, origin, source.load)
        context.realize_root(copy.root)
        body, origins = context.body(lambda at: element(context, copy, at, target.dtype, target.device), index, loops, origin)
    result = context.new_buffer(f"{buffer}_new", target.dtype, target.root.sizes, target.root.strides, target.device)
    context.emit(Compute(result, loops, body, Store(store), updates=buffer, origins=origins))
    context.aliases[result] = memory
    target.root.buffer = result
    return target
