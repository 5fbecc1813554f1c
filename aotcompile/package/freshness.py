"""Is ``generated/<package>`` what a build would write? And taking it away again.

Codes: AOT630 nothing built, AOT631 unusable manifest, AOT632 a source file changed, is new or is gone, AOT633 other options, AOT634 other versions,
AOT635 a generated file was edited, AOT636 one is missing, AOT637 one too many, AOT638 a build would write something else,
AOT639 a library is another.
"""
from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.base.digest import file_digest
from aotcompile.base.span import Span
from aotcompile.package import layout
from aotcompile.package.manifest import read_manifest
from aotcompile.package.rewrite.text_edits import SourceText
from aotcompile.package.types import PackageSource
from aotcompile.package.writer import TEMPORARY_SUFFIX, is_generated

_BUILD = "Run `aotcompile build`."
_COMPARED_VERSIONS = ("torch", "aotcompile")


def check(source: PackageSource, generated: Path, *, options: Mapping[str, Any] | None = None, built_with: Mapping[str, str] | None = None,
          texts: Mapping[str, str] | None = None, same_library: Callable[[str, Sequence[str]], bool] | None = None) -> list[Diagnostic]:
    """Every difference between the generated package and its source, each named; empty if it is fresh.

    ``options``/``built_with``: those of now, compared with the manifest's (of versions: torch and aotcompile). ``texts``: what a build would
    write (`PackageContents.texts`), for the full answer. ``same_library``: whether a library's module has the code that the manifest speaks of.
    Nothing is written. Raises OSError if a file cannot be read.
    """
    folder = layout.package_folder(generated, source.name)
    try:
        manifest = read_manifest(folder)
    except AotCompileError as error:
        return list(error.diagnostics)
    if manifest is None:
        return [Diagnostic("AOT630", "error", f"{source.name} is not built in {generated.name}/.", None, _BUILD)]
    found = [*_sources(source, manifest), *_settings("AOT633", "option", manifest["options"], options)]
    if built_with is not None:
        wanted = {key: built_with[key] for key in _COMPARED_VERSIONS if key in built_with}
        found += _settings("AOT634", "version of", {key: value for key, value in manifest["built_with"].items() if key in wanted}, wanted)
    if same_library is not None:
        found += [Diagnostic("AOT639", "error", f"{module}, whose code was compiled in, is another than in {module.partition('.')[0]} {recorded[0]}.",
                             None, _BUILD)
                  for module, recorded in sorted(manifest.get("libraries", {}).items()) if not same_library(module, recorded)]
    edited = _generated(source, folder, manifest, f"{generated.name}/{source.name}")
    found += edited
    if texts is not None:
        named = {d.span.file for d in edited if d.span}
        found += [d for d in _would_be(texts, folder, f"{generated.name}/{source.name}") if d.span and d.span.file not in named]
    return found


def _sources(source: PackageSource, manifest: Mapping[str, Any]) -> list[Diagnostic]:
    recorded: Mapping[str, str] = manifest["sources"]
    found = []
    for path in sorted({*recorded, *source.files}):
        if path not in recorded:
            what = "is new since the build"
        elif path not in source.files:
            what = "is gone since the build"
        elif file_digest(source.folder / path) != recorded[path]:
            what = "has changed since the build"
        else:
            continue
        found.append(Diagnostic("AOT632", "error", f"the source {what}.", Span(source.shown(path), 1), _BUILD))
    return found


def _settings(code: str, what: str, recorded: Mapping[str, Any], now: Mapping[str, Any] | None) -> list[Diagnostic]:
    if now is None:
        return []
    return [Diagnostic(code, "error", f"{what} {key} is {now.get(key, 'not given')!r}, built with {recorded.get(key, 'nothing')!r}.", None, _BUILD)
            for key in sorted({*recorded, *now}) if _plain(recorded.get(key)) != _plain(now.get(key)) or (key in recorded) != (key in now)]


def _plain(value: Any) -> Any:
    """As JSON gives it back: tuples are lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _generated(source: PackageSource, folder: Path, manifest: Mapping[str, Any], shown: str) -> list[Diagnostic]:
    expected = {source.destination(path): value for path, value in manifest["sources"].items()} | manifest["modules"] | manifest["files"]
    there = set(_files(folder)) - {layout.MANIFEST}
    found = []
    for path in sorted({*expected, *there}):
        span = Span(f"{shown}/{path}", 1)
        if path not in there:
            found.append(Diagnostic("AOT636", "error", "the generated file is missing.", span, _BUILD))
        elif path not in expected:
            found.append(Diagnostic("AOT637", "error", "no build has written this file.", span, "Remove it, or build again."))
        elif file_digest(folder / path) != expected[path]:
            found.append(Diagnostic("AOT635", "error", "the generated file was edited.", span, "Change its source instead and build again."))
    return found


def _files(folder: Path) -> Iterable[str]:
    for current, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f != "__pycache__"]
        for file in files:
            yield Path(current, file).relative_to(folder).as_posix()


def _would_be(texts: Mapping[str, str], folder: Path, shown: str) -> list[Diagnostic]:
    return [Diagnostic("AOT638", "error", "a build would write another text.", Span(f"{shown}/{path}", 1), "See the differences with --diff.")
            for path, text in sorted(texts.items()) if _read(folder / path) != text.encode("utf-8")]


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def diff(texts: Mapping[str, str], generated: Path, package: str) -> str:
    """Unified diff from what is in ``generated/<package>`` to what a build would write (`PackageContents.texts`); "" if there is no difference.

    Texts of an earlier build that would not be written any more are shown as removed."""
    folder = layout.package_folder(generated, package)
    manifest = read_manifest(folder) or {"files": {}, "modules": {}}
    earlier = [path for path in (*manifest["files"], *manifest["modules"]) if path.rpartition("/")[2] in layout.VARIANT_FILES or path.endswith(".py")]
    pieces = []
    for path in sorted({*texts, *earlier}):
        data = _read(folder / path)
        old = None if data is None else data.decode("utf-8", "replace")
        new = texts.get(path)
        if old == new:
            continue
        name = f"{generated.name}/{package}/{path}"
        lines = difflib.unified_diff(SourceText(old or "").lines, SourceText(new or "").lines, name if old is not None else "(nothing)",
                                     name if new is not None else "(nothing)")
        pieces += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return "".join(pieces)


def clean(generated: Path, packages: Iterable[str] | None = None) -> list[Path]:
    """Remove generated packages (``packages``, or all in ``generated``) and what interrupted builds left; with the last one the root as well.

    Only folders with our manifest are touched. Returns what was removed, in order. Raises AotCompileError AOT621 for a named folder that is not ours.
    """
    if not generated.is_dir():
        return []
    chosen = None if packages is None else set(packages)
    removed = []
    for path in sorted(generated.iterdir()):
        if not path.is_dir() or path.is_symlink():
            continue
        interrupted = path.name.startswith(".") and path.name.endswith(TEMPORARY_SUFFIX)
        wanted = chosen is None or path.name in chosen
        if interrupted or (wanted and is_generated(path)):
            shutil.rmtree(path)
            removed.append(path)
        elif chosen is not None and path.name in chosen:
            raise AotCompileError(Diagnostic("AOT621", "error", f"{path} is not a package generated by aotcompile and is left alone."))
    init = generated / layout.ROOT_INIT
    others = [p for p in generated.iterdir() if p.name not in (layout.ROOT_INIT, "__pycache__")]
    if removed and not others and init.is_file() and init.read_text(encoding="utf-8") == layout.ROOT_INIT_TEXT:
        shutil.rmtree(generated)
        removed.append(generated)
    return removed
