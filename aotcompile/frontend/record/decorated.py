"""Entries under a library's decorator: what is compiled is the user's function, what is called is the decorator's wrapper around it.

    @torch.no_grad()
    def generate(model, ids): ...      # ``generate`` is torch's ``decorate_context``, which has the user's function in a closure cell
"""
from __future__ import annotations

import types
from collections.abc import Callable

from aotcompile.frontend.record.source import defined_as


def inside_decorators(function: types.FunctionType, is_users: Callable[[str], bool]) -> types.FunctionType | None:
    """The first function inside the wrappers around it that a module of the user's defines (``is_users`` of its name). None: the function itself is
    one, or what it calls is not known."""
    inner = function
    while not is_users(defined_as(inner)[0]):
        following = getattr(inner, "__wrapped__", None)
        if not isinstance(following, types.FunctionType) or _cell_of(inner, following) is None:
            return None
        inner = following
    return None if inner is function else inner


def put_inside(function: types.FunctionType, inner: types.FunctionType, other: types.FunctionType) -> None:
    """Let the wrappers around ``inner`` call ``other`` from now on, in the whole process."""
    while function.__wrapped__ is not inner:                       # type: ignore[attr-defined]
        function = function.__wrapped__                            # type: ignore[attr-defined]
    cell = _cell_of(function, inner)
    assert cell is not None
    cell.cell_contents = other


def _cell_of(wrapper: types.FunctionType, wrapped: types.FunctionType) -> types.CellType | None:
    """The closure cell by which a wrapper calls what it wraps."""
    cells = dict(zip(wrapper.__code__.co_freevars, wrapper.__closure__ or ()))
    return next((cell for cell in cells.values() if _holds(cell, wrapped)), None)


def _holds(cell: types.CellType, value: object) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:                          # nothing is in it yet
        return False
