"""Attribute access of the interpreted program: Python's lookup rules, with provenance for what lies outside and shadows for what is written."""
from __future__ import annotations

import collections
import functools
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.hooks import RemovableHandle

from aotcompile.frontend.interpret.classes import class_path, class_value, descriptor
from aotcompile.frontend.library import is_library_module
from aotcompile.frontend.capture.outside import CONTAINERS, DELETED, MAPPINGS
from aotcompile.frontend.capture.signals import GraphBreak, UserException
from aotcompile.frontend.capture.symbolic import SYMBOLIC
from aotcompile.frontend.torch_private import FakeTensor
from aotcompile.ir.paths import Path

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

_MISSING = object()
_HEAP_TYPE = 1 << 9
MODULE_TABLES = ("_parameters", "_buffers", "_modules")
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
_SLOT_TYPES = (types.GetSetDescriptorType, types.MemberDescriptorType)


def static_lookup(cls: type, name: str) -> Any:
    """``name`` in the classes of ``cls``'s method resolution order, without running descriptors; `_MISSING` if nowhere."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return _MISSING


_OF_MAPPING = frozenset({"get", "__getitem__", "__contains__", "__len__", "__setitem__", "setdefault"})
_WITHOUT_SHADOW = {kind: _OF_MAPPING for kind in MAPPINGS} | {
    list: frozenset({"append", "__len__"}), collections.deque: frozenset({"append"}), set: frozenset({"add"})}


class OutsideMethod:
    """A method of an outside container, bound, that touches single items only: no shadow is needed."""

    def __init__(self, container: Any, name: str) -> None:
        self.container, self.name = container, name


def load_attribute(i: "Interpreter", owner: Any, name: str) -> Any:
    """``owner.name``."""
    if isinstance(owner, torch.Tensor):
        return _tensor_attribute(i, owner, name)
    if isinstance(owner, SYMBOLIC):
        return i.plain(getattr, owner if hasattr(owner, name) else i.symbols.fix(owner), name)
    found, value = i.outside.written(owner, name)
    if found:
        if value is DELETED:
            raise UserException(AttributeError(f"'{type(owner).__name__}' object has no attribute '{name}'"))
        return value
    path = i.outside.path_of(owner)
    if isinstance(owner, types.ModuleType):
        return _module_attribute(i, owner, name)
    if isinstance(owner, type):
        return class_attribute(i, owner, name, path)
    if isinstance(owner, super):
        return _super_attribute(i, owner, name)
    if i.outside.is_container(owner):
        if id(owner) not in i.outside.shadows and name in _WITHOUT_SHADOW[type(owner)]:
            return OutsideMethod(owner, name)
        owner = i.outside.shadow(owner)
        return i.plain(getattr, owner, name)
    # A class that exec made without a module's name says "builtins" too.
    builtin = type(owner).__module__ == "builtins" and not type(owner).__flags__ & _HEAP_TYPE
    if builtin or isinstance(owner, (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)):
        value = i.plain(getattr, owner, name)
        if path is not None and isinstance(owner, types.FunctionType) and name in owner.__dict__:
            return i.outside.read(value, path.attribute(name))
        return value
    return _instance_attribute(i, owner, name, path)


def _instance_attribute(i: "Interpreter", owner: Any, name: str, path: Path | None) -> Any:
    cls = type(owner)
    custom = static_lookup(cls, "__getattribute__")
    if isinstance(custom, types.FunctionType):
        try:
            return i.call(custom, (owner, name), {})
        except UserException as raised:
            getter = static_lookup(cls, "__getattr__")
            if isinstance(raised.exception, AttributeError) and isinstance(getter, types.FunctionType):
                return i.call(getter, (owner, name), {})
            raise
    return plain_load(i, owner, name, path)


def plain_load(i: "Interpreter", owner: Any, name: str, path: Path | None, fallback: bool = True) -> Any:
    """``object.__getattribute__``, and (``fallback``) what ``__getattr__`` gives where it finds nothing."""
    cls = type(owner)
    if name == "__class__":
        return cls
    if name == "__dict__" and path is not None and hasattr(owner, "__dict__"):
        i.outside.dictionaries[id(owner.__dict__)] = owner
    found, set_here = _in_classes(i, cls, name)
    if found is not _MISSING:
        if isinstance(found, property) and not isinstance(static_lookup(type(found), "__get__"), types.FunctionType):
            if found.fget is None:
                raise UserException(AttributeError(f"property '{name}' of '{cls.__name__}' object has no getter"))
            return i.call(found.fget, (owner,), {})
        if isinstance(found, _SLOT_TYPES):
            value = i.plain(getattr, owner, name)
            return i.outside.read(value, path.attribute(name)) if path is not None else value
        if isinstance(found, functools.cached_property):
            return _cached_property(i, owner, name, found, path)
        getter = static_lookup(type(found), "__get__")
        if isinstance(getter, types.FunctionType) and any(static_lookup(type(found), each) is not _MISSING for each in ("__set__", "__delete__")):
            # A data descriptor comes before the instance's own attributes.
            return i.call(getter, (descriptor(i, cls, name, found), owner, cls), {})
    instance = owner.__dict__ if hasattr(owner, "__dict__") else {}
    shadow = i.outside.dictionary_shadow(owner) if path is not None else None
    if shadow is not None:
        instance = shadow
        if name in shadow:
            return shadow[name]
    if name in instance:
        value = instance[name]
        if name in MODULE_TABLES and path is not None and isinstance(owner, torch.nn.Module):
            return _module_table(i, owner, i.outside.read(value, path.attribute(name)))
        if name == "id" and path is not None and type(owner) is RemovableHandle:
            return i.outside.hook_number(value, path.attribute(name))
        return i.outside.read(value, path.attribute(name)) if path is not None else value
    if found is not _MISSING:
        return _bound(found, owner) if set_here else _bind(i, owner, cls, name, found, path)
    if not fallback:
        if path is not None and hasattr(owner, "__dict__"):
            i.outside.guard("has_dictionary", path, {"name": name, "present": False})
        raise UserException(AttributeError(f"'{cls.__name__}' object has no attribute '{name}'"))
    return _fallback(i, owner, cls, name, path)


def _in_classes(i: "Interpreter", cls: type, name: str) -> tuple[Any, bool]:
    """What the classes of ``cls``'s method resolution order hold as ``name`` (`_MISSING` if nothing), and whether the region has assigned it."""
    for base in cls.__mro__ if i.outside.writes else ():
        assigned, value = i.outside.written(base, name)
        if assigned and value is not DELETED:
            return value, True
        if not assigned and name in base.__dict__:
            break
    return static_lookup(cls, name), False


