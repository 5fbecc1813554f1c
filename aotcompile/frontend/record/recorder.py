"""The recording run: the split program is run once in a child process, with stubs that capture what arrives and then run the eager body.

Everything the run does to the user's objects vanishes with the child; its output goes nowhere. At a branch on data the child forks again, so
that both sides are seen (`branches`). What was found comes back over a pipe as plain records.
"""
from __future__ import annotations

import inspect
import os
import pickle
import struct
import sys
import types
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Callable, Mapping

import torch
from torch.overrides import TorchFunctionMode

from aotcompile.base.diagnostic import Diagnostic
from aotcompile.entry import SKIP_ATTRIBUTE
from aotcompile.frontend.bytecode.source import bytecode_source
from aotcompile.frontend.bytecode.split import BytecodeSplit
from aotcompile.frontend.bytecode.twin import BytecodeTwinCode
from aotcompile.frontend.capture.counters import ChangedNumbers
from aotcompile.frontend.capture.region import BreakFound, Capture, Captured, DimensionSpec, Dimensions, DynamicNumbers, Refused, follow_sizes
from aotcompile.frontend.record.served import Served, served
from aotcompile.frontend.interpret.interpreter import BreakPoint
from aotcompile.frontend.library import is_library_module
from aotcompile.frontend.record.backward import EngineAfterFork, called, run_backward_after_fork
from aotcompile.frontend.record.branches import Branches
from aotcompile.frontend.record.data_tests import ARGUMENTS, OUTSIDE, Origin
from aotcompile.frontend.record.source import FunctionSource, defined_as, function_source
from aotcompile.frontend.record.twins import TwinCode, make_twin
from aotcompile.frontend.torch_private import compiling
from aotcompile.frontend.types import CapturedVariant, NodeRecord, SplitSource
from aotcompile.frontend.interpret.opcodes.decode import Position

MAXIMUM_VARIANTS = 8
MAXIMUM_VARIANTS_OF_FORMS = 64          # of the plain forms of `torch.cond` and the like, which all calls in the program share
REPEATED_BREAKS = 2
_RUN_BY_OPERATIONS = {f"__{name}__" for name in (
    *(prefix + each for each in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
      for prefix in ("", "r", "i")), "lt", "le", "eq", "ne", "gt", "ge", "neg", "pos", "invert", "getitem", "setitem", "contains", "iter", "next",
    "getattr", "call", "len", "bool", "enter", "exit")}
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
Key = tuple[str, str, str]


@dataclass(frozen=True)
class FoundVariant:
    key: Key
    identity: str
    variant: CapturedVariant
    served: Served


@dataclass(frozen=True)
class FoundCallee:
    """A function that a split call has called and that is not split: another one at that place has a break, this one is a region as it is."""

    source: FunctionSource


@dataclass(frozen=True)
class FoundNote:
    """Something to say of a captured variant. ``of_small_size``: only that the example's 0 or 1 is fixed, which other sizes may be free of."""

    key: Key
    note: Diagnostic
    of_small_size: bool = False


@dataclass(frozen=True)
class FoundRefusal:
    key: Key
    identity: str
    code: str
    reason: str
    hint: str


@dataclass(frozen=True)
class FoundBreak:
    """One frame of a break's call chain. ``generated``: ``position`` is in the split text of ``key``; else in the user's own file."""

    source: FunctionSource
    identity: str
    position: Position
    generated: bool
    kind: str
    code: str
    reason: str
    hint: str
    callee: str | None
    callee_key: Key | None
    instruction: int = -1          # of the frame's code, as `interpret.opcodes.decode` counts


@dataclass(frozen=True)
class FoundException:
    """The program raised (which may be just what the example is about), with the split function and its line in the user's file, if it was in one."""

    text: str
    key: Key | None = None
    line: int = 0


@dataclass
class Tools:
    """What recording needs from other stages: the runtime's code digest, reading of split bytecode and forms of control flow operators, and the graph
    stage's node encoding."""

    digest: Callable[[types.CodeType], str]
    nodes_of: Callable[[torch.fx.Graph], tuple[NodeRecord, ...]]
    code_objects: Callable[[str, types.CodeType], Mapping[str, types.CodeType]]        # of split bytecode, from its text
    plain_form: Callable[..., Any]                                                   # what stands for `torch.cond` and the like
    operation: Callable[[Any, Callable[[types.FunctionType], Any]], Any]              # what is called for an operation other than a call
    rewritten: Callable[[str], bool]                                                   # whether a module is one of those that are written anew


