"""From an entry and its example inputs to split functions and captured variants.

The loop: split every function at the breaks known so far; run the split program in a child with recording stubs; add the breaks it found; again until
a run finds none. The first round usually finds a whole function to be one region, and nothing of the user's is run at all.
"""
from __future__ import annotations

import copy
import functools
import types
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Sequence

import torch

from aotcompile.base.diagnostic import Diagnostic
from aotcompile.base.names import enclosing_class, numbered
from aotcompile.base.span import Span
from aotcompile.frontend.bytecode import BytecodeBreak, BytecodeSource, BytecodeSplit, break_at, split_bytecode
from aotcompile.frontend.capture.region import Dimensions, DynamicNumbers
from aotcompile.frontend.record.decorated import put_inside
from aotcompile.frontend.record.served import Served
from aotcompile.frontend.record.recorder import (
    FoundBreak,
    FoundCallee,
    FoundException,
    FoundNote,
    FoundRefusal,
    FoundVariant,
    Key,
    Recording,
    Tools,
    record_run,
)
from aotcompile.frontend.record.sizes import OtherSizes, most_attempts
from aotcompile.frontend.record.source import FunctionSource, Locator
from aotcompile.frontend.split import split_function
from aotcompile.frontend.types import Break, CapturedVariant, FrontendResult, FunctionResult, RegionSource, SplitSource

MAXIMUM_ROUNDS = 80


