"""Entries to built functions: the frontend, then every captured variant to texts, then all kernels compiled together."""
from __future__ import annotations

import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace


from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.base.span import Span
from aotcompile.frontend.bytecode import bytecode_source
from aotcompile.frontend.record.decorated import inside_decorators
from aotcompile.frontend.record.driver import EntryCalls, Frontend, Situation
from aotcompile.frontend.record.recorder import Tools
from aotcompile.frontend.record.source import function_source
from aotcompile.frontend.types import FrontendResult, FunctionResult
from aotcompile.graph.record import nodes_of
from aotcompile.package.types import FunctionPlan, VariantFiles
from aotcompile.pipeline.binaries import build_binaries
from aotcompile.pipeline.garbage import fewer_collections
from aotcompile.pipeline.retarget import placements, with_own_gpu
from aotcompile.pipeline.variants import BuiltVariant, build_variant
import aotcompile.runtime.operators.recurrent  # noqa: F401  (its operators are captured)
from aotcompile.runtime.twins.bytecode_twin import code_objects
from aotcompile.runtime.twins.control_flow import plain_form
from aotcompile.runtime.twins.operations import operation
from aotcompile.runtime.digest import code_digest, library_code


@dataclass(frozen=True)
class BuiltFunction:
    """A function with its variants as texts (region index -> variants that were built)."""

    result: FunctionResult
    variants: Mapping[int, tuple[BuiltVariant, ...]]
    digest: str
    seconds: float = 0.0


@dataclass
class Analysis:
    """What the frontend found for the entries of one build. ``digests``: (module, qualified name) -> code digest of every split function."""

    result: FrontendResult
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class EntryGroup:
    """The situations of one entry function. ``name``: "package.module:Net.forward"."""

    name: str
    function: types.FunctionType
    situations: Sequence[Situation]


@fewer_collections()
def analyze(groups: Sequence[EntryGroup], *, run: bool, package: str = "") -> Analysis:
    """The frontend, for all entries together. ``package``: the one whose modules are written anew, where one is."""
    start = time.perf_counter()
    calls: list[EntryCalls] = []
    extra: list[FunctionResult] = []
    digests: dict[tuple[str, str], str] = {}
    digest_of = _remembered_digests()

    def rewritten(module: str) -> bool:
        return bool(package) and f"{module}.".startswith(f"{package}.")

    for group in groups:
        decorated = inside_decorators(group.function, rewritten) if package else None
        function = decorated or group.function
        digest = digest_of(function.__code__)
        source = function_source(function, digest) or bytecode_source(function, digest)
        if source is None:
            place = Span(function.__code__.co_filename.rpartition("/")[2], function.__code__.co_firstlineno, function=function.__qualname__)
            reason = f"{group.name} has no source, and its bytecode (a generator's or coroutine's) is not split: it stays eager."
            note = Diagnostic("AOT215", "note", reason, place, "Put it into a file as a named function.")
            extra.append(FunctionResult(function.__module__ or "", function.__qualname__, place.file, (place.line, place.line), None, {}, (),
                                        (note,)))
        else:
            calls.append(EntryCalls(function, source, group.situations, group.function if decorated else None))
    results: tuple[FunctionResult, ...] = ()
    if calls:
        frontend = Frontend(calls, Tools(digest_of, nodes_of, code_objects, plain_form, operation, rewritten))
        results = frontend.analyze(run=run).functions
        digests = {(key[0], key[1]): key[2] for key in frontend.keys()}
    return Analysis(FrontendResult((*results, *extra)), digests, time.perf_counter() - start)


def _remembered_digests() -> Callable[[types.CodeType], str]:
    """`code_digest`, once per code object: a deep model reads the same few functions at every layer. Code objects are told apart by identity, since
    equal ones of two files differ in their source."""
    known: dict[int, tuple[types.CodeType, str]] = {}

    def digest(code: types.CodeType) -> str:
        if id(code) not in known:
            known[id(code)] = code, code_digest(code)
        return known[id(code)][1]

    return digest


def require_fullgraph(result: FrontendResult) -> None:
    """Raises AotCompileError that lists every break (AOT220) and every reason for staying eager."""
    problems = [Diagnostic("AOT220", "error", f"fullgraph: {b.reason}.", b.span, b.hint) for f in result.functions for b in f.breaks]
    problems += [replace(d, severity="error") for f in result.functions for d in f.eager]
    if problems:
        raise AotCompileError(*problems)


@fewer_collections()
def build_functions(analysis: Analysis, *, backend: str, targets: Sequence[str] = ("native",)) -> list[BuiltFunction]:
    """Every captured variant as texts; a situation that a later stage cannot do stays eager with a note."""
    built = []
    for function in analysis.result.functions:
        start = time.perf_counter()
        notes: list[Diagnostic] = []
        variants: dict[int, tuple[BuiltVariant, ...]] = {}
        for index, captured in function.variants.items():
            made = []
            placed = placements(captured, targets)
            if captured and not placed:
                reason = f"it was captured with tensors on another device than the targets ({', '.join(targets)}) build for."
                notes.append(Diagnostic("AOT504", "warning", reason, Span(function.file, function.lines[0], function=function.qualname),
                                        "Add a target for its device (cuda:sm_90, ...), or give examples on one device."))
            for variant, device in placed:
                outcome = build_variant(variant, backend=backend, language="triton" if device == "cuda" else "cpp")
                if isinstance(outcome, Diagnostic):
                    place = outcome.span or Span(function.file, function.lines[0], function=function.qualname)
                    notes.append(replace(outcome, span=place))
                else:
                    made.append(outcome)
            variants[index] = tuple(made)
        digest = analysis.digests.get((function.module, function.qualname), "")
        built.append(BuiltFunction(replace(function, eager=(*function.eager, *dict.fromkeys(notes))), variants, digest, time.perf_counter() - start))
    return built


def library_digests(functions: Sequence[BuiltFunction]) -> dict[str, list[str]]:
    """For the manifest: each module of a library whose code was compiled in, with what the runtime compares."""
    names = {name for function in functions for variants in function.variants.values() for variant in variants for name in variant.variant.libraries}
    return {name: list(library_code(name) or ("", "")) for name in sorted(names)}


def with_binaries(functions: Sequence[BuiltFunction], *, targets: Sequence[str], jobs: int) -> list[FunctionPlan]:
    """The functions with their kernels compiled for all targets."""
    every = [variant for function in functions for variants in function.variants.values() for variant in variants]
    if any(variant.kernels is not None and variant.kernels.language == "triton" for variant in every):
        targets = with_own_gpu(targets)
    binaries = build_binaries([variant.kernels for variant in every], targets=targets, jobs=jobs)
    found = {id(variant): binary for variant, binary in zip(every, binaries)}
    return [FunctionPlan(f.result, {i: tuple(VariantFiles(v.texts, found[id(v)]) for v in variants) for i, variants in f.variants.items()}, f.digest)
            for f in functions]