@dataclass
class Recording:
    """State of one child. ``splits``: what has been split so far; ``pipe``: where its records go."""

    splits: dict[Key, SplitSource]
    tools: Tools
    dimensions: Dimensions
    numbers: DynamicNumbers
    pipe: int = -1
    kept: list[Any] = field(default_factory=list)
    seen: dict[tuple[Key, str], list[CapturedVariant]] = field(default_factory=dict)
    shapes: dict[tuple[Key, str], dict[tuple[str, torch.dtype, int], list[set[int]]]] = field(default_factory=dict)
    seen_numbers: dict[tuple[Key, str, str, type], int | float] = field(default_factory=dict)
    changed_numbers: ChangedNumbers = field(default_factory=ChangedNumbers)
    branches: Branches = field(default_factory=Branches)
    broken: dict[tuple[Key, str], list[tuple[Any, ...]]] = field(default_factory=dict)        # region -> the breaks found in it, one for each arrival
    wants_run: bool = False                         # a capture asks to be made where the program's functions may be run
    changes_state: bool = False                     # a region changes what the next call finds
    given: tuple[Any, ...] = ()                     # the functions given to the control flow operators around
    data: set[tuple[Key, Origin]] = field(default_factory=set)         # numbers that regions gave and that depend on tensors
    properties: dict[types.FunctionType, types.FunctionType] = field(default_factory=dict)         # twin of a property's function -> original
    codes: dict[tuple[Key, types.CodeType], TwinCode | BytecodeTwinCode] = field(default_factory=dict)
    twins: dict[int, tuple[types.FunctionType, types.FunctionType]] = field(default_factory=dict)
    sources: dict[types.CodeType, FunctionSource | None] = field(default_factory=dict)

    def send(self, record: Any) -> None:
        data = pickle.dumps(record)
        view = memoryview(struct.pack("<Q", len(data)) + data)
        while view:
            view = view[os.write(self.pipe, view):]

    # ---- twins ------------------------------------------------------------------------------------------------------------------------------

    def source(self, function: types.FunctionType) -> FunctionSource | None:
        code = function.__code__
        if code not in self.sources:
            digest = self.tools.digest(code)
            self.sources[code] = function_source(function, digest) or bytecode_source(function, digest)
        return self.sources[code]

    def twin(self, function: types.FunctionType) -> types.FunctionType | None:
        """The recording twin of a function that has been split; None for others."""
        known = self.twins.get(id(function))
        if known is not None and known[0] is function:
            return known[1]
        key = (*defined_as(function), self.tools.digest(function.__code__))
        split = self.splits.get(key)
        if split is None:
            return None
        self.source(function)
        code = self.codes.get((key, function.__code__))
        if code is None:
            code = self.codes[key, function.__code__] = self._code(split, function.__code__, f"<split {key[0]}:{key[1]}>")
        regions = {region.name: region for region in split.regions}
        site = (key, id(function))

        def stub(name: str, eager: types.FunctionType) -> RecordingStub:
            given = frozenset(id(cell) for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ())
                              if variable in regions[name].parameters)
            return RecordingStub(self, key, split, regions[name].index, regions[name].identity, eager, given)

        def explore(number: int, value: Any) -> bool:
            return self.branches.side((site, number, self.given), value, self._is_data(key, code, number, value))

        twin = make_twin(code, function, stub, self.direct, explore)
        self.twins[id(function)] = (function, twin)
        return twin

    def _is_data(self, key: Key, code: TwinCode | BytecodeTwinCode, number: int, value: Any) -> bool:
        """Whether the truth of ``value`` at test ``number`` can be another for other data."""
        if isinstance(value, torch.Tensor):
            return True
        if not isinstance(value, (bool, int, float)):
            return False
        return code.origins is None or any(origin == OUTSIDE or (key, origin) in self.data for origin in code.origins[number])

    def put_properties(self) -> None:
        """Let classes of modules that are written anew have the twins of their properties' functions and special methods, which no call in a text
        leads to; in the child only, where it is gone with the process."""
        for module, qualname, _ in self.splits:
            owner, _, name = qualname.rpartition(".")
            cls: Any = sys.modules.get(module) if self.tools.rewritten(module) else None
            for part in owner.split("."):
                cls = getattr(cls, part, None)
            found = vars(cls).get(name) if isinstance(cls, type) else None
            if type(found) is types.FunctionType and name in _RUN_BY_OPERATIONS:
                setattr(cls, name, self._property_twin(found))
            elif type(found) is property:
                setattr(cls, name, property(*map(self._property_twin, (found.fget, found.fset, found.fdel)), found.__doc__))

    def _property_twin(self, function: Any) -> Any:
        twin = self.twin(function) if isinstance(function, types.FunctionType) and function not in self.properties else None
        if twin is None:
            return function
        self.properties[twin] = function
        return twin

    def plain_form(self, function: Any, hooks: dict[str, Any] | None = None) -> Any:
        """What is interpreted in place of a function, or of a module with these tables of hooks."""
        original = self.properties.get(function) if isinstance(function, types.FunctionType) else None
        return original if original is not None else self.tools.plain_form(function, hooks)

    def _code(self, split: SplitSource, original: types.CodeType, file: str) -> TwinCode | BytecodeTwinCode:
        if isinstance(split, BytecodeSplit):
            return BytecodeTwinCode(split, original, self.tools.code_objects)
        return TwinCode(split, original, file)

    def direct(self, function: Any) -> Any:
        """What a ``_call_<N>`` site calls: the twin where there is one."""
        if isinstance(function, types.FunctionType):
            plain = self.tools.plain_form(function)
            twin = self.twin(plain) or plain
            return twin if plain is function else self._noting_functions(twin)
        if isinstance(function, types.MethodType):
            if function.__func__ is torch.nn.Module.__call__ and isinstance(function.__self__, torch.nn.Module):
                return self._forward(function.__self__, function)
            return self._method(function.__func__, function.__self__, function)
        if isinstance(function, torch.nn.Module):
            called = type(function).__call__
            return self._forward(function, function) if called is torch.nn.Module.__call__ else self._method(called, function, function)
        found = self.tools.operation(function, self.twin)
        return function if found is None else found

    def _forward(self, module: torch.nn.Module, function: Any) -> Any:
        """What is called in place of `torch.nn.Module.__call__`."""
        plain = self.tools.plain_form(module)
        if plain is not module:
            return self._method(plain, module, function)
        hooked = any(module.__dict__.get(name) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"))
        if hooked or "forward" in module.__dict__:
            return function
        self._note_callee(type(module).forward)
        return self._method(type(module).forward, module, function)

    def _note_callee(self, function: Any) -> None:
        """Has a module's forward split, where none of its calls in the program had a break so far: a loop goes over modules of several kinds."""
        if not isinstance(function, types.FunctionType) or _never_split(function) or function.__code__.co_flags & _SUSPENDS:
            return
        if getattr(function, "_torchdynamo_disable", False) or SKIP_ATTRIBUTE in function.__dict__ or self.twin(function) is not None:
            return
        source = self.source(function)
        if source is not None and source.key not in self.splits:
            self.send(FoundCallee(source))

    def _method(self, method: Any, owner: Any, function: Any) -> Any:
        twin = self.twin(method) if isinstance(method, types.FunctionType) else None
        return types.MethodType(twin, owner) if twin else function

    def _noting_functions(self, twin: types.FunctionType) -> Callable[..., Any]:
        """``twin``, a control flow operator's, whose branches are others for other functions given."""
        def call(*arguments: Any, **keywords: Any) -> Any:
            outer = self.given
            self.given = (outer, *(_identity(each) for each in (*arguments, *keywords.values())
                                   if callable(each) and not isinstance(each, torch.Tensor)))
            try:
                return twin(*arguments, **keywords)
            finally:
                self.given = outer
        return call


def _identity(function: Any) -> tuple[Any, ...]:
    """What a function given to a control flow operator is known by: its code, and the constants that it was made with."""
    if not isinstance(function, types.FunctionType):
        return (id(function),)
    values = list(function.__defaults__ or ())
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:                      # nothing is in it yet
            continue
    return (id(function.__code__), *(value for value in values if isinstance(value, (bool, int, float, str))))


class NumbersRead(TorchFunctionMode):
    """Inside, Python numbers that the program reads from tensors are known to be data, and sizes of dynamic dimensions to be dynamic: a region that
    gets one serves all."""

    def __init__(self, numbers: DynamicNumbers, dimensions: Dimensions) -> None:
        super().__init__()
        self._numbers, self._dimensions = numbers, dimensions

    def __torch_function__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        if function in _READS_NUMBERS:
            for _, number in _direct("", result, (int, float)):
                self._numbers.add(number)
        elif function in _READS_SIZES and (dynamic := self._dimensions.get(id(arguments[0]))):
            sizes = {arguments[0].shape[dimension] for dimension in dynamic}
            for size in (result,) if isinstance(result, int) else result:
                if size in sizes or function is torch.Tensor.numel:
                    self._numbers.add(size)
        return result


_READS_NUMBERS = (torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__index__)
_READS_SIZES = (torch.Tensor.shape.__get__, torch.Tensor.size, torch.Tensor.__len__, torch.Tensor.numel)         # type: ignore[attr-defined]


class RecordingStub:
    """Stands for ``_r<N>`` during the run."""

    def __init__(self, recording: Recording, key: Key, split: SplitSource, index: int, identity: str, eager: types.FunctionType,
                 given_cells: frozenset[int]) -> None:
        self.recording, self.key, self.split, self.index, self.identity, self.eager = recording, key, split, index, identity, eager
        self.given_cells = given_cells

    def __call__(self, *arguments: Any) -> Any:
        captured = self.capture(arguments)
        compiled = captured is not None and captured.variant.operator_count > 0
        # Code that asks whether it is compiled may give something else then, and that is what the next region will get.
        with compiling() if compiled else nullcontext():
            result = self.eager(*arguments)
        if captured is not None:
            self._note_data(captured)
            follow_sizes(captured.result, result, captured.symbols, self.recording.dimensions, self.recording.numbers,
                         self.recording.kept)
        return result

    def _note_data(self, captured: Captured) -> None:
        """Which numbers among the results are data."""
        stand_ins = captured.result
        if not captured.variant.operator_count:
            self.recording.data.add((self.key, (self.index, ARGUMENTS)))
        for position, value in enumerate(stand_ins if isinstance(stand_ins, tuple) else (stand_ins,)):
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                self.recording.data.add((self.key, (self.index, position)))

    def capture(self, arguments: tuple[Any, ...]) -> Captured | None:
        """Capture for these arguments and report what came of it."""
        recording = self.recording
        known = recording.seen.setdefault((self.key, self.identity), [])
        most = MAXIMUM_VARIANTS_OF_FORMS if self.key[0].startswith("aotcompile.") else MAXIMUM_VARIANTS
        if len(known) >= most:
            recording.send(FoundRefusal(self.key, self.identity, "AOT213", f"more than {most} different situations; the rest runs eagerly", ""))
            return None
        broken = recording.broken.setdefault((self.key, self.identity), [])
        if len(broken) - len(set(broken)) >= REPEATED_BREAKS:
            return None                             # in a loop, say: it will be split there, and only what comes of that counts
        name = f"{self.key[1]}:r{self.index}"
        self._generalize(arguments)
        source = recording.sources[original_code(recording, self)]
        origin = (source.file, self.split.line_map, source.text.splitlines(), source.first_line) if source else None
        is_another = partial(recording.changed_numbers.is_another, (self.key, self.identity))
        outcome = Capture(name, self.eager, recording.dimensions, recording.tools.digest, recording.tools.nodes_of, origin,
                          recording.numbers, recording.plain_form, is_another, self.given_cells, may_run=recording.pipe >= 0).run(arguments)
        if isinstance(outcome, BreakFound):
            records = break_records(recording, outcome, self)
            broken.append(tuple((record.source.key, record.position) for record in records))
            for record in records:
                recording.send(record)
            return None
        if isinstance(outcome, Refused):
            recording.send(FoundRefusal(self.key, self.identity, outcome.code, outcome.reason, outcome.hint))
            return None
        libraries = tuple(name for name in outcome.variant.libraries if not recording.tools.rewritten(name))
        outcome = replace(outcome, variant=replace(outcome.variant, libraries=libraries))
        named = dict(zip(self.eager.__code__.co_varnames, arguments))
        code = original_code(recording, self)
        # An argument is the caller's: another one at the next call, unless it keeps what the first call makes.
        lasting = [root[0] != "argument" or isinstance(named.get(root[1]), torch.nn.Module) or source is not None and root[1] in source.freevars
                   or _is_method_of(named.get(root[1]), code) or root in outcome.filled
                   for root in outcome.changed]
        recording.changes_state = recording.changes_state or any(lasting)
        recording.changed_numbers.written |= outcome.numbers
        recording.wants_run = recording.wants_run or outcome.wants_run
        on_sizes = served(outcome.symbols, [guard.expected for guard in outcome.variant.guards if guard.kind == "expression"])
        for note in outcome.notes:
            recording.send(FoundNote(self.key, note, all(value in (0, 1) for _, value in on_sizes.fixed)))
        if outcome.variant not in known:
            known.append(outcome.variant)
            recording.send(FoundVariant(self.key, self.identity, outcome.variant, on_sizes))
        return outcome

    def _generalize(self, arguments: tuple[Any, ...]) -> None:
        """A size or number that differs from what this region saw before becomes dynamic: the next variant serves all."""
        recording = self.recording
        shapes = recording.shapes.setdefault((self.key, self.identity), {})
        for name, value in zip(self.eager.__code__.co_varnames, arguments):
            for position, number in _direct(name, value, (int, float)):
                seen = recording.seen_numbers.setdefault((self.key, self.identity, position, type(number)), number)
                if seen != number:
                    recording.numbers.add(number)
            for position, tensor in _direct(name, value, torch.Tensor):
                if tensor.is_nested:                       # it has no shape to speak of
                    continue
                known = shapes.setdefault((position, tensor.dtype, tensor.dim()), [set() for _ in tensor.shape])
                for dimension, size in enumerate(tensor.shape):
                    known[dimension].add(size)
                    if len(known[dimension]) > 1:
                        recording.kept.append(tensor)
                        recording.dimensions.setdefault(id(tensor), {}).setdefault(
                            dimension, DimensionSpec(f"{position}_{dimension}_{len(recording.kept)}"))       # a name for this tensor alone


def _direct(name: str, value: Any, kind: type | tuple[type, ...]) -> list[tuple[str, Any]]:
    """Tensors or numbers (``kind``) among a region's arguments, also in lists, tuples and dicts given directly."""
    if issubclass(type(value), kind) and type(value) is not bool:
        return [(name, value)]
    items = value if type(value) in (tuple, list) else value.values() if type(value) is dict else ()
    return [found for index, item in enumerate(items) for found in _direct(f"{name}_{index}", item, kind)]


def break_records(recording: Recording, found: BreakFound, stub: RecordingStub) -> list[FoundBreak]:
    """The frames of a break, from the region inwards as far as they can be split; the last one is the break itself."""
    signal = found.signal
    chain = found.chain
    frames: list[tuple[BreakPoint, FunctionSource, bool]] = []
    for depth, point in enumerate(chain):
        if depth == 0:
            source = recording.sources[original_code(recording, stub)] if stub.eager.__code__ is point.function.__code__ else None
            if source is None:
                break
            frames.append((point, source, True))
            continue
        if not point.splittable or point.entered_natively or _never_split(point.function):
            break
        own = recording.source(point.function)
        if own is None:
            break
        frames.append((point, own, False))
    records = []
    for depth, (point, source, generated) in enumerate(frames):
        last = depth == len(frames) - 1
        kind = signal.kind if last and len(frames) == len(chain) else "call" if last else "call_split"
        callee = None if last else frames[depth + 1][1]
        reason = signal.reason if last else f"{callee.qualname} has a break of its own: {signal.reason}" if callee else ""
        records.append(FoundBreak(source, stub.identity if generated else "", point.position, generated, kind, signal.code, reason, signal.hint,
                                  callee.qualname if callee else None, callee.key if callee else None, point.instruction))
    return records


def original_code(recording: Recording, stub: RecordingStub) -> types.CodeType:
    """The code object that a stub's split function was made from."""
    for key, code in recording.codes:
        if key == stub.key and stub.eager.__code__ in recording.codes[key, code].eager.values():
            return code
    raise LookupError(stub.key)


def _is_method_of(value: Any, code: types.CodeType) -> bool:
    """Whether ``code`` is that of a method of the object, so that it is what the method is called on."""
    members = (vars(cls).get(code.co_name) for cls in type(value).__mro__)
    return any(isinstance(member, types.FunctionType) and member.__code__ is code for member in members)


def _never_split(function: types.FunctionType) -> bool:
    """Standard library functions are not split, nor torch's own except its modules."""
    module = function.__module__ or ""
    if module.partition(".")[0] == "torch":
        return not module.startswith(("torch.nn.modules", "torch.distributions", "torch.utils._contextlib"))
    return is_library_module(module) and module.partition(".")[0] in sys.stdlib_module_names


def record_run(call: Callable[[Recording], Any], recording: Recording) -> list[Any]:
    """Run ``call(recording)`` in a child process; the records it sent, in order. Raises RuntimeError when the child dies by a signal or the
    interpreter fails."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _child(call, recording, reader, writer)
    os.close(writer)
    records: list[Any] = []
    with os.fdopen(reader, "rb") as stream:
        while header := stream.read(8):
            records.append(pickle.loads(stream.read(struct.unpack("<Q", header)[0])))
    _, status = os.waitpid(child, 0)
    failures = [record for record in records if isinstance(record, str)]
    if failures:
        raise RuntimeError(failures[0])
    if os.WIFSIGNALED(status):
        raise RuntimeError(f"the recording run was ended by signal {os.WTERMSIG(status)}")
    return records


def _child(call: Callable[[Recording], Any], recording: Recording, reader: int, writer: int) -> None:
    """Never returns."""
    import traceback

    os.close(reader)
    recording.pipe = writer
    try:
        torch.set_num_threads(1)        # the parent's OpenMP threads are not there after a fork
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        sys.stdout = sys.stderr = open(null, "w", encoding="utf-8", closefd=False)     # a program may have put others in their place
        run_backward_after_fork()
        try:
            recording.put_properties()
            with NumbersRead(recording.numbers, recording.dimensions):
                call(recording)
        except Exception as error:      # noqa: BLE001 - the user's program may raise anything; it is reported
            if _is_ours(error):
                raise
            if recording.branches.on_its_own_side():
                recording.send(_exception(recording, error))
    except BaseException:               # noqa: BLE001 - a defect of ours goes to the parent, which raises it
        recording.send(traceback.format_exc())
    finally:
        recording.branches.finish()
        os._exit(0)


def _exception(recording: Recording, error: Exception) -> FoundException:
    text, found, trace = f"{type(error).__name__}: {error}".splitlines()[0], FoundException(""), error.__traceback__
    while trace is not None:
        for (key, _), code in recording.codes.items():
            if trace.tb_frame.f_code is code.function:
                found = FoundException("", key, recording.splits[key].line_map.get(trace.tb_lineno, 0))
        trace = trace.tb_next
    return FoundException(text, found.key, found.line)


# These only call what the program calls.
_CALL_FOR_THE_PROGRAM = {function.__code__ for function in (NumbersRead.__torch_function__, EngineAfterFork.run_backward, called)}


def _is_ours(error: BaseException) -> bool:
    """Whether an exception comes from aotcompile itself (a defect) and not from the user's program."""
    trace = error.__traceback__
    last = None
    while trace is not None:
        last = trace
        trace = trace.tb_next
    if last is None or last.tb_frame.f_code in _CALL_FOR_THE_PROGRAM:
        return False
    return f"{os.sep}aotcompile{os.sep}frontend{os.sep}" in last.tb_frame.f_code.co_filename
