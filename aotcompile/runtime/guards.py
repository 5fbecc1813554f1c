"""Guard records to a check: `Guards` follows access paths and compares, in the order of the records.

A check is a list of small operations over a *frame*: a list whose first slot is the dict of size symbols, then the region's arguments, then one
slot per distinct access path, so that ``self.layer1.weight`` and ``self.layer1.bias`` follow ``self.layer1`` once. An operation that returns False,
or raises, fails the guard it belongs to. The order of records is kept: a `type` guard comes before the attribute paths that rely on it.

The contract of records and paths is written in `aotcompile.ir.guards` and `aotcompile.ir.paths`; this module knows only their JSON.
"""
from __future__ import annotations

import re
import sys
import types
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Callable, Mapping, Sequence

import torch

from aotcompile.runtime import digest
from aotcompile.runtime.state import plain_storage, share_memory, state_holds, state_pairs

Frame = list[Any]
Operation = Callable[[Frame], Any]

TENSOR_CLASSES = (torch.Tensor, torch.nn.Parameter)
DTYPES: dict[str, torch.dtype] = {
    short: getattr(torch, name) for short, name in {
        "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
        "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "b8": "bool", "c32": "complex32", "c64": "complex64", "c128": "complex128",
        "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}.items()}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")
_NUMBER_RANGE = 1 << 63
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


# ---- names of classes and constants -------------------------------------------------------------------------------------------------------

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


_NAMED = (type, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
          types.MethodWrapperType)
_ATOMS: dict[str, type] = {"builtins:int": int, "builtins:bool": bool, "builtins:str": str, "builtins:NoneType": type(None)}


def _key_of(expected: Any) -> Any:
    """The Python value of a simple constant's JSON, or of a bare JSON scalar. Raises UnsupportedPlan where the value cannot be rebuilt."""
    if not isinstance(expected, dict):
        return expected
    kind, value = expected["type"], expected["value"]
    if kind in _ATOMS:
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


# ---- expressions over size symbols --------------------------------------------------------------------------------------------------------

_EXPRESSIONS: dict[str, CodeType] = {}
_FUNCTIONS = {"__builtins__": {}, "min": min, "max": max, "abs": abs}


def expression(text: str) -> CodeType:
    """Compiled text of an expression over size symbols; its free names are ``co_names``."""
    code = _EXPRESSIONS.get(text)
    if code is None:
        code = _EXPRESSIONS[text] = compile(text, "<size expression>", "eval")
    return code


def evaluate(code: CodeType, symbols: dict[str, int]) -> Any:
    return eval(code, _FUNCTIONS, symbols)


def free_symbols(code: CodeType) -> set[str]:
    return set(code.co_names) - {"min", "max", "abs"}


# ---- access paths -------------------------------------------------------------------------------------------------------------------------

def decode_step(part: Any, package: str = "", import_name: str = "") -> Any:
    if not isinstance(part, dict):
        return part
    if "constant" in part:
        return item_key(part["constant"], package, import_name)
    return tuple(decode_step(p, package, import_name) for p in part["tuple"])


def step_key(step: Sequence[Any]) -> tuple[Any, ...]:
    """A step's JSON as a hashable value; the type of an item's key matters (``x[1]`` is not ``x[True]``)."""
    if len(step) == 2 and type(step[1]) is str:
        return step[0], step[1]
    parts = [str(part) if isinstance(part, dict) else part for part in step]
    return (*parts, *map(type, step))


def _item(container: Any, key: Any) -> Any:
    if isinstance(container, dict) and type(container) is not dict and key not in container:
        raise KeyError(key)                                      # a defaultdict must not grow by being checked
    return container[key]


_STEPS: dict[str, Callable[..., Callable[[Any], Any]]] = {
    "attribute": lambda name: lambda value: getattr(value, name),
    "dictionary": lambda name: lambda value: value.__dict__[name],
    "item": lambda key: lambda value: _item(value, key),
    "own_item": lambda base, key: lambda value: (list if base == "list" else dict).__getitem__(value, key),
    "type": lambda: type,
    "keys": lambda: lambda value: tuple(value.keys()),
    "values": lambda: lambda value: tuple(value.values()),
    "referent": lambda: lambda value: value(),
    "cell": lambda index: lambda value: value.__closure__[index].cell_contents,
    "context_variable": lambda: lambda value: value.get(),
}


def _step(step: Sequence[Any], context: Context) -> Callable[[Any], Any]:
    if step[0] not in _STEPS:
        raise UnsupportedPlan(f"path step {step[0]!r}")
    return _STEPS[step[0]](*(decode_step(part, context.package, context.import_name) for part in step[1:]))


# ---- the check ----------------------------------------------------------------------------------------------------------------------------

class Guards:
    """The guards of one variant. ``fetch``: paths whose values a successful check returns, in order.

    Raises UnsupportedPlan for an unknown kind or step; ``lazy`` (the native twin checks, this one is for messages) puts that off to the first use."""

    def __init__(self, records: Sequence[dict[str, Any]], fetch: Sequence[Any], context: Context, *, lazy: bool = False) -> None:
        self.records, self.context, self._paths = records, context, fetch
        self._built = False
        if not lazy:
            self._build()

    def _build(self) -> None:
        self._slots: dict[tuple[Any, ...], int] = {}             # (slot of the object, step) -> slot; roots: (kind, name)
        self._operations: list[Operation] = []
        self._owners: list[int] = []                             # operation -> index of its guard; len(records) for fetches
        self._defined: set[str] = set()
        self._pending: list[tuple[int, Operation]] = []          # expressions whose symbols were not all defined yet
        self._size = 1 + len(self.context.parameters)
        for index, record in enumerate(self.records):
            self._owner = index
            try:
                builder = BUILDERS[record["kind"]]
            except KeyError:
                raise UnsupportedPlan(f"guard kind {record.get('kind')!r}") from None
            builder(self, record)
        for owner, operation in self._pending:
            self._operations.append(operation)
            self._owners.append(owner)
        self._owner = len(self.records)
        self._fetch = [self.slot(path) for path in self._paths]
        self._built = True

    def add(self, operation: Operation) -> None:
        self._operations.append(operation)
        self._owners.append(self._owner)

    def add_expression(self, code: CodeType, operation: Operation) -> None:
        if free_symbols(code) <= self._defined:
            self.add(operation)
        else:
            self._pending.append((self._owner, operation))

    def slot(self, path: Sequence[Any]) -> int:
        """The frame slot of a path, with the operations that fill it."""
        root, steps = path
        slot = self._root_slot(*root)
        for step in steps:
            key = (slot, step_key(step))
            known = self._slots.get(key)
            slot = self._follow(slot, _step(step, self.context), self._new_slot(key)) if known is None else known
        return slot

    def _root_slot(self, kind: str, name: str) -> int:
        known = self._slots.get((kind, name))
        if known is not None:
            return known
        if kind == "argument":
            if name not in self.context.parameters:
                raise UnsupportedPlan(f"argument {name!r} is no parameter of the region")
            slot = self._slots[kind, name] = 1 + self.context.parameters.index(name)
            return slot
        slot = self._new_slot((kind, name))
        self.add(self._root(kind, name, slot))
        return slot

    def _follow(self, parent: int, access: Callable[[Any], Any], slot: int) -> int:
        def follow(frame: Frame) -> None:
            frame[slot] = access(frame[parent])
        self.add(follow)
        return slot

    def _new_slot(self, key: tuple[Any, ...]) -> int:
        slot = self._slots[key] = self._size
        self._size += 1
        return slot

    def _root(self, kind: str, name: str, slot: int) -> Operation:
        if kind == "global":
            variables = self.context.globals

            def read_global(frame: Frame) -> None:
                value = variables.get(name, variables)
                if value is variables:
                    builtins = variables["__builtins__"]
                    value = (builtins if isinstance(builtins, dict) else builtins.__dict__)[name]
                frame[slot] = value
            return read_global
        if kind == "closure":
            cell = self.context.closure.get(name)
            if cell is None:
                raise UnsupportedPlan(f"free variable {name!r} is not in the region's closure")

            def read_cell(frame: Frame) -> None:
                frame[slot] = cell.cell_contents
            return read_cell
        if kind == "module":
            module = self.context.module_name(name)

            def read_module(frame: Frame) -> None:
                frame[slot] = sys.modules[module]
            return read_module
        raise UnsupportedPlan(f"path root {kind!r}")

    def check(self, arguments: tuple[Any, ...]) -> tuple[Any, ...] | int:
        """The fetched values if every guard holds, else the index of the first that does not (``len(records)`` for a fetch)."""
        if not self._built:
            self._build()
        frame: Frame = [{}, *arguments]
        if len(frame) != 1 + len(self.context.parameters):
            return 0
        frame.extend([None] * (self._size - len(frame)))
        position = -1
        try:
            for position, operation in enumerate(self._operations):
                if operation(frame) is False:
                    return self._owners[position]
        except Exception:  # noqa: BLE001  whatever a property or a mapping raises: the guard does not hold
            return self._owners[position]
        return tuple([frame[slot] for slot in self._fetch])

    def value_at(self, path: Sequence[Any], arguments: tuple[Any, ...]) -> Any:
        """The value of a path, for messages. Raises whatever following it raises."""
        fetched = Guards([], [path], self.context)
        frame: Frame = [{}, *arguments, *([None] * fetched._size)]
        for operation in fetched._operations:
            operation(frame)
        return frame[fetched._fetch[0]]

    def symbols_of(self, arguments: tuple[Any, ...]) -> dict[str, int]:
        """The size symbols as far as the check gets, for messages."""
        if not self._built:
            self._build()
        frame: Frame = [{}, *arguments, *([None] * self._size)]
        try:
            for operation in self._operations:
                operation(frame)
        except Exception:  # noqa: BLE001  as in `check`
            return dict(frame[0])
        return dict(frame[0])


# ---- kinds --------------------------------------------------------------------------------------------------------------------------------

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
    kind = _ATOMS.get(expected["type"]) if isinstance(expected, dict) else None
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
            holds = (isinstance(value, _NAMED) and qualified_name(value) == expected) or (value is not None and named_object(expected) is value)
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
        return (len(shape) == rank and all(shape[dimension] == size for dimension, size in fixed)
                and all(symbols.setdefault(name, shape[dimension]) == shape[dimension] for dimension, name in names))
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


def single(record: dict[str, Any], context: Any) -> Callable[..., bool]:
    """One record as ``check(value)``, for the native extension; ``check(value, arguments)`` for those that compare paths.
    ``context``: `Context` or its dict."""
    where = context if isinstance(context, Context) else Context(**context)
    if record["kind"] in ("same", "different", "distinct", "position"):
        whole = Guards([record], [], where)
        return lambda value, arguments: not isinstance(whole.check(arguments), int)
    inner = Context(("value",), where.globals, where.closure, where.package, where.import_name)
    alone = Guards([{**record, "path": None if record["path"] is None else [["argument", "value"], []]}], [], inner)
    return lambda value: not isinstance(alone.check((value,)), int)
