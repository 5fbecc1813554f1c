"""The nodes of autograd's graph that one region is, as plan.json describes them.

    fake, loss            a node for each: nothing of one is computed from the other
    hidden, loss          a node for each, the second takes the first one's result: "cuts": [["output", 0], ...]

A *result* is an output of the region or, counted on behind these, an *edge*: a value that nobody but later nodes takes. A *gradient* is that of an
input or, counted on behind these, of what is cut.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import torch

from aotcompile.runtime.executor import dtype_of, sizes_of

Kind = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]                        # sizes, strides, dtype, device


@dataclass(frozen=True)
class Group:
    """A node: ``outputs``, the results it gives; ``gradients``, those it computes, and ``places``, which outputs of its graph these are. ``given``:
    what they are the gradients of, numbers in a list of the region's inputs and then the results; ``earlier``: those of the gradients that are of
    outputs. ``sizes``, ``saved``: values of the forward graph that its graph takes; ``tangents``: results whose gradients it takes. ``kept``: input
    of the region -> where it is in ``saved``."""

    graph: str
    outputs: tuple[int, ...]
    gradients: tuple[int, ...]
    places: tuple[int, ...]
    given: tuple[int, ...]
    earlier: tuple[int, ...]
    sizes: tuple[int, ...]
    saved: tuple[int, ...]
    tangents: tuple[int, ...]
    kept: dict[int, int]


def groups_of(plan: Mapping[str, Any]) -> list[Group]:
    """In the order in which they are made. A plan of schema 1 has one backward graph, which gives all gradients."""
    whole = plan["graphs"].get("backward")
    groups = []
    for number, group in enumerate(plan["groups"]):
        gradients = tuple(group["inputs"])
        taken = group["needed"] if whole is None else range(len(whole["inputs"]))
        graph, places = (f"backward_{number}", tuple(range(len(gradients)))) if whole is None else ("backward", gradients)
        groups.append(_group(plan, graph, tuple(group["outputs"]), gradients, places, taken))
    return groups


def _group(plan: Mapping[str, Any], graph: str, outputs: tuple[int, ...], gradients: tuple[int, ...], places: tuple[int, ...],
           taken: Sequence[int]) -> Group:
    sizes, tensors = ([index for index, found in plan["saved"] if found == kind] for kind in ("size", "tensor"))
    count = len(plan["inputs"])
    sources = [*(("input", index) for index in range(count)), *plan.get("cuts", ())]
    first = {"input": 0, "output": count, "edge": count + plan["output_count"]}
    saved = [tensors[index - len(sizes)] for index in taken if 0 <= index - len(sizes) < len(tensors)]
    names = {name: index for index, name in enumerate(plan["graphs"]["forward"]["inputs"])}
    buffers = [plan["graphs"]["forward"]["outputs"][index].get("buffer") for index in saved]
    return Group(graph, outputs, gradients, places,
                 given=tuple(first[kind] + number for kind, number in (sources[gradient] for gradient in gradients)),
                 earlier=tuple(gradient for gradient in gradients if sources[gradient][0] == "output"),
                 sizes=tuple(sizes[index] for index in taken if index < len(sizes)), saved=tuple(saved),
                 tangents=tuple(plan["tangents"][index - len(sizes) - len(tensors)] for index in taken if index >= len(sizes) + len(tensors)),
                 kept={names[name]: place for place, name in enumerate(buffers) if name in names})


class Edges:
    """What stands for the edges of a call in autograd's graph. ``symbols``: the plan's."""

    def __init__(self, edges: list[dict[str, Any]], symbols: list[list[Any]]) -> None:
        self._facts: list[tuple[Callable[..., tuple[int, ...]], Callable[..., tuple[int, ...]], torch.dtype, torch.device]] = [
            (sizes_of(edge["sizes"]), sizes_of(edge["strides"]), dtype_of(edge["dtype"]), torch.device(edge["device"])) for edge in edges]
        self._symbols = symbols

    def kinds(self, inputs: Any) -> list[Kind]:
        """What the gradients of the edges are like in a call with these inputs."""
        if not self._facts:
            return []
        symbols = {name: inputs[index].shape[dimension] if dimension >= 0 else int(inputs[index]) for name, index, dimension in self._symbols}
        return [(sizes(symbols), strides(symbols), dtype, device) for sizes, strides, dtype, device in self._facts]

    @staticmethod
    def stand_ins(kinds: list[Kind]) -> list[torch.Tensor]:
        """Tensors of the edges' sizes, without the memory for them."""
        return [torch.empty_strided(sizes, (0,) * len(sizes), dtype=dtype, device=device) for sizes, _, dtype, device in kinds]


__all__ = ["Edges", "Group", "Kind", "groups_of"]
