"""``manifest.json``: what a generated package is made of and was made from. Read by the loader and by ``aotcompile check``.

    schema       1
    package      import name of the user's package
    options      the options that decided what was written
    built_with   versions: torch, python, aotcompile, compiler
    sources      file of the user's package -> SHA-256
    modules      module that was rewritten -> SHA-256 of the generated text (all others are copies)
    libraries    module of a library whose code was compiled in -> [version of the library, SHA-256 of the module's file ("" if it is no source)]
    regions      module ("mypkg.model") -> region ("Net.forward:r0") -> {"variants": [folder...], "lines": [first, last]}; no variants: it stays eager
    kernels      variant folder -> target -> binary, or {file name: binary} where a target has several
    callees      split functions of other packages: {"module", "qualname", "file" (the split source), "digest" (of the original's code), "bytecode",
                 "calls", "regions": region -> [stub, eager body]}; left out where there are none
    files        file under _aot/ -> SHA-256
    breaks       graph breaks: {"code", "file", "line", "column", "function", "reason", "hint"}
    eager        what was not compiled and why: diagnostics
"""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.frontend.types import Break
from aotcompile.package import layout


def manifest_text(fields: Mapping[str, Any]) -> str:
    """Deterministic JSON: sorted keys below the top level, whose order is the one above; ASCII only, so that any file name survives."""
    order = ("schema", "package", "options", "built_with", "sources", "modules", "libraries", "regions", "kernels", "callees", "files", "breaks",
             "eager")
    parts = [f" {json.dumps(key)}: {_indented(fields[key])}" for key in order if key in fields]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _indented(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=True, allow_nan=False).replace("\n", "\n ")


def break_json(graph_break: Break) -> dict[str, Any]:
    span = graph_break.span
    return {"code": graph_break.code, "file": span.file, "line": span.line, "column": span.column + 1, "function": span.function,
            "reason": graph_break.reason, "hint": graph_break.hint}


def sorted_diagnostics(diagnostics: Sequence[Diagnostic]) -> list[dict[str, Any]]:
    """As JSON, in order of place; equal ones once."""
    texts = {json.dumps(d.as_json(), sort_keys=True): d.as_json() for d in diagnostics}
    return [texts[text] for text in sorted(texts, key=lambda t: (str(texts[t]["file"] or ""), int(str(texts[t]["line"] or 0)), t))]


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a generated package; None if there is none. Raises AotCompileError AOT631 if it cannot be read or is of another schema."""
    path = folder / layout.MANIFEST
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(folder, str(error)) from error
    if not isinstance(data, dict) or data.get("schema") != layout.SCHEMA:
        raise _unreadable(folder, f"schema {data.get('schema') if isinstance(data, dict) else None!r} is not {layout.SCHEMA}")
    return data


def _unreadable(folder: Path, reason: str) -> AotCompileError:
    return AotCompileError(Diagnostic("AOT631", "error", f"the manifest of {folder.name} cannot be used: {reason}.", None, "Build it again."))
