"""The import hook: after ``install("generated")`` a plain ``import mypkg`` gives the generated twin, if it was built from the sources on disk.

The twin then *is* ``mypkg`` in sys.modules. A package whose sources have changed since the build is imported as it is, with one warning that
names the changed file; a package that is only deployed in its generated form has no sources to compare and is taken.
"""
from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Sequence

from aotcompile.runtime import reporting

MANIFEST = "manifest.json"


class GeneratedFinder(MetaPathFinder):
    """Finds the generated twins under one root folder."""

    def __init__(self, root: str) -> None:
        self.root = root

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if path is not None or "." in fullname:
            return None                                          # submodules are found through the package's __path__
        folder = os.path.join(self.root, fullname)
        manifest = _manifest(folder)
        if manifest is None or manifest.get("package") != fullname:
            return None
        original = _original(fullname)
        locations = [folder]
        if original is not None:
            changed = changed_source(original, manifest)
            if changed is not None:
                reporting.refuse(f"{folder}:stale", f"AOT607 {fullname} was changed since it was built ({changed}): the original is imported. "
                                 f"Run `aotcompile build {fullname}` again.")
                return None
            locations += list(original.submodule_search_locations or ())
        specification = importlib.util.spec_from_file_location(fullname, os.path.join(folder, "__init__.py"), submodule_search_locations=locations)
        return specification


def _manifest(folder: str) -> dict[str, object] | None:
    try:
        with open(os.path.join(folder, MANIFEST), "rb") as file:
            data = json.loads(file.read())
    except (OSError, ValueError):
        return None                                              # no generated package, or none that can be read: nothing to offer
    return data if isinstance(data, dict) and os.path.isfile(os.path.join(folder, "__init__.py")) else None


def _original(name: str) -> importlib.machinery.ModuleSpec | None:
    """Where ``import name`` would lead without this hook."""
    for finder in sys.meta_path:
        if isinstance(finder, GeneratedFinder):
            continue
        find = getattr(finder, "find_spec", None)
        specification = find(name, None, None) if find is not None else None
        if specification is not None:
            found: importlib.machinery.ModuleSpec = specification
            return found
    return None


def changed_source(original: importlib.machinery.ModuleSpec, manifest: dict[str, object]) -> str | None:
    """The first source file (of the manifest, in order of name) that is not what was built from, with what is wrong; None if all are."""
    if original.submodule_search_locations:
        folder = list(original.submodule_search_locations)[0]
    elif original.origin:
        folder = os.path.dirname(original.origin)
    else:
        return None
    sources = manifest.get("sources")
    for relative, digest in sorted(sources.items() if isinstance(sources, dict) else ()):
        try:
            with open(os.path.join(folder, *relative.split("/")), "rb") as file:
                found = hashlib.sha256(file.read()).hexdigest()
        except OSError:
            return f"{relative} is gone"
        if found != digest:
            return f"{relative} differs"
    return None


def install(root: str | os.PathLike[str] = "generated") -> None:
    """Makes ``import mypkg`` give the generated twin under ``root`` for every package found there. Packages imported before stay as they are."""
    folder = os.path.abspath(os.fspath(root))
    if not any(isinstance(finder, GeneratedFinder) and finder.root == folder for finder in sys.meta_path):
        sys.meta_path.insert(0, GeneratedFinder(folder))
