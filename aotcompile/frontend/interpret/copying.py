"""`copy.deepcopy` of the interpreted program: objects from outside are read with guards, and what is not data is a graph break."""
from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

import torch

from aotcompile.frontend.interpret.attributes import static_lookup
from aotcompile.frontend.capture.containers import CONTAINERS, MAPPINGS, empty_copy
from aotcompile.frontend.capture.identities import Identity
from aotcompile.frontend.capture.outside import CONSTANT_TYPES
from aotcompile.frontend.capture.signals import GraphBreak
from aotcompile.frontend.capture.symbolic import SYMBOLIC

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

_ATOMS = (*CONSTANT_TYPES, int, float, frozenset, type, types.FunctionType, types.BuiltinFunctionType, enum.Enum, torch.Size, *SYMBOLIC)


def deep_copy(i: "Interpreter", value: Any, memo: dict[Any, Any]) -> Any:
    """``memo``: what `id` gives -> copy; the program passes it on, and its own ``__deepcopy__`` methods put copies into it."""
    if isinstance(value, _ATOMS):
        return value
    key = _key(i, value)
    if key not in memo:
        memo[key] = _copied(i, value, memo)
    return memo[key]


def _key(i: "Interpreter", value: Any) -> Identity:
    return Identity(i.outside.originals.get(id(value), (value, None))[0])


def _copied(i: "Interpreter", value: Any, memo: dict[Any, Any]) -> Any:
    kind = type(value)
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            raise GraphBreak("AOT205", "a deep copy of a tensor that requires grad")
        return i.native(torch.clone, (value,), {})
    custom = static_lookup(kind, "__deepcopy__")
    if isinstance(custom, types.FunctionType):
        return i.call(custom, (value, memo), {})
    whole = i.outside.whole(value)
    if kind is tuple:
        copies = tuple(deep_copy(i, item, memo) for item in whole)
        return whole if all(a is b for a, b in zip(copies, whole)) else copies
    if isinstance(value, tuple) and hasattr(kind, "_make") and not isinstance(static_lookup(kind, "__reduce_ex__"), types.FunctionType):
        return i.plain(tuple.__new__, kind, [deep_copy(i, item, memo) for item in value])
    if kind in CONTAINERS:
        return _copied_container(i, value, whole, memo)
    return _copied_object(i, value, kind, memo)


def _copied_container(i: "Interpreter", value: Any, whole: Any, memo: dict[Any, Any]) -> Any:
    made = empty_copy(whole)
    memo[_key(i, value)] = made
    if isinstance(whole, MAPPINGS):
        made.update((deep_copy(i, key, memo), deep_copy(i, item, memo)) for key, item in whole.items())
    elif isinstance(whole, set):
        made.update(deep_copy(i, item, memo) for item in whole)
    else:
        made.extend(deep_copy(i, item, memo) for item in whole)
    return made


def _copied_object(i: "Interpreter", value: Any, kind: type, memo: dict[Any, Any]) -> Any:
    """An instance whose class leaves copying to `object`: a new one with copies of its attributes."""
    if not copies_attributes(value):
        raise GraphBreak("AOT205", f"a deep copy of a {kind.__name__}")
    made = i.plain(object.__new__, kind)
    memo[_key(i, value)] = made
    attributes = i.outside.whole(i.load_attribute(value, "__dict__"))
    for name, item in list(attributes.items()):
        i.plain(object.__setattr__, made, name, deep_copy(i, item, memo))
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
