"""The scalar operators of `Apply`: name, arity, which element types, what type the result has, what it computes.

Code generators iterate over `OPERATORS`; each must know every operator here for every dtype of its domain, and a test holds them to it.

Rules (``rule``), with T the one type of the operands:

    same       T x ... x T -> T                 add, exp, bitwise_and, ...
    compare    T x ... x T -> b8                lt, eq, isnan, ...
    logical    b8 x ... x b8 -> b8              logical_and, ...
    select     b8 x T x T -> T                  where

Operands are never converted silently: where types differ the lowering has put a `Cast`.
An `Apply` of f16/bf16 computes in f32 and rounds once. Integer arithmetic wraps (two's complement); no operator may trap or be undefined in C++:
cast to the unsigned type first where C++ calls overflow undefined. ``can_fail``: an integer zero divisor stops the kernel with status 2, and
``INT_MIN / -1`` must neither trap nor stop: it wraps to INT_MIN, with remainder 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aotcompile.ir.dtypes import DType

Rule = Literal["same", "compare", "logical", "select"]
Domain = Literal["float", "number", "integer", "bits", "bool", "any"]

KERNEL_DTYPES = (DType.f64, DType.f32, DType.f16, DType.bf16, DType.i64, DType.i32, DType.i16, DType.i8, DType.u8, DType.b8)
"""The element types that our kernels load, compute with and store. Everything else goes through library calls."""


@dataclass(frozen=True)
class Operator:
    """One scalar operator.

    ``domain`` says which operand types it takes: float (f64 f32 f16 bf16), integer, number (float or integer), bits (integer or b8), bool (b8),
    any.
    ``documentation`` is the definition, in C-like notation over the operands a, b, c."""

    name: str
    arity: int
    rule: Rule
    domain: Domain
    documentation: str
    can_fail: bool = False  # for integer operands: division by zero
    costly: bool = False  # a transcendental function: computing it twice costs more than keeping it

    def accepts(self, dtype: DType) -> bool:
        """Whether operands (for ``select``: the two values) may be of ``dtype``."""
        if dtype not in KERNEL_DTYPES:
            return False
        match self.domain:
            case "float":
                return dtype.is_floating
            case "integer":
                return dtype.is_integral
            case "number":
                return dtype.is_floating or dtype.is_integral
            case "bits":
                return dtype.is_integral or dtype is DType.b8
            case "bool":
                return dtype is DType.b8
        return True


def _float(name: str, documentation: str, arity: int = 1, costly: bool = True) -> Operator:
    return Operator(name, arity, "same", "float", documentation, costly=costly)


def _number(name: str, arity: int, documentation: str, can_fail: bool = False) -> Operator:
    return Operator(name, arity, "same", "number", documentation, can_fail=can_fail)


def _compare(name: str, documentation: str) -> Operator:
    return Operator(name, 2, "compare", "any", documentation)


_TABLE = (
    # arithmetic
    _number("add", 2, "a + b"),
    _number("sub", 2, "a - b"),
    _number("mul", 2, "a * b"),
    _float("truediv", "a / b (IEEE; by zero gives inf or nan)", 2, costly=False),
    _number(
        "floordiv",
        2,
        "integer: quotient rounded to -inf. float (as torch, fmod based): if b == 0: a / b; m = fmod(a, b); d = (a - m) / b; "
        "if m != 0 and (b < 0) != (m < 0): d -= 1; if d != 0: { q = floor(d); if d - q > 0.5: q += 1 } else q = copysign(0, a / b); result q",
        can_fail=True,
    ),
    Operator("truncdiv", 2, "same", "integer", "quotient rounded to 0 (C's). For floats: trunc of truediv", can_fail=True),
    _number("fmod", 2, "C's remainder, sign of a. float: fmod(a, b)", can_fail=True),
    _number("remainder", 2, "Python's remainder, sign of b. float: m = fmod(a, b); if m != 0 and (b < 0) != (m < 0): m += b", can_fail=True),
    _number("neg", 1, "-a"),
    _number("abs", 1, "|a| (INT_MIN stays; unsigned: a)"),
    _number("sign", 1, "(0 < a) - (a < 0); nan gives 0, -0.0 gives 0"),
    _number("maximum", 2, "the larger, of equal ones the second; nan if either is nan"),
    _number("minimum", 2, "the smaller, of equal ones the second; nan if either is nan"),
    _number("pow", 2, "float: C's pow(a, b). integer: by squaring, wrapping; negative b: 1 for a == 1, (b odd ? -1 : 1) for a == -1, else 0"),
    _float("reciprocal", "1 / a", costly=False),
    _float("fma", "a * b + c with one rounding (f16/bf16: in f32, then rounded)", 3, costly=False),
    # rounding
    _float("floor", "floor(a)", costly=False),
    _float("ceil", "ceil(a)", costly=False),
    _float("round", "nearest integer, halves to even (nearbyint)", costly=False),
    _float("trunc", "trunc(a)", costly=False),
    _float("copysign", "magnitude of a, sign of b", 2, costly=False),
    # elementary functions
    _float("sqrt", "sqrt(a)", costly=False),
    _float("rsqrt", "1 / sqrt(a)", costly=False),
    _float("exp", "e ** a"),
    _float("exp2", "2 ** a"),
    _float("expm1", "e ** a - 1, accurate near 0"),
    _float("log", "natural logarithm"),
    _float("log2", "base 2 logarithm"),
    _float("log10", "base 10 logarithm"),
    _float("log1p", "log(1 + a), accurate near 0"),
    _float("sin", "sin(a)"),
    _float("cos", "cos(a)"),
    _float("tan", "tan(a)"),
    _float("sinh", "sinh(a)"),
    _float("cosh", "cosh(a)"),
    _float("tanh", "tanh(a)"),
    _float("asin", "asin(a)"),
    _float("acos", "acos(a)"),
    _float("atan", "atan(a)"),
    _float("asinh", "asinh(a)"),
    _float("acosh", "acosh(a)"),
    _float("atanh", "atanh(a)"),
    _float("atan2", "atan2(a, b)", 2),
    _float("hypot", "sqrt(a * a + b * b) without overflow", 2),
    _float("erf", "error function"),
    _float("erfc", "1 - erf(a), accurate for large a"),
    _float("lgamma", "log|gamma(a)|"),
    _float("sigmoid", "1 / (1 + exp(-a))"),
    # comparisons: T x T -> b8; with nan only ne is true
    _compare("eq", "a == b"),
    _compare("ne", "a != b"),
    _compare("lt", "a < b"),
    _compare("le", "a <= b"),
    _compare("gt", "a > b"),
    _compare("ge", "a >= b"),
    Operator("isnan", 1, "compare", "float", "a != a"),
    Operator("isinf", 1, "compare", "float", "|a| == inf"),
    Operator("signbit", 1, "compare", "number", "sign bit set (float: true for -0.0; integer: a < 0)"),
    # logic and bits
    Operator("logical_and", 2, "logical", "bool", "a && b"),
    Operator("logical_or", 2, "logical", "bool", "a || b"),
    Operator("logical_xor", 2, "logical", "bool", "a != b"),
    Operator("logical_not", 1, "logical", "bool", "!a"),
    Operator("bitwise_and", 2, "same", "bits", "a & b"),
    Operator("bitwise_or", 2, "same", "bits", "a | b"),
    Operator("bitwise_xor", 2, "same", "bits", "a ^ b"),
    Operator("bitwise_not", 1, "same", "bits", "~a (b8: !a)"),
    Operator("left_shift", 2, "same", "integer", "a << b on the unsigned type; 0 if b is negative or not less than the width"),
    Operator("right_shift", 2, "same", "integer", "arithmetic a >> b (logical for unsigned); b negative or not less than the width: a < 0 ? -1 : 0"),
    # choice
    Operator("where", 3, "select", "any", "a ? b : c (both are evaluated; use Masked where a load must not happen)"),
)

OPERATORS: dict[str, Operator] = {operator.name: operator for operator in _TABLE}


def result_dtype(name: str, operands: Sequence[DType]) -> DType:
    """The dtype of ``Apply(name, operands)``. Raises ValueError where the operator, the number or the types of the operands are not legal."""
    operator = OPERATORS.get(name)
    if operator is None:
        raise ValueError(f"unknown operator {name!r}")
    if len(operands) != operator.arity:
        raise ValueError(f"{name} takes {operator.arity} operands, got {len(operands)}")
    values = operands[1:] if operator.rule == "select" else operands
    if operator.rule == "select" and operands[0] is not DType.b8:
        raise ValueError(f"{name}: the condition is {operands[0].value}, not b8")
    if len(set(values)) != 1:
        raise ValueError(f"{name}: operands of different types {', '.join(dtype.value for dtype in operands)}")
    if not operator.accepts(values[0]):
        raise ValueError(f"{name} does not take {values[0].value}")
    return DType.b8 if operator.rule in ("compare", "logical") else values[0]
