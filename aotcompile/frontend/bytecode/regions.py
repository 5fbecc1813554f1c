"""Which operations of a program move into regions.

A region is everything that is reached from its first operation before its last edge (`Cut.end`), and can be reached in no other way: its handlers,
which CPython puts at the end of the code, are among it. What lies on the stack at its start and is used inside comes in as arguments after the
variables, what it leaves there goes out with its result, so that a region may begin and end in the middle of an expression:

    return torch.relu(x) + float(note(x.sum()))         region 0: torch.relu(x), x.sum()          _s0, _s1 = the stack
                                                        the break: note(...)
                                                        region 1: float(...), +, return
"""
from __future__ import annotations

import types
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from aotcompile.frontend.bytecode.program import RETURNS, VERSION, FreeVar, Program, Slot

# Loading only: a region neither begins nor ends with these without need.
_LOADS = frozenset({"LOAD_CONST", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "PUSH_NULL", "NOP", "LOAD_FAST_CHECK"})
_DROPS = frozenset({"STORE_FAST", "POP_TOP", "STORE_DEREF"})
_WORK = ("CALL", "BINARY_", "UNARY_", "COMPARE_OP", "STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR", "LOAD_ATTR", "STORE_ATTR")


@dataclass
class Cut:
    """``start``: the first operation; ``end``: where control goes on after it, None where the region returns; ``lowest``: the stack position from
    which on the region uses what is there."""

    start: int
    end: int | None
    inside: frozenset[int]
    lowest: int
    variables: tuple[str, ...] = ()                    # come in
    results: tuple[str, ...] = ()                      # go out
    cells: frozenset[str] = frozenset()                # cell variables of the function that it touches
    taken: tuple[Slot, ...] = ()                       # stack slots that come in
    left: tuple[Slot, ...] = ()                        # stack slots that stay behind
    again: frozenset[int] = field(default_factory=frozenset)     # positions in ``left`` that are loaded again after the region


def call_start(program: Program, index: int) -> int:
    """The first operation of the call sequence that ``index`` belongs to (3.11: KW_NAMES, PRECALL, CALL), or ``index`` itself."""
    while index > 0 and program.operations[index - 1].name in ("KW_NAMES", "PRECALL"):
        index -= 1
    return index


def callee_slot(program: Program, index: int) -> tuple[int, Slot] | None:
    """Stack position and slot of what a call operation (or the head of its sequence) calls."""
    start, operation = call_start(program, index), program.operations[index]
    if operation.name not in ("CALL", "CALL_KW", "CALL_FUNCTION_EX"):
        return None
    stack = program.stacks[start]
    assert stack is not None
    extra = 1 + (int(operation.argument) & 1) if operation.name == "CALL_FUNCTION_EX" else int(operation.argument) + (operation.name == "CALL_KW")
    pair = len(stack) - extra - 2
    if pair < 0:
        return None
    position = pair if stack[pair].kind != "null" else pair + 1
    return position, stack[position]


def excluded_operations(program: Program, breaks: Collection[int]) -> set[int]:
    """The operations that stay outside: the breaks, with the whole call sequence, the loading of a method that is called and the jump of a truth test
    (its sides are to be regions of their own)."""
    found: set[int] = {index for index, operation in enumerate(program.operations) if operation.prologue or program.stacks[index] is None}
    for index in breaks:
        found |= set(range(call_start(program, index), index + 1))
        if program.operations[index].name == "TO_BOOL" and program.operations[index + 1].name.startswith("POP_JUMP_"):
            found.add(index + 1)
        callee = callee_slot(program, index)
        if callee is not None and callee[1].producer >= 0 and program.operations[callee[1].producer].name == "LOAD_ATTR":
            producer = callee[1].producer
            found |= {k for k, operation in enumerate(program.operations) if operation.source == program.operations[producer].source}
    return found


