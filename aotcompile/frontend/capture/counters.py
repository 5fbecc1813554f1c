"""Which attributes and globals a function counts: what it stores in them comes from what they held before.

    self.calls += 1                                            counted
    start = self.position ... self.position = start + length   counted
    state["n"] = state["n"] + 1                                counted
    if size < self.window: self.window = size                  not counted: a setting that is corrected
    nonlocal calls; calls += 1                                 counted, in the function's cell
    if size <= windows[0]: shifts[0] = 0                       not counted

A counted number is another at each call, so that it is an input; any other number is part of the situation that is compiled. Where one region
counts and another reads, the second call of a recording run shows it (`ChangedNumbers`).
"""
from __future__ import annotations

import dis
import functools
import itertools
import types
from dataclasses import dataclass, field

from aotcompile.ir.paths import Path

Name = tuple[str, str]
"""("attribute" | "global" | "cell" | "local", name)."""

_LOADS = {"LOAD_FAST": "local", "LOAD_DEREF": "cell", "LOAD_ATTR": "attribute", "LOAD_METHOD": "attribute", "LOAD_GLOBAL": "global",
          "LOAD_NAME": "global"}
_STORES = {"STORE_FAST": "local", "STORE_DEREF": "cell", "STORE_ATTR": "attribute", "STORE_GLOBAL": "global"}


@dataclass
class ChangedNumbers:
    """The numbers that regions of one recording run write. ``written``: names of attributes and globals, keys of items; ``first``: what a region
    (``reader``) found at each place that it reads."""

    written: set[object] = field(default_factory=set)
    first: dict[tuple[object, Path], int | float] = field(default_factory=dict)

    def is_another(self, reader: object, path: Path, value: int | float) -> bool:
        """Whether a number that some region writes is not what the reader found there before."""
        before = self.first.setdefault((reader, path), value)
        return (type(before), before) != (type(value), value) and last_name(path)[1] in self.written


def last_name(path: Path) -> tuple[str, object]:
    """("attribute", name), ("item", key), or the root where there are no steps."""
    if not path.steps:
        return str(path.root[0]), path.root[1]
    step = path.steps[-1]
    return (str(step[0]), step[1]) if len(step) == 2 else ("", None)


@functools.cache
def counted(code: types.CodeType) -> frozenset[Name]:
    """The attributes, globals and variables of functions around that ``code`` counts."""
    instructions = list(dis.get_instructions(code))
    origins: dict[Name, set[Name]] = {}
    for index, instruction in enumerate(instructions):
        stored = _names(instruction, _STORES)
        taken = len(stored) + (instruction.opname == "STORE_ATTR")             # the owner too
        loaded = {name for each in instructions[_start(instructions, index, taken):index] for name in _names(each, _LOADS)} if stored else set()
        for name in stored:
            origins.setdefault(name, set()).update(loaded)
    return frozenset(name for name in origins if name[0] != "local" and name in _reached(origins, name))


@functools.cache
def _counted_keys(code: types.CodeType) -> tuple[object, ...]:
    """The constant keys of items that are stored and come from items read under the same key, or under one that is not known here."""
    instructions = list(dis.get_instructions(code))
    origins: dict[Name, set[Name]] = {}
    keys: list[object] = []
    for index, instruction in enumerate(instructions):
        stored, before = _names(instruction, _STORES), instructions[index - 1]
        if stored:
            loaded = _loaded(instructions[_start(instructions, index, len(stored) + (instruction.opname == "STORE_ATTR")):index])
            for name in stored:
                origins.setdefault(name, set()).update(loaded)
        elif instruction.opname == "STORE_SUBSCR" and before.opname == "LOAD_CONST":          # value, container, key
            loaded = _loaded(instructions[_start(instructions, index, 3):_start(instructions, index, 2)])
            read = loaded.union(*(_reached(origins, name) for name in loaded))
            keys += [before.argval] * bool({_UNKNOWN_ITEM, ("item", repr(before.argval))} & read)
        elif instruction.opname == "STORE_SUBSCR" and before.opname == "SWAP":                # container, key, their copies, the item: n[key] += 1
            made = instructions[_start(instructions, index, 3):index]
            keys += [each.argval for each, after in itertools.pairwise(made) if each.opname == "LOAD_CONST" and after.opname == "COPY"][:1]
    return tuple(keys)


_UNKNOWN_ITEM: Name = ("item", "")


def _loaded(instructions: list[dis.Instruction]) -> set[Name]:
    items = [("item", repr(before.argval)) if before.opname == "LOAD_CONST" else _UNKNOWN_ITEM
             for before, each in itertools.pairwise(instructions) if each.opname == "BINARY_SUBSCR"]
    return {name for each in instructions for name in _names(each, _LOADS)}.union(items)


def counts_item(code: types.CodeType, key: object) -> bool:
    """Whether ``code`` may store an item under the key that comes from what an item held: which containers they are is not looked at."""
    return any(type(key) is type(each) and key == each for each in _counted_keys(code))


def _reached(origins: dict[Name, set[Name]], name: Name) -> set[Name]:
    found: set[Name] = set()
    waiting = [name]
    while waiting:
        new = origins.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found


def _start(instructions: list[dis.Instruction], index: int, wanted: int) -> int:
    """Where the evaluation of the ``wanted`` items begins that are on top of the stack before instruction ``index``."""
    while wanted > 0 and index > 0:
        index -= 1
        instruction = instructions[index]
        wanted -= dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        if instruction.opname in ("SWAP", "COPY"):             # reach down to the item that they name
            wanted = max(wanted, instruction.arg or 0)
    return index


def _names(instruction: dis.Instruction, kinds: dict[str, str]) -> list[Name]:
    """The names that an instruction loads or stores. CPython 3.13 does two at once: STORE_FAST_LOAD_FAST (a, b)."""
    words = [word for word in kinds if word in instruction.opname]
    if not words:
        return []
    parts = instruction.opname.replace("_LOAD", " LOAD").replace("_STORE", " STORE").split()
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,) * len(parts)
    return [(kinds[word], name) for part, name in zip(parts, names) for word in words if part.startswith(word)]
