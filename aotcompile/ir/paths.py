"""Access paths (provenance): how a value is reached from a region's arguments and the modules around it.

A path is a root and steps; it prints as the Python expression that reaches the value, and reads back from JSON (`as_json`, `from_json`).

    ("argument", "self")                         a parameter of the region
    ("closure", "k")                             a free variable of the function the region was cut from
    ("global", "SCALE")                          a global of the module the region was cut from
    ("module", "torch.nn.functional")            a module, by name in sys.modules
  steps
    ("attribute", "weight")   getattr(x, "weight")          ("dictionary", "n")   x.__dict__["n"] (an instance attribute, no descriptor runs)
    ("item", 3)               x[3], key str/int/bool/None/float/bytes, a class or function, an enum's member, a dtype or device (`is_key`), or a tuple
    ("own_item", "dict", key) dict.__getitem__(x, key): of a dict, list or tuple whose class has a __getitem__ of its own
    ("type",)                 type(x)                        ("keys",)             tuple(x.keys())
    ("cell", 0)               x.__closure__[0].cell_contents ("values",)           tuple(x.values())
    ("context_variable",)     x.get()                        ("referent",)         x(), what a weak reference refers to
    ("call", (3, "a"))        x(3, "a"), what a function remembers (``functools.lru_cache``); arguments as keys of ("item", ...)
"""
from __future__ import annotations

import enum
import sys
import types
from dataclasses import dataclass
from typing import Any, ClassVar

Step = tuple[Any, ...]


@dataclass(frozen=True)
class Path:
    root: Step
    steps: tuple[Step, ...] = ()

    def attribute(self, name: str) -> "Path":
        return Path(self.root, (*self.steps, ("attribute", name)))

    def dictionary(self, name: str) -> "Path":
        return Path(self.root, (*self.steps, ("dictionary", name)))

    def item(self, key: object) -> "Path":
        return Path(self.root, (*self.steps, ("item", key)))

    def then(self, *step: object) -> "Path":
        return Path(self.root, (*self.steps, tuple(step)))

    def __str__(self) -> str:
        kind, name = self.root
        text = {"argument": name, "closure": name, "global": name}.get(kind) or f"sys.modules[{name!r}]"
        for step in self.steps:
            match step:
                case ("attribute", name):
                    text = f"{text}.{name}"
                case ("dictionary", name):
                    text = f"{text}.__dict__[{name!r}]"
                case ("item", key):
                    text = f"{text}[{_key_text(key)}]"
                case ("own_item", base, key):
                    text = f"{base}.__getitem__({text}, {_key_text(key)})"
                case ("type",):
                    text = f"type({text})"
                case ("keys",):
                    text = f"tuple({text}.keys())"
                case ("values",):
                    text = f"tuple({text}.values())"
                case ("referent",):
                    text = f"{text}()"
                case ("call", arguments):
                    text = f"{text}({', '.join(map(_key_text, arguments))})"
                case ("cell", index):
                    text = f"{text}.__closure__[{index}].cell_contents"
                case ("context_variable",):
                    text = f"{text}.get()"
                case _:
                    raise ValueError(f"unknown step {step!r}")
        return text

    def as_json(self) -> list[Any]:
        return [list(self.root), [[part if type(part) in _PLAIN else _encode(part) for part in step] for step in self.steps]]

    @staticmethod
    def from_json(data: list[Any]) -> "Path":
        root, steps = data
        return Path(tuple(root), tuple(tuple(_decode(part) for part in step) for step in steps))


_PLAIN = (str, int, bool, float, type(None))
_HELD_BY_NAME = (types.FunctionType, types.BuiltinFunctionType, type(ClassVar))
_BY_TEXT = ("torch:dtype", "torch:device")


@dataclass(frozen=True)
class NamedKey:
    """A key read back from JSON that is no plain constant: "builtins:type" and "package.module:Class" (or a function's name, or that of a special
    form of `typing`), "package.module:Enum" and a member's name, "torch:dtype" and "torch.float32"."""

    type: str
    value: str


def is_key(key: object) -> bool:
    """Whether a key can be part of a path: its text names it in any process."""
    if isinstance(key, tuple):
        return all(map(is_key, key))
    if isinstance(key, enum.Enum):
        return type(key).__members__.get(key.name) is key and "<locals>" not in type(key).__qualname__
    return type(key) in (*_PLAIN, bytes) or _is_named(key) or _name(type(key)) in _BY_TEXT


def _is_named(key: object) -> bool:
    """Whether a key is a class, or a function or special form (`typing.Union`) that its module holds under its name."""
    if isinstance(key, type):
        return "<locals>" not in key.__qualname__
    if not isinstance(key, _HELD_BY_NAME):
        return False
    held: Any = sys.modules.get(key.__module__)
    for part in str(getattr(key, "__qualname__", "")).split("."):
        held = getattr(held, part, None)
    return held is key


def key_json(key: Any) -> dict[str, Any]:
    """A key that is no plain constant, as JSON: {"type": ..., "value": ...}."""
    if isinstance(key, (type, *_HELD_BY_NAME)):
        return {"type": "builtins:type", "value": _name(key)}
    if isinstance(key, NamedKey):
        return {"type": key.type, "value": key.value}
    if isinstance(key, enum.Enum):
        return {"type": _name(type(key)), "value": key.name}
    return {"type": _name(type(key)), "value": key.hex() if isinstance(key, bytes) else str(key)}


def _name(cls: Any) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _key_text(key: Any) -> str:
    if isinstance(key, tuple):
        return f"({''.join(_key_text(part) + ', ' for part in key).strip(' ' if len(key) == 1 else ', ')})"
    if type(key) in _PLAIN:
        return repr(key)
    named = key_json(key)
    kind, value = named["type"], named["value"]
    if kind == "builtins:bytes":
        return repr(bytes.fromhex(value))
    if kind == "torch:device":
        return f"torch.device({value!r})"
    return value.partition(":")[2] if kind == "builtins:type" else value if kind in _BY_TEXT else f"{kind.partition(':')[2]}.{value}"


def _encode(part: Any) -> Any:
    if isinstance(part, tuple):
        return {"tuple": [_encode(p) for p in part]}
    return part if type(part) in _PLAIN else {"constant": key_json(part)}


def _decode(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return tuple(_decode(p) for p in part["tuple"]) if "tuple" in part else NamedKey(part["constant"]["type"], part["constant"]["value"])
