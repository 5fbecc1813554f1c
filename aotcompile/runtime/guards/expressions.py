"""Expressions over size symbols, as Python evaluates them."""
from __future__ import annotations

from types import CodeType
from typing import Any

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
