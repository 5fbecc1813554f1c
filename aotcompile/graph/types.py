"""What the graph stage hands on: functional, decomposed ATen graphs."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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
    """Outputs, and the inputs whose gradients come from them and from no other ones, by number. ``needed``: the inputs of the backward graph that
    these gradients are computed from."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    needed: tuple[int, ...]


@dataclass(frozen=True)
class AtenGraphs:
    """The ATen graphs of a variant.

    inference: ``forward(*inputs) -> outputs``; training: ``forward(*inputs) -> (*outputs, *saved)`` and
    ``backward(*saved_sizes, *saved_tensors, *tangents) -> gradients``: one per graph input (None where none flows).
    ``inputs`` are the captured variant's inputs in order; kind "number" ones arrive as 0-dim tensors (i64/f64) on the CPU, or as ints where they are
    symbols of the variant.
    Mutated inputs are written by ``aten.copy_`` nodes in ``forward``. ``tangents``: numbers of the outputs that get one, in order.
    ``reached``: for each input the outputs (by number) that its gradient comes from; () where none flows. ``groups``: what
    has nothing to do with each other.
    ``guards`` are additional guards on the symbols found while tracing."""

    forward: "GraphModule"
    backward: "GraphModule | None"
    saved: tuple[SavedValue, ...]
    output_count: int
    tangents: tuple[int, ...]
    guards: tuple[Guard, ...]
    reached: tuple[tuple[int, ...], ...] = ()
    groups: tuple[GradientGroup, ...] = ()
