"""Everything a build writes for one package, as a mapping from path to content; nothing is written here.

    PackagePlan -> package_contents -> PackageContents(files={"model.py": ..., "_aot/model/Net.forward/r0/v0/graph.py": ..., "manifest.json": ...})
"""
from __future__ import annotations

import io
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aotcompile.base import names
from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.base.digest import digest, file_digest
from aotcompile.base.span import Span
from aotcompile.frontend.types import SplitSource
from aotcompile.package import layout
from aotcompile.package.manifest import break_json, manifest_text, sorted_diagnostics
from aotcompile.package.rewrite.imports import ModuleName
from aotcompile.package.rewrite.module import SplitFunction, rewrite_module
from aotcompile.package.types import Content, CopiedFile, FunctionPlan, ModuleSource, PackageContents, PackagePlan, VariantFiles


@dataclass
class _Build:
    """What is collected on the way."""

    files: dict[str, Content] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)
    rewritten: set[tuple[str, str]] = field(default_factory=set)
    regions: dict[str, dict[str, Any]] = field(default_factory=dict)
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)
    callees: list[dict[str, Any]] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)


def package_contents(plan: PackagePlan) -> PackageContents:
    """The generated package for a plan. The same plan gives the same contents, byte for byte.

    Raises AotCompileError: AOT610 a file of the package has a name that the layout needs, AOT620 a file cannot be read.
    """
    source, build = plan.source, _Build()
    clashes = [f for f in source.files if f.split("/")[0] in layout.RESERVED]
    if clashes and not source.single_module:
        raise AotCompileError(Diagnostic("AOT610", "error", f"the generated package needs the name {clashes[0].split('/')[0]} for itself.",
                                         Span(source.shown(clashes[0]), 1), "Rename the file or move it into a subfolder."))
    modules = {module.path: module for module in source.modules}
    for path in source.files:
        try:
            _add_source(plan, build, path, modules.get(path))
        except OSError as error:
            message = f"the file cannot be read: {error.strerror or error}."
            raise AotCompileError(Diagnostic("AOT620", "error", message, Span(source.shown(path), 1))) from error
    for function in _in_order(plan.functions):
        result = function.result
        if result.split is not None and (result.module, result.qualname) in build.rewritten:
            _add_regions(build, function, result.split, partial(layout.variant_folder, source.name, result.module, result.qualname))
    for function in _in_order(plan.outside):
        add_standing_function(build, function, layout.OUTSIDE_FOLDER)
    for path, content in plan.extra_files.items():
        _put(build, path, content)
    build.files[layout.MANIFEST] = manifest_text(_manifest(plan, build))
    return PackageContents(source.name, dict(sorted(build.files.items())), tuple(build.diagnostics))


def _in_order(functions: Sequence[FunctionPlan]) -> list[FunctionPlan]:
    return sorted(functions, key=lambda f: (f.result.module, f.result.lines, f.result.qualname))


def _put(build: _Build, path: str, content: Content) -> None:
    if not layout.is_safe(path):
        raise ValueError(f"not a path inside the generated package: {path!r}")
    if build.files.setdefault(path, content) != content:
        raise ValueError(f"two contents for {path}")


# ---- the user's files ---------------------------------------------------------------------------------------------------------------------

def _add_source(plan: PackagePlan, build: _Build, path: str, module: ModuleSource | None) -> None:
    """A file of the user's package: a copy, or for a module its generated twin where that differs."""
    source = plan.source
    file, destination = source.folder / path, source.destination(path)
    if module is None:
        build.sources[path] = file_digest(file)
        _put(build, destination, CopiedFile(file))
        return
    data = file.read_bytes()
    build.sources[path] = digest(data)
    twin = _twin(plan, build, module, data)
    if twin is None:
        _put(build, destination, CopiedFile(file))
    else:
        build.modules[destination] = digest(twin)
        _put(build, destination, twin)


def _twin(plan: PackagePlan, build: _Build, module: ModuleSource, data: bytes) -> str | bytes | None:
    """The generated text of a module (bytes if it is not plain UTF-8); None if it is equal to the source, or not Python (reported as AOT611)."""
    shown = plan.source.shown(module.path)
    outside = {f.result.qualname for f in plan.outside}
    functions = [SplitFunction(f.result.qualname, f.result.lines[0], f.result.split, {index: len(v) for index, v in f.variants.items()}, f.digest,
                               frozenset(number for number, callee in f.result.split.calls.items()
                                         if callee in outside or f'_call_{number}("' in f.result.split.text))           # an operation, by its symbol
                 for f in _in_order(plan.functions)
                 if f.result.module == module.name and f.result.split is not None and f.result.split.form == "source"]
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
        compile(text, shown, "exec", dont_inherit=True)
    except (SyntaxError, UnicodeDecodeError, ValueError) as error:
        line = (error.lineno if isinstance(error, SyntaxError) else None) or 1
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        build.diagnostics.append(Diagnostic("AOT611", "warning", f"not rewritten, the file is no Python for this interpreter: {what}.",
                                            Span(shown, line), "It is copied as it is."))
        return None
    result = rewrite_module(text, functions, file=shown, name=ModuleName(plan.source.name, module.name, module.is_package))
    build.diagnostics.extend(result.diagnostics)
    build.rewritten |= {(module.name, qualname) for qualname in result.rewritten}
    twin = result.text + _bytecode_footer(plan, build, module, result.text)
    if twin == text:
        return None
    return twin if encoding == "utf-8" else twin.encode(encoding)


