"""Names of classes, functions and constants in guard records, and what they stand for in this process."""
from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Mapping

import torch

ORIGINAL_CLASS = "__aotcompile_original__"


@dataclass(frozen=True)
class Context:
    """Where a region's paths start: its parameters, the globals and closure cells of its eager body, and the import name of its package."""

    parameters: tuple[str, ...]
    globals: dict[str, Any]
    closure: Mapping[str, Any]
    package: str = ""
    import_name: str = ""

    @staticmethod
    def of(function: FunctionType, package: str = "", import_name: str = "") -> "Context":
        code = function.__code__
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        closure = dict(zip(code.co_freevars, function.__closure__ or ()))
        return Context(code.co_varnames[:count], function.__globals__, closure, package, import_name)

    def module_name(self, name: str) -> str:
        """A module's name in this process: names inside the built package lead to its generated twin."""
        if self.package and (name == self.package or name.startswith(f"{self.package}.")):
            return self.import_name + name[len(self.package):]
        return name

    def qualified(self, name: str) -> str:
        module, separator, qualname = name.partition(":")
        return self.module_name(module) + separator + qualname

    def as_dict(self) -> dict[str, Any]:
        """The native extension's form."""
        return {"parameters": self.parameters, "globals": self.globals, "closure": dict(self.closure), "package": self.package,
                "import_name": self.import_name}


class UnsupportedPlan(Exception):
    """A plan with something this runtime does not know; the variant is not used (AOT606)."""


def class_name(cls: type) -> str:
    """"module:qualname"; the class that a compiled module's class stands for counts in its place."""
    cls = cls.__dict__.get(ORIGINAL_CLASS, cls)
    return f"{cls.__module__}:{cls.__qualname__}"


def qualified_name(value: Any) -> str:
    """"module:qualname" of a class, C function or descriptor, as the build writes it in `builtin` guards."""
    if isinstance(value, type):
        return class_name(value)
    owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", getattr(value, "__name__", type(value).__qualname__))
    if module is None and owner is not None:
        module = owner.__name__ if isinstance(owner, ModuleType) else (owner if isinstance(owner, type) else type(owner)).__module__
    return f"{module}:{name}"


def named_object(name: str) -> Any:
    """The object "module:qualname" of a module that is imported; None if there is none."""
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def constant_json(value: Any) -> Any:
    """As `aotcompile.ir.guards.constant_json`."""
    kind = type(value)
    name = f"{kind.__module__}:{kind.__qualname__}"
    if isinstance(value, (tuple, frozenset, set)):
        items = [constant_json(v) for v in value]
        return {"type": name, "value": items if isinstance(value, tuple) else sorted(items, key=repr)}
    if kind is float:
        return {"type": name, "value": value.hex() if value == value else "nan"}
    if kind is complex:
        return {"type": name, "value": [value.real.hex(), value.imag.hex()]}
    if kind is bytes:
        return {"type": name, "value": value.hex()}
    if kind in (int, bool, str, type(None)):
        return {"type": name, "value": value}
    return {"type": name, "value": str(value)}


def localized(expected: Any, context: Context) -> Any:
    """Constant JSON with the package's class names as they are in this process."""
    if isinstance(expected, dict):
        return {key: context.qualified(value) if key == "type" else localized(value, context) for key, value in expected.items()}
    return [localized(item, context) for item in expected] if isinstance(expected, list) else expected


NAMED = (type, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
          types.MethodWrapperType)
ATOMS: dict[str, type] = {"builtins:int": int, "builtins:bool": bool, "builtins:str": str, "builtins:NoneType": type(None)}


def _key_of(expected: Any) -> Any:
    """The Python value of a simple constant's JSON, or of a bare JSON scalar. Raises UnsupportedPlan where the value cannot be rebuilt."""
    if not isinstance(expected, dict):
        return expected
    kind, value = expected["type"], expected["value"]
    if kind in ATOMS:
        return value
    if kind == "builtins:float":
        return float("nan") if value == "nan" else float.fromhex(value)
    if kind == "builtins:bytes":
        return bytes.fromhex(value)
    if kind == "builtins:tuple":
        return tuple(map(_key_of, value))
    if kind == "torch:dtype":
        return getattr(torch, value.removeprefix("torch."))
    if kind == "torch:device":
        return torch.device(value)
    found = named_object(value) if kind == "builtins:type" else getattr(named_object(kind), value.rpartition(".")[2], None)
    if found is None:
        raise UnsupportedPlan(f"the key {expected}")
    return found


def item_key(constant: dict[str, Any], package: str, import_name: str) -> Any:
    """The key of an ``item`` step or a ``contains`` guard. Raises UnsupportedPlan for a class or enum member that this process has not."""
    context = Context((), {}, {}, package, import_name)
    named = localized(constant, context)
    if named["type"] == "builtins:type":
        named["value"] = context.qualified(named["value"])
    return _key_of(named)
