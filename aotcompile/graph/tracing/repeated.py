"""ATen graphs of programs with repeated parts: every distinct operator is traced once, its ATen nodes are copied wherever it is called again.

A model of 24 equal layers calls the same operators on tensors of the same kind 24 times. AOTAutograd would trace all of them (twice); here

    linear(x: f32[2, 16, 32], w: f32[64, 32])          traced:  t, view, mm, view          copied: 47 times
    its backward for a tangent f32[2, 16, 64]          traced:  mm, t, mm, view            copied: 47 times

and the joint graph is put together as autograd would: operators in reverse order, gradients of one value added in the order in which they arrive.
This needs operators without memory: a program that writes in place, has numbers or sizes that vary, or draws on what only the whole trace knows
raises `NotRepeated`, and is traced as a whole.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import fx

from aotcompile.graph.autograd.cut import cut
from aotcompile.graph.autograd.stages import Source
from aotcompile.graph.torch_private import FakeTensorMode, graph_module, trace_functional
from aotcompile.graph.tracing.checks import CHECKS

MINIMUM_CALLS = 96
MAXIMUM_SHARE = 0.5                         # of calls that differ from all others: with more, one trace of the whole is cheaper
aten = torch.ops.aten
_MAY_COPY = frozenset({"aten::reshape", "aten::contiguous", "aten::to", "aten::flatten", "aten::type_as", "aten::expand_as"})
_STATE = frozenset({"_enter_autocast", "_exit_autocast", "_set_grad_enabled"})


class NotRepeated(Exception):
    """The program has to be traced as a whole."""


@dataclass(eq=False)
class Value:
    """A tensor of the program: its node in the graph under construction, and what it is."""

    node: fx.Node
    fake: torch.Tensor
    requires_grad: bool

    def kind(self) -> tuple[Any, ...]:
        t = self.fake
        return (tuple(t.shape), t.stride(), t.storage_offset(), t.dtype, t.device, self.requires_grad)


@dataclass
class Traced:
    """One operator, or an operator and its backward, as a graph."""

    module: fx.GraphModule
    placeholders: list[fx.Node]
    body: list[fx.Node]
    outputs: list[Any]                      # nodes of the graph, or None
    structure: Any = None                   # of the operator's result: `Leaf` for tensors
    requires_grad: tuple[bool, ...] = ()
    tag: str = "is_forward"
    copied: dict[fx.Node, fx.Node] = field(default_factory=dict)        # of a joint graph: the same node of the forward graph


@dataclass(frozen=True)
class Leaf:
    """Result tensor number ``index`` of an operator."""

    index: int


@dataclass
class Call:
    """A call whose result takes part in the backward."""

    key: Any
    run: Callable[..., Any]
    traced: Traced
    operands: list[Value]
    results: list[Value]
    copies: dict[fx.Node, fx.Node]
    stack_trace: str | None


def worth_it(graph: fx.Graph) -> bool:
    """Whether many calls of the graph differ in nothing but their tensors, as far as can be seen without tracing."""
    calls = [node for node in graph.nodes if node.op.startswith("call_")]
    if len(calls) < MINIMUM_CALLS:
        return False
    try:
        distinct = {(node.target, _constant_key(node.args, _anything), _constant_key(node.kwargs, _anything)) for node in calls}
    except NotRepeated:
        return False
    return len(distinct) <= MAXIMUM_SHARE * len(calls)


def _anything(node: fx.Node) -> Any:
    return "tensor"


@dataclass
class Result:
    """``graph``: the inference graph, or the joint one; ``metadata``: what AOTAutograd would say of the outputs."""

    graph: fx.GraphModule
    metadata: SimpleNamespace
    tangents: list[torch.Tensor]


class RepeatedTracer:
    """Builds the graph of one captured program. ``around`` gives the context in which operators run; ``cuts``: what the program's cuts are of."""

    def __init__(self, mode: FakeTensorMode, decompositions: dict[Any, Any], around: Callable[[fx.Node], AbstractContextManager[Any]],
                 cuts: Sequence[Source] = ()) -> None:
        self._mode, self._decompositions, self._around, self._cuts = mode, decompositions, around, cuts
        self._later: list[Value] = []                             # by cut: the value as later stages see it
        self._edges: dict[int, Value] = {}
        self.graph = fx.Graph()
        self.root = torch.nn.Module()
        self._memory: dict[Any, Traced] = {}
        self._sums: dict[Any, torch.Tensor] = {}
        self._calls: list[Call] = []
        self._values: dict[fx.Node, Any] = {}

    # ---- the whole --------------------------------------------------------------------------------------------------------------------------

    def run(self, program: fx.Graph, inputs: Sequence[torch.Tensor], training: bool) -> Result:
        names = "primals_{}" if training else "arg{}_1"
        placeholders: list[Value] = []
        outputs: list[Any] = []
        for node in program.nodes:
            if node.op == "placeholder":
                fake = inputs[len(placeholders)]
                made = self.graph.placeholder(names.format(len(placeholders) + int(training)))
                made.meta["val"] = fake
                placeholders.append(Value(made, fake, fake.requires_grad))
                self._values[node] = placeholders[-1]
            elif node.op == "output":
                outputs = [self._argument(value) for value in node.args[0]]
            else:
                self._values[node] = self._call(node)
        if not all(isinstance(value, Value) for value in outputs):
            raise NotRepeated("an output is no tensor")
        if training and not any(value.requires_grad for value in outputs):
            raise NotRepeated("nothing is differentiable")
        results = [value.node for value in outputs]
        tangents: list[torch.Tensor] = []
        if training:
            outputs += self._edges.values()
            gradients, tangents = self._backward(outputs, [*placeholders, *self._later])
            results += gradients
        self.graph.output(tuple(results))
        facts = [SimpleNamespace(requires_grad=value.requires_grad, raw_type=torch.Tensor) for value in outputs]
        return Result(graph_module(self.root, self.graph), SimpleNamespace(output_info=facts), tangents)

    # ---- forward ----------------------------------------------------------------------------------------------------------------------------

    def _argument(self, value: Any) -> Any:
        return fx.node.map_aggregate(value, lambda leaf: self._values[leaf] if isinstance(leaf, fx.Node) else leaf)

    def _call(self, node: fx.Node) -> Any:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if node.target is operator.getitem and not isinstance(container := self._values.get(node.args[0]), Value):     # type: ignore[arg-type]
            return container[node.args[1]]
        arguments, keywords = self._argument(node.args), self._argument(node.kwargs)
        if node.target is cut:
            return self._cut(*arguments)
        if name in _STATE:
            return self._state(node, arguments, keywords)
        if _autocast():
            raise NotRepeated("autocast keeps the weights that it has cast")
        operands: list[Value] = []

        def number(value: Any) -> Any:
            if value not in operands:
                operands.append(value)
            return (operands.index(value), value.kind())

        key = (node.target, _constant_key(arguments, number), _constant_key(keywords, number), torch.is_grad_enabled())

        def run(tensors: Sequence[torch.Tensor]) -> Any:
            given = {id(value): tensor for value, tensor in zip(operands, tensors)}
            own, named = (_map(part, lambda leaf: given[id(leaf)] if isinstance(leaf, Value) else leaf) for part in (arguments, keywords))
            with self._around(node):
                return getattr(own[0], node.target)(*own[1:], **named) if node.op == "call_method" else node.target(*own, **named)  # type: ignore[operator]

        traced = self._memory.get(key)
        if traced is None:
            traced = self._memory[key] = self._trace_forward(run, operands)
        return self._apply(node, key, run, traced, operands)

    def _cut(self, value: Value, number: int) -> Value:
        kind, place = self._cuts[number]
        if kind == "edge":
            self._edges.setdefault(place, value)
        self._later.append(Value(value.node, value.fake, value.requires_grad))
        return self._later[number]

    def _state(self, node: fx.Node, arguments: Any, keywords: Any) -> Any:
        with self._around(node):
            return node.target(*arguments, **keywords)                                        # type: ignore[operator]

    def _apply(self, node: fx.Node, key: Any, run: Callable[..., Any], traced: Traced, operands: list[Value]) -> Any:
        copies = self._copy(traced, [value.node for value in operands], {}, node.meta.get("stack_trace"))
        by_node = {value.node: value for value in reversed(operands)}
        results: list[Value] = []
        for output, requires_grad in zip(traced.outputs, traced.requires_grad):
            made = copies[output]
            same = by_node.get(made)
            results.append(same if same is not None and same.requires_grad == requires_grad else Value(made, output.meta["val"], requires_grad))
        if any(traced.requires_grad) and not all(result in operands for result in results):
            self._calls.append(Call(key, run, traced, operands, results, copies, node.meta.get("stack_trace")))
        return _map(traced.structure, lambda leaf: results[leaf.index] if isinstance(leaf, Leaf) else leaf)

    def _copy(self, traced: Traced, operands: Sequence[fx.Node], known: dict[fx.Node, fx.Node], stack_trace: str | None) -> dict[fx.Node, fx.Node]:
        """The traced nodes in the graph under construction; ``known``: those that are there already."""
        made: dict[fx.Node, fx.Node] = dict(zip(traced.placeholders, operands))
        for node in traced.body:
            if (there := traced.copied.get(node)) is not None:
                made[node] = known[there]
                continue
            if node.op == "get_attr":
                new = self.graph.get_attr(self._constant(traced, str(node.target)))
            else:
                arguments, keywords = fx.node.map_arg((node.args, node.kwargs), made.__getitem__)
                new = self.graph.create_node(node.op, node.target, arguments, keywords, name=node.name)
            new.meta.update({"val": node.meta.get("val"), "stack_trace": stack_trace, "partitioner_tag": traced.tag})
            made[node] = new
        return made

    def _constant(self, traced: Traced, name: str) -> str:
        value = getattr(traced.module, name)
        for known, other in self.root.named_buffers():
            if other is value:
                return known
        own = f"_tensor_constant{len(self.root._buffers)}"
        self.root.register_buffer(own, value)
        return own

    def _trace_forward(self, run: Callable[..., Any], operands: list[Value]) -> Traced:
        structure: Any = None
        requires_grad: tuple[bool, ...] = ()

        def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
            nonlocal structure, requires_grad
            found: list[torch.Tensor] = []
            structure = _map(run(tensors), lambda leaf: _leaf(leaf, found))
            requires_grad = tuple(tensor.requires_grad for tensor in found)
            return found

        traced = self._trace(function, [self._stand_in(value) for value in operands])
        traced.structure, traced.requires_grad = structure, requires_grad
        return traced

    def _stand_in(self, value: Value) -> torch.Tensor:
        fake = value.fake
        if fake.is_conj() or fake.is_neg() or fake.layout is not torch.strided:
            raise NotRepeated("a tensor is conjugated lazily or not strided")
        with self._mode, torch.no_grad():
            if fake.storage_offset():
                extent = fake.storage_offset() + 1 + sum((size - 1) * stride for size, stride in zip(fake.shape, fake.stride()))
                made = torch.empty(extent, dtype=fake.dtype, device=fake.device).as_strided(fake.shape, fake.stride(), fake.storage_offset())
            else:
                made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
        return made.requires_grad_(value.requires_grad)

    def _trace(self, function: Callable[..., Any], tensors: list[torch.Tensor]) -> Traced:
        module, written = trace_functional(function, tensors, self._mode, self._decompositions)
        if written:
            raise NotRepeated("an operand is written in place")
        nodes = list(module.graph.nodes)
        body = [node for node in nodes if node.op not in ("placeholder", "output")]
        for node in body:
            _check(node)
        outputs = list(module.graph.output_node().args[0])
        return Traced(module, [node for node in nodes if node.op == "placeholder"], body, outputs)

    # ---- backward ---------------------------------------------------------------------------------------------------------------------------

    def _backward(self, outputs: list[Value], inputs: list[Value]) -> tuple[list[Any], list[torch.Tensor]]:
        gradients: dict[int, Value] = {}
        tangents = []
        for output in outputs:
            if output.requires_grad:
                made = self.graph.placeholder(f"tangents_{len(tangents) + 1}")
                tangent = made.meta["val"] = self._stand_in(Value(made, output.fake, False))
                tangents.append(tangent)
                self._add(gradients, output, Value(made, tangent, False), None)
        self._move_placeholders()
        for call in reversed(self._calls):
            self._backward_of(call, gradients)
        return [gradients[id(value)].node if id(value) in gradients else None for value in inputs], tangents

    def _move_placeholders(self) -> None:
        """Tangents stand behind the other placeholders."""
        last = None
        for node in list(self.graph.nodes):
            if node.op == "placeholder":
                if last is not None and node.prev is not last:
                    last.append(node)
                last = node

    def _backward_of(self, call: Call, gradients: dict[int, Value]) -> None:
        arrived = [gradients.get(id(result)) if result.requires_grad and result not in call.operands else None for result in call.results]
        given = [value for value in arrived if value is not None]
        if not given:
            return
        key = (call.key, tuple(value.kind() if value is not None else None for value in arrived))
        traced = self._memory.get(key)
        if traced is None:
            traced = self._memory[key] = self._trace_joint(call, arrived)
        copies = self._copy(traced, [value.node for value in (*call.operands, *given)], call.copies, call.stack_trace)
        for operand, output in zip(call.operands, traced.outputs):
            if output is not None:
                self._add(gradients, operand, Value(copies[output], output.meta["val"], False), call.stack_trace)

    def _trace_joint(self, call: Call, arrived: list[Value | None]) -> Traced:
        count = len(call.operands)
        present = [value is not None for value in arrived]

        def function(*tensors: torch.Tensor) -> list[Any]:
            primals, tangents = tensors[:count], tensors[count:]
            found: list[torch.Tensor] = []
            _map(call.run(primals), lambda leaf: _leaf(leaf, found))
            needing = [tensor for tensor in primals if tensor.requires_grad]
            results = iter(torch.autograd.grad([t for t, wanted in zip(found, present) if wanted], needing, tangents, allow_unused=True))
            return [next(results) if tensor.requires_grad else None for tensor in primals]

        with torch.enable_grad():
            traced = self._trace(function, [self._stand_in(value) for value in (*call.operands, *(v for v in arrived if v is not None))])
        traced.tag = "is_backward"
        _match(traced, call.traced, count)
        return traced

    def _add(self, gradients: dict[int, Value], value: Value, gradient: Value, stack_trace: str | None) -> None:
        known = gradients.get(id(value))
        if known is None:
            gradients[id(value)] = gradient
            return
        kinds = (known.kind(), gradient.kind())
        if kinds not in self._sums:
            with self._mode, torch.no_grad():
                self._sums[kinds] = aten.add.Tensor(known.fake, gradient.fake)
        made = self.graph.create_node("call_function", aten.add.Tensor, (known.node, gradient.node), name="add")
        made.meta.update({"val": self._sums[kinds], "stack_trace": stack_trace, "partitioner_tag": "is_backward"})
        gradients[id(value)] = Value(made, self._sums[kinds], False)