def _bound(value: Any, owner: Any) -> Any:
    return types.MethodType(value, owner) if isinstance(value, types.FunctionType) else value


def _module_table(i: "Interpreter", owner: torch.nn.Module, table: Any) -> Any:
    """A module's ``_parameters``, ``_buffers`` or ``_modules``. What the region has assigned as an attribute is in it."""
    if i.outside.writes.get(id(owner)):
        for name, value in i.outside.take_writes(owner, tuple(table)).items():
            i.delete_item(table, name) if value is DELETED else i.set_item(table, name, value)
    return table


def _cached_property(i: "Interpreter", owner: Any, name: str, found: Any, path: Path | None) -> Any:
    shadow = i.outside.dictionary_shadow(owner) if path is not None else None
    if shadow is not None and name in shadow:
        return shadow[name]
    if name in owner.__dict__:
        return i.outside.read(owner.__dict__[name], path.attribute(name)) if path is not None else owner.__dict__[name]
    value = i.call(found.func, (owner,), {})
    if path is not None:
        i.outside.guard("has_dictionary", path, {"name": name, "present": False})
        i.outside.write_attribute(owner, name, value)
    else:
        owner.__dict__[name] = value
    return value


def _bind(i: "Interpreter", owner: Any, cls: type, name: str, found: Any, path: Path | None) -> Any:
    """A class attribute seen through an instance."""
    if isinstance(found, types.FunctionType):
        if path is not None:
            # `layer.forward = ...` on an instance is a common way to patch models; other methods of library classes are taken as they are.
            patched = not is_library_module(cls.__module__) or (name == "forward" and isinstance(owner, torch.nn.Module))
            if patched and static_lookup(cls, "__dict__") is not _MISSING:
                i.outside.guard("has_dictionary", path, {"name": name, "present": False})
            library = i.importable(cls) if is_library_module(cls.__module__) else None
            i.outside.read(found, (library or path.then("type")).attribute(name))
        return types.MethodType(found, owner)
    getter = static_lookup(type(found), "__get__")
    if isinstance(found, (staticmethod, classmethod)) or isinstance(getter, types.FunctionType):
        _guard_absent(i, owner, cls, name, path)
    if isinstance(found, staticmethod):
        return i.outside.read(found.__func__, path.then("type").attribute(name)) if path is not None else found.__func__
    if isinstance(found, classmethod):
        return types.MethodType(found.__func__, cls)
    if isinstance(found, _METHODS):
        return types.MethodType(found, owner)      # with the class that defines it, which the bound C method does not tell
    if getter is _MISSING:
        return i.outside.read(found, path.attribute(name)) if path is not None else class_value(i, cls, name, found)
    if isinstance(getter, types.FunctionType):
        return i.call(getter, (descriptor(i, cls, name, found), owner, cls), {})
    return i.plain(getattr, owner, name)


