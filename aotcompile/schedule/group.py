"""A kernel while it grows: operations over one iteration space, placed in stages.

The space is ``outer`` (parallel) and ``inner`` loops; a pointwise group has no inner loops until a reduction joins. A stage is *full* (runs over
outer and inner) or *outer* (once per outer point). An operation goes into the first stage where all it reads from the kernel is finished: softmax is

    stage 0 full: maximum      stage 1 full: exp(x - maximum), sum of it      stage 2 full: quotient
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aotcompile.ir.expression import Expression, Symbol, substitute
from aotcompile.ir.linear import static
from aotcompile.ir.nodes import Compute, Load, Loop
from aotcompile.ir.traverse import Rewriter, compute_values, rewrite_store, walk
from aotcompile.schedule.inline import all_loops, is_scatter
from aotcompile.schedule.space import align, combine, match_strides, numel

_Point = dict[Symbol, Expression]

MOST_MEMBERS = 64
MOST_NODES = 600
MOST_BUFFERS = 40
ENOUGH_ROWS = 16                      # outer points from which stages after a reduction are worth one kernel (the outer loop is the parallel one)
SMALL_KERNEL = 32768                  # points of a kernel that would run on one thread anyway


@dataclass
class Member:
    """An operation of a group, in the group's loop variables. ``full``: runs over outer and inner loops."""

    number: int
    compute: Compute
    stage: int
    full: bool
    nodes: int

    @property
    def is_reduction(self) -> bool:
        return self.compute.reduction is not None


def move(compute: Compute, point: Mapping[Symbol, Expression], loops: tuple[Loop, ...], inner: tuple[Loop, ...]) -> Compute:
    """``compute`` in other loop variables."""
    def index(expression: Expression) -> Expression:
        return substitute(expression, point)
    rewriter = Rewriter(index)
    reduction = compute.reduction
    return replace(compute, loops=loops, body=rewriter(compute.body), store=rewrite_store(compute.store, rewriter, index),
                   reduction=replace(reduction, loops=inner) if reduction else None)


def loads_of(compute: Compute) -> list[Load]:
    return [node for value in compute_values(compute) for node in walk(value) if isinstance(node, Load)]


@dataclass
class Placement:
    """How an operation fits a group: the group's new loops (refined or split), what its old variables become, and the operation moved there."""

    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    renaming: dict[Symbol, Expression]
    compute: Compute
    full: bool


