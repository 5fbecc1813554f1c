"""Training variants: one generic `torch.autograd.Function` around a forward and a backward graph.

forward runs the forward graph and saves what the backward graph needs with ``save_for_backward``, so that version counters, hooks and memory
release work as in eager. backward runs the backward graph. A backward pass that is itself to be differentiated (``create_graph=True``), or that a
mode or a tensor subclass wants to see, is computed instead by differentiating the captured graph (graph.py, ordinary torch operators) once more.
"""
from __future__ import annotations

import weakref
from typing import Any, Callable, Sequence

import torch

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
    """The graphs of a training variant. ``plan``: plan.json. ``computation``: loads graph.py's function, used for double backward only.

    Raises UnsupportedPlan where a saved value is an input that the graph itself changes."""

    def __init__(self, plan: dict[str, Any], forward: GraphFunction, backward: GraphFunction, computation: Callable[[], Callable[..., Any]]) -> None:
        self.forward, self.backward, self._load_computation = forward, backward, computation
        self.region: str = plan["region"]
        self.count: int = plan["output_count"]
        self.tensors = [index for index, kind in plan["saved"] if kind == "tensor"]
        self.sizes = [index for index, kind in plan["saved"] if kind == "size"]
        self.tangents: list[int] = list(plan["tangents"])
        self._backward_plan: dict[str, Any] = plan["graphs"]["backward"]
        self._reached: list[set[int]] | None = None
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
        return list(_Compiled.apply(self, *inputs))

    def values(self, inputs: Sequence[Any]) -> list[Any]:
        """What the forward graph gives: outputs, then what is saved."""
        with below_autograd(self._grad_mode):
            return self.forward(list(inputs))

    def reached(self) -> list[set[int]]:
        """For each input, the outputs whose gradients enter its own."""
        if self._reached is None:
            self._reached = _reached(self._backward_plan, self.tangents)
        return self._reached

    def differentiate(self, ctx: Any, gradients: Sequence[Any]) -> list[Any]:
        """The gradients of the inputs as differentiable functions of inputs and ``gradients``."""
        if self.mutated:
            raise _refusal(self.region, f"the region changed its input {self.mutated[0]} in place")
        if any(torch.Tag.nondeterministic_seeded in find_operator(name).tags for name in self._operators):
            raise _refusal(self.region, "the region draws random numbers")
        inputs = ctx.inputs.recall(self.region, ctx.saved_tensors)
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            # Aliases, so that the gradients are partial ones even where one input was computed from another.
            aliases = [value.view_as(value) if isinstance(value, torch.Tensor) else value for value in inputs]
            outputs = self._load_computation()(*aliases)
            outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
            pairs = [(outputs[i], gradients[i]) for i in range(self.count)
                     if gradients[i] is not None and isinstance(outputs[i], torch.Tensor) and outputs[i].requires_grad]
            wanted = [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
            if not pairs or not wanted:
                return [None] * len(inputs)
            found = torch.autograd.grad([output for output, _ in pairs], [aliases[i] for i in wanted], [gradient for _, gradient in pairs],
                                        create_graph=create_graph, allow_unused=True)
        result: list[Any] = [None] * len(inputs)
        for index, gradient in zip(wanted, found):
            result[index] = gradient
        return result


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


def _reached(graph: dict[str, Any], tangents: Sequence[int]) -> list[set[int]]:
    """For each output of a backward graph, the tangents (by the number of their output) that it is computed from. A step is taken to write to all
    buffers it names but the graph's inputs, so the answer may name too many, never too few."""
    inputs: list[str] = graph["inputs"]
    first = len(inputs) - len(tangents)
    enters: dict[str, set[int]] = {name: {index} for name, index in zip(inputs[first:], tangents)}
    base: dict[str, str] = {}
    scalars: set[int] = set()

    def root(name: str) -> str:
        while name in base:
            name = base[name]
        return name

    for step in graph["steps"]:
        if step["step"] == "view":
            base[step["name"]] = step["base"]
            continue
        names = [root(name) for name in _buffers(step)]
        together = scalars.union(*(enters.get(name, set()) for name in names))
        if step["step"] == "read_scalar":
            scalars = together
        enters.update({name: together for name in names if name not in inputs})
    return [enters.get(root(output["buffer"]), set()) if isinstance(output, dict) and "buffer" in output else set() for output in graph["outputs"]]


def _buffers(form: Any) -> list[str]:
    """The buffers that a step names, wherever it does."""
    if isinstance(form, dict):
        named = [value for key, value in form.items() if key in ("buffer", "name", "number") and isinstance(value, str)]
        return named + [name for key, value in form.items() if key not in ("buffer", "name", "number") for name in _buffers(value)] \
            + [name for key in ("buffers", "results") for name in form.get(key, ()) if isinstance(name, str)]
    return [name for part in form for name in _buffers(part)] if isinstance(form, list) else []


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
    """``apply(training, *inputs)``."""

    @staticmethod
    def forward(ctx: Any, training: Training, *inputs: Any) -> tuple[Any, ...]:
        values = training.values(inputs)
        outputs = values[:training.count]
        saved = [values[index] for index in training.tensors]
        ctx.training, ctx.saved_sizes = training, [values[index] for index in training.sizes]
        ctx.tangent_facts = [(outputs[i].shape, outputs[i].stride(), outputs[i].dtype, outputs[i].device) for i in training.tangents]
        ctx.inputs = _Inputs(training, inputs, saved)
        ctx.save_for_backward(*saved)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[outputs[index] for index in training.constants])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        training: Training = ctx.training
        if all(gradient is None for gradient in gradients):
            return (None,) * len(ctx.needs_input_grad)
        if torch.is_grad_enabled() or ambient_reason(False) is not None or any(type(g) not in _PLAIN for g in gradients if g is not None):
            return (None, *training.differentiate(ctx, gradients))
        saved = ctx.saved_tensors
        with below_autograd():
            tangents = [_tangent(gradients[index], facts) for index, facts in zip(training.tangents, ctx.tangent_facts)]
            found = list(training.backward([*ctx.saved_sizes, *saved, *tangents]))
        given = {index for index in training.tangents if gradients[index] is not None}
        if len(given) < len(training.tangents):                  # an output is not used: eager leaves what leads only to it without a gradient
            found = [gradient if not reached or reached & given else None for gradient, reached in zip(found, training.reached())]
        return (None, *[gradient if needed else None for gradient, needed in zip(found, ctx.needs_input_grad[1:])])