def _guard_absent(i: "Interpreter", owner: Any, cls: type, name: str, path: Path | None) -> None:
    """A guard that an instance of the user's has no attribute of its own in front of the class's."""
    if path is not None and not is_library_module(cls.__module__) and hasattr(owner, "__dict__"):
        i.outside.guard("has_dictionary", path, {"name": name, "present": False})


def _fallback(i: "Interpreter", owner: Any, cls: type, name: str, path: Path | None) -> Any:
    """What ``__getattr__`` gives; nn.Module keeps parameters, buffers and submodules in three dicts."""
    custom = static_lookup(cls, "__getattr__")
    if isinstance(owner, torch.nn.Module) and custom in (torch.nn.Module.__dict__["__getattr__"], _MISSING):
        for table in MODULE_TABLES:
            entries = owner.__dict__.get(table, {})
            found, value = i.outside.entry(entries, name, path.attribute(table)) if path is not None else (name in entries, entries.get(name))
            if found:
                return value
        if path is not None:
            for table in (table for table in MODULE_TABLES if name not in owner.__dict__.get(table, {})):       # else the region has taken it out
                i.outside.guard("contains", path.attribute(table), {"key": {"type": "builtins:str", "value": name}, "present": False})
            i.outside.guard("has_dictionary", path, {"name": name, "present": False})
        raise UserException(AttributeError(f"'{cls.__name__}' object has no attribute '{name}'"))
    if path is not None and hasattr(owner, "__dict__"):
        i.outside.guard("has_dictionary", path, {"name": name, "present": False})
    if isinstance(custom, (types.FunctionType, *_METHODS)):         # also ``__getattr__ = dict.__getitem__``
        return i.call(custom, (owner, name), {})
    return i.plain(getattr, owner, name)


def _module_attribute(i: "Interpreter", owner: types.ModuleType, name: str) -> Any:
    value = i.plain(getattr, owner, name)
    return i.read_global(owner.__name__, name, value)


