"""Training variants: a generic `torch.autograd.Function` around a forward and a backward graph.

A region is one node of autograd's graph, or several where it computes several things (`autograd_groups`): an input whose gradient comes from none of
a node's outputs is no input of the node, so that a backward pass goes where it goes in eager, and frees no more.

    fake = generator(z)                                       first node: the generator's parameters -> fake
    loss = criterion(discriminator(fake.detach()))            second node: the discriminator's parameters -> loss

forward runs the forward graph and saves what the backward graph needs with ``save_for_backward``, so that version counters, hooks and memory
release work as in eager. backward runs the backward graph. A backward pass that is itself to be differentiated (``create_graph=True``), or that a
mode or a tensor subclass wants to see, is computed instead by differentiating the captured graph (graph.py, ordinary torch operators) once more.
"""
from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Callable, Sequence

import torch

from aotcompile.runtime.autograd_groups import Group, part_of
from aotcompile.runtime.executor import find_operator, needs_grad_mode
from aotcompile.runtime.guards import UnsupportedPlan
from aotcompile.runtime.state import ambient_reason, below_autograd

GraphFunction = Callable[[Sequence[Any]], list[Any]]
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class DifferentiationError(RuntimeError):
    """AOT703: this backward pass can be run but not differentiated again."""


def _refusal(region: str, reason: str) -> DifferentiationError:
    return DifferentiationError(f"AOT703 {region}: the backward pass cannot be differentiated again, because {reason}. "
                                'Use set_stance("force_eager") around the forward pass.')


class Training:
    """The graphs of a training variant. ``plan``: plan.json. ``computation``: loads graph.py's function, used for double backward only; ``part``:
    makes a function of a part of the backward graph.

    Raises UnsupportedPlan where a saved value is an input that the graph itself changes."""

    def __init__(self, plan: dict[str, Any], forward: GraphFunction, backward: GraphFunction, computation: Callable[[], Callable[..., Any]],
                 part: Callable[[dict[str, Any]], GraphFunction]) -> None:
        self.forward, self.backward, self._load_computation, self._load_part = forward, backward, computation, part
        self.region: str = plan["region"]
        self.count: int = plan["output_count"]
        self.tensors = [index for index, kind in plan["saved"] if kind == "tensor"]
        self.sizes = [index for index, kind in plan["saved"] if kind == "size"]
        self.tangents: list[int] = list(plan["tangents"])
        self._backward_plan: dict[str, Any] = plan["graphs"]["backward"]
        self.reached = [frozenset(outputs) for outputs in plan["reached"]]     # for each input, the outputs whose gradients enter its own
        self.groups = [Group(tuple(group["outputs"]), tuple(group["inputs"]), frozenset(group["needed"])) for group in plan["groups"]]
        self._parts: dict[Group, tuple[GraphFunction, tuple[int, ...]]] = {}
        self.constants = [index for index, needed in enumerate(plan["output_requires_grad"]) if not needed]
        self.numbers = {index: given["number"] for index, given in enumerate(plan["inputs"]) if given["kind"] == "number"}
        self.mutated = [given["name"] for given in plan["inputs"] if given["mutated"]]
        self.random = False
        self._operators = [step["operator"] for graph in plan["graphs"].values() for step in graph.get("steps", ()) if step["step"] == "call"]
        graph = plan["graphs"]["forward"]
        self._grad_mode = needs_grad_mode(graph)
        changed = {name for name, given in zip(graph["inputs"], plan["inputs"]) if given["mutated"]}
        if any(graph["outputs"][index].get("buffer") in changed for index in self.tensors):
            raise UnsupportedPlan("a value saved for the backward graph is an input that the forward graph changes")

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Outputs of the forward graph, with their history. ``inputs``: tensors."""
        values = self.values(inputs)
        outputs = values[:self.count]
        for group in self.groups:
            connected = [inputs[index] for index in group.inputs]
            for index, output in zip(group.outputs, _Compiled.apply(_Call(self, group, values, inputs), *connected), strict=True):
                outputs[index] = output
        return outputs

    def part(self, group: Group) -> tuple[GraphFunction, tuple[int, ...]]:
        """The backward graph as far as the group's inputs need it, and which inputs of the whole one it takes."""
        if len(self.groups) == 1:
            return self.backward, tuple(range(len(self._backward_plan["inputs"])))
        if group not in self._parts:
            part = part_of(self._backward_plan, group.inputs)
            self._parts[group] = self._load_part(part.graph), part.inputs
        return self._parts[group]

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        """What the forward graph gives: outputs, then what is saved."""
        with below_autograd(self._grad_mode):
            return self.forward(list(inputs))

    def differentiate(self, ctx: Any, gradients: dict[int, Any]) -> list[Any]:
        """The gradients of a node's inputs as differentiable functions of the region's inputs and ``gradients`` (by output)."""
        if self.mutated:
            raise _refusal(self.region, f"the region changed its input {self.mutated[0]} in place")
        if any(torch.Tag.nondeterministic_seeded in find_operator(name).tags for name in self._operators):
            raise _refusal(self.region, "the region draws random numbers")
        inputs = ctx.inputs.recall(self.region, ctx.inputs.saved_tensors(ctx))
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases, so that the gradients are partial ones even where one input was computed from another.
            aliases = [value.view_as(value) if isinstance(value, torch.Tensor) else value for value in inputs]
            outputs = self._load_computation()(*aliases)
            outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
            pairs = [(outputs[i], gradient) for i, gradient in gradients.items()
                     if gradient is not None and isinstance(outputs[i], torch.Tensor) and outputs[i].requires_grad]
            wanted = [i for i, needed in zip(ctx.group.inputs, ctx.needs_input_grad[1:]) if needed]
            if not pairs or not wanted:
                return [None] * len(ctx.group.inputs)
            found = torch.autograd.grad([output for output, _ in pairs], [aliases[i] for i in wanted], [gradient for _, gradient in pairs],
                                        create_graph=create_graph, allow_unused=True)
        by_input = dict(zip(wanted, found))
        return [by_input.get(index) for index in ctx.group.inputs]


