"""What the graph stage hands on: functional, decomposed ATen graphs."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aotcompile.frontend.types import NodeRecord
from aotcompile.ir.guards import Guard

if TYPE_CHECKING:
    from torch.fx import GraphModule


@dataclass(frozen=True)
class SavedValue:
    """What the forward graph keeps for the backward graph: forward output number ``index`` (tensors first, then sizes), a tensor or an int."""

    index: int
    kind: Literal["tensor", "size"]


@dataclass(frozen=True)
class GradientGroup:
    """A node of autograd's graph: results, and the gradients that come from them and from no other ones, by number. ``needed``: the inputs of the
    backward graph that these gradients are computed from.

    A result is an output of the region, or, counted on behind these, an edge. A gradient is that of an input, or, counted on behind these, of what
    is cut (`Cuts`)."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    needed: tuple[int, ...]


@dataclass(frozen=True)
class EdgeFacts:
    """A value that one node of autograd's graph gives to later ones, and nobody sees: what its gradient is like."""

    dtype: str
    sizes: tuple[int | str, ...]
    strides: tuple[int | str, ...]
    device: str


@dataclass(frozen=True)
class Cuts:
    """Where results are computed from each other: ``nodes``, the captured graph with its cuts; ``sources``: cut number -> ("input" | "output" |
    "edge", number); ``result_stages``, ``cut_stages``: the stage that each result, outputs and then edges, is computed in, and the one that takes
    what is cut."""

    nodes: tuple[NodeRecord, ...]
    sources: tuple[tuple[str, int], ...]
    result_stages: tuple[int, ...]
    cut_stages: tuple[int, ...]
    edges: tuple[EdgeFacts, ...] = ()


@dataclass(frozen=True)
class AtenGraphs:
    """The ATen graphs of a variant.

    inference: ``forward(*inputs) -> outputs``; training: ``forward(*inputs) -> (*outputs, *saved)`` and
    ``backward(*saved_sizes, *saved_tensors, *tangents) -> gradients``: one per graph input (None where none flows), then one per cut.
    Where there are several groups, ``parts`` has a backward graph for each: from its ``needed`` inputs to its gradients, in their order.
    ``inputs`` are the captured variant's inputs in order; kind "number" ones arrive as 0-dim tensors (i64/f64) on the CPU, or as ints where they are
    symbols of the variant.
    Mutated inputs are written by ``aten.copy_`` nodes in ``forward``. ``tangents``: numbers of the results that get one, in order.
    ``reached``: for each gradient the results (by number) that it comes from; () where none flows. ``groups``: the nodes of autograd's graph,
    each before those that take what it gives.
    ``guards`` are additional guards on the symbols found while tracing."""

    forward: "GraphModule"
    backward: "GraphModule | None"
    saved: tuple[SavedValue, ...]
    output_count: int
    tangents: tuple[int, ...]
    guards: tuple[Guard, ...]
    reached: tuple[tuple[int, ...], ...] = ()
    groups: tuple[GradientGroup, ...] = ()
    parts: tuple["GraphModule", ...] = ()
    cuts: Cuts | None = None

    def named(self, training: bool) -> "dict[str, GraphModule]":
        """The graphs to be compiled, by the names that they have on disk."""
        if self.backward is None:
            return {"forward" if training else "inference": self.forward}
        if not self.parts:
            return {"forward": self.forward, "backward": self.backward}
        return {"forward": self.forward, **{f"backward_{number}": part for number, part in enumerate(self.parts)}}
