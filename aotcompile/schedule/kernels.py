"""From a finished group to a `FusedKernel`: what each stage evaluates, what stays local, loop order, merged loops.

A pointwise value that a later stage reads again is evaluated again there if that is cheap (softmax's ``exp``), else it is stored where it is made
first and read back: the row is still in the cache.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from aotcompile.ir.expression import ONE, ZERO, Expression, Symbol, free_symbols, substitute
from aotcompile.ir.cost import cost
from aotcompile.ir.linear import coefficient, product, static
from aotcompile.ir.nodes import Compute, IndexValue, Load, Loop
from aotcompile.ir.traverse import compute_values, walk
from aotcompile.schedule.group import Group, Member, loads_of, move
from aotcompile.schedule.types import FusedKernel, Stage

RECOMPUTE_AT_MOST = 36                # cost up to which a value is evaluated again in a later stage
RECOMPUTE_LOADS = 3


class KernelBuilder:
    """``external``: names that something outside the group reads (or that are outputs, or whose memory is updated later)."""

    def __init__(self, group: Group, external: set[str]) -> None:
        self._group = group
        self._external = external
        self._by_name = {member.compute.result: member for member in group.members}
        self._stored = {m.compute.result for m in group.members if m.compute.result in external or m.compute.updates is not None}
        self._again: dict[str, bool] = {}

    def build(self, name: str) -> FusedKernel | None:
        """None if nothing of the group is needed."""
        contents = self._stage_contents()
        stages = [(full, computes) for full, computes in contents if computes]
        if not stages:
            return None
        outer, inner = self._group.outer, self._group.inner
        made = {c.result for _, computes in stages for c in computes}
        stored = made & self._stored
        outer, inner, stages = _ordered(outer, inner, stages, stored)
        outer, inner, stages = _collapsed(outer, inner, stages)
        outer, inner, stages = _named(outer, inner, stages)
        result: list[Stage] = []
        for full, computes in stages:
            reduces = any(c.reduction is not None for c in computes)
            result.append(Stage("reduce" if reduces else "map", inner if full else (), tuple(computes)))
        return _assemble(name, outer, result, stored, made)

    # ---- what each stage evaluates ---------------------------------------------------------------------------------------------------------

    def _stage_contents(self) -> list[tuple[bool, list[Compute]]]:
        group = self._group
        order = {member.compute.result: k for k, member in enumerate(group.members)}
        wanted: list[dict[str, None]] = [{} for _ in group.stages]
        for member in reversed(group.members):
            name = member.compute.result
            if name in self._stored:
                wanted[member.stage][name] = None
        for stage in range(len(group.stages) - 1, -1, -1):
            pending = list(wanted[stage])
            while pending:
                for load in loads_of(self._by_name[pending.pop()].compute):
                    source = self._by_name.get(load.buffer)
                    if source is None:
                        continue
                    name = source.compute.result
                    if source.stage == stage or self._evaluated_again(source, stage):
                        if name not in wanted[stage]:
                            wanted[stage][name] = None
                            pending.append(name)
                    else:
                        if not source.is_reduction and source.full:
                            self._stored.add(name)          # made once, read back from memory
                        wanted[source.stage][name] = None
        return [(full, [self._by_name[name].compute for name in sorted(names, key=order.__getitem__)]) for full, names in zip(group.stages, wanted)]

    def _evaluated_again(self, source: Member, stage: int) -> bool:
        name = source.compute.result
        if source.is_reduction or not source.full or source.compute.updates is not None or name in self._external:
            return False
        if name not in self._again:
            self._again[name] = self._closure_is_cheap(source)
        return self._again[name] and stage > source.stage

    def _closure_is_cheap(self, source: Member) -> bool:
        """Whether evaluating ``source`` from memory costs little, with all it needs at the same point."""
        total, loaded = 0, set()
        pending, seen = [source], {source.compute.result}
        while pending:
            member = pending.pop()
            total += cost(compute_values(member.compute))
            if total > RECOMPUTE_AT_MOST or self._group.updated:
                return False
            for load in loads_of(member.compute):
                other = self._by_name.get(load.buffer)
                if other is None:
                    loaded.add(load.buffer)
                elif not other.is_reduction and other.full and load.buffer not in self._stored and load.buffer not in seen:
                    seen.add(load.buffer)
                    pending.append(other)
        return len(loaded) <= RECOMPUTE_LOADS


Stages = list[tuple[bool, list[Compute]]]


def _moved(stages: Stages, point: dict[Symbol, Expression], outer: tuple[Loop, ...], inner: tuple[Loop, ...]) -> Stages:
    return [(full, [move(c, point, outer + inner if full and c.reduction is None else outer, inner) for c in computes]) for full, computes in stages]


def _accesses(stages: Stages, stored: set[str]) -> list[tuple[Expression, int]]:
    """Every index with which memory is touched, with a weight: stores count more."""
    made = {c.result for _, computes in stages for c in computes}
    found: list[tuple[Expression, int]] = []
    for _, computes in stages:
        for c in computes:
            if c.result in stored:
                found.append((c.store.index, 3))
            found += [(load.index, 2) for load in loads_of(c) if load.buffer not in made]
    return found


def _ordered(outer: tuple[Loop, ...], inner: tuple[Loop, ...], stages: Stages, stored: set[str]) -> tuple[tuple[Loop, ...], tuple[Loop, ...], Stages]:
    """Loops from the largest stride to the smallest, by what most accesses say. Reductions to a position keep their inner order."""
    accesses = _accesses(stages, stored)

    def rank(loop: Loop) -> int:
        score = 0
        for index, weight in accesses:
            stride = coefficient(index, loop.variable)
            score += weight if stride == ONE else 0
        return score

    def ordered(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
        if len(loops) < 2:
            return loops
        best = max(range(len(loops)), key=lambda k: (rank(loops[k]), k))
        rest = [loop for k, loop in enumerate(loops) if k != best]
        return (*_by_stride(rest, accesses), loops[best])

    keeps = any(c.reduction is not None and c.reduction.kind in ("argmax", "argmin") for _, computes in stages for c in computes)
    new_outer, new_inner = ordered(outer), inner if keeps else ordered(inner)
    if new_outer == outer and new_inner == inner:
        return outer, inner, stages
    return new_outer, new_inner, _moved(stages, {}, new_outer, new_inner)


def _by_stride(loops: Sequence[Loop], accesses: Sequence[tuple[Expression, int]]) -> tuple[Loop, ...]:
    """Larger static strides first, by the heaviest access that depends on the loops; otherwise as they are."""
    if not accesses:
        return tuple(loops)
    index = max(accesses, key=lambda access: access[1])[0]
    strides = [static(stride) if (stride := coefficient(index, loop.variable)) is not None else None for loop in loops]
    if any(stride is None for stride in strides):
        return tuple(loops)
    order = sorted(range(len(loops)), key=lambda k: (-(strides[k] or 0), k))
    return tuple(loops[k] for k in order)


def _expressions(stages: Stages) -> Iterable[Expression]:
    for _, computes in stages:
        for c in computes:
            yield c.store.index
            for value in compute_values(c):
                for node in walk(value):
                    if isinstance(node, Load):
                        yield node.index
                        yield from (size for _, size in node.checks)
                    elif isinstance(node, IndexValue):
                        yield node.expression


def _collapsed(outer: tuple[Loop, ...], inner: tuple[Loop, ...], stages: Stages) -> tuple[tuple[Loop, ...], tuple[Loop, ...], Stages]:
    """Adjacent loops become one where every index depends on them through ``a*size_b + b`` only; loops of size 1 go.

        for a in 4: for b in 8: y[a*8 + b] = x[a*8 + b]   ->   for c in 32: y[c] = x[c]
    """
    expressions = list(dict.fromkeys(_expressions(stages)))
    replaced: dict[Symbol, Expression] = {}

    def mergeable(a: Loop, b: Loop) -> bool:
        for expression in expressions:
            high, low = coefficient(expression, a.variable), coefficient(expression, b.variable)
            if high is None or low is None or high != low * b.size:
                return False
        return True

    def merged(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
        nonlocal expressions
        result: list[Loop] = []
        for loop in loops:
            if loop.size == ONE:
                replaced[loop.variable] = ZERO
                expressions = list(dict.fromkeys(substitute(e, {loop.variable: ZERO}) for e in expressions))
            elif result and mergeable(result[-1], loop):
                high = result.pop()
                replaced[high.variable] = ZERO            # a*size + b is counted by b alone
                expressions = list(dict.fromkeys(substitute(e, {high.variable: ZERO}) for e in expressions))
                result.append(Loop(loop.variable, product((high.size, loop.size))))
            else:
                result.append(loop)
        return tuple(result)

    new_outer, new_inner = merged(outer), merged(inner)
    if inner and not new_inner:                           # a stage with loops keeps one
        replaced.pop(inner[-1].variable)
        new_inner = inner[-1:]
    if new_outer == outer and new_inner == inner:
        return outer, inner, stages
    return new_outer, new_inner, _moved(stages, replaced, new_outer, new_inner)


def _named(outer: tuple[Loop, ...], inner: tuple[Loop, ...], stages: Stages) -> tuple[tuple[Loop, ...], tuple[Loop, ...], Stages]:
    """Final names: x0, x1, ... parallel, r0, r1, ... inner."""
    names = {loop.variable: Symbol(f"x{k}") for k, loop in enumerate(outer)} | {loop.variable: Symbol(f"r{k}") for k, loop in enumerate(inner)}
    new_outer = tuple(Loop(names[loop.variable], loop.size) for loop in outer)
    new_inner = tuple(Loop(names[loop.variable], loop.size) for loop in inner)
    return new_outer, new_inner, _moved(stages, dict(names), new_outer, new_inner)


def _assemble(name: str, outer: tuple[Loop, ...], stages: list[Stage], stored: set[str], made: set[str]) -> FusedKernel:
    inputs: dict[str, None] = {}
    outputs: dict[str, None] = {}
    symbols: set[Symbol] = set()
    variables = {loop.variable for loop in outer}
    for loop in outer:
        symbols |= free_symbols(loop.size)
    for stage in stages:
        for loop in stage.inner:
            variables.add(loop.variable)
            symbols |= free_symbols(loop.size)
        for compute in stage.computes:
            bound: set[Symbol] = {symbol for symbol, _ in compute.store.bindings}
            used: set[Symbol] = set(free_symbols(compute.store.index))
            for _, size in compute.store.checks:
                used |= free_symbols(size)
            for value in compute_values(compute):
                for node in walk(value):
                    if isinstance(node, Load):
                        bound |= {symbol for symbol, _ in node.bindings}
                        used |= free_symbols(node.index)
                        for _, size in node.checks:
                            used |= free_symbols(size)
                        if node.buffer not in made:
                            inputs[node.buffer] = None
                    elif isinstance(node, IndexValue):
                        used |= free_symbols(node.expression)
            symbols |= used - bound
            if compute.result in stored:
                if compute.updates is not None and compute.store.mode == "add":
                    inputs.setdefault(compute.updates, None)
                outputs[compute.result] = None
    ordered = tuple(sorted(symbols - variables, key=lambda symbol: symbol.name))
    return FusedKernel(name, outer, tuple(stages), tuple(inputs), tuple(outputs), tuple(sorted(made - set(outputs), key=str)), ordered)


def renamed(kernel: FusedKernel, name: str) -> FusedKernel:
    return replace(kernel, name=name)