@dataclass(frozen=True)
class Situation:
    """One call to build for. ``dimensions``: which sizes of which argument tensors are dynamic; ``numbers``: which of its ints and floats are."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)
    dimensions: Dimensions = field(default_factory=dict)
    numbers: DynamicNumbers = field(default_factory=DynamicNumbers)
    grad_modes: tuple[bool, ...] | None = None          # None: the ambient mode, and no_grad as well where something requires grad


@dataclass
class _State:
    """A function being split."""

    source: FunctionSource
    breaks: list[Break] = field(default_factory=list)
    split: SplitSource | None = None
    variants: dict[str, list[CapturedVariant]] = field(default_factory=dict)
    refusals: dict[str, list[FoundRefusal]] = field(default_factory=dict)
    notes: list[Diagnostic] = field(default_factory=list)
    small_size_notes: list[Diagnostic] = field(default_factory=list)
    locator: Locator | None = None
    instructions: list[BytecodeBreak] = field(default_factory=list)     # the breaks of a function without source

    def resplit(self, keep: Callable[[RegionSource], bool] | None = None) -> None:
        if isinstance(self.source, BytecodeSource):
            self.split = split_bytecode(self.source, self.instructions, keep)
            return
        self.split = split_function(self.source.text, self.breaks, first_line=self.source.first_line, freevars=self.source.freevars,
                                    settled=self.source.settled, region_filter=keep, class_name=enclosing_class(self.source.qualname))

    def locate(self) -> Locator:
        if self.locator is None:
            self.locator = Locator(self.source)
        return self.locator

    def add_instruction(self, record: FoundBreak) -> bool:
        """A break of a function without source. False for a known one."""
        assert isinstance(self.source, BytecodeSource)
        instruction = record.instruction
        if record.generated:
            assert isinstance(self.split, BytecodeSplit)
            name = next(region.name for region in self.split.regions if region.identity == record.identity)
            instruction = self.split.origins[name][instruction]
        if instruction < 0 or any(known.instruction == instruction for known in self.instructions):
            return False
        callee = record.callee if record.kind == "call_split" else None
        found = break_at(self.source, instruction, lambda span: Break(span, record.kind, record.code, record.reason, record.hint, callee))  # type: ignore[arg-type]
        self.instructions.append(found)
        self.breaks.append(found.found)
        return True


@dataclass(frozen=True)
class EntryCalls:
    """An entry: its function and the situations to build for, in the order in which their variants are to be tried. ``wrapper``: what is called where
    decorators of libraries are around the function."""

    function: types.FunctionType
    source: FunctionSource
    situations: Sequence[Situation]
    wrapper: types.FunctionType | None = None


class Frontend:
    """Analysis of entries together: functions that several of them reach are split once, for all."""

    def __init__(self, entries: Sequence[EntryCalls], tools: Tools) -> None:
        self._entries, self._tools = entries, tools
        self._states: dict[Key, _State] = {entry.source.key: _State(entry.source) for entry in entries}

    def keys(self) -> list[Key]:
        """(module, qualified name, code digest) of the entries and of every callee that was split."""
        return [(key[0], name, key[2]) for key, name in self._names().items()]

    def _names(self) -> dict[Key, str]:
        """A qualified name for each function that no other one in its module has: two definitions of one name are ``f`` and ``f@2``."""
        names: dict[Key, str] = {}
        numbers: dict[tuple[str, str], int] = {}
        for key in self._states:
            number = numbers[key[:2]] = numbers.get(key[:2], 0) + 1
            names[key] = numbered(key[1], number)
        return names

    def analyze(self, run: bool = True) -> FrontendResult:
        """Split and capture for all situations. ``run`` False forbids running the user's code (``--no-run``): what lies behind a break stays
        eager."""
        for state in self._states.values():
            state.resplit()
        for _ in range(MAXIMUM_ROUNDS):
            found = [[record for situation in entry.situations for record in self._modes(entry, situation, run)] for entry in self._entries]
            if not self._learn([record for records in found for record in records]):
                for entry, records in zip(self._entries, found):
                    self._serve_other_sizes(entry, records, run)
                return self._result()
        return self._result(Diagnostic("AOT214", "warning", f"gave up splitting after {MAXIMUM_ROUNDS} rounds; what is not split yet runs eagerly"))

    # ---- a round ------------------------------------------------------------------------------------------------------------------------------

    def _modes(self, entry: EntryCalls, situation: Situation, run: bool) -> list[Any]:
        """One situation in the grad modes asked for."""
        splits = {key: state.split for key, state in self._states.items() if state.split is not None}
        records: list[Any] = []
        modes = list(situation.grad_modes) if situation.grad_modes is not None else [torch.is_grad_enabled()]
        done: set[bool] = set()
        while modes:
            mode = modes.pop(0)
            done.add(mode)
            found = self._one(entry, situation, mode, splits, run)
            # The example runs in the ambient mode. What it raises in the other one (``.backward()`` without grad) is not about it.
            unasked = situation.grad_modes is None and len(done) > 1
            records.extend(record for record in found if not (unasked and isinstance(record, FoundException)))
            if situation.grad_modes is None and False not in done and any(_differentiable(r.variant) for r in found if isinstance(r, FoundVariant)):
                modes.append(False)
        return records

    def _one(self, entry: EntryCalls, situation: Situation, mode: bool, splits: dict[Key, SplitSource], run: bool) -> list[Any]:
        static = self._static(entry, situation, mode, splits, run)
        if static is not None:
            return static

        def call(recording: Recording) -> None:
            recording.source(entry.function)
            twin = recording.twin(entry.function) or entry.function
            if entry.wrapper is not None:
                put_inside(entry.wrapper, entry.function, twin)
                twin = entry.wrapper
            with torch.set_grad_enabled(mode):
                twin(*situation.arguments, **situation.keywords)
                if recording.changes_state:             # a cache is filled by now, an attribute made: the situation of every later call
                    twin(*situation.arguments, **situation.keywords)

        return record_run(call, self._recording(situation, splits))

    def _recording(self, situation: Situation, splits: dict[Key, SplitSource]) -> Recording:
        return Recording(splits, self._tools, dict(situation.dimensions), copy.deepcopy(situation.numbers))

    def _static(self, entry: EntryCalls, situation: Situation, mode: bool, splits: dict[Key, SplitSource], run: bool) -> list[Any] | None:
        """Capture without running anything, where the function is one region so far. None: a run is needed."""
        split = splits.get(entry.source.key)
        if split is None or len(split.regions) != 1 or self._states[entry.source.key].breaks or entry.wrapper is not None:
            return None if run else []
        records: list[Any] = []
        recording = self._recording(situation, splits)
        recording.send = records.append  # type: ignore[method-assign]
        recording.source(entry.function)
        twin = recording.twin(entry.function)
        assert twin is not None
        stub = next(cell.cell_contents for name, cell in zip(twin.__code__.co_freevars, twin.__closure__ or ()) if name == "_r0")
        with torch.set_grad_enabled(mode):
            arguments = _bind_region(twin, split.regions[0].parameters, situation)
            if arguments is None:
                return None if run else []
            stub.capture(arguments)
        return None if (recording.changes_state or recording.wants_run) and run else records

    # ---- learning -----------------------------------------------------------------------------------------------------------------------------

    def _learn(self, records: Sequence[Any]) -> bool:
        """Take in a round's records; True when something was split differently from before."""
        for state in self._states.values():
            state.variants, state.refusals, state.notes, state.small_size_notes = {}, {}, [], []
        changed: dict[Key, _State] = {}
        places: set[tuple[Any, ...]] = set()
        for record in records:
            if isinstance(record, FoundBreak):
                place = _place(record)
                if place in places:
                    continue                    # found by another situation too, or with another callee: one split serves them all
                places.add(place)
                state = self._states.setdefault(record.source.key, _State(record.source))
                if self._add_break(state, record):
                    changed[record.source.key] = state
            elif isinstance(record, FoundCallee) and record.source.key not in self._states:
                changed[record.source.key] = self._states[record.source.key] = _State(record.source)
            elif isinstance(record, FoundVariant):
                self._add_variant(record)
            elif isinstance(record, FoundRefusal):
                self._states[record.key].refusals.setdefault(record.identity, []).append(record)
            elif isinstance(record, FoundNote):
                state = self._states[record.key]
                (state.small_size_notes if record.of_small_size else state.notes).append(record.note)
            elif isinstance(record, FoundException):
                self._note_exception(record)
        for state in changed.values():
            state.resplit()
        return bool(changed)

    def _add_variant(self, record: FoundVariant) -> None:
        known = self._states[record.key].variants.setdefault(record.identity, [])
        if record.variant not in known:
            known.append(record.variant)

    def _serve_other_sizes(self, entry: EntryCalls, records: Sequence[Any], run: bool) -> None:
        """Variants for sizes of the dynamic dimensions that those found for the examples (``records``) do not serve. The program is split as it is:
        what breaks, or raises, at other sizes only is left to eager."""
        regions: dict[tuple[Any, ...], list[Served]] = {}
        variants = [record for record in records if isinstance(record, FoundVariant)]
        for record in variants:
            regions.setdefault((record.key, record.identity, record.variant.grad_enabled), []).append(record.served)
        known_breaks = {_place(record) for record in records if isinstance(record, FoundBreak)}
        attempts = most_attempts(sum(record.variant.operator_count for record in variants), [record.served for record in variants])
        for situation in entry.situations:
            other = OtherSizes((situation.arguments, situation.keywords), situation.dimensions)
            if other.possible:
                for record in variants:
                    other.learn(record.served)
            while attempts > 0 and (sizes := other.next(list(regions.values()))) is not None:
                attempts -= 1
                (arguments, keywords), dimensions = other.resized(sizes)
                found = self._attempt(entry, replace(situation, arguments=arguments, keywords=keywords, dimensions=dimensions), run)
                if any(isinstance(record, FoundBreak) and _place(record) not in known_breaks for record in found):
                    continue
                for record in found:
                    if isinstance(record, FoundVariant) and other.learn(record.served):
                        self._add_variant(record)
                        regions.setdefault((record.key, record.identity, record.variant.grad_enabled), []).append(record.served)
                        self._states[record.key].small_size_notes.clear()

    def _attempt(self, entry: EntryCalls, situation: Situation, run: bool) -> list[Any]:
        """The records of a situation that nobody asked for: where the program cannot go through it, there are none."""
        try:
            return self._modes(entry, situation, run)
        except RuntimeError:                    # the child died
            return []

    def _note_exception(self, record: FoundException) -> None:
        state = self._states.get(record.key) if record.key is not None else None
        if state is not None:
            place = Span(state.source.file, record.line or state.source.first_line, function=state.source.qualname)
            message = f"the example raised {record.text} here; what comes after it was not seen and runs eagerly."
            state.notes.append(Diagnostic("AOT218", "note", message, place, "Where the function is to go on, give an example that does."))

    def _add_break(self, state: _State, record: FoundBreak) -> bool:
        if isinstance(state.source, BytecodeSource):
            return state.add_instruction(record)
        locator = state.locate()
        taken = [known.span for known in state.breaks]
        kind = record.kind
        if record.generated:
            assert state.split is not None
            node = locator.generated(state.split.text, record.position, state.split.line_map, taken)
            line = state.split.line_map.get(record.position.line, state.source.first_line)
        else:
            node = locator.own(record.position)
            line = record.position.line
        import ast

        if node is None:
            node = locator.own_statement(line)
        if node is None:
            return False
        if isinstance(node, ast.For) and kind in ("call", "call_split"):
            node = node.iter                    # CPython 3.11 says that the whole statement is iterated; what is in it may well be regions
        if kind == "call_split" and not isinstance(node, ast.Call) and self._tools.rewritten(record.callee_key[0] if record.callee_key else ""):
            kind = "call"                       # a class that is written anew has the split function itself
        if isinstance(node, ast.stmt) and not (kind == "call_split" and isinstance(node, ast.AugAssign)):
            kind = "statement"
        span = locator.span(node)
        if span in taken:
            statement = locator.own_statement(span.line)
            if statement is None or locator.span(statement) in taken:
                return False
            span, kind = locator.span(statement), "statement"
        state.breaks.append(Break(span, kind, record.code, record.reason, record.hint, record.callee if kind == "call_split" else None))  # type: ignore[arg-type]
        return True

    # ---- the result -----------------------------------------------------------------------------------------------------------------------------

    def _result(self, *extra: Diagnostic) -> FrontendResult:
        results = []
        names = self._names()
        for key, state in self._states.items():
            # A situation without tensor operations is compiled where others of its region have some: it would be a miss.
            compiled = {identity for identity, variants in state.variants.items() if any(variant.operator_count for variant in variants)}
            if state.split is None or any(region.identity not in compiled for region in state.split.regions):
                state.resplit(functools.partial(_is_compiled, compiled))
            assert state.split is not None
            variants = {region.index: tuple(_renamed(v, names[key], region.index) for v in state.variants.get(region.identity, ()))
                        for region in state.split.regions}
            split = state.split if any(variants.values()) or self._leads_to_split(state) else None
            eager = [*self._eager_notes(state), *_in_file(state.split.eager, state.source.file), *extra]
            lines = (state.source.first_line, state.source.first_line + state.source.text.count("\n"))
            results.append(FunctionResult(key[0], names[key], state.source.file, lines, split, variants if split else {}, tuple(state.breaks),
                                          tuple(eager), tuple(dict.fromkeys((*state.notes, *state.small_size_notes)))))
        return FrontendResult(tuple(results))

    def _leads_to_split(self, state: _State) -> bool:
        return bool(state.split and state.split.calls)

    def _eager_notes(self, state: _State) -> list[Diagnostic]:
        notes = []
        for refusals in state.refusals.values():
            for refusal in dict.fromkeys(refusals):
                notes.append(Diagnostic(refusal.code, "note", f"stays eager: {refusal.reason}",
                                        Span(state.source.file, state.source.first_line, function=state.source.qualname), refusal.hint))
        return list(dict.fromkeys(notes))


