"""The production side of aotcompile: loads generated packages and runs them. Needs torch and the standard library, nothing else of aotcompile.

    bind          used by generated modules                 report        counters of every region
    load          imports a generated package               set_stance    "default" | "force_eager" | "error_on_miss"
    install       import hook: ``import mypkg`` gives the generated twin

How the parts fit together is written in PROTOCOL.md.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotcompile.runtime.twins.bytecode_twin import bind_bytecode
    from aotcompile.runtime.twins.callees import bind_callees
    from aotcompile.runtime.import_hook import install
    from aotcompile.runtime.loader import bind, load
    from aotcompile.runtime.reporting import AotCompileWarning, MissError, Report, report, set_stance

__all__ = ["AotCompileWarning", "MissError", "Report", "bind", "bind_bytecode", "bind_callees", "install", "load", "report", "set_stance"]

_HOMES = {"bind": "loader", "bind_bytecode": "twins.bytecode_twin", "bind_callees": "twins.callees",
          "load": "loader", "install": "import_hook", "report": "reporting",
          "set_stance": "reporting", "Report": "reporting", "MissError": "reporting", "AotCompileWarning": "reporting"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