class Selector:
    """Chooses the cuts of one program, from its beginning on: always the one with most work that is possible."""

    def __init__(self, program: Program, excluded: Collection[int]) -> None:
        self.program, self.outside = program, set(excluded)
        operations = program.operations
        targets = {o.target for o in operations if o.target is not None} | {o.handler.target for o in operations if o.handler is not None}
        leaders = {k for k in range(1, len(operations)) if operations[k].handler != operations[k - 1].handler or operations[k - 1].target is not None}
        edges = {k for k in self.outside if k - 1 not in self.outside}
        self._ends = sorted(k for k in targets | leaders | edges if program.stacks[k] is not None)
        self._settled: dict[str, bool] = {}
        self._work = [operation.name.startswith(_WORK) for operation in operations]

    def cuts(self) -> list[Cut]:
        found = []
        for start in range(len(self.program.operations)):
            if start in self.outside or start != call_start(self.program, start):
                continue
            cut = self._largest(start)
            if cut is not None:
                found.append(cut)
                self.outside |= cut.inside
        return found

    def _largest(self, start: int) -> Cut | None:
        best: Cut | None = None
        size = 0
        for end in (None, *self._ends):
            if end == start:
                continue
            inside = self._reached(start, end)
            if inside is None:
                continue
            work = sum(self._work[k] for k in inside)
            if work > size or (work == size and best is not None and len(inside) < len(best.inside)):
                cut = self._made(start, end, inside)
                if cut is not None:
                    best, size = cut, work
        return best

    def _reached(self, start: int, end: int | None) -> frozenset[int] | None:
        """The operations between ``start`` and ``end``; None where they are no region."""
        program, operations = self.program, self.program.operations
        outer = operations[start].handler
        inside: set[int] = set()
        work, ends = [start], False
        while work:
            index = work.pop()
            if index == end:
                ends = True
                continue
            if index in inside:
                continue
            if index in self.outside:
                return None
            inside.add(index)
            operation = operations[index]
            if end is not None and operation.name in RETURNS:
                return None
            work.extend(program.successors(index))
            if operation.handler != outer:
                if operation.handler is None:
                    return None
                work.append(operation.handler.target)
        if ends == (end is None):
            return None
        for index in inside:
            if any(k not in inside for k in program.raisers.get(index, ())) or index != start and any(
                    k not in inside for k in program.predecessors[index]):
                return None
        return frozenset(inside)

    # ---- what goes in and out -------------------------------------------------------------------------------------------------------------------

    def _made(self, start: int, end: int | None, inside: frozenset[int]) -> Cut | None:
        inside, end = self._without_tail(start, end, inside)
        start, inside = self._without_head(start, end, inside)
        if not inside:
            return None
        cut = Cut(start, end, inside, self._lowest(start, inside))
        return cut if self._stack(cut) and self._variables(cut) else None

    def _lowest(self, start: int, inside: Collection[int]) -> int:
        return min(self.program.depth(start), *(self.program.touched(k) for k in inside))

    def _without_tail(self, start: int, end: int | None, inside: frozenset[int]) -> tuple[frozenset[int], int | None]:
        program = self.program
        while end is not None:
            before = [k for k in program.predecessors[end] if k in inside]
            if len(before) != 1 or before[0] == start or before[0] != end - 1:
                break
            last = program.operations[before[0]]
            # A handler outside must see the old value when the region raises: the assignment stays outside where it comes last.
            seen = last.handler is not None and last.name == "STORE_FAST" and last.writes in program.live[last.handler.target]
            if last.name not in _LOADS and not seen:
                break
            end = before[0]
            inside = inside - {end}
        return inside, end

    def _without_head(self, start: int, end: int | None, inside: frozenset[int]) -> tuple[int, frozenset[int]]:
        program = self.program
        while True:
            name = program.operations[start].name
            following = start + 1
            if following not in inside or any(k in inside for k in program.predecessors[start]) or name not in _LOADS | _DROPS:
                return start, inside
            if program.operations[following].handler != program.operations[start].handler or len(program.predecessors[following]) != 1:
                return start, inside
            rest = inside - {start}
            if name in _LOADS and name != "NOP" and self._lowest(following, rest) < program.depth(following):
                return start, inside
            if following != call_start(program, following):
                return start, inside
            start, inside = following, rest

    def _stack(self, cut: Cut) -> bool:
        program = self.program
        at_start = program.stacks[cut.start]
        assert at_start is not None
        cut.taken = at_start[cut.lowest:]
        if any(slot.kind in ("internal", "saved") for slot in cut.taken):
            return False
        if cut.end is None:
            return True
        at_end = program.stacks[cut.end]
        assert at_end is not None
        cut.left = at_end[cut.lowest:]
        if any(slot.kind in ("internal", "saved") for slot in cut.left):
            return False
        names = {program.operations[k].name for k in cut.inside}
        again = set()
        for position, slot in enumerate(cut.left):
            producer = program.operations[slot.producer].name if slot.producer >= 0 else ""
            if slot.kind == "null" or producer == "LOAD_CONST" or producer == "LOAD_GLOBAL" and "STORE_GLOBAL" not in names:
                again.add(position)
            elif producer == "LOAD_ATTR" and "STORE_GLOBAL" not in names and _is_callee(cut.left, position) and loading(program, slot.producer):
                again.add(position)
        cut.again = frozenset(again)
        return True

    def _variables(self, cut: Cut) -> bool:
        """Finds what comes in and goes out. False where a variable may or may not have a value, or a handler outside would miss one."""
        program = self.program
        operations = [program.operations[k] for k in cut.inside]
        written = {o.writes for o in operations if o.writes} | {o.deletes for o in operations if o.deletes}
        outer = program.operations[cut.start].handler
        if outer is not None and (written & program.live[outer.target] or outer.depth > cut.lowest):
            return False
        cut.cells = frozenset(o.cell for o in operations if o.cell)
        if not all(self._private(name, cut) or self._is_settled(name) for name in cut.cells):
            return False
        bound, maybe = program.bound[cut.start], program.maybe[cut.start]
        needed = {name for name in _read_first(program, cut) | set(cut.cells) if name in maybe or name in bound}
        results: set[str] = set()
        if cut.end is not None:
            results = written & program.live[cut.end] | {name for name in cut.cells & written if not self._private(name, cut)}
            if not results <= program.bound[cut.end]:
                return False
            needed |= results & maybe
        if self._needs_receiver(cut):
            needed.add(program.arguments[0])
        if not needed <= bound:
            return False
        order = [*program.code.co_varnames, *program.code.co_cellvars]
        cut.variables = tuple(name for name in dict.fromkeys(order) if name in needed)
        cut.results = tuple(name for name in dict.fromkeys(order) if name in results)
        return True

    def _needs_receiver(self, cut: Cut) -> bool:
        """``super()`` without arguments looks at the first parameter of the function it is called in."""
        operations = [self.program.operations[k] for k in cut.inside]
        return bool(self.program.arguments) and any(o.name == "LOAD_GLOBAL" and o.argument[1] == "super" for o in operations)

    def _private(self, name: str, cut: Cut) -> bool:
        """Whether nothing outside the region touches the cell, and the region is run once in a call: the cell can be the region's own."""
        program = self.program
        if any(o.cell == name and k not in cut.inside for k, o in enumerate(program.operations)):
            return False
        seen, work = set(), [cut.end] if cut.end is not None else []
        while work:
            index = work.pop()
            if index == cut.start:
                return False
            if index not in seen:
                seen.add(index)
                work.extend(program.successors(index))
                handler = program.operations[index].handler
                work.extend([handler.target] if handler is not None else [])
        return True

    def _is_settled(self, name: str) -> bool:
        """Whether a cell variable gets its value once, before any closure is made over it: then a cell of the region's own with the same value
        does."""
        if name not in self._settled:
            program = self.program
            touching = [(k, o) for k, o in enumerate(program.operations) if o.cell == name]
            writes = [k for k, o in touching if o.name in ("STORE_DEREF", "DELETE_DEREF") or o.holder and o.name != "LOAD_FAST"]
            once = len(writes) + (name in program.arguments) <= 1
            in_loop = any(o.target is not None and o.target <= w <= k for w in writes for k, o in enumerate(program.operations))
            closed = all(name in program.bound[k] for k, o in touching if o.name != "STORE_DEREF")
            self._settled[name] = once and not in_loop and closed and not any(_rebinds(c, name) for c in _inner(program.code))
        return self._settled[name]


