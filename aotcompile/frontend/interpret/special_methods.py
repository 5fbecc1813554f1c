"""Special methods written in Python that native code calls are interpreted too.

    sorted([a, b])    {a: 1}    [a] == [b]    repr([a])        call __lt__, __hash__, __eq__ and __repr__ of the objects' classes

Were they just run, what they read would be unknown: no guards, and real tensors. So while native code runs on such objects, their classes hold
callbacks into the interpreter in the place of these methods; as soon as one is called, and at the end, the classes are as they were.
"""
from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aotcompile.frontend.library import is_library_module

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
_NAMES = (
    "eq", "ne", "lt", "le", "gt", "ge", "hash", "repr", "str", "format", "bytes", "bool", "len", "length_hint", "iter", "next", "reversed",
    "contains", "getitem", "setitem", "delitem", "missing", "index", "int", "float", "complex", "round", "trunc", "floor", "ceil", "neg", "pos",
    "abs", "invert", *_BINARY, *(f"r{name}" for name in _BINARY), *(f"i{name}" for name in _BINARY))
_SPECIAL = tuple(f"__{name}__" for name in _NAMES)
_HOLDING = (list, tuple, set, frozenset, collections.deque)
_LENGTH = 256                                        # so many of the objects in native code's arguments are looked at
Place = tuple[type, str]


@functools.cache
def _methods(cls: type) -> tuple[Place, ...]:
    """Where the special methods of ``cls`` that are written in Python stand: (class, name). Those of libraries are left alone."""
    return tuple((base, name) for base in cls.__mro__ if base.__flags__ & (1 << 9) and not is_library_module(base.__module__)
                 for name in _SPECIAL if isinstance(base.__dict__.get(name), types.FunctionType))


def _found(values: Iterable[Any]) -> Iterator[Place]:
    """The methods of the values and of what they hold."""
    waiting = collections.deque([values])
    left = _LENGTH
    while waiting and left > 0:
        for value in waiting.popleft():
            left -= 1
            kind = type(value)
            yield from _methods(kind)
            if issubclass(kind, _HOLDING):
                waiting.append(next(base for base in _HOLDING if issubclass(kind, base)).__iter__(value))
            elif issubclass(kind, dict):
                waiting += [[*dict.keys(value)], [*dict.values(value)]]
            elif kind is slice:
                waiting.append((value.start, value.stop, value.step))
            if left <= 0:
                return


class SpecialMethods:
    """Of one interpreter."""

    def __init__(self, interpreter: "Interpreter") -> None:
        self._interpreter = interpreter
        self._replaced: dict[Place, types.FunctionType] = {}
        self._of_iterators: dict[int, tuple[Any, tuple[Place, ...]]] = {}

    def called_by(self, function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[Place, ...]:
        """The methods that native code may call when it is given these values."""
        given = (*arguments, *keywords.values(), *([function.__self__] if isinstance(function, types.BuiltinFunctionType) else ()))
        found = dict.fromkeys(_found(given))
        for value in given if self._of_iterators else ():
            found.update(dict.fromkeys(self._of_iterators.get(id(value), (None, ()))[1]))
        return tuple(found)

    def remember(self, iterator: Any, places: tuple[Place, ...]) -> None:
        """What a native iterator was made from, it looks at when it is advanced."""
        if places:
            self._of_iterators[id(iterator)] = iterator, places

    @contextmanager
    def interpreted(self, places: tuple[Place, ...]) -> Iterator[None]:
        """Inside, these methods are callbacks."""
        added = {place: place[0].__dict__[place[1]] for place in places if place not in self._replaced}
        self._replaced.update(added)
        self._put(added)
        try:
            yield
        finally:
            for (cls, name), original in added.items():
                type.__setattr__(cls, name, original)
                del self._replaced[cls, name]

    def _put(self, methods: Mapping[Place, types.FunctionType]) -> None:
        for (cls, name), original in methods.items():
            type.__setattr__(cls, name, self._callback(original))

    def _callback(self, original: types.FunctionType) -> Callable[..., Any]:
        enter = self._interpreter.callback(original)

        def method(*arguments: Any, **keywords: Any) -> Any:
            replaced, self._replaced = self._replaced, {}
            for (cls, name), function in replaced.items():
                type.__setattr__(cls, name, function)
            try:
                return enter(*arguments, **keywords)
            finally:
                self._replaced = replaced
                self._put(replaced)
        method.interpreted = (method, original)  # type: ignore[attr-defined]          # where the interpreter itself meets it
        return method


__all__ = ["SpecialMethods"]
