"""A code object as a list of operations with their flow, and three facts for every operation: what lies on the stack, which variables surely have
a value, and which are read later.

Operations that do two things at once are taken apart, so that the program can be cut between any two of them:

    LOAD_METHOD name        ->  PUSH_NULL; SWAP 2; LOAD_ATTR name          (3.11; the same for LOAD_ATTR with a method's flag of 3.12)
    LOAD_GLOBAL NULL + name ->  PUSH_NULL; LOAD_GLOBAL name
    LOAD_FAST_LOAD_FAST a b ->  LOAD_FAST a; LOAD_FAST b                   (3.13)
    COMPARE_OP bool(>)      ->  COMPARE_OP >; TO_BOOL                      (3.13)

From 3.12 on a comprehension is part of the function it stands in. Its variable is put aside and comes back at its end, also when it has no value:

    LOAD_FAST_AND_CLEAR i; ...the loop, STORE_FAST i... ; STORE_FAST i     the second store restores: i is what it was at LOAD_FAST_AND_CLEAR
"""
from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import bytecode
from bytecode import CellVar, FreeVar, Instr, Label, TryBegin, TryEnd

from aotcompile.frontend.bytecode.effects import effect, reach

VERSION = sys.version_info[:2]
PROLOGUE = frozenset({"RESUME", "COPY_FREE_VARS", "MAKE_CELL", "CACHE"})
_FINAL = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})


SlotKind = Literal["value", "null", "internal", "saved"]


@dataclass(frozen=True)
class Slot:
    """A value on the stack. ``null``: a NULL; ``internal``: an iterator of a loop, an exit method, a saved exception, a cell: it cannot be handed to
    another function, nor can ``saved``: a variable that was put aside, NULL where it had no value.

    ``producer``: the operation that pushed it, -1 if several may have."""

    kind: SlotKind
    producer: int


@dataclass(frozen=True)
class Handler:
    """An exception handler around an operation: its target, the stack depth that stays, whether the faulting offset is pushed."""

    target: int
    depth: int
    push_last: bool


@dataclass
class Operation:
    """``target``: the operation jumped to; ``source``: number of the instruction it was made from, as `opcodes.decode` counts them; ``holder``: the
    function's own cell variable whose cell itself, not its content, is loaded, put aside, made anew or restored."""

    name: str
    argument: Any
    location: Any
    source: int
    target: int | None = None
    handler: Handler | None = None
    holder: str | None = None

    def instruction(self, argument: Any = None) -> Instr:
        """As an instruction; ``argument`` replaces a jump's target."""
        value = self.argument if argument is None else argument
        return Instr(self.name, location=self.location) if value is bytecode.UNSET else Instr(self.name, value, location=self.location)

    @property
    def line(self) -> int:
        return (self.location.lineno or 0) if self.location is not None else 0

    @property
    def prologue(self) -> bool:
        return self.name in PROLOGUE and self.holder is None

    @property
    def reads(self) -> str | None:
        """The local or cell variable whose value it needs."""
        if self.name in ("LOAD_FAST", "LOAD_FAST_CHECK", "DELETE_FAST") and self.holder is None:
            return _variable(self.argument)
        if self.name in ("LOAD_DEREF", "DELETE_DEREF") and isinstance(self.argument, CellVar):
            return self.argument.name
        return None

    @property
    def writes(self) -> str | None:
        if self.name == "STORE_FAST":
            return _variable(self.argument)
        return self.argument.name if self.name == "STORE_DEREF" and isinstance(self.argument, CellVar) else None

    @property
    def saves(self) -> str | None:
        """The variable that an inlined comprehension puts aside: it has no value afterwards."""
        return _variable(self.argument) if self.name == "LOAD_FAST_AND_CLEAR" else None

    @property
    def deletes(self) -> str | None:
        return self.reads if self.name in ("DELETE_FAST", "DELETE_DEREF") else self.saves

    @property
    def cell(self) -> str | None:
        """The function's own cell variable that it touches in any way."""
        return self.holder or (self.argument.name if isinstance(self.argument, CellVar) and not self.prologue else None)


