"""Training variants: a generic `torch.autograd.Function` around a forward and a backward graph.

A region is one node of autograd's graph, or several where it computes several things (`autograd_groups`): an input whose gradient comes from none of
a node's outputs is no input of the node, so that a backward pass goes where it goes in eager, and frees no more. Where one result is computed from
another, the other is an input of its node, and gets the gradient that it gets in eager.

    fake = generator(z)                                       first node: the generator's parameters -> fake
    loss = criterion(discriminator(fake.detach()))            second node: the discriminator's parameters -> loss
    score = discriminator(fake)                               third node: the discriminator's parameters, fake -> score

The forward graph is run once, and then the nodes are made: forward saves what the backward graph needs with ``save_for_backward``, so that version
counters, hooks and memory release work as in eager. backward runs the backward graph. A backward pass that is itself to be differentiated
(``create_graph=True``), or that a mode or a tensor subclass wants to see, is computed instead by differentiating the captured graph (graph.py,
ordinary torch operators) once more.
"""
from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import torch

from aotcompile.runtime.autograd_groups import Edges, Group, Kind, groups_of
from aotcompile.runtime.executor import find_operator, needs_grad_mode
from aotcompile.runtime.guards import UnsupportedPlan
from aotcompile.runtime.state import ambient_reason, below_autograd

GraphFunction = Callable[[Sequence[Any]], list[Any]]
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_MOST_KEPT = 1 << 16                # bytes


class DifferentiationError(RuntimeError):
    """AOT703: this backward pass can be run but not differentiated again."""


def _refusal(region: str, reason: str) -> DifferentiationError:
    return DifferentiationError(f"AOT703 {region}: the backward pass cannot be differentiated again, because {reason}. "
                                'Use set_stance("force_eager") around the forward pass.')


