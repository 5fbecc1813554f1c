"""Guards as source: the text of a miss, ``x.shape[1] == 128 (got 96) model.py:16``.

Only used after a guard has failed, so that nothing here needs to be fast.
"""
from __future__ import annotations

from typing import Any, Sequence

import torch

from aotcompile.runtime.guards import DTYPES, TENSOR_CLASSES, Guards, class_name, evaluate, expression, free_symbols
from aotcompile.runtime.state import describe_state, plain_storage, share_memory, state_holds, state_pairs


def _key_text(part: Any) -> str:
    """A key of an ``item`` step as source."""
    if not isinstance(part, dict):
        return repr(part)
    if "tuple" in part:
        return f"({', '.join(map(_key_text, part['tuple']))}{',' * (len(part['tuple']) == 1)})"
    kind, value = part["constant"]["type"], part["constant"]["value"]
    if kind == "builtins:bytes":
        return repr(bytes.fromhex(value))
    if kind == "torch:device":
        return f"torch.device({value!r})"
    return str(value.partition(":")[2] if kind == "builtins:type" else value if kind == "torch:dtype" else f"{kind.partition(':')[2]}.{value}")


def path_text(path: Sequence[Any]) -> str:
    """The Python expression of an access path, as `aotcompile.ir.paths.Path` prints it."""
    (kind, name), steps = path
    text = name if kind in ("argument", "closure", "global") else f"sys.modules[{name!r}]"
    for step in steps:
        word, value = step[0], step[1] if len(step) > 1 else None
        if word == "attribute":
            text = f"{text}.{value}"
        elif word == "dictionary":
            text = f"{text}.__dict__[{value!r}]"
        elif word == "item":
            text = f"{text}[{_key_text(value)}]"
        elif word == "own_item":
            text = f"{value}.__getitem__({text}, {_key_text(step[2])})"
        elif word == "type":
            text = f"type({text})"
        elif word in ("keys", "values"):
            text = f"tuple({text}.{word}())"
        elif word == "referent":
            text = f"{text}()"
        elif word == "call":
            text = f"{text}({', '.join(map(_key_text, step[1]['tuple']))})"
        elif word == "cell":
            text = f"{text}.__closure__[{value}].cell_contents"
        else:
            text = f"{text}.get()"
    return text


def constant_text(expected: Any) -> str:
    """A constant's JSON as source."""
    if not isinstance(expected, dict):
        return repr(expected)
    kind, value = expected["type"], expected["value"]
    if isinstance(value, list) and kind != "builtins:complex":
        items = ", ".join(map(constant_text, value))
        if kind == "builtins:tuple":
            return f"({items}{',' if len(value) == 1 else ''})"
        return f"{kind.rpartition(':')[2]}([{items}])"
    if kind == "builtins:float":
        return repr(float.fromhex(value)) if value != "nan" else "nan"
    if kind == "builtins:complex":
        return repr(complex(*map(float.fromhex, value)))
    if kind in ("builtins:str", "builtins:int", "builtins:bool", "builtins:NoneType"):
        return repr(value)
    return str(value)


def short(value: Any) -> str:
    """A value for a message: one line, at most 80 characters, tensors and modules by their kind."""
    if isinstance(value, torch.Tensor):
        return f"{type(value).__name__} of {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    try:
        text = object.__repr__(value) if isinstance(value, torch.nn.Module) else repr(value)
    except Exception:  # noqa: BLE001  a user's __repr__ may do anything
        text = f"{class_name(type(value))} object"
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def reason(guards: Guards, index: int, arguments: tuple[Any, ...]) -> str:
    """Why guard ``index`` fails for these arguments, as source with the place of the user's line behind it."""
    if index >= len(guards.records):
        return "an input of the graph can be reached (it cannot any more)"
    record = guards.records[index]
    span = record.get("span")
    place = f" {span[0]}:{span[1]}" if span else ""
    try:
        return _reason(guards, record, arguments) + place
    except Exception as error:  # noqa: BLE001  the path cannot be followed: say that instead
        return f"{path_text(record['path']) if record['path'] else record['expected']} ({type(error).__name__}: {short(str(error))}){place}"


