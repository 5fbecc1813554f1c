"""The nodes of autograd's graph that one region is: which of its outputs and inputs belong together, and the part of the backward graph for each."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Group:
    """Outputs of the forward graph, and the inputs whose gradients come from them and from no other ones. ``needed``: the inputs of the backward
    graph that these are computed from."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    needed: frozenset[int]


def buffers_in(form: Any) -> list[str]:
    """The buffers that a step names, wherever it does."""
    if isinstance(form, dict):
        named = [value for key, value in form.items() if key in ("buffer", "name", "number") and isinstance(value, str)]
        return named + [name for key, value in form.items() if key not in ("buffer", "name", "number") for name in buffers_in(value)] \
            + [name for key in ("buffers", "results") for name in form.get(key, ()) if isinstance(name, str)]
    return [name for part in form for name in buffers_in(part)] if isinstance(form, list) else []


@dataclass(frozen=True)
class Part:
    """``graph``: the steps that some outputs of a backward graph need; ``inputs``: which of its inputs these are given."""

    graph: dict[str, Any]
    inputs: tuple[int, ...]


def part_of(graph: dict[str, Any], wanted: Sequence[int]) -> Part:
    """The part of a backward graph that gives the ``wanted`` outputs; the others are None."""
    outputs = [output if index in wanted else {"constant": None} for index, output in enumerate(graph["outputs"])]
    base = {step["name"]: step["base"] for step in graph["steps"] if step["step"] == "view"}

    def root(name: str) -> str:
        while name in base:
            name = base[name]
        return name

    needed = {root(name) for name in buffers_in(outputs)}
    steps = []
    for step in reversed(graph["steps"]):
        names = {root(name) for name in buffers_in(step)}
        always = step["step"] in ("read_scalar", "check")                # whoever uses the number
        if always or step["step"] not in ("free", "view", "allocate") and names & needed - set(graph["inputs"]):
            needed |= names
            steps.append(step)
        elif step["step"] in ("free", "view", "allocate"):
            steps.append(step)
    steps = [step for step in reversed(steps) if step["step"] not in ("free", "view", "allocate") or root(step["name"]) in needed]
    kept = tuple(index for index, name in enumerate(graph["inputs"])
                 if name in needed or any(number == index for _, number, _ in graph["symbols"]))
    symbols = [[symbol, kept.index(number), dimension] for symbol, number, dimension in graph["symbols"]]
    return Part({"inputs": [graph["inputs"][index] for index in kept], "symbols": symbols, "steps": steps, "outputs": outputs}, kept)


__all__ = ["Group", "Part", "part_of"]
