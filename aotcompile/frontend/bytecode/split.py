"""Splits a function's bytecode at the breaks known so far."""
from __future__ import annotations

import hashlib
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aotcompile.base.diagnostic import Diagnostic
from aotcompile.base.span import Span
from aotcompile.frontend.bytecode.emit import (
    Emitted,
    region_code,
    region_parameters,
    rewritten_function,
    whole_function,
    whole_region,
)
from aotcompile.frontend.bytecode.program import Program, argument_names, program_of
from aotcompile.frontend.bytecode.regions import Cut, Selector, callee_slot, excluded_operations
from aotcompile.frontend.bytecode.source import BytecodeSource
from aotcompile.frontend.bytecode.text import listing, split_text
from aotcompile.frontend.interpret.opcodes.decode import decode
from aotcompile.frontend.types import Break, RegionSource, SplitSource

# Functions that see the variables of the function they are called in.
FRAME_READERS = frozenset({"locals", "exec", "eval", "vars", "dir"})
_OURS = re.compile(r"_(r|s|o|a|call_)\d+$|_null$|_callee$|_explore$|_tested$")


@dataclass(frozen=True)
class BytecodeBreak:
    """A break of a function without source: the instruction (as `interpret.opcodes.decode` counts) and what is known of it."""

    instruction: int
    found: Break


@dataclass(frozen=True)
class BytecodeSplit(SplitSource):
    """``text`` is what `runtime.twins.bytecode_twin` reads. ``origins``: eager body's name -> for each of its instructions the original's
    instruction, or -1."""

    origins: dict[str, tuple[int, ...]] = field(default_factory=dict)


def split_bytecode(source: BytecodeSource, breaks: Sequence[BytecodeBreak], keep: Callable[[RegionSource], bool] | None = None) -> BytecodeSplit:
    """The function with its regions cut out. A function that cannot be split comes back without regions, and ``eager`` says why."""
    why = _unsplittable(source.code)
    if why:
        return _unsplit(source, "AOT250", f"{why}; the function is not split.")
    if not breaks:
        return _whole(source, keep)
    try:
        return _cut(source, breaks, keep)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        return _unsplit(source, "AOT256", f"its bytecode cannot be followed ({error}); the function is not split.")


def break_at(source: BytecodeSource, instruction: int, made: Callable[[Span], Break]) -> BytecodeBreak:
    """A break at an instruction of the function's own code."""
    position = decode(source.code).instructions[instruction].position
    line = position.line or source.first_line
    return BytecodeBreak(instruction, made(Span(source.file, line, position.column, position.end_line or line, position.end_column, source.qualname)))


def _unsplittable(code: types.CodeType) -> str:
    readers = sorted(FRAME_READERS & set(code.co_names))
    if readers:
        return f"{readers[0]}() sees its variables"
    taken = sorted(name for name in {*code.co_varnames, *code.co_cellvars, *code.co_freevars} if _OURS.match(name))
    return f"it uses the name {taken[0]!r}, which the rewritten function needs" if taken else ""


def _unsplit(source: BytecodeSource, number: str, message: str) -> BytecodeSplit:
    note = Diagnostic(number, "note", message, Span(source.file, source.first_line, function=source.qualname))
    return BytecodeSplit(source.qualname, "", (), {}, {}, (note,), "bytecode")


def _lines(code: types.CodeType) -> tuple[int, int]:
    lines = [line for _, _, line in code.co_lines() if line]
    return min(lines, default=code.co_firstlineno), max(lines, default=code.co_firstlineno)


def _whole(source: BytecodeSource, keep: Callable[[RegionSource], bool] | None) -> BytecodeSplit:
    emitted = whole_region(source.code, "_r0_eager")
    region = _region(0, emitted, argument_names(source.code), _lines(source.code))
    if keep is not None and not keep(region):
        return BytecodeSplit(source.qualname, "", (), {}, {}, (), "bytecode")
    codes = {"_r0_eager": emitted.code, "": whole_function(source.code, "_r0").code}
    return BytecodeSplit(source.qualname, split_text(source.qualname, source.code, codes, {region.name: region.text}), (region,), {}, {}, (),
                         "bytecode", {"_r0_eager": emitted.origins})


def _region(index: int, emitted: Emitted, parameters: tuple[str, ...], lines: tuple[int, int]) -> RegionSource:
    text = "\n".join(listing(emitted.code))
    code = emitted.code
    content = repr((text, parameters, code.co_code, code.co_exceptiontable, code.co_names, code.co_flags))
    return RegionSource(f"_r{index}_eager", index, parameters, text, lines, hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16])


def _cut(source: BytecodeSource, breaks: Sequence[BytecodeBreak], keep: Callable[[RegionSource], bool] | None) -> BytecodeSplit:
    program = program_of(source.code)
    at = {known.instruction: known for known in breaks}
    places = {_last_of(program, instruction): known for instruction, known in at.items()}
    excluded = excluded_operations(program, places)
    for index, known in places.items():
        if known.found.kind != "branch":                           # a comparison that is tested at once: it is not the test that breaks
            source_number = program.operations[index].source
            excluded |= {k for k in range(max(index - 1, 0), index) if program.operations[k].source == source_number
                         and program.operations[k].name == "COMPARE_OP"}
    cuts = Selector(program, excluded).cuts()
    calls: dict[int, str] = {}
    for index, known in sorted(places.items()):
        if known.found.kind == "call_split" and known.found.callee and callee_slot(program, index) is not None:
            calls[index] = known.found.callee
    regions: list[RegionSource] = []
    chosen: list[tuple[Cut, str]] = []
    codes: dict[str, types.CodeType] = {}
    origins: dict[str, tuple[int, ...]] = {}
    for cut in cuts:
        name = f"_r{len(regions)}_eager"
        emitted = region_code(program, cut, name)
        lines = [line for k in cut.inside if (line := program.operations[k].line)]
        region = _region(len(regions), emitted, region_parameters(cut),
                         (min(lines, default=source.first_line), max(lines, default=source.first_line)))
        if keep is not None and not keep(region):
            continue
        regions.append(region)
        chosen.append((cut, f"_r{region.index}"))
        codes[name], origins[name] = emitted.code, emitted.origins
    numbers = {index: f"_call_{number}" for number, index in enumerate(calls)}
    extra = [*(stub for _, stub in chosen), *numbers.values()]
    codes[""] = rewritten_function(program, chosen, numbers, extra).code
    text = split_text(source.qualname, source.code, codes, {region.name: region.text for region in regions})
    return BytecodeSplit(source.qualname, text, tuple(regions), {k: calls[index] for k, index in enumerate(calls)}, {}, (), "bytecode", origins)


def _last_of(program: Program, instruction: int) -> int:
    """The operation that does what an instruction of the original is about (its last part)."""
    found = [k for k, operation in enumerate(program.operations) if operation.source == instruction]
    following = found[-1] if found else 0
    while program.operations[following].name in ("KW_NAMES", "PRECALL"):
        following += 1
    return following


__all__ = ["BytecodeBreak", "BytecodeSplit", "break_at", "split_bytecode"]
