"""Results of a region that are computed from each other: the captured graph cut in stages, each a node of autograd's graph.

    hidden = relu(x @ w)                        stage 0: x, w -> hidden
    loss = (cut(hidden, 0) @ v).sum()           stage 1: hidden, v -> loss

Autograd's graph then has the edges that it has in eager: ``torch.autograd.grad(loss, hidden)``, ``hidden.retain_grad()`` and hooks see what flows
from ``loss`` to ``hidden``. The forward graph stays one graph; only gradients are cut. A value that a later stage takes, and that is neither an
input nor a result, is an *edge*: it is given on from node to node without anybody seeing it.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

from aotcompile.graph.autograd.cut import cut
from aotcompile.graph.autograd.observe import Observed, memory_of, tensors_of
from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.tracing.relations import size_text

Source = tuple[Literal["input", "output", "edge"], int]
Unit = Any                                                       # what one stage computes as a whole: a tensor, all that shares written memory


@dataclass(frozen=True)
class Stages:
    """``sources``: cut number -> what is cut there; ``kinds``: cut number -> (sizes, dtype, device) of it, sizes as ints or text. ``cut_stages``: cut
    number -> the stage that takes it; ``result_stages``: of the outputs, then of the edges."""

    sources: tuple[Source, ...]
    kinds: tuple[tuple[tuple[int | str, ...], torch.dtype, torch.device], ...]
    cut_stages: tuple[int, ...]
    result_stages: tuple[int, ...]

    @property
    def edges(self) -> int:
        return len({number for kind, number in self.sources if kind == "edge"})


def may_depend(graph: fx.Graph, requires_grad: Sequence[bool]) -> bool:
    """Whether a differentiable output may be computed from another one: a short look, without running anything."""
    outputs = [node for node, needed in zip(graph.output_node().args[0], requires_grad) if needed and isinstance(node, fx.Node)]  # type: ignore[arg-type]
    return len(outputs) > 1 and any(user.op != "output" for output in outputs for node in _same_memory(output) for user in node.users
                                    if user not in _same_memory(output))


def _same_memory(node: fx.Node) -> list[fx.Node]:
    """The node, and what it is a changed form of, as far as names tell."""
    chain = [node]
    while (before := chain[-1]).op == "call_method" and str(before.target).endswith("_") and isinstance(before.args[0], fx.Node):
        chain.append(before.args[0])
    return chain


def cut_in_stages(graph: fx.Graph, observed: Observed, symbols: Sequence[str]) -> Stages | None:
    """Cuts ``graph`` in place. None, and nothing is changed, where no result is computed from another, or where what is written in place stands
    against it. ``symbols``: the sizes that are known outside the graph."""
    plan = _Plan(graph, observed)
    accepted: list[Unit] = []
    for candidate in plan.candidates():
        if plan.stages([*accepted, candidate]) is not None:
            accepted.append(candidate)
    stages = plan.stages(accepted) if accepted else None
    return _Cutting(plan, stages, frozenset(symbols)).run() if stages else None


class _Plan:
    """Units of a graph, and which of them are computed from which."""

    def __init__(self, graph: fx.Graph, observed: Observed) -> None:
        self.graph, self.observed = graph, observed
        self.outputs = list(graph.output_node().args[0])                                      # type: ignore[arg-type]
        self._parents: dict[Unit, Unit] = {}
        self._differentiable = {memory_of(tensor) for value in observed.values.values() for tensor in tensors_of(value) if tensor.requires_grad}
        made: dict[int, int] = {}                                # tensor -> position of the node that gives it first
        for node, value in observed.values.items():
            for tensor in tensors_of(value):
                made.setdefault(id(tensor), observed.position[node])
        self._made = made
        for node, value in observed.values.items():
            for unit in [*map(self._unit_of_tensor, tensors_of(value)), *[("memory", m) for m in self._written(node)]]:
                self._join(("node", node), unit)
        self.uses = [use for node in observed.values for use in self._uses(node)]
        self.leads = self._leading_to_outputs()

    def unit(self, node: fx.Node) -> Unit:
        return self._root(("node", node))

    def _written(self, node: fx.Node) -> list[int]:
        return sorted(self.observed.writes.get(node, set()) & self._differentiable)

    def _unit_of_tensor(self, tensor: torch.Tensor) -> Unit:
        """A view that is taken after the last write is like any other value."""
        written = memory_of(tensor) in self._differentiable and self.observed.written_after(tensor, self._made[id(tensor)])
        return ("memory", memory_of(tensor)) if written else ("tensor", id(tensor))

    def _root(self, unit: Unit) -> Unit:
        while unit in self._parents:
            unit = self._parents[unit]
        return unit

    def _join(self, first: Unit, second: Unit) -> None:
        first, second = self._root(first), self._root(second)
        if first != second:
            self._parents[first] = second

    def _gives_gradients(self, node: fx.Node) -> bool:
        return any(tensor.requires_grad for tensor in tensors_of(self.observed.values[node])) or bool(self._written(node))

    def _uses(self, node: fx.Node) -> list[tuple[fx.Node, fx.Node]]:
        """(given, node) for what ``node`` may send a gradient to."""
        if node.op == "placeholder" or not self._gives_gradients(node):
            return []
        return [(given, node) for given in node.all_input_nodes
                if any(tensor.requires_grad for tensor in tensors_of(self.observed.values[given])) and self.unit(given) != self.unit(node)]

    def differentiable_outputs(self) -> dict[int, Unit]:
        return {number: self.unit(node) for number, node in enumerate(self.outputs)
                if isinstance(node, fx.Node) and any(tensor.requires_grad for tensor in tensors_of(self.observed.values[node]))}

    def _leading_to_outputs(self) -> set[Unit]:
        found = set(self.differentiable_outputs().values())
        for given, node in reversed(self.uses):
            if self.unit(node) in found:
                found.add(self.unit(given))
        return found

    def writes_inputs(self) -> bool:
        """Whether an input that requires grad, or comes to, is written in place."""
        return any(memory_of(tensor) in self.observed.last_write and memory_of(tensor) in self._differentiable
                   for node, value in self.observed.values.items() if node.op == "placeholder" for tensor in tensors_of(value))

    def candidates(self) -> list[Unit]:
        """Units of results that other results are computed from."""
        if self.writes_inputs():
            return []
        outputs = set(self.differentiable_outputs().values())
        computed = {self.unit(given) for given, node in self.uses if self.unit(node) in self.leads}
        return [unit for unit in dict.fromkeys(self.differentiable_outputs().values()) if len(outputs) > 1 and unit in computed]

    def stages(self, cuts: Sequence[Unit]) -> dict[Unit, int] | None:
        """The stage of every unit where what comes after one of ``cuts`` is in a later stage than it; None where that cannot be. What is computed
        in an early stage for later ones only belongs to these."""
        edges = [(self.unit(given), self.unit(node), self._is_cut(given, node, cuts)) for given, node in self.uses if self.unit(node) in self.leads]
        stage = dict.fromkeys((unit for edge in edges for unit in edge[:2]), 0)
        stage.update(dict.fromkeys(self.differentiable_outputs().values(), 0))
        changed = True
        while changed:
            changed = False
            for first, second, later in edges:
                if stage[second] < stage[first] + later:
                    stage[second], changed = stage[first] + later, True
                    if stage[second] > len(cuts):
                        return None
        fixed = {*self.differentiable_outputs().values(), *(self.unit(node) for node in self.observed.values if node.op == "placeholder")}
        latest = {unit: number if unit in fixed else len(cuts) for unit, number in stage.items()}
        changed = True
        while changed:
            changed = False
            for first, second, later in reversed(edges):
                if first not in fixed and latest[first] > latest[second] - later:
                    latest[first], changed = latest[second] - later, True
        return latest if self._can_be_cut(latest) else None

    def _is_cut(self, given: fx.Node, node: fx.Node, cuts: Sequence[Unit]) -> bool:
        place = self.observed.position[node]
        return self.unit(given) in cuts and not any(self.observed.written_after(t, place) for t in tensors_of(self.observed.values[given]))

    def _can_be_cut(self, stage: dict[Unit, int]) -> bool:
        """A value goes to a later stage as it is at the end: a tensor, and not written any more."""
        return all(isinstance(value := self.observed.values[given], torch.Tensor) and value.layout is torch.strided
                   and not self.observed.written_after(value, self.observed.position[node]) for given, node in self.crossing(stage))

    def crossing(self, stage: dict[Unit, int]) -> list[tuple[fx.Node, fx.Node]]:
        return [(given, node) for given, node in self.uses if self.unit(node) in self.leads and stage[self.unit(given)] < stage[self.unit(node)]]


class _Cutting:
    """Puts the cuts of a plan into its graph."""

    def __init__(self, plan: _Plan, stage: dict[Unit, int], symbols: frozenset[str]) -> None:
        self.plan, self.stage, self.symbols = plan, stage, symbols
        values = plan.observed.values
        self.known: dict[int, Source] = {id(values[node]): ("output", number) for number, node in enumerate(plan.outputs)
                                         if isinstance(node, fx.Node)}
        for number, node in enumerate(plan.graph.find_nodes(op="placeholder")):
            self.known.setdefault(id(values[node]), ("input", number))
        self.edge_stages: list[int] = []

    def run(self) -> Stages | None:
        crossing = self.plan.crossing(self.stage)
        values = self.plan.observed.values
        kinds = {id(values[given]): kind for given, _ in crossing if (kind := self._kind(values[given])) is not None}
        if not crossing or len(kinds) < len({id(values[given]) for given, _ in crossing}):
            return None
        sources: list[Source] = []
        found: list[Any] = []
        made: dict[tuple[int, int], fx.Node] = {}                # (value, stage that takes it) -> the cut
        for given, node in crossing:
            value = values[given]
            key = (id(value), self.stage[self.plan.unit(node)])
            if key not in made:
                with self.plan.graph.inserting_before(node):
                    made[key] = self.plan.graph.create_node("call_function", cut, (given, len(sources)), name=f"{given.name}_later")
                sources.append(self._source(value, self.plan.unit(given)))
                found.append(kinds[id(value)])
            node.replace_input_with(given, made[key])
        self.plan.graph.lint()
        outputs = [self.stage.get(self.plan.unit(node), 0) if isinstance(node, fx.Node) else 0 for node in self.plan.outputs]
        return Stages(tuple(sources), tuple(found), tuple(stage for _, stage in made), (*outputs, *self.edge_stages))

    def _source(self, value: torch.Tensor, unit: Unit) -> Source:
        if id(value) not in self.known:
            self.known[id(value)] = ("edge", len(self.edge_stages))
            self.edge_stages.append(self.stage[unit])
        return self.known[id(value)]

    def _kind(self, value: torch.Tensor) -> tuple[tuple[int | str, ...], torch.dtype, torch.device] | None:
        """None where a size is only known inside the graph."""
        sizes: list[int | str] = []
        for size in value.shape:
            if isinstance(size, torch.SymInt):
                expression = size.node.expr
                if not {symbol.name for symbol in expression.free_symbols} <= self.symbols:
                    return None
                try:
                    sizes.append(size_text(expression))
                except UnsupportedGraph:
                    return None
            else:
                sizes.append(size)
        return tuple(sizes), value.dtype, value.device


__all__ = ["Source", "Stages", "cut_in_stages", "may_depend"]
