"""`copy.deepcopy` of the interpreted program: objects from outside are read with guards, and what is not data is a graph break."""
from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

import torch

from aotcompile.frontend.interpret.attributes import static_lookup
from aotcompile.frontend.capture.outside import CONSTANT_TYPES
from aotcompile.frontend.capture.signals import GraphBreak
from aotcompile.frontend.capture.symbolic import SYMBOLIC

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

_ATOMS = (*CONSTANT_TYPES, int, float, frozenset, type, types.FunctionType, types.BuiltinFunctionType, enum.Enum, torch.Size, *SYMBOLIC)


def deep_copy(i: "Interpreter", value: Any, memo: dict[int, tuple[Any, Any]], handed: Any) -> Any:
    """``memo``: id -> (original, copy); ``handed`` is the dict that the program passes on (only to its own ``__deepcopy__`` methods)."""
    if isinstance(value, _ATOMS):
        return value
    if id(value) in memo:
        return memo[id(value)][1]
    made = _copied(i, value, memo, {} if handed is None else handed)
    memo[id(value)] = (value, made)
    return made


def _copied(i: "Interpreter", value: Any, memo: dict[int, tuple[Any, Any]], handed: Any) -> Any:
    kind = type(value)
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            raise GraphBreak("AOT205", "a deep copy of a tensor that requires grad")
        return i.native(torch.clone, (value,), {})
    custom = static_lookup(kind, "__deepcopy__")
    if isinstance(custom, types.FunctionType):
        return i.call(custom, (value, handed), {})
    whole = i.outside.whole(value)
    if kind is tuple:
        return tuple(deep_copy(i, item, memo, handed) for item in whole)
    if kind in (list, dict):
        made: Any = kind()
        memo[id(value)] = (value, made)
        if kind is list:
            made.extend(deep_copy(i, item, memo, handed) for item in whole)
        else:
            made.update((deep_copy(i, key, memo, handed), deep_copy(i, item, memo, handed)) for key, item in whole.items())
        return made
    if kind is set:
        return {deep_copy(i, item, memo, handed) for item in whole}
    return _copied_object(i, value, kind, memo, handed)


def _copied_object(i: "Interpreter", value: Any, kind: type, memo: dict[int, tuple[Any, Any]], handed: Any) -> Any:
    """An instance whose class leaves copying to `object`: a new one with copies of its attributes."""
    if not copies_attributes(value):
        raise GraphBreak("AOT205", f"a deep copy of a {kind.__name__}")
    made = i.plain(object.__new__, kind)
    memo[id(value)] = (value, made)
    attributes = i.outside.whole(i.load_attribute(value, "__dict__"))
    for name, item in list(attributes.items()):
        i.plain(object.__setattr__, made, name, deep_copy(i, item, memo, handed))
    return made


def copies_attributes(value: Any) -> bool:
    """Whether a copy of an instance is a new one with its attributes: the class leaves copying to `object`."""
    kind = type(value)
    plain = all(static_lookup(kind, name) is static_lookup(object, name) for name in ("__reduce_ex__", "__reduce__", "__getstate__", "__new__"))
    restores = isinstance(static_lookup(kind, "__setstate__"), types.FunctionType) or isinstance(static_lookup(kind, "__copy__"), types.FunctionType)
    slots = any("__slots__" in base.__dict__ for base in kind.__mro__)
    return plain and not restores and not slots and not isinstance(value, torch.nn.Module) and hasattr(value, "__dict__")


def shallow_copy(i: "Interpreter", value: Any) -> Any:
    """`copy.copy` of such an instance."""
    made = i.plain(object.__new__, type(value))
    for name in list(i.outside.whole(i.load_attribute(value, "__dict__"))):
        i.plain(object.__setattr__, made, name, i.load_attribute(value, name))
    return made


__all__ = ["copies_attributes", "deep_copy", "shallow_copy"]