class Training:
    """The graphs of a training variant. ``plan``: plan.json; ``load``: makes a function of a graph, by its name; ``computation``: loads graph.py's
    function, used for double backward only.

    Raises UnsupportedPlan where a saved value is an input that the graph itself changes."""

    def __init__(self, plan: dict[str, Any], load: Callable[[str], GraphFunction], computation: Callable[[], Callable[..., Any]]) -> None:
        self.forward, self._load_computation = load("forward"), computation
        self.region: str = plan["region"]
        self.count: int = plan["output_count"]
        self.reached = [frozenset(results) for results in plan["reached"]]     # for each gradient, the results whose gradients enter it
        self.groups = groups_of(plan)
        self.backward = {name: load(name) for name in dict.fromkeys(group.graph for group in self.groups)}
        self.inputs = len(plan["inputs"])
        self.cuts: list[tuple[str, int]] = [(kind, number) for kind, number in plan.get("cuts", ())]
        self.edges = Edges(plan.get("edges", []), plan["symbols"])
        self.constants = [index for index, needed in enumerate(plan["output_requires_grad"]) if not needed]
        self.numbers = {index: given["number"] for index, given in enumerate(plan["inputs"]) if given["kind"] == "number"}
        self.mutated = {index: given["name"] for index, given in enumerate(plan["inputs"]) if given["mutated"]}
        self.random = False
        self._operators = [step["operator"] for graph in plan["graphs"].values() for step in graph.get("steps", ()) if step["step"] == "call"]
        graph = plan["graphs"]["forward"]
        self._grad_mode = needs_grad_mode(graph)
        changed = {name for name, given in zip(graph["inputs"], plan["inputs"]) if given["mutated"]}
        if any(graph["outputs"][index].get("buffer") in changed for index, _ in plan["saved"]):
            raise UnsupportedPlan("a value saved for the backward graph is an input that the forward graph changes")

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Outputs of the forward graph, with their history. ``inputs``: tensors."""
        before = {index: inputs[index].detach().clone() for index in self.mutated if _is_small_state(inputs[index])}
        values = self.values(inputs)
        kinds = self.edges.kinds(inputs) if self.cuts else []
        pool = [*inputs, *values[:self.count], *self.edges.stand_ins(kinds)]
        numbers = {index: inputs[index].item() for index in self.numbers}
        call = _Call(self, values, kinds, pool, [(weakref.ref(value), value._version) for value in inputs], numbers, before)
        for group in self.groups:
            found = _node(call, group, *[pool[index] for index in group.given])
            for index, result in zip(group.outputs, found, strict=True):
                pool[self.inputs + index] = result
        return pool[self.inputs:self.inputs + self.count]

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        """What the forward graph gives: outputs, then what is saved."""
        with below_autograd(self._grad_mode):
            return self.forward(list(inputs))

    def differentiate(self, ctx: Any, gradients: dict[int, Any]) -> list[Any]:
        """The gradients of a node's inputs as differentiable functions of the region's inputs and ``gradients`` (by result)."""
        lost = next((name for index, name in self.mutated.items() if index not in ctx.before), None)
        if lost is not None:
            raise _refusal(self.region, f"the region changed its input {lost} in place")
        if any(torch.Tag.nondeterministic_seeded in find_operator(name).tags for name in self._operators):
            raise _refusal(self.region, "the region draws random numbers")
        inputs = self._inputs_again(ctx, ctx.saved_tensors)
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases, so that the gradients are partial ones even where one input was computed from another.
            aliases = [value.view_as(value) if isinstance(value, torch.Tensor) else value for value in inputs]
            results, later = self._compute_again(ctx, aliases)
            pairs = [(results[i], gradient) for i, gradient in gradients.items()
                     if gradient is not None and isinstance(results[i], torch.Tensor) and results[i].requires_grad]
            wanted = [i for i, needed in zip(ctx.group.gradients, ctx.needs_input_grad[2:]) if needed]
            if not pairs or not wanted:
                return [None] * len(ctx.group.gradients)
            sources = [aliases[i] if i < self.inputs else later[i] for i in wanted]
            found = torch.autograd.grad([result for result, _ in pairs], sources, [gradient for _, gradient in pairs], create_graph=create_graph,
                                        allow_unused=True)
        by_gradient = dict(zip(wanted, found))
        return [by_gradient.get(index) for index in ctx.group.gradients]

    def _inputs_again(self, ctx: Any, saved: Sequence[torch.Tensor]) -> list[Any]:
        """A call's inputs in double backward, without having kept alive what eager would not: those that are saved anyway come from there, the others
        are remembered weakly."""
        values: list[Any] = []
        for number, (reference, version) in enumerate(ctx.inputs):
            if number in self.numbers:
                values.append(ctx.numbers[number])
                continue
            if number in ctx.before:
                values.append(ctx.before[number].clone())               # it is changed again
                continue
            value = saved[ctx.group.kept[number]] if number in ctx.group.kept else reference()
            if value is None or (number not in ctx.group.kept and value._version != version):
                what = "has been freed" if value is None else "has been changed in place"
                raise _refusal(self.region, f"input {number} of the region {what} since the forward pass (keep a reference to it)")
            # Without a gradient it may be a buffer that the region writes to (running statistics): that was done, in the forward pass.
            values.append(value if value.requires_grad else value.clone())
        return values

    def _compute_again(self, ctx: Any, aliases: Sequence[Any]) -> tuple[dict[int, Any], dict[int, torch.Tensor]]:
        """The region's results by number, and, by gradient, what the node takes of earlier ones: the result itself, if it is still there."""
        edges: dict[int, Any] = {}
        later: dict[int, torch.Tensor] = {}

        def cut(value: torch.Tensor, number: int) -> torch.Tensor:
            kind, place = self.cuts[number]
            if kind == "edge":
                edges[self.count + place] = value
            gradient = self.inputs + number
            if gradient not in ctx.group.gradients:
                return value
            if gradient in ctx.earlier:
                reference, version = ctx.earlier[gradient]
                known = reference()
                value = value if known is None or known._version != version else known
            later[gradient] = value.view_as(value)
            return later[gradient]

        outputs = self._load_computation()(*aliases, **({"cut": cut} if self.cuts else {}))
        return {**dict(enumerate(outputs if isinstance(outputs, (tuple, list)) else (outputs,))), **edges}, later