def class_attribute(i: "Interpreter", owner: type, name: str, path: Path | None) -> Any:
    """``cls.name``: what the metaclass, the class or one of its bases holds."""
    metaclass = static_lookup(type(owner), name)
    found, set_here = _in_classes(i, owner, name)
    if set_here:
        return found
    if isinstance(metaclass, property):
        return i.call(metaclass.fget, (owner,), {}) if isinstance(metaclass.fget, types.FunctionType) else i.plain(getattr, owner, name)
    if found is _MISSING or (metaclass is not _MISSING and isinstance(metaclass, _SLOT_TYPES)):
        return i.plain(getattr, owner, name)
    if isinstance(found, staticmethod):
        return found.__func__
    if isinstance(found, classmethod):
        return types.MethodType(found.__func__, owner)
    if isinstance(found, types.FunctionType):
        return found
    getter = static_lookup(type(found), "__get__")
    if isinstance(getter, types.FunctionType) and not is_library_module(type(found).__module__):
        return i.call(getter, (descriptor(i, owner, name, found), None, owner), {})
    value = i.plain(getattr, owner, name)
    return class_value(i, owner, name, value)


def _super_attribute(i: "Interpreter", owner: Any, name: str) -> Any:
    instance, start = owner.__self__, owner.__thisclass__
    of_class = isinstance(instance, type) and start in instance.__mro__          # super() of a class method; else of an instance, or in a metaclass
    mro = instance.__mro__ if of_class else type(instance).__mro__
    for base in mro[mro.index(start) + 1:]:
        if name in base.__dict__:
            found = base.__dict__[name]
            if isinstance(found, property):
                return i.call(found.fget, (instance,), {})
            if isinstance(found, classmethod):
                return types.MethodType(found.__func__, instance if of_class else type(instance))
            if isinstance(found, (types.FunctionType, *_METHODS)) and not of_class:
                return types.MethodType(found, instance)
            if static_lookup(type(found), "__get__") is _MISSING:
                return class_value(i, base, name, found)
            break
    return i.plain(getattr, owner, name)


def _tensor_attribute(i: "Interpreter", owner: torch.Tensor, name: str) -> Any:
    original = i.original_tensor(owner)
    if original is not None and name in original[0].__dict__:
        return i.outside.read(original[0].__dict__[name], original[1].attribute(name))
    if name == "__class__":
        return i.type_of(owner)
    if name == "grad" and original is not None and isinstance(owner, FakeTensor):
        raise GraphBreak("AOT205", "a tensor's .grad is read")
    if original is not None and not hasattr(torch.Tensor, name) and not hasattr(owner, name):
        raise UserException(AttributeError(f"'Tensor' object has no attribute '{name}'"))
    return i.plain(getattr, owner, name)


# ---- writing ------------------------------------------------------------------------------------------------------------------------------


def store_attribute(i: "Interpreter", owner: Any, name: str, value: Any) -> None:
    """``owner.name = value``."""
    _check_writable(i, owner, name)
    custom = static_lookup(type(owner), "__setattr__")
    if _is_own(custom, torch.nn.Module.__setattr__, object.__setattr__):
        i.call(custom, (owner, name, value), {})
        return
    plain_store(i, owner, name, value)


def _is_own(method: Any, *usual: Any) -> bool:
    """Whether a class has a method of its own: Python code, or a container's method under this name (``__setattr__ = dict.__setitem__``)."""
    if isinstance(method, _METHODS) and method.__objclass__ not in CONTAINERS:
        return False
    return isinstance(method, (types.FunctionType, *_METHODS)) and method not in usual


