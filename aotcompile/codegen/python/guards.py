"""guards.py of a variant: the guard records as a readable Python function.

    def guards(self, x):
        return (
            type(self) is named("mypkg.model:Net")                       # model.py:14
            and is_tensor(x, "f32[s0, 128]")                             # model.py:14
            and s0 >= 2                                                  # model.py:15
        )

The file is for reading; the runtime checks the records in plan.json, which are the same ones.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

from aotcompile.base.writer import Writer
from aotcompile.ir.guards import Guard
from aotcompile.ir.paths import Path

COMMENT_COLUMN = 100


def guards_source(guards: Sequence[Guard], region: str = "", parameters: Sequence[str] | None = None) -> str:
    """The text of guards.py. ``parameters``: the region's; left out, those that the guards' paths mention, in order of appearance."""
    if parameters is None:
        roots = [path.root for guard in guards for path in _paths(guard)]
        parameters = list(dict.fromkeys(name for kind, name in roots if kind == "argument"))
    out = Writer()
    title = f"{region}: w" if region else "W"
    out.line(f'"""{title}hat must hold for this variant to run, in the order in which it is checked. For reading: plan.json decides.')
    out.blank()
    out.line("Letters such as s0 are sizes, defined where they first stand in a tensor's signature. is_tensor(x, \"f32[s0, 4][4, 1]cuda\")")
    out.line("looks at dtype, sizes, strides, device and requires_grad; named(...) is a class or C function by its name, code(...) a Python")
    out.line("function by name and code digest (a library's: by name).")
    out.line('"""')
    out.blank(2)
    out.line(f"def guards({', '.join(parameters)}):")
    with out.indented():
        if not guards:
            out.line("return True")
            return out.text()
        out.line("return (")
        with out.indented():
            for number, guard in enumerate(guards):
                line = f"{'and ' if number else ''}{guard_text(guard)}"
                place = f"# {guard.span.file}:{guard.span.line}" if guard.span else ""
                out.line(f"{line.ljust(COMMENT_COLUMN - 8)}  {place}" if place else line)
        out.line(")")
    return out.text()


def _paths(guard: Guard) -> list[Path]:
    paths = [guard.path] if guard.path else []
    if guard.kind == "same":
        paths.append(Path.from_json(guard.expected))
    if guard.kind == "position":
        paths.append(Path.from_json(guard.expected["table"]))
    if guard.kind in ("different", "distinct"):
        paths += map(Path.from_json, guard.expected)
    return paths


def guard_text(guard: Guard) -> str:
    """One guard as a Python expression. Raises ValueError for an unknown kind."""
    writer = _WRITERS.get(guard.kind)
    if writer is None:
        raise ValueError(f"unknown guard kind {guard.kind!r}")
    return writer(str(guard.path) if guard.path else "", guard.expected)


def constant_text(expected: Any) -> str:
    """Constant JSON (`aotcompile.ir.guards.constant_json`) as source."""
    if not isinstance(expected, dict):
        return repr(expected)
    kind, value = expected["type"], expected["value"]
    if kind == "builtins:float":
        return 'float("nan")' if value == "nan" else repr(float.fromhex(value)) if "inf" not in value else f'float("{value}")'
    if kind == "builtins:complex":
        return repr(complex(*map(float.fromhex, value)))
    if kind == "builtins:bytes":
        return repr(bytes.fromhex(value))
    if isinstance(value, list):
        items = ", ".join(map(constant_text, value))
        if kind == "builtins:tuple":
            return f"({items}{',' if len(value) == 1 else ''})"
        return f"{kind.rpartition(':')[2]}([{items}])"
    if kind in ("builtins:str", "builtins:int", "builtins:bool", "builtins:NoneType"):
        return repr(value)
    if kind in ("torch:dtype", "torch:layout", "torch:memory_format"):
        return str(value)
    return f'constant("{kind}", {value!r})'


def _class(name: str) -> str:
    return name.removeprefix("builtins:") if name.startswith("builtins:") else f'named("{name}")'


def _tensor(path: str, facts: dict[str, Any]) -> str:
    signature = f"{facts['dtype']}[{', '.join(map(str, facts['sizes']))}]"
    signature += f"[{', '.join(map(str, facts['strides']))}]" + ("" if facts["device"] == "cpu" else facts["device"])
    extra = "".join(f", {name}={facts[name]}" for name in ("requires_grad", "is_leaf", "storage_offset") if facts.get(name) is not None)
    return f'is_tensor({path}, "{signature}"{extra})'


def _state(path: str, expected: dict[str, Any]) -> str:
    pairs = [(expected["name"], expected["value"])] if set(expected) == {"name", "value"} else expected.items()
    return " and ".join(f'state("{name}") == {value!r}' for name, value in pairs)


_WRITERS: dict[str, Callable[[str, Any], str]] = {
    "type": lambda path, expected: f"type({path}) is {_class(expected)}",
    "equals": lambda path, expected: f"same_constant({path}, {constant_text(expected)})",
    "tensor": _tensor,
    "number": lambda path, expected: (f"type({path}) is {expected}" if isinstance(expected, str) else
                                      f"type({expected['symbol']} := {path}) is {expected['kind']}"),
    "length": lambda path, expected: f"type({path}) is {_class(expected['type'])} and len({path}) == {expected['length']}",
    "keys": lambda path, expected: (f"type({path}) is {_class(expected['type'])} and "
                                    f"list({path}) == [{', '.join(map(constant_text, expected['keys']))}]"),
    "contains": lambda path, expected: f"{constant_text(expected['key'])} {'in' if expected['present'] else 'not in'} {path}",
    "has_dictionary": lambda path, expected: f"{expected['name']!r} {'in' if expected['present'] else 'not in'} {path}.__dict__",
    "function": lambda path, expected: f'{path} is code("{expected["name"]}"' + (f', "{expected["digest"]}")' if expected["digest"] else ")"),
    "builtin": lambda path, expected: f'{path} is named("{expected}")',
    "same": lambda path, expected: f"{path} is {Path.from_json(expected)}",
    "different": lambda path, expected: f"disjoint({path}, {', '.join(str(Path.from_json(other)) for other in expected)})",
    "distinct": lambda path, expected: f"distinct({path}, {', '.join(str(Path.from_json(other)) for other in expected)})",
    "position": lambda path, expected: f"position({path}, {Path.from_json(expected['table'])}) == {expected['position']}",
    "expression": lambda path, expected: f"({expected})",
    "state": _state,
}
