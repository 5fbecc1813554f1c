"""From a program and its cuts to code objects: one per region, and the rewritten function that calls them."""
from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import bytecode
from bytecode import CellVar, FreeVar, Instr, Label, TryBegin, TryEnd
from bytecode.instr import InstrLocation

from aotcompile.frontend.bytecode.program import VERSION, Handler, Operation, Program, Slot, argument_names, unconditional
from aotcompile.frontend.bytecode.regions import Cut, call_start, callee_slot, loading

_STARS = 0x04 | 0x08
# From 3.12 on LOAD_FAST trusts the compiler that the variable has a value. What we move is checked: a mistake of ours must not crash the process.
_LOAD = "LOAD_FAST" if VERSION < (3, 12) else "LOAD_FAST_CHECK"
_FORWARD = {"JUMP_BACKWARD": "JUMP_FORWARD", "JUMP_BACKWARD_NO_INTERRUPT": "JUMP_FORWARD"}


@dataclass(frozen=True)
class Emitted:
    """``origins``: for each instruction of the code, the number of the original's instruction it was made from, -1 for our own."""

    code: types.CodeType
    origins: tuple[int, ...]


@dataclass
class Writer:
    """Instructions in order, each with the handler that is around it."""

    labels: dict[int, Label] = field(default_factory=dict)
    items: list[tuple[Instr | Label, int, Handler | None]] = field(default_factory=list)
    location: Any = None
    handler: Handler | None = None

    def label(self, index: int) -> Label:
        return self.labels.setdefault(index, Label())

    def mark(self, label: Label) -> None:
        self.items.append((label, -1, None))

    def add(self, name: str, argument: Any = bytecode.UNSET) -> None:
        """An instruction of our own."""
        made = Instr(name, location=self.location) if argument is bytecode.UNSET else Instr(name, argument, location=self.location)
        self.items.append((made, -1, self.handler))

    def copy(self, operation: Operation, label: Label | None = None, name: str = "") -> None:
        self.location, self.handler = operation.location, operation.handler
        made = operation.instruction(label)
        if operation.name == "LOAD_FAST" and operation.holder is None:
            made = Instr(_LOAD, operation.argument, location=operation.location)
        if name and name != operation.name:
            assert label is not None
            made = Instr(name, label, location=operation.location)
        self.items.append((made, operation.source, operation.handler))

    def store(self, name: str, cells: frozenset[str]) -> None:
        self.add("STORE_DEREF", CellVar(name)) if name in cells else self.add("STORE_FAST", name)

    def load(self, name: str, cells: frozenset[str]) -> None:
        self.add("LOAD_DEREF", CellVar(name)) if name in cells else self.add(_LOAD, name)

    def take(self, name: str) -> None:
        """A temporary's value; the temporary lets go of it."""
        self.add(_LOAD, name)
        self.add("DELETE_FAST", name)

    def call(self, stub: str, load: Any, count: int) -> None:
        """``stub(*count values)``; ``load`` writes the loading of the values."""
        if VERSION < (3, 13):
            self.add("PUSH_NULL")
        self.add("LOAD_DEREF", FreeVar(stub))
        if VERSION >= (3, 13):
            self.add("PUSH_NULL")
        load()
        if VERSION < (3, 12):
            self.add("PRECALL", count)
        self.add("CALL", count)

    def listing(self) -> tuple[list[Any], tuple[int, ...]]:
        """The instructions with the marks of exception blocks between them, and where each came from."""
        result: list[Any] = []
        origins = []
        current: Handler | None = None
        block: TryBegin | None = None
        for item, origin, handler in self.items:
            if isinstance(item, Instr):
                if handler != current:
                    if block is not None:
                        result.append(TryEnd(block))
                    block = TryBegin(self.label(handler.target), handler.push_last, handler.depth) if handler is not None else None
                    result.extend([block] if block is not None else [])
                    current = handler
                origins.append(origin)
            result.append(item)
        if block is not None:
            result.append(TryEnd(block))
        return result, tuple(origins)


def _code(original: types.CodeType, writer: Writer, *, name: str, qualname: str, arguments: Sequence[str], counts: tuple[int, int, int], flags: int,
          cells: Sequence[str], free: Sequence[str]) -> Emitted:
    """``counts``: parameters, positional-only ones, keyword-only ones. Writes the prologue."""
    body, origins = writer.listing()
    start = InstrLocation(original.co_firstlineno, None, None, None)
    prologue = [Instr("COPY_FREE_VARS", len(free), location=None)] if free else []
    prologue += [Instr("MAKE_CELL", CellVar(cell), location=None) for cell in cells]
    prologue.append(Instr("RESUME", 0, location=start))
    made = bytecode.Bytecode([*prologue, *body])
    made.name, made.qualname, made.filename, made.first_lineno = name, qualname, original.co_filename, original.co_firstlineno
    made.argnames, made.cellvars, made.freevars = list(arguments), list(cells), list(free)
    made.argcount, made.posonlyargcount, made.kwonlyargcount = counts
    made.flags = bytecode.CompilerFlags(flags)
    return Emitted(made.to_code(compute_exception_stack_depths=False), (*([-1] * len(prologue)), *origins))