def plain_store(i: "Interpreter", owner: Any, name: str, value: Any) -> None:
    """``object.__setattr__``: properties run, everything else is noted (outside) or done (new objects)."""
    _find_class(i, owner)
    found = None if isinstance(owner, (types.ModuleType, type)) else static_lookup(type(owner), name)
    if isinstance(found, property) and not isinstance(static_lookup(type(found), "__set__"), types.FunctionType):
        if found.fset is None:
            raise UserException(AttributeError(f"property '{name}' of '{type(owner).__name__}' object has no setter"))
        i.call(found.fset, (owner, value), {})
    elif found is not None and isinstance(static_lookup(type(found), "__set__"), types.FunctionType):
        i.call(static_lookup(type(found), "__set__"), (descriptor(i, type(owner), name, found), owner, value), {})
    elif i.is_outside(owner):
        table = _table_in_use(i, owner, name)
        if table is not None:
            i.set_item(table, name, value)
        else:
            i.outside.write_attribute(owner, name, value)
    elif isinstance(owner, torch.nn.Module) and "_modules" in owner.__dict__:
        i.plain(torch.nn.Module.__setattr__, owner, name, value)       # a module made in the region: registers parameters and submodules
    else:
        i.plain(object.__setattr__, owner, name, value)


def _find_class(i: "Interpreter", owner: Any) -> None:
    """A class that is changed (``type(self).calls += 1``) is one from outside, also where only objects of it were met so far."""
    if isinstance(owner, type) and not i.is_outside(owner):
        path = class_path(i, owner)
        if path is None:
            raise GraphBreak("AOT208", f"{owner.__qualname__}, a class that is found nowhere, is changed", kind="statement")
        i.outside.read(owner, path)


def _table_in_use(i: "Interpreter", owner: Any, name: str) -> Any:
    """The table of a module from outside that has an attribute, where the code has looked at the table itself; None for others."""
    if not isinstance(owner, torch.nn.Module):
        return None
    tables = (owner.__dict__.get(table) for table in MODULE_TABLES)
    return next((table for table in tables if table is not None and i.is_outside(table) and i.contains(table, name)), None)


def delete_attribute(i: "Interpreter", owner: Any, name: str) -> None:
    """``del owner.name``."""
    _check_writable(i, owner, name)
    custom = static_lookup(type(owner), "__delattr__")
    if _is_own(custom, torch.nn.Module.__delattr__, object.__delattr__):
        i.call(custom, (owner, name), {})
        return
    plain_delete(i, owner, name)


def plain_delete(i: "Interpreter", owner: Any, name: str) -> None:
    """``object.__delattr__``."""
    _find_class(i, owner)
    found = None if isinstance(owner, (types.ModuleType, type)) else static_lookup(type(owner), name)
    remover = static_lookup(type(found), "__delete__")
    if isinstance(found, property):
        if found.fdel is None:
            raise UserException(AttributeError(f"property '{name}' of '{type(owner).__name__}' object has no deleter"))
        i.call(found.fdel, (owner,), {})
    elif isinstance(remover, types.FunctionType):
        i.call(remover, (descriptor(i, type(owner), name, found), owner), {})
    elif i.is_outside(owner):
        load_attribute(i, owner, name)
        table = _table_in_use(i, owner, name)
        if table is not None:
            i.delete_item(table, name)
        else:
            i.outside.write_attribute(owner, name, DELETED)
    elif isinstance(owner, torch.nn.Module):
        i.plain(torch.nn.Module.__delattr__, owner, name)
    else:
        i.plain(object.__delattr__, owner, name)


def _check_writable(i: "Interpreter", owner: Any, name: str) -> None:
    if name == "__class__" and i.is_outside(owner):
        raise GraphBreak("AOT208", f"the class of a {type(owner).__name__} from outside is changed", kind="statement")
    if isinstance(owner, torch.Tensor):
        raise GraphBreak("AOT208", f"an assignment to a tensor's .{name}", kind="statement")
    if isinstance(owner, types.FunctionType) and id(owner) not in i.made_functions:
        raise GraphBreak("AOT208", f"an assignment to a function's .{name}", kind="statement")


__all__ = ["OutsideMethod", "class_attribute", "delete_attribute", "load_attribute", "plain_delete", "plain_load", "plain_store", "static_lookup",
           "store_attribute"]
