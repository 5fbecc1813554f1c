"""Which results of a region each gradient comes from, and so what is a node of its own in autograd's graph.

    return first(x), last(y)        two groups: the first output with first's parameters and x, the second with last's and y
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.tracing.relations import size_text
from aotcompile.graph.types import Cuts, EdgeFacts, GradientGroup
from aotcompile.ir.dtypes import BY_TORCH_NAME


def outputs_reached(backward: fx.GraphModule, tangents: Sequence[int], cuts: Cuts | None, input_count: int) -> tuple[tuple[int, ...], ...]:
    """For each gradient that ``backward`` gives, the results (``tangents``, by number) that lead to it: () for None; for a constant all of its
    stage."""
    placeholders = backward.graph.find_nodes(op="placeholder")
    first = len(placeholders) - len(tangents)

    def stage(gradient: int) -> int:
        return cuts.cut_stages[gradient - input_count] if cuts is not None and gradient >= input_count else 0

    def of_stage(number: int) -> tuple[int, ...]:
        return tuple(result for result in tangents if cuts is None or cuts.result_stages[result] == number)

    return tuple(tuple(tangents[index - first] for index in sorted(found) if index >= first) or of_stage(stage(gradient)) if found is not None else ()
                 for gradient, found in enumerate(_sources(backward)))


def gradient_groups(backward: fx.GraphModule, reached: Sequence[Sequence[int]], tangents: Sequence[int],
                    cuts: Cuts | None) -> tuple[GradientGroup, ...]:
    """Results that lead to one gradient are in one group; groups of earlier stages come first.

    Raises UnsupportedGraph (AOT302) where a gradient comes from results of several stages."""
    groups: list[tuple[set[int], list[int]]] = [({index}, []) for index in tangents]
    for index, outputs in enumerate(reached):
        touched = [group for group in groups if group[0].intersection(outputs)]
        if touched:
            merged = (set().union(*(group[0] for group in touched)), [*(i for group in touched for i in group[1]), index])
            groups = [merged if group is touched[0] else group for group in groups if group is touched[0] or group not in touched]
    led_to = [group for group in groups if group[1]]
    if not led_to:
        return (GradientGroup(tuple(tangents), tuple(range(len(reached))), ()),)
    if cuts is not None:
        led_to.sort(key=lambda group: min(cuts.result_stages[result] for result in group[0]))
        if any(len({cuts.result_stages[result] for result in outputs}) > 1 for outputs, _ in led_to):
            raise UnsupportedGraph("AOT302", "a gradient comes from results that are computed from each other.")
    led_to[0][0].update(*(group[0] for group in groups if not group[1]))              # they have a history too, if one that leads nowhere
    sources = _sources(backward)
    return tuple(GradientGroup(tuple(sorted(outputs)), tuple(inputs), tuple(sorted(set().union(*(sources[index] or () for index in inputs)))))
                 for outputs, inputs in led_to)


def _sources(backward: fx.GraphModule) -> list[frozenset[int] | None]:
    """For each gradient, the numbers of the placeholders that it is computed from; None where there is no gradient."""
    sources: dict[fx.Node, frozenset[int]] = {}
    for number, node in enumerate(backward.graph.find_nodes(op="placeholder")):
        sources[node] = frozenset([number])
    for node in backward.graph.nodes:
        if node not in sources:
            sources[node] = frozenset().union(*(sources[given] for given in node.all_input_nodes))
    [output] = backward.graph.find_nodes(op="output")
    return [sources[each] if isinstance(each, fx.Node) else None for each in output.args[0]]  # type: ignore[union-attr]


def part_of(backward: fx.GraphModule, wanted: Sequence[int], needed: Sequence[int]) -> tuple[fx.GraphModule, tuple[int, ...]]:
    """The part of a backward graph that gives the ``wanted`` gradients from the ``needed`` inputs, and the inputs that it takes: also those that
    tell the sizes of others."""
    placeholders = backward.graph.find_nodes(op="placeholder")
    results = [backward.graph.output_node().args[0][index] for index in wanted]               # type: ignore[index]
    body: set[fx.Node] = set()
    waiting = [result for result in results if isinstance(result, fx.Node)]
    while waiting:
        node = waiting.pop()
        if node not in body:
            body.add(node)
            waiting += node.all_input_nodes
    symbols = set().union(*(_symbols(node.meta.get("val")) for node in body))
    taken = set(needed)
    symbols -= set().union(*(_defined(placeholders[number].meta.get("val")) for number in needed))
    for number, node in enumerate(placeholders):
        if defined := symbols & _defined(node.meta.get("val")):
            taken.add(number)
            symbols -= defined
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    body.update(placeholders[number] for number in taken)
    for node in backward.graph.nodes:
        if node in body:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[result] if isinstance(result, fx.Node) else None for result in results))
    part = fx.GraphModule(backward, graph)
    part.graph.lint()
    return part, tuple(sorted(taken))


def _symbols(value: Any) -> set[Any]:
    if isinstance(value, torch.Tensor):
        return set().union(*map(_symbols, (*value.shape, *value.stride())))
    if isinstance(value, (tuple, list)):
        return set().union(*map(_symbols, value))
    return set(value.node.expr.free_symbols) if isinstance(value, (torch.SymInt, torch.SymFloat)) else set()


def _defined(value: Any) -> set[Any]:
    """The symbols that a placeholder says by itself: a size, or a dimension."""
    sizes = value.shape if isinstance(value, torch.Tensor) else [value]
    return {size.node.expr for size in sizes if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol}


def edge_facts(backward: fx.GraphModule, tangents: Sequence[int], output_count: int) -> tuple[EdgeFacts, ...]:
    """What the gradients of the edges, which are the last of the backward graph's inputs, are like."""
    placeholders = backward.graph.find_nodes(op="placeholder")
    found = []
    for number, node in zip(tangents, placeholders[len(placeholders) - len(tangents):], strict=True):
        if number >= output_count:
            value = node.meta["val"]
            sizes, strides = (tuple(size_text(size.node.expr) if isinstance(size, torch.SymInt) else int(size) for size in numbers)
                              for numbers in (value.shape, value.stride()))
            found.append(EdgeFacts(BY_TORCH_NAME[str(value.dtype).removeprefix("torch.")].value, sizes, strides, value.device.type))
    return tuple(found)


__all__ = ["edge_facts", "gradient_groups", "outputs_reached", "part_of"]