def _in_file(notes: Sequence[Diagnostic], file: str) -> list[Diagnostic]:
    """What the splitter says of statements, which knows lines only: once for all lines of which it says the same."""
    lines: dict[Diagnostic, list[int]] = {}
    for note in notes:
        assert note.span is not None
        span = replace(note.span, file=file, line=0, end_line=0)
        lines.setdefault(replace(note, span=span), []).append(note.span.line)
    found = []
    for note, at in lines.items():
        first, *others = sorted(set(at))
        assert note.span is not None
        more = f" The same holds for line{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}." if others else ""
        found.append(replace(note, message=note.message + more, span=replace(note.span, line=first, end_line=first)))
    return found


def _place(record: FoundBreak) -> tuple[Any, ...]:
    return record.source.key, record.identity, record.generated, record.position


def _is_compiled(identities: set[str], region: RegionSource) -> bool:
    return region.identity in identities


def _differentiable(variant: CapturedVariant) -> bool:
    return any(graph_input.facts is not None and graph_input.facts.requires_grad for graph_input in variant.inputs)


def _renamed(variant: CapturedVariant, qualname: str, index: int) -> CapturedVariant:
    return replace(variant, region=f"{qualname}:r{index}")


def _bind_region(twin: types.FunctionType, parameters: tuple[str, ...], situation: Situation) -> tuple[Any, ...] | None:
    """The arguments that region 0 would get if the function were called: parameters and free variables by name. None where the call does not bind."""
    import inspect

    try:
        bound = inspect.signature(twin).bind(*situation.arguments, **situation.keywords)
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    values = dict(bound.arguments)
    cells = dict(zip(twin.__code__.co_freevars, twin.__closure__ or ()))
    found = []
    for name in parameters:
        if name in values:
            found.append(values[name])
        elif name in cells:
            found.append(cells[name].cell_contents)
        else:
            return None
    return tuple(found)


__all__ = ["EntryCalls", "Frontend", "Situation"]