def _flags(original: types.CodeType, free: Sequence[str], keep_stars: bool) -> int:
    flags = original.co_flags & ~bytecode.CompilerFlags.NOFREE
    if not keep_stars:
        flags &= ~_STARS
    return flags | bytecode.CompilerFlags.NESTED if free else flags & ~bytecode.CompilerFlags.NESTED


# ---- the whole function as one region -------------------------------------------------------------------------------------------------------


def whole_region(code: types.CodeType, name: str) -> Emitted:
    """The function's own code with plain parameters; ``*args`` come as a tuple, ``**kwargs`` as a dict."""
    arguments = argument_names(code)
    made = code.replace(co_argcount=len(arguments), co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~_STARS, co_name=name,
                        co_qualname=name)
    count = sum(isinstance(item, Instr) for item in bytecode.Bytecode.from_code(code))
    return Emitted(made, tuple(range(count)))


def whole_function(code: types.CodeType, stub: str) -> Emitted:
    """``def f(a, *b): return _r0(a, b)``."""
    writer = Writer(location=InstrLocation(code.co_firstlineno, None, None, None))
    arguments = argument_names(code)

    def load() -> None:
        for argument in arguments:
            writer.add(_LOAD, argument)

    writer.call(stub, load, len(arguments))
    writer.add("RETURN_VALUE")
    free = [*code.co_freevars, stub]
    return _code(code, writer, name=code.co_name, qualname=code.co_qualname, arguments=arguments, cells=(), free=free,
                 counts=(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount), flags=_flags(code, free, True))


# ---- a region ---------------------------------------------------------------------------------------------------------------------------------


def slot_names(slots: Sequence[Slot], prefix: str) -> list[str]:
    """A temporary for each slot that holds a value; "" for NULLs."""
    return ["" if slot.kind == "null" else f"{prefix}{position}" for position, slot in enumerate(slots)]


def region_parameters(cut: Cut) -> tuple[str, ...]:
    return (*cut.variables, *filter(None, slot_names(cut.taken, "_s")))


def region_code(program: Program, cut: Cut, name: str) -> Emitted:
    """The eager body of a region."""
    writer = Writer(location=program.operations[cut.start].location)
    for temporary in slot_names(cut.taken, "_s"):
        if temporary:
            writer.take(temporary)
        else:
            writer.add("PUSH_NULL")
    order = sorted(cut.inside)
    leave = Label()
    if order[0] != cut.start:
        writer.add("JUMP_FORWARD", writer.label(cut.start))
    outer = program.operations[cut.start].handler
    targets = _targets(program, order) | ({cut.start} if order[0] != cut.start else set())
    for position, index in enumerate(order):
        operation = program.operations[index]
        if index in targets:
            writer.mark(writer.label(index))
        handler = operation.handler
        if handler is not None:
            handler = None if handler == outer else replace(handler, depth=handler.depth - cut.lowest)
        inner = replace(operation, handler=handler)
        last = position == len(order) - 1
        if operation.target is not None:
            out = operation.target == cut.end
            writer.copy(inner, leave if out else writer.label(operation.target), forward(operation.name) if out else operation.name)
        else:
            writer.copy(inner)
        following = program.successors(index)
        if following and following[0] == index + 1 == cut.end and not last:
            writer.add("JUMP_FORWARD", leave)
    if cut.end is not None:
        writer.handler = None
        writer.mark(leave)
        _result(writer, cut)
    parameters = region_parameters(cut)
    free = program.code.co_freevars
    return _code(program.code, writer, name=name, qualname=name, arguments=parameters, counts=(len(parameters), 0, 0),
                 flags=_flags(program.code, free, False), cells=sorted(cut.cells), free=free)


def _result(writer: Writer, cut: Cut) -> None:
    kept = []
    for position, slot in reversed(list(enumerate(cut.left))):
        if slot.kind == "null":
            writer.add("STORE_FAST", "_null")                  # takes a NULL off the stack; nothing reads it
        elif position in cut.again:
            writer.add("POP_TOP")
        else:
            writer.add("STORE_FAST", f"_o{position}")
            kept.append(f"_o{position}")
    values = len(cut.results) + len(kept)
    for name in cut.results:
        writer.load(name, cut.cells)
    for name in reversed(kept):
        writer.add(_LOAD, name)
    if not values:
        writer.add("LOAD_CONST", None)
    elif values > 1:
        writer.add("BUILD_TUPLE", values)
    writer.add("RETURN_VALUE")


def forward(name: str) -> str:
    """The name of a jump once its target lies behind it."""
    return _FORWARD.get(name) or name.replace("POP_JUMP_BACKWARD_IF", "POP_JUMP_FORWARD_IF")


