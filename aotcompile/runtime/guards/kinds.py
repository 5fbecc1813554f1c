"""The kinds of guards: what each adds to a check."""
from __future__ import annotations

import re
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Callable

import torch

from aotcompile.runtime import digest
from aotcompile.runtime.guards.expressions import evaluate, expression
from aotcompile.runtime.guards.names import (
    ATOMS,
    NAMED,
    UnsupportedPlan,
    class_name,
    constant_json,
    item_key,
    localized,
    named_object,
    qualified_name,
)
from aotcompile.runtime.guards.paths import decode_step
from aotcompile.runtime.state import plain_storage, share_memory, state_holds, state_pairs

if TYPE_CHECKING:
    from aotcompile.runtime.guards.check import Frame, Guards

TENSOR_CLASSES = (torch.Tensor, torch.nn.Parameter)
DTYPES: dict[str, torch.dtype] = {
    short: getattr(torch, name) for short, name in {
        "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
        "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "b8": "bool", "c32": "complex32", "c64": "complex64", "c128": "complex128",
        "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}.items()}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")
_NUMBER_RANGE = 1 << 63


def _type(guards: Guards, record: dict[str, Any]) -> None:
    slot, expected = guards.slot(record["path"]), guards.context.qualified(record["expected"])
    accepted: Any = None

    def check(frame: Frame) -> bool:
        nonlocal accepted
        cls = type(frame[slot])
        if cls is accepted:
            return True
        if class_name(cls) == expected:
            accepted = cls
            return True
        return False
    guards.add(check)


def _equals(guards: Guards, record: dict[str, Any]) -> None:
    slot, expected = guards.slot(record["path"]), localized(record["expected"], guards.context)
    kind = ATOMS.get(expected["type"]) if isinstance(expected, dict) else None
    if kind is not None:
        wanted = expected["value"]
        guards.add(lambda frame: type(frame[slot]) is kind and frame[slot] == wanted)
        return
    guards.add(lambda frame: constant_json(frame[slot]) == expected)


def _number(guards: Guards, record: dict[str, Any]) -> None:
    slot, expected = guards.slot(record["path"]), record["expected"]
    if isinstance(expected, dict):                               # an expression guard speaks of the number under this name
        name, expected = expected["symbol"], expected["kind"]
        wanted = int if expected == "int" else float

        def define(frame: Frame) -> bool:
            frame[0][name] = frame[slot]
            return type(frame[slot]) is wanted
        guards.add(define)
        guards._defined.add(name)
    if expected == "int":
        guards.add(lambda frame: type(frame[slot]) is int and -_NUMBER_RANGE <= frame[slot] < _NUMBER_RANGE)
    elif expected == "float":
        guards.add(lambda frame: type(frame[slot]) is float)
    else:
        raise UnsupportedPlan(f"number {expected!r}")


def _length(guards: Guards, record: dict[str, Any]) -> None:
    slot, expected = guards.slot(record["path"]), guards.context.qualified(record["expected"]["type"])
    length = record["expected"]["length"]
    guards.add(lambda frame: class_name(type(frame[slot])) == expected and len(frame[slot]) == length)


def _keys(guards: Guards, record: dict[str, Any]) -> None:
    slot, expected = guards.slot(record["path"]), guards.context.qualified(record["expected"]["type"])
    keys = [key if isinstance(key, dict) else constant_json(decode_step(key)) for key in record["expected"]["keys"]]
    keys = [localized(key, guards.context) for key in keys]
    if all(key["type"] == "builtins:str" for key in keys):
        names = [key["value"] for key in keys]
        guards.add(lambda frame: (class_name(type(frame[slot])) == expected and list(frame[slot]) == names
                                  and all(type(key) is str for key in frame[slot])))
    else:
        guards.add(lambda frame: class_name(type(frame[slot])) == expected and [constant_json(key) for key in frame[slot]] == keys)


def _contains(guards: Guards, record: dict[str, Any]) -> None:
    slot, present = guards.slot(record["path"]), record["expected"]["present"]
    key, context = record["expected"]["key"], guards.context
    key = item_key(key, context.package, context.import_name) if isinstance(key, dict) else key
    guards.add(lambda frame: (key in frame[slot]) is present)


def _has_dictionary(guards: Guards, record: dict[str, Any]) -> None:
    slot, name, present = guards.slot(record["path"]), record["expected"]["name"], record["expected"]["present"]
    guards.add(lambda frame: (name in getattr(frame[slot], "__dict__", {})) is present)


def _function(guards: Guards, record: dict[str, Any]) -> None:
    slot, expected = guards.slot(record["path"]), record["expected"]["digest"]
    name = guards.context.qualified(record["expected"]["name"])
    accepted: CodeType | None = None

    def check(frame: Frame) -> bool:
        nonlocal accepted
        function = frame[slot]
        if type(function) is MethodType:
            function = function.__func__
        if type(function) is FunctionType and function.__code__ is accepted:
            return True
        if digest.matches(function, name, expected):
            accepted = function.__code__
            return True
        return False
    guards.add(check)


def _builtin(guards: Guards, record: dict[str, Any]) -> None:
    slot, expected = guards.slot(record["path"]), guards.context.qualified(record["expected"])
    accepted: Any = guards                                       # no value of the program is this object

    def check(frame: Frame) -> bool:
        nonlocal accepted
        value = frame[slot]
        if value is accepted:
            return True
        if isinstance(value, ModuleType):
            holds = value.__name__ == expected.rstrip(":")
        else:
            holds = (isinstance(value, NAMED) and qualified_name(value) == expected) or (value is not None and named_object(expected) is value)
        if holds and isinstance(value, (type, ModuleType)):
            accepted = value
        return holds
    guards.add(check)


def _same(guards: Guards, record: dict[str, Any]) -> None:
    slot, other = guards.slot(record["path"]), guards.slot(record["expected"])
    guards.add(lambda frame: frame[slot] is frame[other])


def _different(guards: Guards, record: dict[str, Any]) -> None:
    slot, others = guards.slot(record["path"]), [guards.slot(path) for path in record["expected"]]
    guards.add(lambda frame: not any(share_memory(frame[slot], frame[other]) for other in others))


def _distinct(guards: Guards, record: dict[str, Any]) -> None:
    slots = [guards.slot(path) for path in (record["path"], *record["expected"])]
    guards.add(lambda frame: len({id(frame[slot]) for slot in slots}) == len(slots))


def _position(guards: Guards, record: dict[str, Any]) -> None:
    slot, table, position = guards.slot(record["path"]), guards.slot(record["expected"]["table"]), record["expected"]["position"]
    guards.add(lambda frame: next((number for number, key in enumerate(frame[table]) if key == frame[slot]), None) == position)


def _expression(guards: Guards, record: dict[str, Any]) -> None:
    code = expression(record["expected"])
    guards.add_expression(code, lambda frame: bool(evaluate(code, frame[0])))


def _state(guards: Guards, record: dict[str, Any]) -> None:
    for name, value in state_pairs(record["expected"]):
        try:
            state_holds(name, value)
        except KeyError:
            raise UnsupportedPlan(f"state {name!r}") from None
        guards.add(lambda frame, name=name, value=value: state_holds(name, value))     # type: ignore[misc]


def _tensor(guards: Guards, record: dict[str, Any]) -> None:
    slot, facts = guards.slot(record["path"]), record["expected"]
    try:
        dtype = DTYPES[facts["dtype"]]
    except KeyError:
        raise UnsupportedPlan(f"dtype {facts['dtype']!r}") from None
    kind, requires_grad, is_leaf = facts["device"].partition(":")[0], facts.get("requires_grad"), facts.get("is_leaf")
    offset = facts.get("storage_offset")

    def check(frame: Frame) -> bool:
        tensor = frame[slot]
        return (type(tensor) in TENSOR_CLASSES and tensor.dtype is dtype and tensor.device.type == kind and plain_storage(tensor)
                and (requires_grad is None or tensor.requires_grad is requires_grad) and (is_leaf is None or tensor.is_leaf is is_leaf)
                and (offset is None or tensor.storage_offset() == offset))
    guards.add(check)
    _sizes(guards, slot, tuple(facts["sizes"]))
    _strides(guards, slot, tuple(facts["strides"]))


def _sizes(guards: Guards, slot: int, sizes: tuple[int | str, ...]) -> None:
    if all(isinstance(size, int) for size in sizes):
        guards.add(lambda frame: frame[slot].shape == sizes)
        return
    rank = len(sizes)
    fixed = [(dimension, size) for dimension, size in enumerate(sizes) if isinstance(size, int)]
    names = [(dimension, size) for dimension, size in enumerate(sizes) if isinstance(size, str) and _IDENTIFIER.match(size)]

    def check(frame: Frame) -> bool:
        shape, symbols = frame[slot].shape, frame[0]
        if len(shape) != rank:
            return False
        for dimension, size in fixed:
            if shape[dimension] != size:
                return False
        for dimension, name in names:
            if symbols.setdefault(name, shape[dimension]) != shape[dimension]:
                return False
        return True
    guards.add(check)
    guards._defined.update(name for _, name in names)
    for dimension, size in enumerate(sizes):
        if isinstance(size, str) and not _IDENTIFIER.match(size):
            code = expression(size)
            guards.add_expression(code, lambda frame, code=code, at=dimension: frame[slot].shape[at] == evaluate(code, frame[0]))    # type: ignore[misc]


def _strides(guards: Guards, slot: int, strides: tuple[int | str, ...]) -> None:
    """The stride of a dimension of size 1 is never used, nor any stride of an empty tensor."""
    if all(isinstance(stride, int) for stride in strides):
        def check(frame: Frame) -> bool:
            tensor = frame[slot]
            found = tensor.stride()
            return bool(found == strides) or 0 in tensor.shape or all(
                a == b or size == 1 for a, b, size in zip(found, strides, tensor.shape, strict=True))
        guards.add(check)
        return
    for dimension, stride in enumerate(strides):
        code = expression(str(stride))

        def check_one(frame: Frame, code: CodeType = code, dimension: int = dimension) -> bool:
            tensor = frame[slot]
            return tensor.shape[dimension] == 1 or tensor.stride(dimension) == evaluate(code, frame[0]) or 0 in tensor.shape
        guards.add_expression(code, check_one)


BUILDERS: dict[str, Callable[[Guards, dict[str, Any]], None]] = {
    "type": _type, "equals": _equals, "tensor": _tensor, "number": _number, "length": _length, "keys": _keys, "contains": _contains,
    "has_dictionary": _has_dictionary, "function": _function, "builtin": _builtin, "same": _same, "different": _different,
    "distinct": _distinct, "position": _position, "expression": _expression, "state": _state,
}
