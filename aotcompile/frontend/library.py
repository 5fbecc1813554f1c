"""Which code is the user's and which is a library's.

Library code (the standard library, site-packages) is guarded when a variant is loaded, not per call: names read from its modules carry no guards.
"""
from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig

_ROOTS = tuple(sorted({os.path.realpath(p) for key in ("stdlib", "platstdlib", "purelib", "platlib") if (p := sysconfig.get_paths().get(key))}))


@functools.cache
def is_library_file(filename: str) -> bool:
    """Whether a code object's file belongs to the standard library or an installed distribution. Code without a file (``exec``) is the user's."""
    if filename.startswith("<"):
        return filename.startswith("<frozen")
    path = os.path.realpath(filename)
    return any(path.startswith(root + os.sep) for root in _ROOTS) or f"{os.sep}site-packages{os.sep}" in path


@functools.cache
def is_library_module(name: str | None) -> bool:
    """As `is_library_file`, by module name; built-in modules are library."""
    if not name:
        return False
    root = name.partition(".")[0]
    if root in ("torch", "builtins", "aotcompile") or root in sys.builtin_module_names:
        return True
    module = sys.modules.get(root)
    file = getattr(module, "__file__", None)
    if file is None:
        if module is None:
            try:
                specification = importlib.util.find_spec(root)
            except (ImportError, ValueError):
                return False
            file = specification.origin if specification else None
        if file is None:
            return root in sys.stdlib_module_names
    return is_library_file(file)


def is_compared_at_load(name: str) -> bool:
    """Whether code of this module that is compiled in is to be compared when it is loaded. CPython and torch are not: the runtime has a range of
    versions of each, in which the Python code that models go through means the same."""
    root = name.partition(".")[0]
    return is_library_module(name) and root not in ("torch", "aotcompile") and root not in sys.stdlib_module_names


def file_label(filename: str, module: str) -> str:
    """A file name that is the same on every machine: the path from the top package down, or the bare name."""
    parts = filename.replace("\\", "/").split("/")
    depth = module.count(".") + 1 if module and module != "__main__" else 1
    if parts[-1] == "__init__.py":
        depth += 1
    return "/".join(parts[-depth:])
