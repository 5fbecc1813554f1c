"""What the pipeline hands to the package stage, and what the stage hands back. Plain data; no torch.

    discover -> PackageSource -+
    frontend -> FunctionResult +-> PackagePlan -> package_contents -> PackageContents -> write_package -> generated/<package>/
    codegen, builds -> VariantFiles
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from aotcompile.base.diagnostic import Diagnostic
from aotcompile.frontend.types import FunctionResult

# ---- the user's package -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModuleSource:
    """A module of the user's package. ``name`` is its full dotted name, ``path`` is relative to the package's folder (POSIX separators)."""

    name: str
    path: str
    is_package: bool


@dataclass(frozen=True)
class PackageSource:
    """A package's files on disk (made by `aotcompile.package.discover.package_source`).

    ``name``: import name. ``root``: the folder that has to be on ``sys.path`` to import it. ``folder``: what ``files`` are relative to, for a package
    that is one module file the folder of that file. ``files``: all files that belong to it, sorted, POSIX separators; ``modules`` are those among
    them that are Python modules in source form."""

    name: str
    root: Path
    folder: Path
    modules: tuple[ModuleSource, ...]
    files: tuple[str, ...]
    single_module: bool = False

    def shown(self, path: str) -> str:
        """A file as messages name it: relative to the root ("mypkg/model.py")."""
        return path if self.single_module else "/".join((*self.name.split("."), path))

    def destination(self, path: str) -> str:
        """Where a file is in the generated package. A single module becomes a package of that name."""
        return "__init__.py" if self.single_module else path


# ---- what was built -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VariantFiles:
    """One variant as files.

    ``texts``: file name -> text (``graph.py``, ``guards.py``, ``forward.py``, ``backward.py``, ``kernels.cpp`` or ``kernels.py``, ``wrapper.py``,
    ``plan.json``). ``binaries``: target ("cpu-x86-64-v3", "cuda-sm_90") -> the built kernels: bytes of one shared object, or for targets with
    a file per kernel a mapping file name ("kernel.cubin") -> bytes."""

    texts: Mapping[str, str]
    binaries: Mapping[str, bytes | Mapping[str, bytes]] = field(default_factory=dict)

    @property
    def kernels(self) -> str:
        """The text the binaries were built from ("" if there is none)."""
        return self.texts.get("kernels.cpp", "") + self.texts.get("kernels.py", "")


@dataclass(frozen=True)
class FunctionPlan:
    """A function of the package with what was built for it.

    ``variants``: region index -> its variants in the order in which they are tried. ``digest``: the runtime's digest of the original code object,
    written next to the rewritten function so that guards on its code still recognise it ("" leaves it out)."""

    result: FunctionResult
    variants: Mapping[int, tuple[VariantFiles, ...]]
    digest: str = ""


@dataclass(frozen=True)
class PackagePlan:
    """Everything a build writes. ``outside``: split functions of other packages that the package's own functions call. ``options`` and ``built_with``
    are JSON-shaped; ``extra_files``: path in the generated package -> content, for files that belong to no variant
    (``_aot/bin/host-<torch>-<cpython>/...``). ``libraries``: module of a library whose code was compiled in -> [version, digest of its file]."""

    source: PackageSource
    functions: tuple[FunctionPlan, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    built_with: Mapping[str, str] = field(default_factory=dict)
    extra_files: Mapping[str, str | bytes] = field(default_factory=dict)
    outside: tuple[FunctionPlan, ...] = ()
    libraries: Mapping[str, Sequence[str]] = field(default_factory=dict)


# ---- what is written ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CopiedFile:
    """A file of the user's package that is copied as it is (data, extension modules, modules without change)."""

    source: Path


Content = Union[str, bytes, CopiedFile]


@dataclass(frozen=True)
class PackageContents:
    """The generated package before it is on disk: path relative to ``generated/<package>/`` -> content, sorted by path."""

    package: str
    files: Mapping[str, Content]
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def texts(self) -> dict[str, str]:
        """The files that are read by people and compared by ``check``: everything but copies and binaries."""
        return {path: content for path, content in self.files.items() if isinstance(content, str)}


@dataclass(frozen=True)
class WrittenPackage:
    """``folder``: ``generated/<package>``; ``written``: count of files."""

    folder: Path
    written: int
    diagnostics: tuple[Diagnostic, ...] = ()
