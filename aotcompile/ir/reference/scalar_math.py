"""The operators of `ir.operators` in plain Python: slow, exact to the dtype. The reference that generated code is tested against."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from aotcompile.ir.dtypes import DType

Number = Any  # bool | int | float

_BITS = {DType.i64: 64, DType.i32: 32, DType.i16: 16, DType.i8: 8, DType.u8: 8}


class KernelFailure(Exception):
    """What stops a kernel: ``status`` 1 an index out of range, 2 an integer division by zero, 3 a size out of its range."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"status {status}")


def _round_with(code: str, value: float) -> float:
    try:
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def round_float(dtype: DType, value: float) -> float:
    """The nearest value of a floating dtype (ties to even)."""
    if dtype is DType.f64 or math.isnan(value) or math.isinf(value):
        return value
    value = _round_with("<f", value)
    if dtype is DType.f32 or math.isinf(value):
        return value
    if dtype is DType.f16:
        return _round_with("<e", value)
    bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def wrap_integer(dtype: DType, value: int) -> int:
    """Two's complement wrap-around."""
    bits = _BITS[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype is not DType.u8 and value >> (bits - 1) else value


def convert_number(dtype: DType, value: Number) -> Number:
    """A `Cast`. Floats that no integer of the type can be (nan, inf, too large) give what x86 gives for i64: the least value; it is undefined in
    C++."""
    if dtype is DType.b8:
        return bool(value)
    if dtype.is_floating:
        return round_float(dtype, float(value))
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) and abs(value) < 2**63 else -(1 << 63)
    return wrap_integer(dtype, int(value))


def _guarded(function: Callable[..., float]) -> Callable[..., float]:
    def call(*arguments: float) -> float:
        if any(math.isnan(argument) for argument in arguments):
            return math.nan
        try:
            return function(*arguments)
        except ValueError:
            return math.nan

    return call


def _overflowing(function: Callable[[float], float], odd: bool = False) -> Callable[[float], float]:
    def call(value: float) -> float:
        try:
            return function(value)
        except OverflowError:
            return -math.inf if odd and value < 0 else math.inf

    return call


def _logarithm(function: Callable[[float], float], pole: float = 0.0) -> Callable[[float], float]:
    return lambda value: -math.inf if value == pole else function(value)


def _power(a: float, b: float) -> float:
    try:
        result = math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        if a == 0:
            return -math.inf if b % 2 == 1 and math.copysign(1, a) < 0 else math.inf
        return math.nan
    return result


def _lgamma(value: float) -> float:
    try:
        return math.lgamma(value)
    except ValueError:
        return math.inf
    except OverflowError:
        return math.inf


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= -700 else 0.0


def divide(a: float, b: float) -> float:
    """IEEE division."""
    if b != 0:
        try:
            return a / b
        except OverflowError:
            return math.copysign(math.inf, a) * math.copysign(1, b)
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1, b)


def _fmod(a: float, b: float) -> float:
    return math.nan if b == 0 or math.isinf(a) else math.fmod(a, b)


def _float_remainder(a: float, b: float) -> float:
    rest = _fmod(a, b)
    return rest + b if rest != 0 and not math.isnan(rest) and (b < 0) != (rest < 0) else rest


def _float_floordiv(a: float, b: float, rounded: Callable[[float], float]) -> float:
    if b == 0:
        return divide(a, b)
    rest = rounded(_fmod(a, b))
    quotient = rounded(divide(rounded(a - rest), b))
    if rest != 0 and (b < 0) != (rest < 0):
        quotient = rounded(quotient - 1)
    if quotient != 0:
        if not math.isfinite(quotient):
            return quotient
        whole = math.floor(quotient)
        return float(whole + 1 if quotient - whole > 0.5 else whole)
    return math.copysign(0.0, divide(a, b))


def _half_even(value: float) -> float:
    return math.copysign(float(round(value)), value) if math.isfinite(value) else value


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    return lambda value: math.copysign(float(function(value)), value) if math.isfinite(value) else value


