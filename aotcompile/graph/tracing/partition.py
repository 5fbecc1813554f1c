"""Splits the joint graph into forward and backward, and makes what is saved safe to save.

    saved number      forward: n = _local_scalar_dense(primals_2) ... saved: n        ->    saved: primals_2; backward: n = _local_scalar_dense(saved)
    saved, mutated    forward: copy_(primals_3, add) ... saved: primals_3             ->    saved: clone(primals_3), taken before the copy_
"""
from __future__ import annotations

from typing import Any

import torch
from torch import fx

from aotcompile.graph import torch_private
from aotcompile.graph.errors import UnsupportedGraph

aten = torch.ops.aten


class Partitioner:
    """AOTAutograd's ``partition_fn``; keeps the two graphs. ``output_count``: outputs of the forward graph that are not saved values.

    Where the graph is cut in stages, what only autograd's graph needs is taken out first: ``anchors``, the last inputs, and ``edges``, the numbers
    of outputs."""

    def __init__(self) -> None:
        self.forward: fx.GraphModule | None = None
        self.backward: fx.GraphModule | None = None
        self.output_count = 0
        self.anchors = 0
        self.edges = range(0)

    def __call__(self, joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        num_fwd_outputs -= len(self.edges)
        self.output_count = num_fwd_outputs
        if self.anchors:
            _without_stand_ins(joint, self.anchors, self.edges)
        self.forward, self.backward = torch_private.min_cut_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
        return self.forward, self.backward


def _without_stand_ins(joint: fx.GraphModule, anchors: int, edges: range) -> None:
    output = joint.graph.output_node()
    results = list(output.args[0])                                                            # type: ignore[arg-type]
    output.args = (type(output.args[0])(results[:edges.start] + results[edges.stop:]),)       # type: ignore[call-arg]
    placeholders = [node for node in joint.graph.find_nodes(op="placeholder") if node.name.startswith("primals")]
    unused = [*(results[number] for number in edges), *(user for node in placeholders[len(placeholders) - anchors:] for user in node.users)]
    for node in unused:
        if not node.users:
            joint.graph.erase_node(node)
    for node in placeholders[len(placeholders) - anchors:]:
        if node.users:
            raise UnsupportedGraph("AOT302", f"the graph of autograd cannot be cut: {next(iter(node.users)).name} reads an anchor.")
        joint.graph.erase_node(node)
    joint.recompile()


def is_symbolic_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


def save_number_tensors(forward: fx.GraphModule, backward: fx.GraphModule, output_count: int) -> None:
    """Saves the 0-dim tensors behind values read with ``_local_scalar_dense`` instead of the values, which may be no ints."""
    [output] = forward.graph.find_nodes(op="output")
    outputs = list(output.args[0])                                                            # type: ignore[arg-type]
    saved = outputs[output_count:]
    placeholders = [node for node in backward.graph.nodes if node.op == "placeholder"]
    sizes = [node for node in saved if is_symbolic_number(node)]
    tensors = [node for node in saved if not is_symbolic_number(node)]
    arriving = dict(zip(sizes + tensors, placeholders))
    read = [node for node in sizes if _reads_tensor(node)]
    if not read:
        return
    first_body_node = next(node for node in backward.graph.nodes if node.op != "placeholder")
    copies: dict[fx.Node, fx.Node] = {}

    def in_backward(node: fx.Node) -> fx.Node:
        if node in arriving and node not in read:
            return arriving[node]
        if node in copies:
            return copies[node]
        if not is_symbolic_number(node):                                                      # the tensor: save it
            tensors.append(node)
            last_tensor = placeholders[len(sizes) + len(tensors) - 2]
            with backward.graph.inserting_after(last_tensor):
                made = backward.graph.placeholder(node.name)
            placeholders.insert(len(sizes) + len(tensors) - 1, made)
            made.meta.update(node.meta)
            arriving[node] = made
            return made
        sources = {argument: in_backward(argument) for argument in node.all_input_nodes}
        with backward.graph.inserting_before(first_body_node):
            copies[node] = backward.graph.node_copy(node, lambda argument: sources[argument])
        return copies[node]

    for node in read:
        arriving[node].replace_all_uses_with(in_backward(node))
    for node in read:
        backward.graph.erase_node(arriving[node])
    kept = [node for node in sizes if node not in read]
    output.args = (tuple(outputs[:output_count] + tensors + kept),)
    for module in (forward, backward):
        module.graph.lint()
        module.recompile()


def _reads_tensor(node: fx.Node) -> bool:
    return node.target is aten._local_scalar_dense.default or any(is_symbolic_number(n) and _reads_tensor(n) for n in node.all_input_nodes)


def save_values_before_mutation(forward: fx.GraphModule, output_count: int) -> None:
    """A saved graph input that the forward graph overwrites is saved as a copy of what it was."""
    [output] = forward.graph.find_nodes(op="output")
    mutated = {node.args[0] for node in forward.graph.find_nodes(op="call_function", target=aten.copy_.default)}
    outputs = list(output.args[0])                                                            # type: ignore[arg-type]
    changed = False
    for position in range(output_count, len(outputs)):
        node = outputs[position]
        if isinstance(node, fx.Node) and _memory_owner(node) in mutated:
            first_copy = next(n for n in forward.graph.nodes if n.target is aten.copy_.default)
            with forward.graph.inserting_before(first_copy):
                clone = forward.graph.call_function(aten.clone.default, (node,))
            clone.meta.update(node.meta)
            outputs[position] = clone
            changed = True
    if changed:
        output.args = (tuple(outputs),)
        forward.graph.lint()
        forward.recompile()


def _memory_owner(node: fx.Node) -> fx.Node:
    """The node whose memory a view chain names."""
    while isinstance(node.target, torch._ops.OpOverload) and is_view(node.target) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def is_view(operator: torch._ops.OpOverload) -> bool:
    """Whether the operator's result shares the memory of its first argument."""
    return any(result.alias_info is not None and not result.alias_info.is_write for result in operator._schema.returns)


def gradient_alignment(backward: fx.GraphModule, input_count: int) -> None:
    """Checks that the backward graph returns one gradient or None per input. Raises UnsupportedGraph (AOT302) otherwise."""
    [output] = backward.graph.find_nodes(op="output")
    if len(output.args[0]) != input_count:                                                    # type: ignore[arg-type]
        raise UnsupportedGraph("AOT302", f"the backward graph has {len(output.args[0])} results for {input_count} inputs.")   # type: ignore[arg-type]