@dataclass(frozen=True)
class _Call:
    """What the nodes of a call are made of: ``values``, what the forward graph gave; ``kinds``, what the gradients of edges are like; ``pool``, the
    inputs and then the results, with the history that they have so far; ``inputs``, weakly, with their versions; ``before``, by number, what small
    inputs that the region changes were before."""

    training: Training
    values: list[Any]
    kinds: list[Kind]
    pool: list[Any]
    inputs: list[tuple[Any, int]]
    numbers: dict[int, Any]
    before: dict[int, torch.Tensor]

    def kind(self, result: int) -> Kind:
        """What the gradient of a result is like."""
        if result >= self.training.count:
            return self.kinds[result - self.training.count]
        output = self.values[result]
        return output.shape, output.stride(), output.dtype, output.device


def _is_small_state(value: torch.Tensor) -> bool:
    """Whether a changed input is kept as it was, for double backward: the buffers of batch and spectral norms are."""
    return not value.requires_grad and value.numel() * value.element_size() <= _MOST_KEPT


def _tangent(gradient: torch.Tensor | None, like: Kind) -> torch.Tensor:
    """A gradient in the form the backward graph was made for: the output's strides, plain memory, zeros where there is none."""
    size, stride, dtype, device = like
    if gradient is None:
        return torch.empty_strided(size, stride, dtype=dtype, device=device).zero_()
    if gradient.layout is not torch.strided:
        gradient = gradient.to_dense()
    gradient = gradient.resolve_conj().resolve_neg()
    if gradient.stride() == stride and gradient.dtype is dtype:
        return gradient
    return torch.empty_strided(size, stride, dtype=dtype, device=device).copy_(gradient)


class _Compiled(torch.autograd.Function):                         # type: ignore[misc]
    """``apply(call, group, *given)``: the results of the group; ``given``: what its gradients go to."""

    @staticmethod
    def forward(ctx: Any, call: _Call, group: Group, *given: Any) -> tuple[Any, ...]:
        training, values = call.training, call.values
        ctx.training, ctx.group, ctx.inputs, ctx.numbers, ctx.before = training, group, call.inputs, call.numbers, call.before
        ctx.sizes = [values[index] for index in group.sizes]
        ctx.tangents = [(result, call.kind(result)) for result in group.tangents]
        ctx.earlier = {gradient: (weakref.ref(value), value._version) for gradient, value in zip(group.gradients, given)
                       if gradient in group.earlier} if group.earlier else {}
        ctx.save_for_backward(*[values[index] for index in group.saved])
        ctx.set_materialize_grads(False)
        return tuple([call.pool[training.inputs + index] for index in group.outputs])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        training: Training = ctx.training
        group: Group = ctx.group
        if all(gradient is None for gradient in gradients):
            return (None,) * len(ctx.needs_input_grad)
        by_result = dict(zip(group.outputs, gradients))
        if torch.is_grad_enabled() or ambient_reason(False) is not None or any(type(g) not in _PLAIN for g in gradients if g is not None):
            return (None, None, *training.differentiate(ctx, by_result))
        saved = ctx.saved_tensors
        with below_autograd():
            tangents = [_tangent(by_result.get(index), facts) for index, facts in ctx.tangents]
            found = training.backward[group.graph]([*ctx.sizes, *saved, *tangents])
        given = {index for index, gradient in by_result.items() if gradient is not None}
        reached = training.reached                               # where a result is not used, eager leaves what leads only to it without a gradient
        return (None, None, *[found[place] if needed and reached[index] & given else None
                              for index, place, needed in zip(group.gradients, group.places, ctx.needs_input_grad[2:])])


# `apply` without what torch does for torch.func transforms, inside of which nothing compiled runs.
_node = super(torch.autograd.Function, _Compiled).apply
