"""Integer expressions over size symbols and loop variables.

Grammar::

    expression = Integer | Symbol | Add(terms) | Multiply(factors) | FloorDivide(a, b) | Modulo(a, b) | Minimum(a, b) | Maximum(a, b)

Built with Python operators (``+ - * // %``) or the functions below, which keep a canonical form: constants folded, sums flattened with equal
terms collected and ordered by text, products expanded over sums. Division and remainder are Python's (floor). Text form: `str`, a Python expression;
`parse` reads it back.
"""
from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from typing import Iterable, Mapping, Union

Like = Union["Expression", int]


@dataclass(frozen=True)
class Expression:
    """Base of all integer expressions; immutable, hashable."""

    def __add__(self, other: Like) -> "Expression":
        return add(self, wrap(other))

    __radd__ = __add__

    def __mul__(self, other: Like) -> "Expression":
        return multiply(self, wrap(other))

    __rmul__ = __mul__

    def __neg__(self) -> "Expression":
        return multiply(Integer(-1), self)

    def __sub__(self, other: Like) -> "Expression":
        return add(self, -wrap(other))

    def __rsub__(self, other: Like) -> "Expression":
        return add(wrap(other), -self)

    def __floordiv__(self, other: Like) -> "Expression":
        return floor_divide(self, wrap(other))

    def __mod__(self, other: Like) -> "Expression":
        return modulo(self, wrap(other))


@dataclass(frozen=True)
class Integer(Expression):
    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Symbol(Expression):
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Add(Expression):
    terms: tuple[Expression, ...]

    def __str__(self) -> str:
        text = str(self.terms[0])
        for term in self.terms[1:]:
            part = str(term)
            text += f" - {part[1:]}" if part.startswith("-") else f" + {part}"
        return text


@dataclass(frozen=True)
class Multiply(Expression):
    """``coefficient * factors``; factors are no sums or integers."""

    coefficient: int
    factors: tuple[Expression, ...]

    def __str__(self) -> str:
        body = "*".join(map(_operand, self.factors))
        return body if self.coefficient == 1 else f"-{body}" if self.coefficient == -1 else f"{self.coefficient}*{body}"


@dataclass(frozen=True)
class FloorDivide(Expression):
    numerator: Expression
    denominator: Expression

    def __str__(self) -> str:
        return f"({_operand(self.numerator)} // {_operand(self.denominator)})"


@dataclass(frozen=True)
class Modulo(Expression):
    numerator: Expression
    denominator: Expression

    def __str__(self) -> str:
        return f"({_operand(self.numerator)} % {_operand(self.denominator)})"


@dataclass(frozen=True)
class Minimum(Expression):
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"min({self.left}, {self.right})"


@dataclass(frozen=True)
class Maximum(Expression):
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"max({self.left}, {self.right})"


def _operand(expression: Expression) -> str:
    text = str(expression)
    return f"({text})" if isinstance(expression, (Add, Multiply)) or text.startswith("-") else text


ZERO, ONE = Integer(0), Integer(1)
_REMEMBERED = 32768                   # sums and products: those of equal layers are equal


def wrap(value: Like) -> Expression:
    return value if isinstance(value, Expression) else Integer(int(value))


def _split(term: Expression) -> tuple[int, tuple[Expression, ...]]:
    if isinstance(term, Integer):
        return term.value, ()
    if isinstance(term, Multiply):
        return term.coefficient, term.factors
    return 1, (term,)


def _product(coefficient: int, factors: Iterable[Expression]) -> Expression:
    ordered = tuple(sorted(factors, key=str))
    if coefficient == 0 or not ordered:
        return Integer(coefficient)
    return ordered[0] if coefficient == 1 and len(ordered) == 1 else Multiply(coefficient, ordered)


@lru_cache(maxsize=_REMEMBERED)
def add(*values: Like) -> Expression:
    collected: dict[tuple[Expression, ...], int] = {}
    for value in map(wrap, values):
        for term in value.terms if isinstance(value, Add) else (value,):
            coefficient, factors = _split(term)
            collected[factors] = collected.get(factors, 0) + coefficient
    terms = [_product(c, f) for f, c in collected.items() if c]
    constants = [t for t in terms if isinstance(t, Integer)]
    terms = [*sorted((t for t in terms if not isinstance(t, Integer)), key=str), *constants]
    return ZERO if not terms else terms[0] if len(terms) == 1 else Add(tuple(terms))