@dataclass(frozen=True)
class _Call:
    """What a node is made of: what the forward graph gave, from which inputs."""

    training: Training
    group: Group
    values: list[Any]
    inputs: Sequence[torch.Tensor]


class _Inputs:
    """How to find a call's inputs again in double backward, without keeping alive what eager would not: those that are saved anyway come from
    the saved
    tensors, the others are remembered weakly."""

    __slots__ = ("_entries",)

    def __init__(self, training: Training, inputs: Sequence[torch.Tensor], saved: Sequence[torch.Tensor]) -> None:
        places = {id(value): index for index, value in enumerate(saved)}
        self._entries: list[Any] = []
        for index, value in enumerate(inputs):
            if index in training.numbers:
                self._entries.append((None, value.item(), 0))
            elif id(value) in places:
                self._entries.append((None, None, places[id(value)]))
            else:
                self._entries.append((weakref.ref(value), None, 0 if value.is_inference() else value._version))

    def saved_tensors(self, ctx: Any) -> list[torch.Tensor]:
        """What was saved, in the order of the backward graph. Raises RuntimeError where it has been freed, or changed in place."""
        watched = iter(ctx.saved_tensors)
        count = len(ctx.saved_tensors) + len(ctx.unwatched)
        return [ctx.unwatched[place] if place in ctx.unwatched else next(watched) for place in range(count)]

    def recall(self, region: str, saved: Sequence[torch.Tensor]) -> list[Any]:
        values: list[Any] = []
        for number, (reference, constant, place) in enumerate(self._entries):
            if reference is None:
                values.append(saved[place] if constant is None else constant)
                continue
            value = reference()
            if value is None or (not value.is_inference() and value._version != place):
                what = "has been freed" if value is None else "has been changed in place"
                raise _refusal(region, f"input {number} of the region {what} since the forward pass (keep a reference to it)")
            values.append(value)
        return values


def _tangent(gradient: torch.Tensor | None, like: tuple[Any, ...]) -> torch.Tensor:
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
    """``apply(call, *inputs)``: the outputs of the call's group; ``inputs`` are the group's."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *inputs: Any) -> tuple[Any, ...]:
        training, values = call.training, call.values
        outputs = values[:training.count]
        _, taken = training.part(call.group)
        first, count = len(training.sizes), len(training.sizes) + len(training.tensors)
        saved = [values[training.tensors[index - first]] for index in taken if first <= index < count]
        # A part may be given more than its gradients need, as buffers share memory: that is not watched for changes.
        ctx.unwatched = {place: value.detach() for place, (index, value) in enumerate(zip((i for i in taken if first <= i < count), saved))
                         if len(training.groups) > 1 and index not in call.group.needed}
        ctx.training, ctx.group, ctx.saved_sizes = training, call.group, [values[training.sizes[index]] for index in taken if index < first]
        ctx.tangent_facts = [(number, (outputs[number].shape, outputs[number].stride(), outputs[number].dtype, outputs[number].device))
                             for number in (training.tangents[index - count] for index in taken if index >= count)]
        ctx.inputs = _Inputs(training, call.inputs, saved)
        ctx.save_for_backward(*[value for place, value in enumerate(saved) if place not in ctx.unwatched])
        ctx.set_materialize_grads(False)
        return tuple(outputs[index] for index in call.group.outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        training: Training = ctx.training
        if all(gradient is None for gradient in gradients):
            return (None,) * len(ctx.needs_input_grad)
        by_output = dict(zip(ctx.group.outputs, gradients))
        if torch.is_grad_enabled() or ambient_reason(False) is not None or any(type(g) not in _PLAIN for g in gradients if g is not None):
            return (None, *training.differentiate(ctx, by_output))
        saved = ctx.inputs.saved_tensors(ctx)
        with below_autograd():
            tangents = [_tangent(by_output.get(index), facts) for index, facts in ctx.tangent_facts]
            found = list(training.part(ctx.group)[0]([*ctx.saved_sizes, *saved, *tangents]))
        given = {index for index, gradient in by_output.items() if gradient is not None}
        reached = training.reached                               # where an output is not used, eager leaves what leads only to it without a gradient
        return (None, *[found[index] if needed and reached[index] & given else None
                        for index, needed in zip(ctx.group.inputs, ctx.needs_input_grad[1:])])