def _variable(argument: Any) -> str:
    return str(getattr(argument, "name", argument))


@dataclass
class Program:
    """``stacks[k]``, ``bound[k]``, ``maybe[k]``, ``live[k]``: before operation k (``stacks[k]`` None where k is never reached)."""

    code: types.CodeType
    operations: list[Operation]
    arguments: tuple[str, ...]
    stacks: list[tuple[Slot, ...] | None] = field(default_factory=list)
    bound: list[frozenset[str]] = field(default_factory=list)
    maybe: list[frozenset[str]] = field(default_factory=list)
    live: list[frozenset[str]] = field(default_factory=list)
    predecessors: list[list[int]] = field(default_factory=list)
    raisers: dict[int, list[int]] = field(default_factory=dict)        # handler's first operation -> operations that lead to it by an exception
    _following: list[list[int]] = field(default_factory=list)

    # ---- flow ---------------------------------------------------------------------------------------------------------------------------------

    def successors(self, index: int) -> list[int]:
        """Where control goes after an operation when it does not raise; the fall-through first."""
        return self._following[index]

    def _flow(self) -> None:
        for index, operation in enumerate(self.operations):
            found = [] if operation.name in _FINAL or unconditional(operation) else [index + 1]
            self._following.append(found if operation.target is None else [*found, operation.target])

    def depth(self, index: int) -> int:
        stack = self.stacks[index]
        assert stack is not None
        return len(stack)

    def touched(self, index: int) -> int:
        """The lowest stack position that an operation looks at or takes."""
        operation = self.operations[index]
        return self.depth(index) - reach(operation.name, operation.argument)

    def saved_at(self, index: int) -> int | None:
        """For an operation that restores a variable: the operation that put it aside, -1 where it may be one of several. None for all others."""
        operation, stack = self.operations[index], self.stacks[index]
        if operation.name != "STORE_FAST" or not stack or stack[-1].kind != "saved":
            return None
        return stack[-1].producer

    # ---- the stack ----------------------------------------------------------------------------------------------------------------------------

    def _after(self, index: int, stack: tuple[Slot, ...], jump: bool) -> tuple[Slot, ...]:
        operation, found = self.operations[index], list(stack)
        name = operation.name
        if name == "SWAP":
            depth = int(operation.argument)
            found[-1], found[-depth] = found[-depth], found[-1]
            return tuple(found)
        if name == "COPY":
            return (*stack, replace(stack[-int(operation.argument)], producer=index))
        if name == "FOR_ITER" and not jump or name == "WITH_EXCEPT_START":
            return (*stack, Slot("value", index))
        if name in ("BEFORE_WITH", "PUSH_EXC_INFO"):
            return (*stack[:-1], Slot("internal", index), Slot("value", index))
        taken, pushed = effect(name, operation.argument, jump)
        popped = found[len(found) - taken:]
        del found[len(found) - taken:]
        kind: SlotKind = "value"
        if name == "PUSH_NULL":
            kind = "null"
        elif name == "LOAD_FAST_AND_CLEAR":
            kind = "saved"
        elif name in ("GET_ITER", "LOAD_CLOSURE", "FOR_ITER", "LOAD_SUPER_ATTR") or operation.holder is not None or (
                name == "BUILD_TUPLE" and any(slot.kind == "internal" for slot in popped)):
            kind = "internal"
        return (*found, *[Slot(kind, index)] * pushed)

    def _flow_stacks(self) -> None:
        self.stacks = [None] * len(self.operations)
        work: list[tuple[int, tuple[Slot, ...]]] = [(0, ())]
        while work:
            index, stack = work.pop()
            known = self.stacks[index]
            merged = stack if known is None else _merged(known, stack)
            if merged == known:
                continue
            self.stacks[index] = merged
            operation = self.operations[index]
            work.extend((following, self._after(index, merged, following == operation.target)) for following in self.successors(index))
            if operation.handler is not None:
                handler = operation.handler
                extra = [Slot("internal", -1)] if handler.push_last else []
                work.append((handler.target, (*merged[:handler.depth], *extra, Slot("value", -1))))

    # ---- variables ------------------------------------------------------------------------------------------------------------------------------

    def _edges(self) -> Iterator[tuple[int, int, bool]]:
        for index, operation in enumerate(self.operations):
            if self.stacks[index] is not None:
                for following in self.successors(index):
                    yield index, following, False
                if operation.handler is not None:
                    yield index, operation.handler.target, True

    def _flow_variables(self) -> None:
        count = len(self.operations)
        every = frozenset(v for o in self.operations for v in (o.reads, o.writes) if v) | frozenset(self.arguments)
        self.bound, self.maybe, self.live = [every] * count, [frozenset()] * count, [frozenset()] * count
        self.bound[0] = self.maybe[0] = frozenset(self.arguments)
        self.predecessors = [[] for _ in range(count)]
        edges = list(self._edges())
        for index, following, raised in edges:
            if raised:
                self.raisers.setdefault(following, []).append(index)
            else:
                self.predecessors[following].append(index)
        changed = True
        while changed:
            changed = False
            for index, following, raised in edges:
                bound, maybe = self._values_after(index, raised)
                if not self.bound[following] <= bound or not self.maybe[following] >= maybe:
                    self.bound[following] = frozenset(self.bound[following] & bound)
                    self.maybe[following] = frozenset(self.maybe[following] | maybe)
                    changed = True
        changed = True
        while changed:
            changed = False
            for index, following, raised in reversed(edges):
                operation = self.operations[index]
                after = self.live[following] if raised else self.live[following] - {operation.writes}
                live = self.live[index] | (after - {operation.saves}) | {name for name in (operation.reads,) if name is not None}
                if live != self.live[index]:
                    self.live[index], changed = frozenset(live), True
                changed |= self._revive(index, following)
        for index, operation in enumerate(self.operations):
            if operation.reads:
                self.live[index] |= {operation.reads}


    def _values_after(self, index: int, raised: bool) -> tuple[frozenset[str], frozenset[str]]:
        """The variables that surely, and those that may, have a value after an operation."""
        operation, saved = self.operations[index], self.saved_at(index)
        wrote, deleted = (frozenset([name] if name is not None else ()) for name in (operation.writes, operation.deletes))
        bound, maybe = self.bound[index], self.maybe[index]
        if saved is not None:
            surely, perhaps = (self.bound[saved], self.maybe[saved]) if saved >= 0 else (frozenset(), wrote)
            return bound - wrote | wrote & surely, maybe - wrote | wrote & perhaps
        if raised:
            return bound - deleted, maybe | wrote
        return (bound | wrote) - deleted, (maybe | wrote) - deleted

    def _revive(self, index: int, following: int) -> bool:
        """A variable that is read after it was restored is needed where it was put aside."""
        saved, name = self.saved_at(index), self.operations[index].writes
        if saved is None or name is None or name not in self.live[following]:
            return False
        news = False
        for place in [saved] if saved >= 0 else [k for k, operation in enumerate(self.operations) if operation.saves == name]:
            news |= name not in self.live[place]
            self.live[place] |= {name}
        return news