@dataclass
class Group:
    position: int
    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    root_of: Callable[[str], str]
    members: list[Member] = field(default_factory=list)
    stages: list[bool] = field(default_factory=list)                  # per stage: full?
    made: dict[str, Member] = field(default_factory=dict)
    reads: dict[str, None] = field(default_factory=dict)              # buffers read from memory, in order
    nodes: int = 0
    fallible: bool = False
    mutates_input: bool = False
    updated: dict[str, Expression] = field(default_factory=dict)      # root -> the index at which it is overwritten
    closed: bool = False                                              # scatters stay alone
    fresh: int = 0

    @staticmethod
    def start(position: int, number: int, compute: Compute, nodes: int, root_of: Callable[[str], str]) -> "Group":
        inner = compute.reduction.loops if compute.reduction else ()
        group = Group(position, (), (), root_of)
        loops = all_loops(compute)
        names = {loop.variable: group.variable() for loop in loops}
        moved = {loop.variable: Loop(names[loop.variable], loop.size) for loop in loops}
        group.outer = tuple(moved[loop.variable] for loop in compute.loops)
        group.inner = tuple(moved[loop.variable] for loop in inner)
        point: dict[Symbol, Expression] = dict(names)
        group.closed = is_scatter(compute)
        group.add(number, move(compute, point, group.outer, group.inner), 0, True, nodes)
        return group

    def variable(self) -> Symbol:
        self.fresh += 1
        return Symbol(f"_v{self.fresh}")

    # ---- does it fit? -------------------------------------------------------------------------------------------------------------------

    def place(self, compute: Compute) -> Placement | None:
        """The placement of ``compute`` in this group's space, if it reads what the group makes at the very point where it is made."""
        for placement in self._candidates(compute):
            if placement is not None and self._reads_same_points(placement):
                return placement
        return None

    def _candidates(self, compute: Compute) -> "list[Placement | None]":
        found: list[Placement | None] = []
        if compute.reduction is None:
            found.append(self._aligned(compute, self.outer + self.inner, full=True))
            if self.inner:
                found.append(self._aligned(compute, self.outer, full=False))
            found.append(self._permuted(compute))
        elif self.inner:
            found.append(self._aligned_reduction(compute))
            found.append(self._permuted(compute))
        else:
            found.append(self._split(compute))
            found.append(self._permuted(compute))
        return found

    def _refined(self, own: Sequence[Loop], theirs: Sequence[Loop]) -> tuple[list[Loop], _Point, _Point, list[list[int]]] | None:
        """Common loops of the group's ``own`` and an operation's loops, with what the variables of both become."""
        refined = align([loop.size for loop in own], [loop.size for loop in theirs])
        if refined is None:
            return None
        sizes, first, second = refined
        variables: list[Symbol | None] = [None] * len(sizes)
        for loop, members in zip(own, first):
            if len(members) == 1:
                variables[members[0]] = loop.variable
        named = [variable or self.variable() for variable in variables]
        renaming = {loop.variable: combine(named, sizes, members) for loop, members in zip(own, first) if len(members) != 1}
        point = {loop.variable: combine(named, sizes, members) for loop, members in zip(theirs, second)}
        return [Loop(variable, size) for variable, size in zip(named, sizes)], renaming, point, first

    def _aligned(self, compute: Compute, own: Sequence[Loop], full: bool) -> Placement | None:
        refined = self._refined(own, compute.loops)
        if refined is None:
            return None
        loops, renaming, point, first = refined
        count = sum(len(members) for members in first[:len(self.outer)])
        outer, inner = (tuple(loops[:count]), tuple(loops[count:])) if full else (tuple(loops), self.inner)
        return Placement(outer, inner, renaming, move(compute, point, outer + inner if full else outer, ()), full)

    def _aligned_reduction(self, compute: Compute) -> Placement | None:
        assert compute.reduction is not None
        first, second = self._refined(self.outer, compute.loops), self._refined(self.inner, compute.reduction.loops)
        if first is None or second is None:
            return None
        outer, inner = tuple(first[0]), tuple(second[0])
        return Placement(outer, inner, {**first[1], **second[1]}, move(compute, {**first[2], **second[2]}, outer, inner), True)

    def _split(self, compute: Compute) -> Placement | None:
        """A reduction joins a pointwise group: the group's last loops become the inner ones."""
        assert compute.reduction is not None
        refined = self._refined(self.outer, all_loops(compute))
        if refined is None:
            return None
        loops, renaming, point, _ = refined
        sizes = align([loop.size for loop in self.outer], [loop.size for loop in all_loops(compute)])
        assert sizes is not None
        count = sum(len(members) for members in sizes[2][:len(compute.loops)])
        outer, inner = tuple(loops[:count]), tuple(loops[count:])
        return Placement(outer, inner, renaming, move(compute, point, outer, inner), True)

    def _permuted(self, compute: Compute) -> Placement | None:
        """The operation's loops in another order, paired by the strides with which it reads something the group makes."""
        loops = all_loops(compute)
        own = self.outer + self.inner
        if len(loops) != len(own) or self.updated:
            return None
        for load in loads_of(compute):
            member = self.made.get(load.buffer)
            if member is None or not member.full or member.is_reduction or load.bindings:
                continue
            renaming = match_strides(load.index, loops, member.compute.store.index, own)
            if renaming is None:
                continue
            chosen = {renaming[loop.variable] for loop in compute.loops}
            if compute.reduction is None:
                outer, inner = self.outer, self.inner
            elif self.inner:
                outer, inner = self.outer, self.inner
                if chosen != {loop.variable for loop in outer}:
                    continue
            else:
                outer = tuple(loop for loop in own if loop.variable in chosen)
                inner = tuple(loop for loop in own if loop.variable not in chosen)
            if compute.reduction is not None and compute.reduction.kind in ("argmax", "argmin"):
                if [renaming[loop.variable] for loop in compute.reduction.loops] != [loop.variable for loop in inner]:
                    continue                                # positions count in the reduction's own order
            parallel = outer + inner if compute.reduction is None else outer
            return Placement(outer, inner, {}, move(compute, renaming, parallel, inner), True)
        return None

    def _reads_same_points(self, placement: Placement) -> bool:
        for load in loads_of(placement.compute):
            member = self.made.get(load.buffer)
            if member is not None:
                if load.bindings or substitute(member.compute.store.index, placement.renaming) != load.index:
                    return False
                if not placement.full and member.full and not member.is_reduction:
                    return False
            elif self.root_of(load.buffer) in self.updated:
                return False
        return True

    # ---- may it join? -------------------------------------------------------------------------------------------------------------------

    def accepts(self, compute: Compute, placement: Placement, nodes: int, fallible: bool, mutates_input: bool) -> bool:
        if self.closed or is_scatter(compute) or len(self.members) >= MOST_MEMBERS or self.nodes + nodes > MOST_NODES:
            return False
        if (self.fallible or fallible) and (self.mutates_input or mutates_input):
            return False
        names = {load.buffer for load in loads_of(compute)} - set(self.made)
        if len(names | set(self.reads)) + len(self.members) > MOST_BUFFERS:
            return False
        if compute.updates is not None and not self._update_is_safe(compute, placement):
            return False
        if self.updated and (placement.inner or placement.renaming):
            return False
        if placement.inner and placement.full:
            reductions = [member for member in self.members if member.is_reduction]
            if reductions and self._stage(placement) > 0 and not self._rows_suffice(placement):
                return False
        return True

    def _rows_suffice(self, placement: Placement) -> bool:
        rows, points = static(numel(placement.outer)), static(numel(placement.outer + placement.inner))
        return rows is None and bool(placement.outer) or rows is not None and rows >= ENOUGH_ROWS or points is not None and points <= SMALL_KERNEL

    def _update_is_safe(self, compute: Compute, placement: Placement) -> bool:
        """An update may join where everything that reads its memory reads the element it overwrites, at that point."""
        if placement.inner or len(self.stages) != 1 or compute.reduction is not None:
            return False
        root = self.root_of(compute.updates or "")
        index = placement.compute.store.index
        own = [load for load in loads_of(placement.compute) if self.root_of(load.buffer) == root]
        others = [load for member in self.members for load in loads_of(member.compute) if self.root_of(load.buffer) == root]
        written = [member.compute.store.index for member in self.members if self.root_of(member.compute.result) == root]
        earlier = [*(load.index for load in others), *written]
        return all(load.index == index for load in own) and all(substitute(e, placement.renaming) == index for e in earlier)

    # ---- joining ------------------------------------------------------------------------------------------------------------------------

    def _stage(self, placement: Placement) -> int:
        """The first stage of the right level where all that is read from the kernel is finished; it may be one past the last."""
        stage = 0
        for load in loads_of(placement.compute):
            member = self.made.get(load.buffer)
            if member is not None:
                same = not member.is_reduction and member.full == placement.full
                stage = max(stage, member.stage if same else member.stage + 1)
        while stage < len(self.stages) and self.stages[stage] != placement.full:
            stage += 1
        return stage

    def join(self, number: int, placement: Placement, nodes: int) -> None:
        if placement.renaming or placement.outer != self.outer or placement.inner != self.inner:
            was_pointwise = not self.inner
            self.outer, self.inner = placement.outer, placement.inner
            for member in self.members:
                full = member.full or was_pointwise
                loops = self.outer + self.inner if full and not member.is_reduction else self.outer
                member.compute = move(member.compute, placement.renaming, loops, self.inner if member.is_reduction else ())
                member.full = full
            self.updated = {root: substitute(index, placement.renaming) for root, index in self.updated.items()}
        stage = self._stage(placement)
        self.add(number, placement.compute, stage, placement.full, nodes)

    def add(self, number: int, compute: Compute, stage: int, full: bool, nodes: int) -> None:
        while len(self.stages) <= stage:
            self.stages.append(full)
        member = Member(number, compute, stage, full, nodes)
        self.members.append(member)
        self.made[compute.result] = member
        for load in loads_of(compute):
            if load.buffer not in self.made:
                self.reads[load.buffer] = None
        self.nodes += nodes
        if compute.updates is not None:
            self.updated[self.root_of(compute.updates)] = compute.store.index
