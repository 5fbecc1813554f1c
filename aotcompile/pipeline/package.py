"""Whole packages: build, explain, show, check, verify and clean, as the command line and the public API call them."""
from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aotcompile.base.diagnostic import Diagnostic, UsageError
from aotcompile.frontend.entries import collect_entries, importable, locate_package
from aotcompile.frontend.entries.discovery import Package
from aotcompile.frontend.entries.entry import Entry
from aotcompile.frontend.record.source import defined_as
from aotcompile.frontend.types import FunctionResult
from aotcompile.graph.plugin import require_plugin
from aotcompile.options import Options
from aotcompile.package import freshness
from aotcompile.package.contents import package_contents
from aotcompile.package.discover import package_source
from aotcompile.package.types import FunctionPlan, PackageContents, PackagePlan, PackageSource
from aotcompile.package.writer import write_package
from aotcompile.pipeline.entries import function_of, situations_of
from aotcompile.pipeline.environment import built_with, host_files, require_tools
from aotcompile.pipeline.functions import (
    Analysis,
    BuiltFunction,
    EntryGroup,
    analyze,
    build_functions,
    library_digests,
    require_fullgraph,
    with_binaries,
)
from aotcompile.pipeline.garbage import fewer_collections
from aotcompile.reports import (
    BreakLine,
    BuildReport,
    CheckReport,
    CleanReport,
    Explanation,
    FunctionExplanation,
    FunctionReport,
    RegionExplanation,
    StaleFile,
    VariantExplanation,
)
from aotcompile.runtime.digest import has_same_code

log = logging.getLogger("aotcompile")


@contextmanager
def opened(package: str, options: Options) -> Iterator[tuple[Package, list[EntryGroup], list[Entry]]]:
    """The package imported, its entries grouped by function. Raises UsageError (AOT1xx)."""
    found = locate_package(package)
    with importable(found.root):
        entries = list(collect_entries(found, options))
        if not entries:
            raise UsageError(Diagnostic("AOT109", "error", f"package {found.name} has no entry to build for.", None,
                                        "Decorate a function with @aotcompile.entry, add [[tool.aotcompile.entry]], or record signatures."))
        yield found, groups_of(entries, options), entries