def _targets(program: Program, order: Sequence[int]) -> set[int]:
    found: set[int] = set()
    for index in order:
        operation = program.operations[index]
        found |= {operation.target} if operation.target is not None else set()
        found |= {operation.handler.target} if operation.handler is not None else set()
    return found & set(order)


# ---- the rewritten function -------------------------------------------------------------------------------------------------------------------


def rewritten_function(program: Program, cuts: Sequence[tuple[Cut, str]], calls: Mapping[int, str], extra: Sequence[str]) -> Emitted:
    """``cuts`` with their stubs' names; ``calls``: a call operation -> the name its callee goes through (``_call_0``)."""
    code, writer = program.code, Writer()
    starts = {cut.start: (cut, stub) for cut, stub in cuts}
    gone = {k for cut, _ in cuts for k in cut.inside} - set(starts)
    order = [k for k in range(len(program.operations)) if k not in gone and program.stacks[k] is not None
             and not program.operations[k].prologue]
    kept = [k for k in order if k not in starts]
    targets = _targets(program, kept) | {o.target for k in kept
                                         if (o := program.operations[k]).target is not None} | {cut.end for cut, _ in cuts if cut.end is not None}
    targets |= {h.target for k in order if (h := program.operations[k].handler) is not None}
    wrapped = {call_start(program, index): (index, name) for index, name in calls.items()}
    cells = frozenset(code.co_cellvars)
    for position, index in enumerate(order):
        operation = program.operations[index]
        if index in targets:
            writer.mark(writer.label(index))
        if index in starts:
            writer.location, writer.handler = operation.location, operation.handler
            _glue(writer, program, *starts[index], cells)
            end = starts[index][0].end
            following = order[position + 1] if position + 1 < len(order) else None
            if end is not None and end != following:
                writer.add("JUMP_FORWARD" if end > index else "JUMP_BACKWARD", writer.label(end))
            continue
        if index in wrapped:
            writer.location, writer.handler = operation.location, operation.handler
            _wrap(writer, program, *wrapped[index])
        writer.copy(operation, writer.label(operation.target) if operation.target is not None else None)
    free = [*code.co_freevars, *extra]
    return _code(code, writer, name=code.co_name, qualname=code.co_qualname, arguments=argument_names(code), cells=code.co_cellvars, free=free,
                 counts=(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount), flags=_flags(code, free, True))


def _glue(writer: Writer, program: Program, cut: Cut, stub: str, cells: frozenset[str]) -> None:
    """The call of a region in its place."""
    temporaries = slot_names(cut.taken, "_s")
    for temporary in reversed(temporaries):
        writer.add("STORE_FAST", temporary or "_null")

    def load() -> None:
        for name in cut.variables:
            writer.load(name, cells)
        for temporary in filter(None, temporaries):
            writer.take(temporary)

    writer.call(stub, load, len(region_parameters(cut)))
    if cut.end is None:
        writer.add("RETURN_VALUE")
        return
    kept = [position for position, slot in enumerate(cut.left) if position not in cut.again]
    values = len(cut.results) + len(kept)
    if not values:
        writer.add("POP_TOP")
    elif values > 1:
        writer.add("UNPACK_SEQUENCE", values)
    for name in cut.results:
        writer.store(name, cells)
    if len(cut.left) == 1 and kept:
        return                                                 # it lies where it belongs
    for position in kept:
        writer.add("STORE_FAST", f"_o{position}")
    for position, slot in enumerate(cut.left):
        if position not in cut.again:
            writer.take(f"_o{position}")
        elif slot.kind == "null":
            writer.add("PUSH_NULL")
        else:
            for index in loading(program, slot.producer) or [slot.producer]:
                writer.add(program.operations[index].name, program.operations[index].argument)


def _wrap(writer: Writer, program: Program, index: int, name: str) -> None:
    """``f(x)`` -> ``_call_0(f)(x)``: the arguments are put aside, the callee is replaced."""
    found = callee_slot(program, index)
    assert found is not None
    position, _ = found
    depth = program.depth(call_start(program, index))
    aside = [f"_a{k}" for k in range(depth - position - 1)]
    stack = program.stacks[call_start(program, index)]
    assert stack is not None
    nulls = {f"_a{k}" for k in range(len(aside)) if stack[position + 1 + k].kind == "null"}
    for temporary in reversed(aside):
        writer.add("STORE_FAST", temporary if temporary not in nulls else "_null")
    writer.add("STORE_FAST", "_callee")
    writer.call(name, lambda: writer.take("_callee"), 1)
    for temporary in aside:
        writer.add("PUSH_NULL") if temporary in nulls else writer.take(temporary)


__all__ = ["Emitted", "forward", "region_code", "region_parameters", "rewritten_function", "unconditional", "whole_function", "whole_region"]
