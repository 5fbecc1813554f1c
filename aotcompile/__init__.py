"""Ahead-of-time compiler for whole PyTorch packages.

Importing this package imports nothing but the decorators: everything else is loaded when its name is first used, so that generated packages
and decorated user code do not pay for the compiler.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from aotcompile.entry import entry, skip

if TYPE_CHECKING:
    from aotcompile import runtime
    from aotcompile.api import build, compile, explain, trace, verify
    from aotcompile.runtime.twins.compiled import Info, info
    from aotcompile.runtime.loader import load

__all__ = ["Info", "build", "compile", "entry", "explain", "info", "load", "runtime", "skip", "trace", "verify"]

_HOMES = {"build": "api", "compile": "api", "explain": "api", "trace": "api", "verify": "api", "info": "runtime.twins.compiled",
          "Info": "runtime.twins.compiled", "load": "runtime.loader"}


def __getattr__(name: str) -> Any:
    if name == "runtime":
        return importlib.import_module(f"{__name__}.runtime")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
