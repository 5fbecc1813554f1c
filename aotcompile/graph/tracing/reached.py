"""Which outputs of a region the gradient of each input comes from, and so what is a node of its own in autograd's graph.

    return first(x), last(y)        two groups: the first output with first's parameters and x, the second with last's and y
"""
from __future__ import annotations

from collections.abc import Sequence

from torch import fx

from aotcompile.graph.types import GradientGroup


def outputs_reached(backward: fx.GraphModule, tangents: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """For each gradient that ``backward`` gives, the outputs (``tangents``, by number) that lead to it: () for None, all for a constant."""
    placeholders = backward.graph.find_nodes(op="placeholder")
    first = len(placeholders) - len(tangents)
    sources = _sources(backward)
    return tuple(tuple(tangents[index - first] for index in sorted(found) if index >= first) or tuple(tangents) if found is not None else ()
                 for found in sources)


def gradient_groups(backward: fx.GraphModule, reached: Sequence[Sequence[int]], tangents: Sequence[int]) -> tuple[GradientGroup, ...]:
    """Outputs that lead to one gradient are in one group."""
    groups: list[tuple[set[int], list[int]]] = [({index}, []) for index in tangents]
    for index, outputs in enumerate(reached):
        touched = [group for group in groups if group[0].intersection(outputs)]
        if touched:
            merged = (set().union(*(group[0] for group in touched)), [*(i for group in touched for i in group[1]), index])
            groups = [merged if group is touched[0] else group for group in groups if group is touched[0] or group not in touched]
    led_to = [group for group in groups if group[1]]
    if not led_to:
        return (GradientGroup(tuple(tangents), tuple(range(len(reached))), ()),)
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


__all__ = ["gradient_groups", "outputs_reached"]
