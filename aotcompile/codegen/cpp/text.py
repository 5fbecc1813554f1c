"""C++ text of types, literals, operators and index expressions."""
from __future__ import annotations

import math
import struct

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Add, Expression, FloorDivide, Integer, Maximum, Minimum, Modulo, Multiply, Symbol
from aotcompile.ir.simplify import Ranges

VALUE_TYPES = {DType.f64: "double", DType.f32: "float", DType.f16: "float", DType.bf16: "float", DType.i64: "int64_t", DType.i32: "int32_t",
               DType.i16: "int16_t", DType.i8: "int8_t", DType.u8: "uint8_t"}
"""Element type of the vector that holds values of a dtype (b8 is a `Mask`)."""

STORAGE_TYPES = {**VALUE_TYPES, DType.f16: "float16", DType.bf16: "bfloat16", DType.b8: "bool"}
"""Element type in memory, and the target of ``cast``."""

INFIX = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
         "logical_and": "&", "logical_or": "|", "logical_xor": "^", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
PREFIX = {"neg": "-", "logical_not": "~", "bitwise_not": "~"}
CHECKED = frozenset({"floordiv", "truncdiv", "fmod", "remainder"})
"""Operators that get the wanted lanes and the status: an integer zero divisor stops the kernel."""

EXACT = frozenset({"neg", "abs", "sign", "maximum", "minimum", "floor", "ceil", "round", "trunc", "copysign", "where"})
"""Operators whose f16/bf16 result needs no rounding: it is an operand's value or an integer the type can hold."""


def vector_type(dtype: DType, width: str) -> str:
    return f"Mask<{width}>" if dtype is DType.b8 else f"Vector<{VALUE_TYPES[dtype]}, {width}>"


def round_to(dtype: DType, value: float) -> float:
    """``value`` as the nearest f32 (for f16/bf16: the nearest of that type)."""
    if dtype is DType.f64 or math.isnan(value) or math.isinf(value):
        return value
    try:
        if dtype is DType.f16:
            return float(struct.unpack("e", struct.pack("e", value))[0])
        single = float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)
    if dtype is DType.bf16:
        bits = int(struct.unpack("I", struct.pack("f", single))[0])
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return float(struct.unpack("f", struct.pack("I", bits & 0xFFFFFFFF))[0])
    return single


def literal(dtype: DType, value: bool | int | float) -> str:
    """A constant of the value type: ``2.0f``, ``(int64_t)3``, ``true``."""
    if dtype is DType.b8:
        return "true" if value else "false"
    if dtype.is_floating:
        number = round_to(dtype, float(value))
        suffix = "" if dtype is DType.f64 else "f"
        kind = VALUE_TYPES[dtype]
        if math.isnan(number):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(number):
            return f"{'-' if number < 0 else ''}({kind})__builtin_inf()"
        return f"{number!r}{suffix}" if dtype is DType.f64 else f"{_shortest(number)}f"
    whole = int(value)
    if whole == -2**63:
        return "INT64_MIN"
    return f"({VALUE_TYPES[dtype]}){whole}" if whole >= 0 else f"({VALUE_TYPES[dtype]})({whole})"


def _shortest(number: float) -> str:
    """The shortest decimal text that reads back as this f32."""
    for digits in range(6, 18):
        text = f"{number:.{digits}g}"
        if struct.pack("f", float(text)) == struct.pack("f", number):
            break
    return text if any(c in text for c in ".en") else f"{text}.0"


def index_text(value: Expression, ranges: Ranges) -> str:
    """A C++ expression of type int64_t with the value of ``value``; floor division is plain division where nothing is negative."""
    match value:
        case Integer(number):
            return "INT64_MIN" if number == -2**63 else str(number)
        case Symbol(name):
            return name
        case Add(terms):
            text = index_text(terms[0], ranges)
            for term in terms[1:]:
                part = index_text(term, ranges)
                text += f" - {part[1:]}" if part.startswith("-") else f" + {part}"
            return text
        case Multiply(coefficient, factors):
            parts = [_operand(factor, ranges) for factor in factors]
            if coefficient == -1:
                return "-" + "*".join(parts)
            if coefficient != 1:
                parts.insert(1 if coefficient > 0 else 0, str(coefficient))
            return "*".join(parts)
        case FloorDivide(a, b):
            return _division(a, b, "/", "floor_divide", ranges)
        case Modulo(a, b):
            return _division(a, b, "%", "floor_modulo", ranges)
        case Minimum(a, b):
            return f"minimum_index({index_text(a, ranges)}, {index_text(b, ranges)})"
        case Maximum(a, b):
            return f"maximum_index({index_text(a, ranges)}, {index_text(b, ranges)})"
    raise TypeError(value)


def _operand(value: Expression, ranges: Ranges) -> str:
    text = index_text(value, ranges)
    return f"({text})" if isinstance(value, (Add, Multiply)) or text.startswith("-") else text


def _division(a: Expression, b: Expression, symbol: str, function: str, ranges: Ranges) -> str:
    if ranges.non_negative(a) and ranges.positive(b):
        return f"({_operand(a, ranges)} {symbol} {_operand(b, ranges)})"
    return f"{function}({index_text(a, ranges)}, {index_text(b, ranges)})"
