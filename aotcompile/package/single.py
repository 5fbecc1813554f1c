"""Contents for one compiled function or module (``aotcompile.compile``): no rewritten modules, the split functions' sources instead.

    manifest.json
    _aot/<module path>/<qualname>/source.py        the split function: eager bodies and the rewritten function
                                                   (bytecode.py for a function without source text)
    _aot/<module path>/<qualname>/r0/v0/...        as in a generated package
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aotcompile.base.digest import digest
from aotcompile.package import layout
from aotcompile.package.contents import _Build, _put, add_standing_function
from aotcompile.package.manifest import break_json, manifest_text, sorted_diagnostics
from aotcompile.package.types import FunctionPlan, PackageContents

SINGLE_PACKAGE = "aotcompile_single"          # the package name in the manifest of a compiled callable; no module has it


def single_contents(functions: Sequence[FunctionPlan], *, options: Mapping[str, Any], built_with: Mapping[str, str],
                    extra_files: Mapping[str, str | bytes], libraries: Mapping[str, Sequence[str]]) -> PackageContents:
    """The files of one compiled callable; ``functions`` with the entry first."""
    build = _Build()
    for function in functions:
        add_standing_function(build, function, layout.AOT_FOLDER)
    for path, content in extra_files.items():
        _put(build, path, content)
    eager = [d for f in functions for d in f.result.eager]
    manifest = {
        "schema": layout.SCHEMA, "package": SINGLE_PACKAGE, "options": dict(options), "built_with": dict(built_with), "sources": {}, "modules": {},
        "libraries": dict(libraries),
        "regions": build.regions, "kernels": build.kernels,
        "files": {path: digest(content) for path, content in build.files.items() if isinstance(content, (str, bytes))},
        "breaks": [break_json(b) for f in functions for b in f.result.breaks], "eager": sorted_diagnostics(eager),
    }
    build.files[layout.MANIFEST] = manifest_text(manifest)
    return PackageContents(SINGLE_PACKAGE, dict(sorted(build.files.items())), tuple(build.diagnostics))
