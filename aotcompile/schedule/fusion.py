"""Which operations share a kernel, and in which order everything runs.

Operations are visited once, in program order, except that a pointwise operation waits until something needs it (its consumer's kernel is the better
home) and updates of graph inputs wait until everything that can fail is done. A visited operation joins the kernel of its latest producer, or a
recent kernel that reads the same data over the same space, if nothing it depends on comes after that kernel; otherwise it starts a kernel of its own.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from aotcompile.ir.nodes import Check, Compute, LibraryCall, Operation, ReadScalar, View
from aotcompile.schedule.dependences import Dependences, Facts, facts_of
from aotcompile.schedule.group import Group, Placement
from aotcompile.schedule.inline import Inliner, is_plain, is_scatter

_RECENT = 4                           # kernels considered for horizontal fusion


@dataclass
class Order:
    """The result: kernels and other operations in execution order."""

    items: list[Group | Operation] = field(default_factory=list)


class Fusion:
    def __init__(self, dependences: Dependences) -> None:
        self._dependences = dependences
        self._position: dict[int, int] = {}                # operation number -> position of its item
        self._final: dict[int, Compute] = {}
        self._order = Order()
        self._recent: list[Group] = []
        uses: dict[str, int] = {}
        for fact, live in zip(dependences.facts, dependences.live):
            if live:
                for name in dict.fromkeys((*fact.reads, *fact.updates)):
                    uses[name] = uses.get(name, 0) + 1
        self._inliner = Inliner(dependences, uses, self._final_compute)

    def run(self) -> Order:
        facts, live = self._dependences.facts, self._dependences.live
        late: list[int] = []
        for number, fact in enumerate(facts):
            if not live[number]:
                continue
            if self._mutates_input(fact) and isinstance(fact.operation, Compute):
                late.append(number)
            elif not self._waits(fact):
                self._visit(number)
        outputs = [self._dependences.producer[name] for name in self._dependences.output_names if name in self._dependences.producer]
        for number in sorted(set(outputs)):
            if not self._reads_late(number, set(late)):
                self._visit(number)
        for number in late:
            self._visit(number)
        for number in sorted(set(outputs)):
            self._visit(number)
        return self._order

    def _reads_late(self, number: int, late: set[int]) -> bool:
        """Whether an operation depends on one of ``late`` (an output that is a view of an updated input)."""
        stack, seen = [number], set()
        while stack:
            current = stack.pop()
            if current in late:
                return True
            if current in seen or current in self._position:
                continue
            seen.add(current)
            stack.extend(self._dependences.facts[current].after)
        return False

    def _mutates_input(self, fact: Facts) -> bool:
        dependences = self._dependences
        return any(dependences.root_of(name) in dependences.input_roots for name in fact.updates)

    def _waits(self, fact: Facts) -> bool:
        operation = fact.operation
        return isinstance(operation, Compute) and is_plain(operation) and not fact.fallible

    def _final_compute(self, number: int) -> Compute:
        """An operation after inlining (its producers' bodies put in)."""
        pending = [number]
        while pending:
            current = pending[-1]
            if current in self._final:
                pending.pop()
                continue
            operation = self._dependences.facts[current].operation
            assert isinstance(operation, Compute)
            facts, producer = self._dependences.facts, self._dependences.producer
            numbers = [producer[name] for name in facts[current].reads if name in producer]
            before = [n for n in numbers if n not in self._final and isinstance(facts[n].operation, Compute)]
            if before:
                pending.extend(before)
                continue
            self._final[current] = self._inliner.rewrite(operation)
            pending.pop()
        return self._final[number]

    def _needs(self, number: int) -> list[int]:
        """What must be placed before: the edges, with those of inlined producers in place of the producers themselves."""
        dependences = self._dependences
        fact = dependences.facts[number]
        operation = fact.operation
        if not isinstance(operation, Compute):
            return fact.after
        final = self._final_compute(number)
        if final is operation:
            return fact.after
        read = set(facts_of(final).reads)
        gone = {dependences.producer[name] for name in fact.reads if name not in read and name in dependences.producer} - {
            dependences.producer[name] for name in fact.updates if name in dependences.producer}
        needs = dict.fromkeys(n for n in fact.after if n not in gone)
        needs.update(dict.fromkeys(dependences.producer[name] for name in read if name in dependences.producer))
        stack, seen = list(gone), set(gone)
        while stack:                                        # what an inlined producer waited for: scalars and earlier writers
            for n in dependences.facts[stack.pop()].after:
                other = dependences.facts[n].operation
                if isinstance(other, Compute) and other.result not in read and n not in seen:
                    seen.add(n)
                    if n not in needs and is_plain(other):
                        stack.append(n)
                elif isinstance(other, (ReadScalar, Check)):
                    needs[n] = None
        return list(needs)

    def _visit(self, number: int) -> None:
        stack: list[tuple[int, bool]] = [(number, False)]
        while stack:
            current, ready = stack.pop()
            if current in self._position:
                continue
            if ready:
                self._place(current)
                continue
            stack.append((current, True))
            needs = [n for n in self._needs(current) if n not in self._position and self._dependences.live[n]]
            stack.extend((n, False) for n in sorted(needs, reverse=True))

    def _place(self, number: int) -> None:
        operation = self._dependences.facts[number].operation
        if not isinstance(operation, Compute):
            self._append(number, operation)
            return
        compute = self._final_compute(number)
        fact = facts_of(compute)
        after = max((self._position[n] for n in self._needs(number) if n in self._position), default=-1)
        mutates = self._mutates_input(fact)
        joined = self._join(number, compute, fact, after, mutates)
        if joined is None:
            joined = Group.start(len(self._order.items), number, compute, fact.nodes, self._dependences.root_of)
            self._order.items.append(joined)
            self._recent = [*self._recent[1 - _RECENT:], joined]
        joined.fallible = joined.fallible or fact.fallible
        joined.mutates_input = joined.mutates_input or mutates
        self._position[number] = joined.position

    def _append(self, number: int, operation: Operation) -> None:
        assert isinstance(operation, (LibraryCall, View, ReadScalar, Check))
        self._position[number] = len(self._order.items)
        self._order.items.append(operation)

    def _join(self, number: int, compute: Compute, fact: Facts, after: int, mutates: bool) -> Group | None:
        if is_scatter(compute):
            return None
        candidates: list[tuple[Group, bool]] = []
        if after >= 0:
            latest = self._order.items[after]
            if isinstance(latest, Group):
                candidates.append((latest, True))
        candidates += [(group, False) for group in reversed(self._recent) if group.position > after]
        for group, produces in candidates:
            if group.closed or not produces and not self._shares(group, fact):
                continue
            placement: Placement | None = group.place(compute)
            if placement is not None and group.accepts(compute, placement, fact.nodes, fact.fallible, mutates):
                group.join(number, placement, fact.nodes)
                return group
        return None

    def _shares(self, group: Group, fact: Facts) -> bool:
        root_of = self._dependences.root_of
        written = {root_of(name) for name in fact.updates}
        if written & {root_of(name) for name in group.reads}:
            return False
        return any(name in group.reads or name in group.made for name in fact.reads)