def _bytecode_footer(plan: PackagePlan, build: _Build, module: ModuleSource, text: str) -> str:
    """What puts the split functions that have no source text in the place of the originals, at the end of the generated module; "" for none."""
    lines = []
    for function in _in_order(plan.functions):
        result = function.result
        if result.module != module.name or result.split is None or result.split.form != "bytecode" or not any(function.variants.values()):
            continue
        home = layout.region_folder(plan.source.name, result.module, result.qualname, 0).rpartition("/")[0]
        _put(build, f"{home}/bytecode.py", result.split.text)
        build.rewritten.add((result.module, result.qualname))
        lines.append(f"    {ascii(result.qualname)}: ({ascii(function.digest)}, {ascii(f'{home}/bytecode.py')}),\n")
    if not lines:
        return ""
    bind = names.unique("_bind_bytecode", ("_bind_bytecode",) if "_bind_bytecode" in text else ())
    return (f"\n\n# Functions without source text, split in their bytecode.\nfrom aotcompile.runtime import bind_bytecode as {bind}\n\n"
            f"{bind}(__name__, __file__, globals(), {{\n{''.join(lines)}}})\n")


# ---- regions ------------------------------------------------------------------------------------------------------------------------------

def _add_regions(build: _Build, function: FunctionPlan, split: SplitSource, folder_of: Callable[[int, int], str]) -> None:
    """``folder_of``: region index, variant number -> the variant's folder."""
    result = function.result
    for region in split.regions:
        variants = {folder_of(region.index, number): variant for number, variant in enumerate(function.variants.get(region.index, ()))}
        for folder, variant in variants.items():
            _add_variant(build, folder, variant)
        entry = {"variants": list(variants), "lines": list(region.lines)}
        build.regions.setdefault(result.module, {})[names.region_name(result.qualname, region.index)] = entry


def add_standing_function(build: _Build, function: FunctionPlan, root: str) -> None:
    """A split function that no module of the package holds: its split source and regions under ``root``, and a record by which the runtime makes its
    twin next to the original."""
    result, split = function.result, function.result.split
    if split is None:
        return

    def moved(path: str) -> str:
        return root + path.removeprefix(layout.AOT_FOLDER)

    home = moved(names.region_folder(result.module, result.qualname, 0)).rpartition("/")[0]
    path = f"{home}/{'bytecode' if split.form == 'bytecode' else 'source'}.py"
    _put(build, path, split.text)
    _add_regions(build, function, split, lambda region, variant: moved(names.variant_folder(result.module, result.qualname, region, variant)))
    regions = {names.region_name(result.qualname, region.index): [f"_r{region.index}", region.name] for region in split.regions}
    build.callees.append({"module": result.module, "qualname": result.qualname, "file": path, "digest": function.digest,
                          "bytecode": split.form == "bytecode", "calls": sorted(split.calls), "regions": regions})


def _add_variant(build: _Build, folder: str, variant: VariantFiles) -> None:
    for name, text in variant.texts.items():
        _put(build, layout.variant_file(folder, name), text)
    for target, binary in sorted(variant.binaries.items()):
        if isinstance(binary, Mapping):
            paths = {name: layout.binary_path(target, variant.kernels, name) for name in sorted(binary)}
            for name, path in paths.items():
                _put_binary(build, path, binary[name])
            build.kernels.setdefault(folder, {})[target] = paths
        else:
            path = layout.binary_path(target, variant.kernels)
            _put_binary(build, path, binary)
            build.kernels.setdefault(folder, {})[target] = path


def _put_binary(build: _Build, path: str, content: bytes) -> None:
    """Equal kernel texts share a binary; the first one stands, as a compiler may not give the same bytes twice."""
    if path not in build.files:
        _put(build, path, content)


def _manifest(plan: PackagePlan, build: _Build) -> dict[str, Any]:
    functions = [*_in_order(plan.functions), *plan.outside]
    eager = [d for f in functions for d in (*f.result.eager, *(f.result.split.eager if f.result.split else ()))]
    eager += [d for d in build.diagnostics if d.code in ("AOT611", "AOT612")]
    return {
        "schema": layout.SCHEMA, "package": plan.source.name, "options": dict(plan.options), "built_with": dict(plan.built_with),
        "sources": build.sources, "modules": build.modules, "libraries": dict(plan.libraries), "regions": build.regions, "kernels": build.kernels,
        **({"callees": build.callees} if build.callees else {}),
        "files": {path: digest(content) for path, content in build.files.items()
                  if path.startswith(f"{layout.AOT_FOLDER}/") and not isinstance(content, CopiedFile)},
        "breaks": [break_json(b) for f in functions for b in f.result.breaks],
        "eager": sorted_diagnostics(eager),
    }
