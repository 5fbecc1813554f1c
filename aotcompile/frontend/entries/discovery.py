"""Finding a package by name or folder, and its modules, without importing anything.

Code: AOT101 no such package.
"""
from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aotcompile.base.diagnostic import Diagnostic, UsageError


@dataclass(frozen=True)
class Package:
    """A package (a folder) or a single module (a file). ``root`` is the folder that must be on ``sys.path`` to import it as ``name``."""

    name: str
    root: Path
    path: Path

    @property
    def is_single_file(self) -> bool:
        return self.path.is_file()

    def modules(self) -> tuple[tuple[str, Path], ...]:
        """(dotted name, file) of every module, in order of names."""
        if self.is_single_file:
            return ((self.name, self.path),)
        found = []
        for file in self.path.rglob("*.py"):
            parts = (*self.name.split("."), *file.relative_to(self.path).with_suffix("").parts)
            if all(part.isidentifier() for part in parts):
                found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), file))
        return tuple(sorted(found))


def locate_package(text: str, folder: Path | None = None) -> Package:
    """The package for ``mypkg``, ``mypkg.sub``, ``path/to/mypkg/`` or ``path/to/module.py``.

    Names are looked up in ``folder`` (default: the current one), in its ``src``, and on ``sys.path``. Raises UsageError AOT101.
    """
    folder = folder or Path.cwd()
    path = folder / text
    if (path.is_dir() and _modules_in(path)) or (path.suffix == ".py" and path.is_file()):
        return _at(path.resolve())
    places = [folder, folder / "src", *(Path(p) for p in sys.path if p)]
    if all(part.isidentifier() for part in text.split(".")):
        for place in places:
            base = place.joinpath(*text.split("."))
            for candidate in (base, base.with_suffix(".py")):
                if (candidate / "__init__.py").is_file() or (candidate.suffix == ".py" and candidate.is_file()):
                    return Package(text, place.resolve(), candidate.resolve())
    here = sorted({p.stem for p in folder.iterdir() if (p / "__init__.py").is_file() or p.suffix == ".py"})
    near = difflib.get_close_matches(text.split(".")[0], here, 1)
    raise UsageError(Diagnostic("AOT101", "error", f"no package {text!r}: no such folder, file or module.", None,
                                f"Did you mean {near[0]!r}?" if near else "Give a folder with an __init__.py, a .py file, or an importable name."))


def _modules_in(folder: Path) -> bool:
    return any(folder.glob("*.py"))


def _at(path: Path) -> Package:
    """The package at a folder or file: its name counts from the topmost folder that is a package."""
    parts = [path.stem if path.is_file() else path.name]
    root = path.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    return Package(".".join(parts), root, path)


@contextlib.contextmanager
def importable(root: Path) -> Iterator[None]:
    """``root`` is first on ``sys.path`` inside."""
    text = str(root)
    sys.path.insert(0, text)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if text in sys.path:
            sys.path.remove(text)