@lru_cache(maxsize=_REMEMBERED)
def multiply(*values: Like) -> Expression:
    result: list[tuple[int, tuple[Expression, ...]]] = [(1, ())]
    for value in map(wrap, values):
        parts = [_split(t) for t in (value.terms if isinstance(value, Add) else (value,))]
        result = [(c1 * c2, f1 + f2) for c1, f1 in result for c2, f2 in parts]
    return add(*(_product(c, f) for c, f in result)) if len(result) > 1 else _product(*result[0])


def floor_divide(numerator: Like, denominator: Like) -> Expression:
    a, b = wrap(numerator), wrap(denominator)
    if isinstance(b, Integer):
        if b.value == 1:
            return a
        if isinstance(a, Integer):
            return Integer(a.value // b.value)
        if b.value > 1:
            whole, rest = _divisible(a, b.value)
            if whole != ZERO:
                return add(whole, floor_divide(rest, b))
    if a == ZERO:
        return ZERO
    if a == b:
        return ONE
    return FloorDivide(a, b)


def modulo(numerator: Like, denominator: Like) -> Expression:
    a, b = wrap(numerator), wrap(denominator)
    if isinstance(b, Integer):
        if b.value in (1, -1):
            return ZERO
        if isinstance(a, Integer):
            return Integer(a.value % b.value)
        if b.value > 1:
            whole, rest = _divisible(a, b.value)
            if whole != ZERO:
                return modulo(rest, b)
    if a == ZERO or a == b:
        return ZERO
    return Modulo(a, b)


def _divisible(value: Expression, divisor: int) -> tuple[Expression, Expression]:
    """``value == whole * divisor + rest`` with every term of ``whole`` exact."""
    whole: list[Expression] = []
    rest: list[Expression] = []
    for term in value.terms if isinstance(value, Add) else (value,):
        coefficient, factors = _split(term)
        if coefficient % divisor == 0:
            whole.append(_product(coefficient // divisor, factors))
        else:
            rest.append(term)
    return add(*whole), add(*rest)


def minimum(left: Like, right: Like) -> Expression:
    a, b = wrap(left), wrap(right)
    if isinstance(a, Integer) and isinstance(b, Integer):
        return Integer(min(a.value, b.value))
    return a if a == b else Minimum(a, b)


def maximum(left: Like, right: Like) -> Expression:
    a, b = wrap(left), wrap(right)
    if isinstance(a, Integer) and isinstance(b, Integer):
        return Integer(max(a.value, b.value))
    return a if a == b else Maximum(a, b)


def children(value: Expression) -> tuple[Expression, ...]:
    match value:
        case Add(terms):
            return terms
        case Multiply(_, factors):
            return factors
        case FloorDivide(a, b) | Modulo(a, b) | Minimum(a, b) | Maximum(a, b):
            return (a, b)
    return ()


def free_symbols(value: Expression) -> frozenset[Symbol]:
    if isinstance(value, Symbol):
        return frozenset({value})
    return frozenset().union(*map(free_symbols, children(value))) if children(value) else frozenset()


def substitute(value: Expression, replacements: Mapping[Symbol, Like]) -> Expression:
    """``value`` with symbols replaced, in canonical form again."""
    match value:
        case Symbol():
            return wrap(replacements.get(value, value))
        case Add(terms):
            return add(*(substitute(t, replacements) for t in terms))
        case Multiply(coefficient, factors):
            return multiply(coefficient, *(substitute(f, replacements) for f in factors))
        case FloorDivide(a, b):
            return floor_divide(substitute(a, replacements), substitute(b, replacements))
        case Modulo(a, b):
            return modulo(substitute(a, replacements), substitute(b, replacements))
        case Minimum(a, b):
            return minimum(substitute(a, replacements), substitute(b, replacements))
        case Maximum(a, b):
            return maximum(substitute(a, replacements), substitute(b, replacements))
    return value


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Read the text form. Raises ValueError on anything but names, integers, ``+ - * // %``, ``min`` and ``max``."""
    return _from_ast(ast.parse(text, mode="eval").body)


def _from_ast(node: ast.expr) -> Expression:
    match node:
        case ast.Constant(value=int() as value):
            return Integer(value)
        case ast.Name(id=name):
            return Symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_from_ast(operand)
        case ast.BinOp(left=left, op=operator, right=right):
            a, b = _from_ast(left), _from_ast(right)
            match operator:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return a // b
                case ast.Mod():
                    return a % b
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[left, right]):
            return (minimum if name == "min" else maximum)(_from_ast(left), _from_ast(right))
    raise ValueError(f"not an integer expression: {ast.unparse(node)}")
