"""For which sizes a variant is right, in the letters of the entry's dimensions.

    def f(x): return x[:, :10]      with x.shape[1] called T and 7 in the example:   T < 10
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotcompile.frontend.capture.symbolic import SymbolTable
from aotcompile.ir.expression import Expression, Integer, Symbol, free_symbols, parse, substitute

_FUNCTIONS = {"__builtins__": {}, "max": max, "min": min, "int": int, "float": float, "round": round}


@dataclass(frozen=True)
class Served:
    """``sizes``: symbol and what it is in letters; ``fixed``: letter (or expression of letters) and the only value it may have; ``conditions``: texts
    over the symbols."""

    sizes: tuple[tuple[str, str], ...]
    fixed: tuple[tuple[str, int], ...]
    conditions: tuple[str, ...]

    def holds(self, letters: Mapping[str, int]) -> bool:
        """Whether it is right for these sizes. What cannot be said in ``letters`` is taken to hold."""
        known = {name: value for name, text in self.sizes if (value := size_of(text, letters)) is not None}
        fixed = [(size_of(text, letters), value) for text, value in self.fixed]
        return all(size in (None, value) for size, value in fixed) and all(_holds(condition, known) for condition in self.conditions)


def served(symbols: SymbolTable, conditions: Sequence[str]) -> Served:
    """``conditions``: the variant's guards on sizes."""
    sizes, fixed, equal = [], [], []
    for name, key in symbols.named_sizes():
        expression = symbols.environment.replace(key)
        if expression.is_number:
            fixed.append((name, int(expression)))
            continue
        sizes.append((symbols.symbols[key].name, name))
        if expression != key:
            equal.append(f"{symbols.symbols[key].name} == {symbols.text(expression)}")
    return Served(tuple(sizes), tuple(fixed), (*conditions, *equal))


def size_of(text: str, letters: Mapping[str, int]) -> int | None:
    """A size written in letters. None where a letter is not known, or the text is no size."""
    if text in letters:
        return letters[text]
    try:
        expression: Expression = parse(text)
    except (SyntaxError, ValueError):
        return None
    if any(symbol.name not in letters for symbol in free_symbols(expression)):
        return None
    value = substitute(expression, {Symbol(name): size for name, size in letters.items()})
    return value.value if isinstance(value, Integer) else None


def _holds(condition: str, sizes: dict[str, Any]) -> bool:
    try:
        return bool(eval(condition, _FUNCTIONS, sizes))             # noqa: S307 - a text of our own making
    except NameError:                                               # a number, a size that is no letter's
        return True
    except ZeroDivisionError:
        return False