_FLOAT: dict[str, Callable[..., float]] = {
    "reciprocal": lambda a: divide(1.0, a),
    "sqrt": math.sqrt,
    "rsqrt": lambda a: divide(1.0, math.sqrt(a)),
    "exp": _overflowing(math.exp),
    "exp2": _overflowing(lambda a: math.pow(2.0, a)),
    "expm1": _overflowing(math.expm1),
    "log": _logarithm(math.log),
    "log2": _logarithm(math.log2),
    "log10": _logarithm(math.log10),
    "log1p": _logarithm(math.log1p, -1.0),
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "sinh": _overflowing(math.sinh, True),
    "cosh": _overflowing(math.cosh),
    "tanh": math.tanh,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "asinh": math.asinh,
    "acosh": math.acosh,
    "atanh": lambda a: math.copysign(math.inf, a) if abs(a) == 1 else math.atanh(a),
    "atan2": math.atan2,
    "erf": math.erf,
    "erfc": math.erfc,
    "lgamma": _lgamma,
    "sigmoid": _sigmoid,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _half_even,
    "fma": lambda a, b, c: a * b + c,
    "truediv": divide,
}


def _float_operation(operator: str, dtype: DType, values: tuple[float, ...]) -> Number:
    rounded: Callable[[float], float] = lambda value: round_float(DType.f64 if dtype is DType.f64 else DType.f32, value)  # noqa: E731
    if operator in ("copysign", "hypot"):            # defined where an operand is nan
        return (math.copysign if operator == "copysign" else math.hypot)(*values)
    if operator in _FLOAT:
        return _guarded(_FLOAT[operator])(*values)
    a, b = values[0], values[-1]
    match operator:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "neg":
            return -a
        case "abs":
            return abs(a)
        case "sign":
            return float((a > 0) - (a < 0))
        case "maximum" | "minimum":
            if math.isnan(a) or math.isnan(b):
                return math.nan
            return max(b, a) if operator == "maximum" else min(b, a)                # of equal ones the second, as the kernels do
        case "pow":
            return _power(a, b)
        case "fmod":
            return math.nan if math.isnan(a) or math.isnan(b) else _fmod(a, b)
        case "remainder":
            return math.nan if math.isnan(a) or math.isnan(b) else _float_remainder(a, b)
        case "floordiv":
            return math.nan if math.isnan(a) or math.isnan(b) else _float_floordiv(a, b, rounded)
    raise ValueError(f"no float operator {operator}")


def _integer_operation(operator: str, dtype: DType, values: tuple[int, ...]) -> Number:
    a, b = values[0], values[-1]
    if operator in ("floordiv", "truncdiv", "fmod", "remainder"):
        if b == 0:
            raise KernelFailure(2)
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return {"floordiv": a // b, "remainder": a % b, "truncdiv": quotient, "fmod": a - quotient * b}[operator]
    match operator:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "neg":
            return -a
        case "abs":
            return abs(a)
        case "sign":
            return (a > 0) - (a < 0)
        case "maximum":
            return max(a, b)
        case "minimum":
            return min(a, b)
        case "pow":
            return pow(a, b, 1 << 64) if b >= 0 else 1 if a == 1 else (-1 if b % 2 else 1) if a == -1 else 0
        case "bitwise_and":
            return a & b
        case "bitwise_or":
            return a | b
        case "bitwise_xor":
            return a ^ b
        case "bitwise_not":
            return ~a
        case "left_shift":
            return a << b if 0 <= b < _BITS[dtype] else 0
        case "right_shift":
            return a >> b if 0 <= b < _BITS[dtype] else -1 if a < 0 else 0
    raise ValueError(f"no integer operator {operator}")


_COMPARISONS: dict[str, Callable[..., bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "isnan": lambda a: a != a,
    "isinf": lambda a: abs(a) == math.inf,
    "signbit": lambda a: math.copysign(1.0, a) < 0,
    "logical_and": lambda a, b: a and b,
    "logical_or": lambda a, b: a or b,
    "logical_xor": lambda a, b: a != b,
    "logical_not": lambda a: not a,
}
_BOOL_BITS: dict[str, Callable[..., bool]] = {
    "bitwise_and": lambda a, b: a and b,
    "bitwise_or": lambda a, b: a or b,
    "bitwise_xor": lambda a, b: a != b,
    "bitwise_not": lambda a: not a,
}


def apply_operator(operator: str, dtype: DType, values: tuple[Number, ...]) -> Number:
    """``operator(*values)``; ``dtype`` is the operands' (of ``where``: of its two values). Raises KernelFailure on an integer division by zero."""
    if operator == "where":
        return values[1] if values[0] else values[2]
    if operator in _COMPARISONS:
        return _COMPARISONS[operator](*values)
    if dtype is DType.b8:
        return _BOOL_BITS[operator](*values)
    if dtype.is_floating:
        return round_float(dtype, _float_operation(operator, dtype, values))
    return wrap_integer(dtype, int(_integer_operation(operator, dtype, values)))
