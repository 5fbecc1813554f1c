"""Simplification of index expressions by what is known of their symbols.

Example, with i0 in [0, 4) and i1 in [0, 8)::

    (i0*8 + i1) // 8                         ->   i0
    (i0*8 + i1) % 8                          ->   i1
    8*((i0*8 + i1) // 8) + (i0*8 + i1) % 8   ->   i0*8 + i1
    (i0*s0 + i2) // s0   (i2 in [0, s0))     ->   i0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import gcd

from aotcompile.ir.expression import (
    ONE,
    ZERO,
    Add,
    Expression,
    FloorDivide,
    Integer,
    Maximum,
    Minimum,
    Modulo,
    Multiply,
    Symbol,
    add,
    floor_divide,
    free_symbols,
    maximum,
    minimum,
    modulo,
    multiply,
    substitute,
)
from aotcompile.ir.nodes import Loop

Bounds = tuple[int | None, int | None]


@dataclass
class Ranges:
    """What is known of symbols: inclusive integer bounds (``symbols``; None is unbounded) and loops (``0 <= variable < size``).

    Symbols that are not named may have any value."""

    symbols: Mapping[Symbol, Bounds] = field(default_factory=dict)
    loops: Mapping[Symbol, Expression] = field(default_factory=dict)

    @staticmethod
    def of(loops: Iterable[Loop], sizes: Mapping[str, Bounds] | None = None) -> "Ranges":
        """Ranges inside a loop nest, with the ranges of the program's size symbols. Inside a loop its size is at least 1, and so are the size's
        factors."""
        loops = tuple(loops)
        symbols = {Symbol(name): bounds for name, bounds in (sizes or {}).items()}
        for loop in loops:
            for factor in _split(loop.size)[1]:
                low, high = symbols.get(factor, (None, None)) if isinstance(factor, Symbol) else (None, None)
                if isinstance(factor, Symbol) and low is not None and 0 <= low < 1:
                    symbols[factor] = (1, high)
        return Ranges(symbols, {loop.variable: loop.size for loop in loops})

    def bounds(self, value: Expression) -> Bounds:
        """Inclusive bounds of ``value``; None where unbounded."""
        match value:
            case Integer(number):
                return number, number
            case Symbol():
                if value in self.loops:
                    high = self.bounds(self.loops[value])[1]
                    return 0, None if high is None else max(high - 1, 0)
                return self.symbols.get(value, (None, None))
            case Add(terms):
                parts = [self.bounds(term) for term in terms]
                return _total(low for low, _ in parts), _total(high for _, high in parts)
            case Multiply(coefficient, factors):
                result: Bounds = (coefficient, coefficient)
                for factor in factors:
                    result = _times(result, self.bounds(factor))
                return result
            case FloorDivide(a, b):
                return _quotient(self.bounds(a), self.bounds(b))
            case Modulo(_, b):
                low, high = self.bounds(b)
                return (0, None if high is None else high - 1) if low is not None and low >= 1 else (None, None)
            case Minimum(a, b):
                (low1, high1), (low2, high2) = self.bounds(a), self.bounds(b)
                highs = [high for high in (high1, high2) if high is not None]
                return (None if low1 is None or low2 is None else min(low1, low2)), (min(highs) if highs else None)
            case Maximum(a, b):
                (low1, high1), (low2, high2) = self.bounds(a), self.bounds(b)
                lows = [low for low in (low1, low2) if low is not None]
                return (max(lows) if lows else None), (None if high1 is None or high2 is None else max(high1, high2))
        return None, None

    def non_negative(self, value: Expression) -> bool:
        low = self.bounds(value)[0]
        return low is not None and low >= 0

    def positive(self, value: Expression) -> bool:
        low = self.bounds(value)[0]
        return low is not None and low >= 1

    def less(self, a: Expression, b: Expression) -> bool:
        """Whether ``a < b`` is certain (False: not known)."""
        return self._below_zero(add(a, multiply(-1, b)))

    def _below_zero(self, difference: Expression) -> bool:
        high = self.bounds(difference)[1]
        if high is not None and high < 0:
            return True
        replacements: dict[Symbol, Expression] = {}
        for symbol in sorted(free_symbols(difference), key=str):
            if symbol in self.loops:
                direction = self._direction(difference, symbol)
                if direction == 0:
                    return False
                replacements[symbol] = add(self.loops[symbol], -1) if direction > 0 else ZERO
        if not replacements:
            return False
        high = self.bounds(substitute(difference, replacements))[1]
        return high is not None and high < 0

    def _direction(self, value: Expression, symbol: Symbol) -> int:
        """1 if ``value`` certainly does not fall as ``symbol`` grows, -1 if it does not rise, 0 if not known."""
        directions = set()
        for term in value.terms if isinstance(value, Add) else (value,):
            if symbol not in free_symbols(term):
                continue
            coefficient, factors = (term.coefficient, term.factors) if isinstance(term, Multiply) else (1, (term,))
            if factors.count(symbol) != 1 or any(
                factor != symbol and (symbol in free_symbols(factor) or not self.non_negative(factor)) for factor in factors
            ):
                return 0
            directions.add(1 if coefficient > 0 else -1)
        return directions.pop() if len(directions) == 1 else 0


def _total(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _times(a: Bounds, b: Bounds) -> Bounds:
    if None not in a and None not in b:
        products = [x * y for x in a for y in b]  # type: ignore[operator]
        return min(products), max(products)
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        return a[0] * b[0], None
    if a[0] is not None and a[0] == a[1] and a[0] < 0 and b[0] is not None:  # a negative constant times something with a lower bound
        return None, a[0] * b[0]
    if a[0] is not None and a[0] == a[1] and a[0] > 0:
        return None if b[0] is None else a[0] * b[0], None if b[1] is None else a[0] * b[1]
    if a[1] is not None and a[1] <= 0 and b[0] is not None and b[0] >= 0:
        return None, a[1] * b[0]
    return None, None


def _quotient(a: Bounds, b: Bounds) -> Bounds:
    if b[0] is None or b[0] < 1:
        return None, None
    (low, high), (least, most) = a, (b[0], b[1])
    if low is not None:
        low = low // least if low < 0 else (0 if most is None else low // most)
    if high is not None:
        high = high // least if high >= 0 else (-1 if most is None else high // most)
    return low, high


def simplify(value: Expression, ranges: Ranges) -> Expression:
    """An equal expression, for all values of the symbols within ``ranges``, with fewer divisions, remainders, minima and maxima."""
    match value:
        case Add(terms):
            return _recombine(add(*(simplify(term, ranges) for term in terms)))
        case Multiply(coefficient, factors):
            return multiply(coefficient, *(simplify(factor, ranges) for factor in factors))
        case FloorDivide(a, b):
            return _divide(simplify(a, ranges), simplify(b, ranges), ranges)
        case Modulo(a, b):
            return _remainder(simplify(a, ranges), simplify(b, ranges), ranges)
        case Minimum(a, b):
            a, b = simplify(a, ranges), simplify(b, ranges)
            return a if _at_most(a, b, ranges) else b if _at_most(b, a, ranges) else minimum(a, b)
        case Maximum(a, b):
            a, b = simplify(a, ranges), simplify(b, ranges)
            return b if _at_most(a, b, ranges) else a if _at_most(b, a, ranges) else maximum(a, b)
        case Symbol():
            low, high = ranges.bounds(value)
            return Integer(low) if low is not None and low == high else value
    return value


def _at_most(a: Expression, b: Expression, ranges: Ranges) -> bool:
    return ranges.less(a, add(b, 1))


def _split(term: Expression) -> tuple[int, tuple[Expression, ...]]:
    if isinstance(term, Integer):
        return term.value, ()
    return (term.coefficient, term.factors) if isinstance(term, Multiply) else (1, (term,))


def _separate(value: Expression, divisor: Expression) -> tuple[Expression, Expression]:
    """``value == whole*divisor + rest``: ``whole`` collects the terms that are multiples of ``divisor`` (no sum)."""
    if isinstance(divisor, Add):
        return (ONE, ZERO) if value == divisor else (ZERO, value)
    number, needed = _split(divisor)
    whole: list[Expression] = []
    rest: list[Expression] = []
    for term in value.terms if isinstance(value, Add) else (value,):
        coefficient, factors = _split(term)
        left = list(factors)
        for factor in needed:
            if factor in left:
                left.remove(factor)
            else:
                left = []
                break
        else:
            if number and coefficient % number == 0:
                whole.append(multiply(coefficient // number, *left))
                continue
        rest.append(term)
    return add(*whole), add(*rest)


def _common(value: Expression, divisor: Expression) -> tuple[int, Expression, int]:
    """(g, e, r) with ``value == g*e + r``, ``0 <= r < g``, and g a divisor of the integer ``divisor`` (1 otherwise)."""
    if not isinstance(divisor, Integer) or divisor.value < 1:
        return 1, value, 0
    common, constant = divisor.value, 0
    rest: list[Expression] = []
    for term in value.terms if isinstance(value, Add) else (value,):
        if isinstance(term, Integer):
            constant = term.value
        else:
            common = gcd(common, _split(term)[0])
            rest.append(term)
    if common == 1:
        return 1, value, 0
    parts = [multiply(_split(term)[0] // common, *_split(term)[1]) for term in rest]
    return common, add(*parts, constant // common), constant % common


def _divide(a: Expression, b: Expression, ranges: Ranges) -> Expression:
    if not ranges.positive(b):
        return floor_divide(a, b)
    whole, rest = _separate(a, b)
    if ranges.non_negative(rest) and ranges.less(rest, b):
        return whole
    if whole != ZERO:
        return add(whole, _divide(rest, b, ranges))
    common, quotient, _ = _common(a, b)
    if common > 1 and isinstance(b, Integer):
        return _divide(quotient, Integer(b.value // common), ranges)
    if isinstance(a, FloorDivide) and ranges.positive(a.denominator):
        return _divide(a.numerator, multiply(a.denominator, b), ranges)
    return floor_divide(a, b)


def _remainder(a: Expression, b: Expression, ranges: Ranges) -> Expression:
    if not ranges.positive(b):
        return modulo(a, b)
    _, rest = _separate(a, b)
    if ranges.non_negative(rest) and ranges.less(rest, b):
        return rest
    common, quotient, constant = _common(rest, b)
    if common > 1 and isinstance(b, Integer):
        return add(multiply(common, _remainder(quotient, Integer(b.value // common), ranges)), constant)
    if isinstance(rest, Modulo) and _separate(rest.denominator, b)[1] == ZERO:
        return _remainder(rest.numerator, b, ranges)
    return modulo(rest, b)


def _recombine(value: Expression) -> Expression:
    """``c*b*(a // b) + c*(a % b)  ->  c*a`` in a sum."""
    if not isinstance(value, Add):
        return value
    for term in value.terms:
        coefficient, factors = _split(term)
        for position, factor in enumerate(factors):
            if not isinstance(factor, Modulo):
                continue
            others = factors[:position] + factors[position + 1 :]
            partner = multiply(coefficient, *others, factor.denominator, floor_divide(factor.numerator, factor.denominator))
            difference = add(value, multiply(-1, partner), multiply(-1, term))
            if _length(difference) < _length(value):
                return _recombine(add(difference, multiply(coefficient, *others, factor.numerator)))
    return value


def _length(value: Expression) -> int:
    return len(value.terms) if isinstance(value, Add) else 0 if value == ZERO else 1
