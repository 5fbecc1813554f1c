"""Split functions of other packages, for the generated modules that call them.

    def forward(self, x):
        h = _r0(self, x)
        h = _callee(self.encoder)(h)          # transformers' forward, which has a graph break: its twin, split like the package's own functions
        return _r1(self, h)

The other package stays as it is: only calls from generated code (and from such twins) go to the twins.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotcompile.runtime import reporting
from aotcompile.runtime.loader import Package, Refused, package_around

if TYPE_CHECKING:
    from aotcompile.runtime.twins.compiled import TwinMaker


class Callees:
    """``callees(callable)``: the split twin of ``callable`` where the package has one, else ``callable``. Reads nothing before the first call."""

    __aotcompile_stub__ = True

    def __init__(self, package: Package) -> None:
        self._package = package
        self._twins: TwinMaker | None = None

    def __call__(self, function: Any) -> Any:
        if self._twins is None:
            self._twins = _twins_of(self._package)
        return self._twins.direct(function)


def bind_callees(module_file: str) -> Callees:
    """For generated modules: ``_callee = bind_callees(__file__)``."""
    return Callees(package_around(module_file))


def _twins_of(package: Package) -> TwinMaker:
    """One for all modules of a package, so that a callee's regions count together."""
    from aotcompile.runtime.twins.compiled import SplitFunction, TwinMaker

    with package.lock:
        if package.callees is None:
            functions = []
            try:
                for record in package.manifest().get("callees", ()):
                    regions = {name: (stub, eager) for name, (stub, eager) in record["regions"].items()}
                    functions.append(SplitFunction(record["module"], record["qualname"], package.text(record["file"]), regions, record["calls"],
                                                   record["digest"], record["bytecode"]))
            except Refused as refusal:
                reporting.refuse(f"{package.folder}:callees", f"{refusal}. Functions of other packages run eagerly.")
            package.callees = TwinMaker(package, functions)
        twins: TwinMaker = package.callees
        return twins
