"""Index expressions as linear forms, and products of sizes.

    coefficient(i0*8 + i1, i0)    ->   8           coefficient(i0 // 2, i0)   ->   None
    exact_quotient(6*s0, 2*s0)    ->   3
"""
from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from aotcompile.ir.expression import ONE, ZERO, Add, Expression, Integer, Multiply, Symbol, add, free_symbols, multiply


def product(sizes: Iterable[Expression]) -> Expression:
    return multiply(ONE, *sizes)


def static(value: Expression) -> int | None:
    """The value of a constant expression, else None."""
    return value.value if isinstance(value, Integer) else None


def _monomial(value: Expression) -> tuple[int, tuple[Expression, ...]] | None:
    if isinstance(value, Integer):
        return value.value, ()
    if isinstance(value, Multiply):
        return value.coefficient, value.factors
    return None if isinstance(value, Add) else (1, (value,))


def exact_quotient(value: Expression, divisor: Expression) -> Expression | None:
    """``value / divisor`` where the division is exact for all values of the symbols by its form; None otherwise."""
    if value == divisor:
        return ONE
    a, b = _monomial(value), _monomial(divisor)
    if a is None or b is None or b[0] == 0 or a[0] % b[0]:
        return None
    factors = list(a[1])
    for factor in b[1]:
        if factor not in factors:
            return None
        factors.remove(factor)
    return multiply(a[0] // b[0], *factors)


@lru_cache(maxsize=65536)
def symbols_of(value: Expression) -> frozenset[Symbol]:
    return free_symbols(value)


@lru_cache(maxsize=65536)
def coefficient(value: Expression, variable: Symbol) -> Expression | None:
    """``c`` with ``value == c*variable + (something without variable)``; None where the dependence is not of that form."""
    parts: list[Expression] = []
    for term in value.terms if isinstance(value, Add) else (value,):
        if variable not in symbols_of(term):
            continue
        if term == variable:
            parts.append(ONE)
            continue
        if not isinstance(term, Multiply) or term.factors.count(variable) != 1:
            return None
        others = list(term.factors)
        others.remove(variable)
        if any(variable in symbols_of(factor) for factor in others):
            return None
        parts.append(multiply(term.coefficient, *others))
    return add(*parts) if parts else ZERO