# ---- helpers --------------------------------------------------------------------------------------------------------------------------------


def _leaf(value: Any, found: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        found.append(value)
        return Leaf(len(found) - 1)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise NotRepeated("a result is a symbolic number")
    return value


def _map(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """``leaf`` applied inside tuples, lists, dicts and slices; what torch returns with names becomes a plain tuple."""
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, tuple):
        return tuple(_map(item, leaf) for item in value)
    if isinstance(value, list):
        return [_map(item, leaf) for item in value]
    if isinstance(value, dict):
        return {name: _map(item, leaf) for name, item in value.items()}
    if isinstance(value, slice):
        return slice(_map(value.start, leaf), _map(value.stop, leaf), _map(value.step, leaf))
    return leaf(value)


def _constant_key(value: Any, tensor: Callable[[Any], Any]) -> Any:
    """Arguments as something that can be compared: 1, 1.0, True and -0.0 are four."""
    if isinstance(value, (Value, fx.Node)):
        return tensor(value)
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, *(_constant_key(item, tensor) for item in value))
    if isinstance(value, dict):
        return ("dict", *((name, _constant_key(item, tensor)) for name, item in value.items()))
    if isinstance(value, slice):
        return ("slice", *(_constant_key(part, tensor) for part in (value.start, value.stop, value.step)))
    if isinstance(value, (int, float, complex, str, bytes)) or value is None or value is Ellipsis:
        return (type(value).__name__, repr(value))
    if isinstance(value, (torch.dtype, torch.device, torch.memory_format, torch.layout)):
        return value
    raise NotRepeated(f"an argument is a {type(value).__name__}")


