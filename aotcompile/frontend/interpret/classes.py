"""Where what a class holds comes from, when no instance from outside leads to it.

    class Helper:                    # from outside: an argument, a global, the type of an object
        log = []                     # Helper.__dict__["log"]: a container from outside, whoever appends to it
        def touch(self):             # Helper.__dict__["touch"]: its cells and defaults are from outside too
            state["n"] += 1

    Helper().touch()                 # the instance is made in the region
"""
from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aotcompile.frontend.capture.outside import CONTAINERS
from aotcompile.frontend.capture.signals import GraphBreak
from aotcompile.frontend.library import is_library_module
from aotcompile.ir.paths import Path

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

_HOLDERS = {staticmethod: ("__func__",), classmethod: ("__func__",), property: ("fget", "fset", "fdel"), functools.cached_property: ("func",),
            functools.partialmethod: ("func",)}


def class_path(i: "Interpreter", cls: type) -> Path | None:
    """Where ``cls`` is found: itself, by its name, or as the type of an object from outside."""
    return i.outside.path_of(cls) or i.importable(cls) or i.outside.class_paths().get(id(cls))


def class_value(i: "Interpreter", cls: type, name: str, value: Any) -> Any:
    """The stand-in for ``value``, what ``cls.name`` gives. Libraries' classes are taken as they are.

    Raises GraphBreak for a container of a class that nothing leads to: what the region does to it would be lost."""
    if is_library_module(cls.__module__):
        return value
    path = class_path(i, cls)
    if path is not None:
        return i.outside.read(value, path.attribute(name))
    if isinstance(value, CONTAINERS):
        raise GraphBreak("AOT205", f"{cls.__qualname__}.{name} is read, of a class that is found nowhere")
    return value


def descriptor(i: "Interpreter", cls: type, name: str, found: Any) -> Any:
    """The stand-in for a descriptor of a class's, ``found`` under ``name`` without running it: what its methods change is an effect. Those of
    libraries' classes, and of classes that nothing leads to, are taken as they are."""
    base = next(each for each in cls.__mro__ if name in each.__dict__)
    if is_library_module(base.__module__):
        return found
    path = class_path(i, base) or _in_order_of(class_path(i, cls), cls, base)
    return found if path is None else i.outside.read(found, _entry(path, name))


def function_path(i: "Interpreter", function: types.FunctionType) -> Path | None:
    """Where a function from outside is found, also one that was met as a method; None for one that the region or a library has made."""
    if id(function) in i.made_functions:
        return None
    known = i.outside.path_of(function)
    if known is not None or is_library_module(function.__module__) or id(function) in i.without_path:
        return known
    found = next(_methods(i, function), None)
    if found is None:
        i.without_path[id(function)] = function
    else:
        i.outside.read(function, found)
    return found


def _methods(i: "Interpreter", function: types.FunctionType) -> Iterator[Path]:
    """The places of a function in the classes that it may be a method of."""
    named = _named_class(function)
    for cls in [named] if named is not None else i.outside.classes():
        for base in cls.__mro__:
            for name, value in base.__dict__.items():
                steps = _steps_to(value, function)
                path = class_path(i, base) or _in_order_of(class_path(i, cls), cls, base) if steps is not None else None
                if steps is not None and path is not None:
                    yield functools.reduce(Path.attribute, steps, _entry(path, name))


def _entry(path: Path, name: str) -> Path:
    """A class's own entry: no descriptor runs."""
    return path.attribute("__dict__").item(name)


def _in_order_of(path: Path | None, cls: type, base: type) -> Path | None:
    return path.attribute("__mro__").item(cls.__mro__.index(base)) if path is not None else None


def _named_class(function: types.FunctionType) -> type | None:
    """The class of a method by the method's qualified name, if that leads to one."""
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split(".")[:-1]:
        found = getattr(found, "__dict__", {}).get(part)
    return found if isinstance(found, type) else None


def _steps_to(value: Any, function: types.FunctionType) -> tuple[str, ...] | None:
    """The attributes that lead from a class's entry to the function; None where it does not hold the function."""
    if value is function:
        return ()
    return next(((name,) for name in _HOLDERS.get(type(value), ()) if getattr(value, name) is function), None)


__all__ = ["class_path", "class_value", "descriptor", "function_path"]