def groups_of(entries: Sequence[Entry], options: Options) -> list[EntryGroup]:
    """Entries of one name are the situations of one function."""
    by_name: dict[str, list[Entry]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    return [EntryGroup(name, function_of(group), situations_of(group, dynamic=options.dynamic, training=options.training))
            for name, group in by_name.items()]


def _analysis(package: str, groups: Sequence[EntryGroup], entries: Sequence[Entry], options: Options) -> Analysis:
    _progress("analysing", 0, 4)
    analysis = analyze(groups, run=options.run, package=package)
    if options.fullgraph or any(entry.fullgraph for entry in entries):
        require_fullgraph(analysis.result)
    return analysis


def _progress(text: str, done: int, total: int) -> None:
    log.info(text, extra={"done": done, "total": total})


# ---- build ----------------------------------------------------------------------------------------------------------------------------------


@fewer_collections()
def build(package: str, options: Options) -> BuildReport:
    """Build a package into ``options.out``. Raises AotCompileError; the old build stays as it was then."""
    start = time.perf_counter()
    require_tools(options)
    with opened(package, options) as (found, groups, entries):
        require_plugin(options.backend)
        contents, built, analysis = _contents(found, groups, entries, options)
    _progress("writing", 3, 4)
    written = write_package(contents, Path(options.out))
    _progress("done", 4, 4)
    reports = [_function_report(function, analysis, contents) for function in built]
    return BuildReport(found.name, str(written.folder), tuple(reports), written.diagnostics, time.perf_counter() - start)


def _contents(found: Package, groups: Sequence[EntryGroup], entries: Sequence[Entry],
              options: Options) -> tuple[PackageContents, list[BuiltFunction], Analysis]:
    analysis = _analysis(found.name, groups, entries, options)
    _progress("generating", 1, 4)
    source = _source(found, options)
    built = build_functions(analysis, backend=options.backend, targets=options.targets)
    _progress("compiling kernels", 2, 4)
    plans = with_binaries(built, targets=options.targets, jobs=options.jobs)
    own: list[FunctionPlan] = []
    others: list[FunctionPlan] = []
    for function in plans:
        (own if _inside(function, source) else others).append(function)
    unreached = _unreached_entries(groups, own, others)
    outside = _reached([function for function in others if (function.result.module, function.result.qualname) not in unreached])
    plan = PackagePlan(source, tuple(own), options.output_json(), built_with(), host_files(options), outside, library_digests(built))
    shown = {id(each.result) for each in (*own, *outside)}
    built = [function for function in built if id(function.result) in shown]
    contents = package_contents(plan)
    return replace(contents, diagnostics=(*contents.diagnostics, *unreached.values())), built, analysis


def _unreached_entries(groups: Sequence[EntryGroup], own: Sequence[FunctionPlan],
                       others: Sequence[FunctionPlan]) -> dict[tuple[str, str], Diagnostic]:
    """Entries that are functions of other packages (a class of the package's inherits its forward from `torch.nn.Sequential`) and that no function of
    the package's calls where it has a break: nobody could call what was built for them."""
    called = {name for function in (*own, *others) if function.result.split is not None for name in function.result.split.calls.values()}
    places = {(function.result.module, function.result.qualname) for function in others}
    found = {}
    for group in groups:
        place = defined_as(group.function)
        if place in places and place[1] not in called:
            reason = f"entry {group.name} is a function of another package ({place[0]}): nothing in the generated package calls it; it stays eager."
            found[place] = Diagnostic("AOT127", "warning", reason, None, "Define it in the package; for a module, a forward that returns "
                                      "super().forward(...).")
    return found


def _inside(plan: FunctionPlan, source: PackageSource) -> bool:
    """Whether a function has a place in the package's files. Functions of other packages have none, nor have the wrappers that a decorator of a
    library made."""
    found = plan.result
    shown = next((source.shown(module.path) for module in source.modules if module.name == found.module), None)
    if shown is None:
        return False
    return f"/{shown}".endswith(f"/{found.file}") or found.split is not None and found.split.form == "bytecode"      # its file may be "<string>"


def _reached(functions: Sequence[FunctionPlan]) -> tuple[FunctionPlan, ...]:
    """Functions of other packages that have a compiled region, or call one that has."""
    reached: set[str] = set()
    while True:
        found = [f for f in functions if f.result.split is not None and (any(f.variants.values()) or reached & set(f.result.split.calls.values()))]
        if {f.result.qualname for f in found} == reached:
            return tuple(found)
        reached = {f.result.qualname for f in found}


def _source(found: Package, options: Options) -> PackageSource:
    return package_source(found.name, found.root, found.path, exclude=[Path(options.out)])


def _function_report(function: BuiltFunction, analysis: Analysis, contents: PackageContents) -> FunctionReport:
    result = function.result
    variants = [variant for made in function.variants.values() for variant in made]
    return FunctionReport(
        f"{result.module}:{result.qualname}", result.file, sum(1 for made in function.variants.values() if made), len(variants), _breaks(result),
        sum(v.kernel_count for v in variants), sum(v.library_count for v in variants), sum(len(v.kernels.text) for v in variants if v.kernels),
        function.seconds, result.eager, result.notes)


def _breaks(result: FunctionResult) -> tuple[BreakLine, ...]:
    return tuple(BreakLine(b.code, b.span.file, b.span.line, b.reason, b.hint) for b in result.breaks)


# ---- explain and show -----------------------------------------------------------------------------------------------------------------------


def explain(package: str, options: Options, target: str | None = None) -> Explanation:
    """Graphs, breaks and guards of a package (or of its functions that match ``target``), without writing anything."""
    with opened(package, options) as (found, groups, entries):
        if target is not None:
            groups = [g for g in groups if g.name == target or g.name.partition(":")[2] == target]
            if not groups:
                raise UsageError(Diagnostic("AOT110", "error", f"no entry is called {target}.", None,
                                            f"Entries: {', '.join(e.name for e in entries)}."))
        analysis = analyze(groups, run=options.run, package=found.name)
    sources: dict[str, str] = {}
    for entry in entries:
        sources.setdefault(entry.name, entry.source)
    return explanation_of(found.name, analysis, sources)


def explanation_of(name: str, analysis: Analysis, sources: dict[str, str]) -> Explanation:
    functions = []
    for result in analysis.result.functions:
        regions = []
        for region in result.split.regions if result.split else ():
            variants = tuple(VariantExplanation(v.operator_count, _guard_lines(v.guards, v.region),
                                                ", ".join(str(i.facts or i.number) for i in v.inputs))
                             for v in result.variants.get(region.index, ()))
            regions.append(RegionExplanation(f"{result.qualname}:r{region.index}", result.file, region.lines, variants,
                                             "" if variants else "nothing captured"))
        full = f"{result.module}:{result.qualname}"
        functions.append(FunctionExplanation(full, sources.get(full, ""), tuple(regions), _breaks(result), result.eager, result.notes))
    return Explanation(name, tuple(functions))


def _guard_lines(guards: Any, region: str) -> tuple[str, ...]:
    from aotcompile.codegen.python.guards import guard_text

    return tuple(guard_text(guard) + (f"  # {guard.span.file}:{guard.span.line}" if guard.span else "") for guard in guards)


def show(package_and_name: str, stage: str, options: Options) -> str:
    """The text of one stage for one function (``package:qualname``), all its regions and variants after each other."""
    package, _, name = package_and_name.partition(":")
    with opened(package, options) as (found, groups, _):
        analysis = analyze(groups, run=options.run, package=found.name)
        matching = [f for f in analysis.result.functions if name in ("", f.qualname, f"{f.module}:{f.qualname}")
                    or f"{f.module}.{f.qualname}".endswith(f".{name}")]
        if not matching:
            known = ", ".join(f.qualname for f in analysis.result.functions)
            raise UsageError(Diagnostic("AOT110", "error", f"no function {name} was analysed in {found.name}.", None, f"Known: {known}."))
        from aotcompile.pipeline.stage_text import stage_text

        return "\n".join(stage_text(function, groups, stage, options) for function in matching)


# ---- check and clean ------------------------------------------------------------------------------------------------------------------------


def check(package: str, options: Options) -> CheckReport:
    """Whether ``options.out`` holds what a build would write now."""
    with opened(package, options) as (found, groups, entries):
        generated = Path(options.out)
        source = _source(found, options)
        compare = partial(freshness.check, source, generated, options=options.output_json(), built_with=built_with(), same_library=has_same_code)
        stale = compare()
        texts = None
        if not any(d.code == "AOT630" for d in stale):
            contents, _, _ = _contents(found, groups, entries, options)
            texts = contents.texts
            stale = compare(texts=texts)
    difference = freshness.diff(texts, generated, found.name) if texts is not None else ""
    return CheckReport(found.name, tuple(StaleFile(str(d.span.file) if d.span else d.code, f"{d.code} {d.message}") for d in stale), difference)


def clean(package: str | None, options: Options) -> CleanReport:
    """Remove generated packages of ours from ``options.out``."""
    names = [locate_package(package).name] if package else None
    removed = freshness.clean(Path(options.out), names)
    return CleanReport(package or options.out, tuple(str(path) for path in removed))


__all__ = ["build", "check", "clean", "explain", "explanation_of", "groups_of", "opened", "show"]