def _autocast() -> bool:
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


def _check(node: fx.Node) -> None:
    """Raises NotRepeated for a node that means something only where it was traced."""
    if node.op == "get_attr" or node.target is operator.getitem:
        return
    if not isinstance(node.target, torch._ops.OpOverload):
        raise NotRepeated(f"{node.target} is no operator")
    schema = node.target._schema
    if node.target in CHECKS or schema.name in _MAY_COPY or schema.is_mutable:
        raise NotRepeated(f"{schema.name} depends on its surroundings")
    if not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)):
        raise NotRepeated(f"{schema.name} gives a number")


def _match(joint: Traced, forward: Traced, count: int) -> None:
    """Find the forward's nodes in the joint trace of forward and backward."""
    same: dict[Any, fx.Node] = dict(zip(joint.placeholders[:count], forward.placeholders))
    known: dict[Any, list[fx.Node]] = {}
    for node in forward.body:
        known.setdefault(_node_key(node, {}), []).append(node)
    for node in joint.body:
        there = known.get(_node_key(node, same))
        if there:
            same[node] = joint.copied[node] = there[0] if len(there) == 1 else there.pop(0)
        elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags:
            raise NotRepeated("random numbers are drawn in the backward")


def _node_key(node: fx.Node, same: dict[Any, fx.Node]) -> Any:
    def operand(other: Any) -> Any:
        return same.get(other, other)

    return (node.target, _constant_key(node.args, operand), _constant_key(node.kwargs, operand))


__all__ = ["NotRepeated", "RepeatedTracer", "Result", "worth_it"]