def unconditional(operation: Operation) -> bool:
    return operation.name in ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")


def _merged(first: tuple[Slot, ...], second: tuple[Slot, ...]) -> tuple[Slot, ...]:
    if len(first) != len(second):
        raise ValueError("two stack depths at one instruction")
    return tuple(a if a == b else Slot(a.kind if a.kind == b.kind else "internal", a.producer if a.producer == b.producer else -1)
                 for a, b in zip(first, second))


def argument_names(code: types.CodeType) -> tuple[str, ...]:
    """All parameters, ``*args`` and ``**kwargs`` last, in the order of the code's variables."""
    stars = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_varnames[:code.co_argcount + code.co_kwonlyargcount + stars]


@functools.lru_cache(maxsize=32)
def program_of(code: types.CodeType) -> Program:
    """The program of a code object (nobody changes it afterwards). Raises ValueError for code that this cannot follow."""
    items = list(bytecode.Bytecode.from_code(code, conserve_exception_block_stackdepth=True))
    operations: list[Operation] = []
    labels: dict[int, int] = {}
    jumps: list[tuple[Operation, Label]] = []
    blocks: list[tuple[Operation, TryBegin]] = []
    open_block: TryBegin | None = None
    source, started = 0, False
    for item in items:
        if isinstance(item, Label):
            labels[id(item)] = len(operations)
        elif isinstance(item, TryBegin):
            open_block = item
        elif isinstance(item, TryEnd):
            open_block = None
        elif isinstance(item, Instr):
            for name, argument in _parts(item):
                operation = Operation(name, argument, item.location, source, holder=_holder(name, argument, code.co_cellvars, started))
                if isinstance(argument, Label):
                    jumps.append((operation, argument))
                if open_block is not None:
                    blocks.append((operation, open_block))
                operations.append(operation)
            source += 1
            started = started or item.name == "RESUME"
    for operation, label in jumps:
        operation.target = labels[id(label)]
    for operation, block in blocks:
        depth = block.stack_depth
        if not isinstance(depth, int):
            raise ValueError("an exception block without stack depth")
        operation.handler = Handler(labels[id(block.target)], depth, block.push_lasti)
    program = Program(code, operations, argument_names(code))
    program._flow()
    program._flow_stacks()
    program._flow_variables()
    return program


