"""``id(x)`` in the interpreted program: a number whose digits are others in every process, good for telling objects apart and for nothing else.

    if id(parameter) not in seen:          seen.add(id(parameter))           memo[id(self)] = copy

Anything that would look at the digits (arithmetic, order, text) is a graph break, also where native code does it.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from aotcompile.frontend.capture.signals import GraphBreak


class _Method:
    """A method that the interpreter does not take for the program's: it is no Python function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else functools.partial(self._function, owner)


class Identity:
    """What `id` gives for ``of``."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of


def _equal(left: Identity, right: Any) -> bool:
    return left.of is right.of if type(right) is Identity else _refuse(left, right)


def _refuse(*_: Any) -> Any:
    raise GraphBreak("AOT205", "the number that id() gives is looked at")


_LOOKS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "and", "or", "xor", "lshift", "rshift")
_REFUSED = (*_LOOKS, *(f"r{name}" for name in _LOOKS), "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "int", "float", "index", "str", "repr",
            "format", "round", "trunc", "floor", "ceil", "complex")
for _name in _REFUSED:
    setattr(Identity, f"__{_name}__", _Method(_refuse))
for _name, _function in (("__eq__", _equal), ("__ne__", lambda left, right: not _equal(left, right)), ("__bool__", lambda owner: True),
                         ("__hash__", lambda owner: hash(id(owner.of)))):
    setattr(Identity, _name, _Method(_function))


__all__ = ["Identity"]