def _reason(guards: Guards, record: dict[str, Any], arguments: tuple[Any, ...]) -> str:
    kind, expected = record["kind"], record["expected"]
    if kind == "expression":
        symbols = guards.symbols_of(arguments)
        names = sorted(free_symbols(expression(expected)))
        return f"{expected} (got {', '.join(f'{name} = {symbols.get(name)}' for name in names)})"
    if kind == "state":
        for name, wanted in state_pairs(expected):
            if not state_holds(name, wanted):
                return describe_state(name, wanted)
        return f"torch state {expected!r} (changed meanwhile)"
    text, value = path_text(record["path"]), guards.value_at(record["path"], arguments)
    if kind == "tensor":
        return _tensor(text, value, expected, guards, arguments)
    if kind == "type":
        return f"type({text}) is {_class(expected)} (got {class_name(type(value)).replace(':', '.')})"
    if kind == "equals":
        return f"{text} == {constant_text(expected)} (got {short(value)})"
    if kind == "number":
        wanted = expected["kind"] if isinstance(expected, dict) else expected
        return f"type({text}) is {wanted} (got {short(value)})"
    if kind == "length":
        if class_name(type(value)) != guards.context.qualified(expected["type"]):
            return f"type({text}) is {_class(expected['type'])} (got {class_name(type(value)).replace(':', '.')})"
        return f"len({text}) == {expected['length']} (got {len(value)})"
    if kind == "keys":
        return f"list({text}) == [{', '.join(map(constant_text, expected['keys']))}] (got {short(list(value))})"
    if kind == "contains":
        return f"{constant_text(expected['key'])} {'in' if expected['present'] else 'not in'} {text}"
    if kind == "has_dictionary":
        return f"{expected['name']!r} {'in' if expected['present'] else 'not in'} {text}.__dict__"
    if kind == "function":
        return f"{text} is the function {_class(expected['name'])} of the build (got {short(value)})"
    if kind == "builtin":
        return f"{text} is {_class(expected)} (got {short(value)})"
    if kind == "same":
        return f"{text} is {path_text(expected)}"
    if kind == "position":
        return f"{text} is key {expected['position']} of {path_text(expected['table'])}"
    others = [path_text(path) for path in expected if share_memory(value, guards.value_at(path, arguments))]
    return f"{text} shares no memory with {', '.join(others or map(path_text, expected))}"


def _class(name: str) -> str:
    return name.removeprefix("builtins:").replace(":", ".")


def _tensor(text: str, value: Any, facts: dict[str, Any], guards: Guards, arguments: tuple[Any, ...]) -> str:
    if type(value) not in TENSOR_CLASSES:
        return f"type({text}) is torch.Tensor (got {class_name(type(value)).removeprefix('builtins:').replace(':', '.')})"
    if value.dtype is not DTYPES[facts["dtype"]]:
        return f"{text}.dtype == {DTYPES[facts['dtype']]} (got {value.dtype})"
    if value.device.type != facts["device"].partition(":")[0]:
        return f"{text}.device.type == {facts['device']!r} (got {value.device.type!r})"
    for name in ("requires_grad", "is_leaf"):
        wanted = facts.get(name)
        if wanted is not None and getattr(value, name) is not wanted:
            return f"{text}.{name} == {wanted} (got {not wanted})"
    offset = facts.get("storage_offset")
    if offset is not None and value.layout is torch.strided and value.storage_offset() != offset:
        return f"{text}.storage_offset() == {offset} (got {value.storage_offset()})"
    if not plain_storage(value):
        return f"{text} is a plain strided tensor (got a lazy conjugate or negative, or layout {value.layout})"
    if value.dim() != len(facts["sizes"]):
        return f"{text}.dim() == {len(facts['sizes'])} (got {value.dim()})"
    symbols = guards.symbols_of(arguments)
    for dimension, size in enumerate(facts["sizes"]):
        if isinstance(size, str) and size.isidentifier():
            symbols.setdefault(size, value.shape[dimension])               # this tensor defines it
    for dimension, size in enumerate(facts["sizes"]):
        if value.shape[dimension] != evaluate(expression(str(size)), symbols):
            shown = size if isinstance(size, int) else f"{size}"
            return f"{text}.shape[{dimension}] == {shown} (got {value.shape[dimension]})"
    for dimension, stride in enumerate(facts["strides"]):
        if value.shape[dimension] != 1 and value.stride(dimension) != evaluate(expression(str(stride)), symbols):
            return f"{text}.stride({dimension}) == {stride} (got {value.stride(dimension)})"
    return f"{text} is {facts['dtype']}{facts['sizes']}"
