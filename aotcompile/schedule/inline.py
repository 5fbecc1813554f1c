"""Inlining: a producer's body put in place of the load that reads it, where the two do not run over the same points.

::

    t[i*8 + j] = exp(x[i*8 + j])            y[j*4 + i] = exp(x[i*8 + j]) + 1
    y[j*4 + i] = t[i*8 + j] + 1      ->

Producers at the same point are not inlined: fusion keeps them as named values of one kernel, evaluated once.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aotcompile.ir.expression import Expression, FloorDivide, Modulo, Symbol, children, substitute
from aotcompile.ir.cost import cost
from aotcompile.ir.linear import exact_quotient, static
from aotcompile.ir.nodes import Cast, Compute, Constant, IndexValue, Load, Loop, Value
from aotcompile.ir.simplify import Ranges, simplify
from aotcompile.ir.traverse import Rewriter, compute_values, rewrite_store, walk
from aotcompile.schedule.dependences import Dependences, facts_of
from aotcompile.schedule.space import align, combine, delinearize, numel

LARGEST_BODY = 250                    # distinct nodes of a body after inlining
_ALWAYS = 8                           # a body without loads of at most so many nodes is inlined everywhere (full, arange, masks by position)


def all_loops(compute: Compute) -> tuple[Loop, ...]:
    return compute.loops + (compute.reduction.loops if compute.reduction else ())


def is_plain(compute: Compute) -> bool:
    """Pointwise, into memory of its own, each element once."""
    store = compute.store
    return compute.reduction is None and compute.updates is None and store.mode == "assign" and not store.bindings and not store.checks


def is_scatter(compute: Compute) -> bool:
    return compute.store.mode == "add" or bool(compute.store.bindings)


def same_point(producer: Compute, consumer: Compute, index: Expression) -> bool:
    """Whether the consumer reads, at each of its points, what the producer makes at that point (in row-major order of both)."""
    loops = all_loops(consumer)
    refined = align([loop.size for loop in producer.loops], [loop.size for loop in loops])
    if refined is None:
        return False
    sizes, first, second = refined
    variables = [Symbol(f"_w{k}") for k in range(len(sizes))]
    point = {loop.variable: combine(variables, sizes, members) for loop, members in zip(producer.loops, first)}
    other = {loop.variable: combine(variables, sizes, members) for loop, members in zip(loops, second)}
    written, read = substitute(producer.store.index, point), substitute(index, other)
    if written == read:
        return True
    ranges = Ranges.of([Loop(variable, size) for variable, size in zip(variables, sizes)])
    return simplify(read, ranges) == simplify(written, ranges)


def _has_division(value: Expression) -> bool:
    return isinstance(value, (FloorDivide, Modulo)) or any(map(_has_division, children(value)))


class Inliner:
    """Decides and rewrites. ``uses``: buffer name -> number of operations that read it; ``final`` gives a producer's body after its own inlining."""

    def __init__(self, dependences: Dependences, uses: dict[str, int], final: Callable[[int], Compute]) -> None:
        self._dependences = dependences
        self._uses = uses
        self._final = final
        self._outputs = set(dependences.output_names)

    def rewrite(self, compute: Compute) -> Compute:
        """``compute`` with every load replaced whose producer is better inlined; repeated on what that brings in."""
        budget = LARGEST_BODY
        for _ in range(32):
            chosen: dict[int, Value] = {}
            for value in compute_values(compute):
                for node in walk(value):
                    if isinstance(node, Load) and id(node) not in chosen:
                        body = self._body_for(compute, node, budget)
                        if body is not None:
                            chosen[id(node)] = body
                            budget -= sum(1 for _ in walk(body))
            if not chosen:
                return compute
            compute = self._replace(compute, chosen)
        return compute

    def _replace(self, compute: Compute, chosen: dict[int, Value]) -> Compute:
        originals = {}
        for value in compute_values(compute):
            for node in walk(value):
                if id(node) in chosen:
                    originals[node] = chosen[id(node)]

        def replaced(node: Value) -> Value:
            return originals.get(node, node) if isinstance(node, Load) else node
        rewriter = Rewriter(node=replaced)
        return replace(compute, body=rewriter(compute.body), store=rewrite_store(compute.store, rewriter, lambda e: e))

    def _body_for(self, consumer: Compute, load: Load, budget: int) -> Value | None:
        dependences = self._dependences
        number = dependences.producer.get(load.buffer)
        if number is None or load.bindings or dependences.root_of(load.buffer) in dependences.updated_roots:
            return None
        operation = dependences.facts[number].operation
        if not isinstance(operation, Compute) or not is_plain(operation):
            return None
        producer = self._final(number)
        if not self._wanted(producer, consumer, load, budget):
            return None
        point = delinearize(load.index, producer.loops, producer.store.index)
        if point is None:
            return None
        bounds = self._dependences.program.ranges
        ranges = Ranges.of(all_loops(consumer), {name: pair for name, pair in bounds.items()})
        point = {symbol: simplify(value, ranges) for symbol, value in point.items()}
        constant = not any(isinstance(node, Load) for node in walk(producer.body))
        if not constant and not _has_division(load.index) and any(map(_has_division, point.values())):
            return None
        return Rewriter(lambda e: simplify(substitute(e, point), ranges))(producer.body)

    def _wanted(self, producer: Compute, consumer: Compute, load: Load, budget: int) -> bool:
        nodes = list(walk(producer.body))
        if len(nodes) > budget:
            return False
        loads = [node for node in nodes if isinstance(node, Load)]
        fact = facts_of(producer)
        dependences = self._dependences
        roots = {dependences.root_of(name) for name in fact.reads}
        if roots & dependences.updated_roots:
            return False
        if not loads and len(nodes) <= _ALWAYS and not fact.fallible:
            return True
        if is_copy(producer.body):
            return not fact.fallible or self._only_use(load.buffer)
        if same_point(producer, consumer, load.index):
            return is_scatter(consumer) and self._only_use(load.buffer)
        ratio = exact_quotient(numel(all_loops(consumer)), numel(producer.loops))
        known = None if ratio is None else static(ratio)
        cheap = cost([producer.body]) <= 4
        if known is not None and known <= 1:
            return self._only_use(load.buffer) or (cheap and not fact.fallible and load.buffer not in self._outputs and self._uses[load.buffer] <= 2)
        return cheap and not fact.fallible and load.buffer not in self._outputs and self._uses[load.buffer] <= 2

    def _only_use(self, name: str) -> bool:
        return self._uses[name] == 1 and name not in self._outputs


def is_copy(value: Value) -> bool:
    """A load as it is (clone, contiguous): reading the source instead is never worse."""
    if isinstance(value, Cast):
        value = value.argument
        return isinstance(value, (Constant, IndexValue))
    return isinstance(value, (Constant, IndexValue)) or isinstance(value, Load) and not value.bindings
