"""The split of a function's bytecode as text: a listing for people, and what `runtime.twins.bytecode_twin` makes the code objects from.

    # _r0_eager(x)
    #    2  LOAD_GLOBAL         torch
    ...
    CPYTHON = "cp311"
    CODES = {"_r0_eager": {"code": "9700...", "constants": [None, 2], "names": ["torch", "relu"], ...}, "": {...}}

The rewritten function is the entry "". Constants are literals; what has no literal form (inner code objects) is taken from the original code object
by number, whose digest is compared before anything is made.
"""
from __future__ import annotations

import ast
import sys
import types
from collections.abc import Mapping
from typing import Any

import bytecode

TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
ARGUMENT_COLUMN = 34


def listing(code: types.CodeType) -> list[str]:
    """One line per instruction: the user's line where it changes, labels, names and constants instead of numbers."""
    items = list(bytecode.Bytecode.from_code(code))
    labels = {id(item): f"L{number}" for number, item in enumerate(i for i in items if isinstance(i, bytecode.Label))}
    lines, line = [], 0
    for item in items:
        if isinstance(item, bytecode.Label):
            lines.append(f"{labels[id(item)]}:")
        elif isinstance(item, bytecode.TryBegin):
            lines.append(f"      try, handler {labels[id(item.target)]}")
        elif isinstance(item, bytecode.TryEnd):
            lines.append("      end of try")
        elif isinstance(item, bytecode.Instr):
            here = item.location.lineno if item.location is not None and item.location.lineno else line
            shown, line = (f"{here:4d}" if here != line else "    "), here
            text = f"{shown}  {item.name}"
            argument = _shown(item.arg, labels)
            lines.append(f"{text:<{ARGUMENT_COLUMN}}{argument}".rstrip())
    return lines


def _shown(argument: Any, labels: dict[int, str]) -> str:
    if argument is bytecode.UNSET:
        return ""
    if isinstance(argument, bytecode.Label):
        return labels[id(argument)]
    if isinstance(argument, types.CodeType):
        return f"code of {argument.co_qualname}"
    if isinstance(argument, (bytecode.CellVar, bytecode.FreeVar)):
        return argument.name
    if hasattr(argument, "name"):
        return str(argument.name)
    text = str(argument) if isinstance(argument, str) else repr(argument)
    return " ".join(text.split())[:100] if " object at 0x" not in text else type(argument).__name__


def split_text(qualname: str, original: types.CodeType, codes: Mapping[str, types.CodeType], listings: Mapping[str, str]) -> str:
    """``codes``: the eager bodies by name, and under "" the rewritten function; ``listings`` those of the eager bodies."""
    out = [f"# {qualname}, split in its bytecode: its source is not to be had. CPython {TAG[2]}.{TAG[3:]}.", ""]
    for name, code in codes.items():
        parameters = ", ".join(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)])
        out += [f"# {name or qualname}({parameters})",
                *(f"#   {line}".rstrip() for line in (listings[name].split("\n") if name in listings else listing(code))), ""]
    out += [f'CPYTHON = "{TAG}"', "CODES = {"]
    for name, code in codes.items():
        out.append(f"    {name!r}: {{")
        out += [f"        {key!r}: {_literal(value)}," for key, value in _record(code, original).items()]
        out.append("    },")
    return "\n".join([*out, "}", ""])


def _literal(value: Any) -> str:
    return ascii(value)


def _record(code: types.CodeType, original: types.CodeType) -> dict[str, Any]:
    return {
        "name": code.co_name, "qualname": code.co_qualname, "flags": code.co_flags, "stack": code.co_stacksize, "line": code.co_firstlineno,
        "arguments": [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount],
        "constants": [_constant(value, original) for value in code.co_consts],
        "names": list(code.co_names), "variables": list(code.co_varnames), "cells": list(code.co_cellvars), "free": list(code.co_freevars),
        "code": code.co_code.hex(), "handlers": code.co_exceptiontable.hex(), "lines": code.co_linetable.hex(),
    }


def _constant(value: object, original: types.CodeType) -> Any:
    """A constant as a literal, or where it is among the original's constants."""
    try:
        same = ast.literal_eval(ascii(value))
        if _identical(same, value):
            return value
    except (ValueError, SyntaxError):
        pass
    for number, known in enumerate(original.co_consts):
        if known is value:
            return {"original": number}
    for number, known in enumerate(original.co_consts):
        if _identical(known, value):
            return {"original": number}
    raise ValueError(f"a constant of type {type(value).__name__} is not among the original's")


def _identical(first: object, second: object) -> bool:
    if type(first) is not type(second):
        return False
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(_identical, first, second))
    if isinstance(first, dict):
        return False                                           # the form of a reference
    return first == second and repr(first) == repr(second)


__all__ = ["TAG", "listing", "split_text"]