def _holder(name: str, argument: Any, cells: tuple[str, ...], started: bool) -> str | None:
    """Of which cell variable an operation handles the cell itself: closures are made so on 3.13, comprehensions with closures from 3.12 on."""
    if name not in ("LOAD_FAST", "STORE_FAST", "LOAD_FAST_AND_CLEAR") and not (name == "MAKE_CELL" and started):
        return None
    variable = _variable(argument)
    return variable if variable in cells else None


def _parts(item: Instr) -> list[tuple[str, Any]]:
    """An instruction as operations that do one thing each."""
    name, argument = item.name, cast(Any, item.arg)
    null_first = VERSION < (3, 13)
    if name == "LOAD_METHOD" or name == "LOAD_ATTR" and isinstance(argument, tuple):
        attribute, method = (argument, True) if name == "LOAD_METHOD" else (argument[1], bool(argument[0]))
        load: tuple[str, Any] = ("LOAD_ATTR", attribute if VERSION < (3, 12) else (False, attribute))
        if not method:
            return [load]
        return [("PUSH_NULL", bytecode.UNSET), ("SWAP", 2), load] if null_first else [load, ("PUSH_NULL", bytecode.UNSET)]
    if name == "LOAD_GLOBAL" and isinstance(argument, tuple) and argument[0]:
        load = ("LOAD_GLOBAL", (False, argument[1]))
        return [("PUSH_NULL", bytecode.UNSET), load] if null_first else [load, ("PUSH_NULL", bytecode.UNSET)]
    if name in ("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST") and isinstance(argument, tuple):
        first, second = {"LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"), "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
                         "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST")}[name]
        return [(first, argument[0]), (second, argument[1])]
    if name == "COMPARE_OP" and str(argument.name).endswith("_CAST"):
        return [(name, bytecode.Compare[argument.name.removesuffix("_CAST")]), ("TO_BOOL", bytecode.UNSET)]
    return [(name, argument)]


__all__ = ["PROLOGUE", "RETURNS", "VERSION", "CellVar", "FreeVar", "Handler", "Operation", "Program", "Slot", "argument_names", "program_of",
           "unconditional"]