def _is_callee(slots: Sequence[Slot], position: int) -> bool:
    """Whether a slot holds what will be called: its NULL lies next to it."""
    other = position - 1 if VERSION < (3, 13) else position + 1
    return 0 <= other < len(slots) and slots[other].kind == "null"


def loading(program: Program, index: int) -> list[int]:
    """The operations that load ``torch.nn.functional.relu``, a global name with dots, of which ``index`` is the last; [] for anything else. A callee
    named like that is taken to be the same before and after its arguments are evaluated, as in `frontend.split`."""
    operation, stack = program.operations[index], program.stacks[index]
    if operation.name == "LOAD_GLOBAL":
        return [index]
    if operation.name != "LOAD_ATTR" or not stack or stack[-1].producer < 0:
        return []
    before = loading(program, stack[-1].producer)
    return [*before, index] if before else []


def _inner(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _inner(constant)


def _rebinds(code: types.CodeType, name: str) -> bool:
    import bytecode

    if name not in code.co_freevars:
        return False
    return any(isinstance(i, bytecode.Instr) and i.name in ("STORE_DEREF", "DELETE_DEREF") and isinstance(i.arg, FreeVar) and i.arg.name == name
               for i in bytecode.Bytecode.from_code(code))


def _read_first(program: Program, cut: Cut) -> set[str]:
    """Variables that some way through the region reads before it writes them."""
    live: dict[int, frozenset[str]] = {k: frozenset() for k in cut.inside}
    order = sorted(cut.inside, reverse=True)
    changed = True
    while changed:
        changed = False
        for index in order:
            operation = program.operations[index]
            after = frozenset().union(*(live.get(k, frozenset()) for k in program.successors(index) if k != cut.end))
            after -= {operation.writes, operation.saves}
            raised = live.get(operation.handler.target, frozenset()) if operation.handler is not None else frozenset()
            restored = program.live[index] & {operation.saves}                     # it comes back with the value it had
            found = after | raised | restored | ({operation.reads} if operation.reads else frozenset())
            if found != live[index]:
                live[index], changed = frozenset(found), True
    return set(live[cut.start])


__all__ = ["Cut", "Selector", "call_start", "callee_slot", "excluded_operations", "loading"]
