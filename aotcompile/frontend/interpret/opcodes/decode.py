"""Code objects to instruction lists, over the `bytecode` library (which hides caches, extended arguments and the jump encodings of each Python)."""
from __future__ import annotations

import functools
from dataclasses import dataclass
from types import CodeType
from typing import Any

import bytecode


@dataclass(frozen=True)
class Position:
    """Lines from 1, columns from 0 (UTF-8 bytes); 0 where the compiler gave none."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Instruction:
    """``argument`` is resolved: names, constants, jump targets (index into `Decoded.instructions`), tuples for flagged names,
    None where there is none."""

    name: str
    argument: Any
    position: Position


@dataclass(frozen=True)
class Handler:
    """An exception table entry: where to go, how much of the stack stays, and whether the faulting instruction's index is pushed."""

    target: int
    depth: int
    push_last: bool


@dataclass(frozen=True)
class Decoded:
    instructions: tuple[Instruction, ...]
    handlers: tuple[Handler | None, ...]          # per instruction


@functools.cache
def decode(code: CodeType) -> Decoded:
    """Decode ``code``. Equal code objects share one result."""
    items = list(bytecode.Bytecode.from_code(code, conserve_exception_block_stackdepth=True))
    labels: dict[int, int] = {}
    count = 0
    for item in items:
        if isinstance(item, bytecode.Label):
            labels[id(item)] = count
        elif isinstance(item, bytecode.Instr):
            count += 1
    instructions: list[Instruction] = []
    handlers: list[Handler | None] = []
    open_blocks: list[bytecode.TryBegin] = []
    for item in items:
        if isinstance(item, bytecode.TryBegin):
            open_blocks.append(item)
        elif isinstance(item, bytecode.TryEnd):
            open_blocks.remove(item.entry)
        elif isinstance(item, bytecode.Instr):
            argument: Any = item.arg
            if argument is bytecode.UNSET:           # a marker without truth value
                argument = None
            elif isinstance(argument, bytecode.Label):
                argument = labels[id(argument)]
            elif isinstance(argument, (bytecode.CellVar, bytecode.FreeVar)):
                argument = argument.name
            elif isinstance(argument, tuple) and any(isinstance(a, (bytecode.CellVar, bytecode.FreeVar)) for a in argument):
                argument = tuple(getattr(a, "name", a) for a in argument)
            position = _position(item.location)
            if item.name.startswith(("POP_JUMP", "BEFORE_WITH")):
                position = _taken(position, instructions)
            instructions.append(Instruction(item.name, argument, position))
            block = open_blocks[-1] if open_blocks else None
            handlers.append(Handler(labels[id(block.target)], _depth(block), block.push_lasti) if block else None)
    return Decoded(tuple(instructions), tuple(handlers))


def _taken(position: Position, before: list[Instruction]) -> Position:
    """Where the value is computed that the next instruction takes: a conditional jump, a ``with`` block. CPython 3.11 gives these the position of
    the whole statement."""
    values = [instruction for instruction in before[-2:] if not instruction.name.startswith("STORE_")]      # a walrus stores a copy
    value = values[-1].position if values else position
    inside = (position.line, position.column) <= (value.line, value.column) \
        and (value.end_line, value.end_column) <= (position.end_line, position.end_column)
    return value if value.line and inside else position


def _depth(block: bytecode.TryBegin) -> int:
    depth = block.stack_depth
    if not isinstance(depth, int):
        raise ValueError("an exception block without stack depth")
    return depth


def _position(location: bytecode.InstrLocation | None) -> Position:
    if location is None:
        return Position(0, 0, 0, 0)
    return Position(location.lineno or 0, location.col_offset or 0, location.end_lineno or 0, location.end_col_offset or 0)
