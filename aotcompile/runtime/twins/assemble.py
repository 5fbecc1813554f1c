"""A split function's code objects as a function that lives where the original does: in its globals, with its cells, defaults and name."""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any

from aotcompile.runtime.digest import DIGEST_ATTRIBUTE


def assemble(function: FunctionType, code: CodeType, eager: Mapping[str, tuple[str, CodeType]], helpers: Mapping[str, Any],
             region: Callable[[str, FunctionType], Any], digest: str) -> FunctionType:
    """The twin of ``function`` with the rewritten ``code``.

    ``eager``: stub name -> (name, code) of its eager body; ``region``: (stub name, eager body) -> the stub; ``helpers``: other free variables of
    the codes; ``digest``: of the original's code."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    cells.update({name: CellType(value) for name, value in helpers.items()})

    def made(name: str, found: CodeType, defaults: tuple[Any, ...] | None) -> FunctionType:
        return FunctionType(found, function.__globals__, name, defaults, tuple([cells[free] for free in found.co_freevars]))

    for stub, (name, body) in eager.items():
        made_body = made(name, body, None)
        made_body.__module__ = function.__module__
        cells[stub] = CellType(region(stub, made_body))
    twin = made(function.__name__, code, function.__defaults__)
    twin.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(twin, function)
    del twin.__wrapped__                                         # type: ignore[attr-defined]
    twin.__dict__[DIGEST_ATTRIBUTE] = digest
    return twin


__all__ = ["assemble"]
