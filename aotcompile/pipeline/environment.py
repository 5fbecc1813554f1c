"""What a build was made with, and the native runtime extension for this environment."""
from __future__ import annotations

import platform
import tempfile
from importlib import metadata
from pathlib import Path

import torch

from aotcompile.base.diagnostic import AotCompileError, UsageError
from aotcompile.options import Options
from aotcompile.package.cpp_build import find_compiler, resolve_target
from aotcompile.package.host_build import build_host_extension
from aotcompile.package.layout import BINARY_FOLDER


def version() -> str:
    """aotcompile's own version; "source" when it runs from a checkout that is not installed."""
    try:
        return metadata.version("aotcompile")
    except metadata.PackageNotFoundError:
        return "source"


def built_with() -> dict[str, str]:
    """For the manifest: versions that a rebuild must repeat to give the same bytes."""
    return {"aotcompile": version(), "torch": torch.__version__.partition("+")[0], "python": ".".join(platform.python_version_tuple()[:2]),
            "schema": "1"}


def host_files(options: Options) -> dict[str, bytes]:
    """The native runtime extension, as files of the generated package. Without a compiler a backend that needs none still builds (the Python runtime
    serves it)."""
    if not options.host:
        return {}
    try:
        find_compiler()
    except AotCompileError:
        if options.backend == "native":
            raise
        return {}
    with tempfile.TemporaryDirectory(prefix="aotcompile-") as folder:
        built = build_host_extension(folder)
        return {f"{BINARY_FOLDER}/{Path(built).parent.name}/{Path(built).name}": Path(built).read_bytes()}


def require_tools(options: Options) -> None:
    """Raises before the work begins what would stop it at its end: UsageError AOT503 for an unknown target, AotCompileError AOT501 without a
    compiler."""
    for target in options.targets:
        if not target.startswith("cuda"):
            try:
                resolve_target(target)
            except AotCompileError as error:
                raise UsageError(*error.diagnostics) from None
    if options.backend == "native":
        find_compiler()
