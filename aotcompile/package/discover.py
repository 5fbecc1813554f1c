"""What belongs to a package on disk: its modules and its data files.

Finding the package for a name or path the user gives, and importing it, is `aotcompile.frontend.entries.discovery`; this lists its files.
"""
from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from aotcompile.package.types import ModuleSource, PackageSource

SKIPPED_FOLDERS = frozenset({"__pycache__", ".git", ".hg", ".svn", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis",
                             ".ipynb_checkpoints"})
SKIPPED_FILES = frozenset({".DS_Store", "Thumbs.db"})


def package_source(name: str, root: Path, path: Path, *, exclude: Iterable[Path] = ()) -> PackageSource:
    """The files of the package ``name`` at ``path`` (a folder, or the file of a single module); ``root`` goes on ``sys.path`` to import it.

    ``exclude``: folders that are no part of it (the output folder, where that is inside). Raises OSError if a folder cannot be read.
    """
    path = path.resolve()
    if path.is_file():
        return PackageSource(name, root.resolve(), path.parent, (ModuleSource(name, path.name, is_package=True),), (path.name,), single_module=True)
    files = _files(path, {folder.resolve() for folder in exclude})
    modules = [module for file in files if (module := _module(name, file)) is not None]
    return PackageSource(name, root.resolve(), path, tuple(sorted(modules, key=lambda m: m.name)), files)


def _module(package: str, file: str) -> ModuleSource | None:
    if not file.endswith(".py"):
        return None
    parts = file[:-len(".py")].split("/")
    if not all(part.isidentifier() for part in parts):
        return None                                    # a script or a template: nothing imports it
    is_package = parts[-1] == "__init__"
    return ModuleSource(".".join([package, *(parts[:-1] if is_package else parts)]), file, is_package)


def _files(folder: Path, exclude: Collection[Path]) -> tuple[str, ...]:
    """All files below, relative to ``folder``, sorted. Links to folders are followed once; caches and bytecode next to its source are left out."""
    found: list[str] = []
    seen: set[str] = set()

    def fail(error: OSError) -> None:
        raise error

    for current, folders, files in os.walk(folder, followlinks=True, onerror=fail):
        real = os.path.realpath(current)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and Path(current, f).resolve() not in exclude)
        names = set(files)
        for file in files:
            if file in SKIPPED_FILES or (file.endswith(".pyc") and file[:-1] in names):
                continue
            found.append(Path(current, file).relative_to(folder).as_posix())
    return tuple(sorted(found))
