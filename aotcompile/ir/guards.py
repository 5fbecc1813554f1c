"""Guard records: the facts that must hold for a variant to be right.

Kinds, with the form of ``expected`` (always JSON: str, int, float, bool, None, lists, dicts; see `constant_json`):

    type              "package.module:QualName"                      type(x) is that class
    equals            {"type": "builtins:int", "value": 3}           type and value of an immutable constant (float nan equals nan, -0.0 is not 0.0)
    tensor            TensorFacts.as_json()                          dtype, sizes (int, or symbol name), strides, device, requires_grad, class ...
    number            "int" | "float"                                an exact int (64 bit, no bool) or float, a scalar input of the graph;
                      {"kind": "int" | "float", "symbol": "n1"}      the same, and `expression` guards speak of its value under that name
    length            {"type": "builtins:list", "length": 3}         exact container type and length
    keys              {"type": "builtins:dict", "keys": [...]}       exact type, keys in order (constants)
    contains          {"key": k, "present": bool}                    k in mapping / set
    has_dictionary    {"name": n, "present": bool}                   n in x.__dict__
    function          {"name": "package.module:QualName", "digest": "..."}   a Python function by name and code digest (captured cells and defaults
                                                                     that were read have guards of their own)
    builtin           "torch:relu" / "torch._C.TensorBase:add"       a C function, method descriptor, class or module, by qualified name
    same              Path JSON                                      x is that other object (the capture saw one object under two paths)
    different         [Path JSON, ...]                               x and these tensors do not share memory, or x is none of these objects (one
                                                                     of them is changed)
    distinct          [Path JSON, ...]                               x and these are all different objects (the program compared them)
    position          {"table": Path JSON, "position": 0 | None}     x is the key at that position of the mapping, or (None) no key of it
    expression        "s0 >= 2"                                      over the size symbols of the variant (path is None)
    state             {"name": "grad_enabled" | "inference_mode" | "autocast_cpu" | "autocast_cuda" | "default_dtype" | ...: value}  (path is None)

An object id is never stored.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aotcompile.base.span import Span
from aotcompile.ir.paths import Path


@dataclass(frozen=True)
class TensorFacts:
    """What a `tensor` guard checks. A size or stride is an int or the text of an expression over size symbols (``"s0"``, ``"4*s0"``); a plain symbol
    name in ``sizes`` also defines that symbol. ``requires_grad`` None: not checked (nothing depends on it). ``kind``: exact class,
    ``torch:Tensor`` or ``torch.nn.parameter:Parameter`` (a Parameter is accepted where a Tensor was seen and the other way round; subclasses
    miss)."""

    dtype: str                            # short name, "f32"
    sizes: tuple[int | str, ...]
    strides: tuple[int | str, ...]
    device: str                           # "cpu" | "cuda"
    requires_grad: bool | None
    kind: str = "torch:Tensor"
    is_leaf: bool | None = None
    storage_offset: int | None = None     # None: not checked, anywhere in its storage

    def as_json(self) -> dict[str, Any]:
        where = {} if self.storage_offset is None else {"storage_offset": self.storage_offset}
        return {"dtype": self.dtype, "sizes": list(self.sizes), "strides": list(self.strides), "device": self.device,
                "requires_grad": self.requires_grad, "kind": self.kind, "is_leaf": self.is_leaf, **where}

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.sizes))}]"
        return text + f"[{', '.join(map(str, self.strides))}]" + ("" if self.device == "cpu" else self.device)


@dataclass(frozen=True)
class Guard:
    kind: str
    path: Path | None
    expected: Any
    span: Span | None = None              # the source line that made it necessary

    def as_json(self) -> dict[str, Any]:
        span = self.span
        return {"kind": self.kind, "path": self.path.as_json() if self.path else None, "expected": self.expected,
                "span": [span.file, span.line] if span else None}


def constant_json(value: Any) -> Any:
    """JSON for an immutable constant, exact for floats: {"type": ..., "value": ...}; tuples nest; torch dtypes, devices, enums go by name."""
    kind = type(value)
    name = f"{kind.__module__}:{kind.__qualname__}"
    if isinstance(value, (tuple, frozenset)):
        items = [constant_json(v) for v in value]
        return {"type": name, "value": sorted(items, key=repr) if isinstance(value, frozenset) else items}
    if kind is float:
        return {"type": name, "value": value.hex() if value == value else "nan"}
    if kind is complex:
        return {"type": name, "value": [value.real.hex(), value.imag.hex()]}
    if kind is bytes:
        return {"type": name, "value": value.hex()}
    if kind in (int, bool, str, type(None)):
        return {"type": name, "value": value}
    return {"type": name, "value": str(value)}
