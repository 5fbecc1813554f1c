"""Every scalar operator of `ir.operators` as Triton text.

    expression("truediv", DType.f32, ["t0", "t1"])   ->   "tl.div_rn(t0, t1)"

Operands of f16 and bf16 arrive converted to f32 (see `computes_in`); the caller rounds the result. Functions of CUDA's libdevice are used
wherever eager's kernels use CUDA's math library: Triton's own `tl.exp` and the like are faster and less exact. Integer division by zero does
not stop a kernel: as in eager's CUDA kernels the result is unspecified.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from aotcompile.ir.dtypes import DType
from aotcompile.ir.operators import OPERATORS

TRITON = {
    DType.f64: "tl.float64", DType.f32: "tl.float32", DType.f16: "tl.float16", DType.bf16: "tl.bfloat16", DType.i64: "tl.int64",
    DType.i32: "tl.int32", DType.i16: "tl.int16", DType.i8: "tl.int8", DType.u8: "tl.uint8", DType.b8: "tl.int1",
}
SIGNATURE = {
    DType.f64: "fp64", DType.f32: "fp32", DType.f16: "fp16", DType.bf16: "bf16", DType.i64: "i64", DType.i32: "i32", DType.i16: "i16", DType.i8: "i8",
    DType.u8: "u8", DType.b8: "i1",
}
_PASSED_THROUGH = frozenset({"where"})                 # moves values, computes nothing
_HALF = (DType.f16, DType.bf16)
Text = Callable[[DType, Sequence[str]], str]


def computes_in(operator: str, dtype: DType) -> DType:
    """The type in which the operator's values are handled: f32 for f16 and bf16, rounded once afterwards."""
    return DType.f32 if dtype in _HALF and operator not in _PASSED_THROUGH else dtype


def expression(operator: str, dtype: DType, operands: Sequence[str]) -> str:
    """The text of ``operator`` over operands of type ``dtype`` (for ``where``: the type of the two values), which are names, literals or
    parenthesised."""
    return _TABLE[operator](dtype, operands)


def cast(text: str, source: DType, target: DType) -> str:
    """torch's conversion. ``text`` is a name or parenthesised."""
    if source is target:
        return text
    if target is DType.b8:
        return f"({_widened(text, source)} != 0)"
    if source.is_floating and target.is_integral:
        wide = _widened(text, source)
        if target is DType.u8:
            return f"{wide}.to(tl.int64).to(tl.uint8)"
        return f"{wide}.to({TRITON[target]})" if target.itemsize >= 4 else f"{wide}.to(tl.int32).to({TRITON[target]})"
    if source in _HALF and target in _HALF or source is DType.f64 and target in _HALF:
        return f"{text}.to(tl.float32).to({TRITON[target]})"
    if target in _HALF:
        return f"{text}.to(tl.float32).to({TRITON[target]})" if source is not DType.f32 else f"{text}.to({TRITON[target]})"
    return f"{text}.to({TRITON[target]})"


def _widened(text: str, source: DType) -> str:
    return f"{text}.to(tl.float32)" if source in _HALF else text


def helpers_of(text: str) -> tuple[str, ...]:
    """Names of the helper functions that a text calls, in the order of `HELPERS`, with those that they call themselves."""
    needed: set[str] = set()
    pending = [text]
    while pending:
        current = pending.pop()
        for name, body in HELPERS.items():
            if name not in needed and f"{name}(" in current or f", {name})" in current and name not in needed:
                needed.add(name)
                pending.append(body)
    return tuple(name for name in HELPERS if name in needed)


# ---- the table ----------------------------------------------------------------------------------------------------------------------------

def _infix(symbol: str) -> Text:
    return lambda dtype, operands: f"{operands[0]} {symbol} {operands[1]}"


def _call(name: str) -> Text:
    return lambda dtype, operands: f"{name}({', '.join(operands)})"


def _by_kind(floating: Text, integer: Text) -> Text:
    return lambda dtype, operands: (floating if dtype.is_floating else integer)(dtype, operands)


def _divide(dtype: DType, operands: Sequence[str]) -> str:
    return f"tl.div_rn({operands[0]}, {operands[1]})" if dtype is DType.f32 else f"{operands[0]} / {operands[1]}"


def _extreme(name: str, symbol: str) -> Text:
    def text(dtype: DType, operands: Sequence[str]) -> str:
        a, b = operands
        if dtype is DType.f32:
            return f"tl.{name}({a}, {b}, propagate_nan=tl.PropagateNan.ALL)"
        return f"tl.where(({a} {symbol} {b}) | ({a} != {a}), {a}, {b})" if dtype.is_floating else f"tl.{name}({a}, {b})"
    return text


def _sign(dtype: DType, operands: Sequence[str]) -> str:
    kind = TRITON[dtype]
    return f"({operands[0]} > 0).to({kind}) - ({operands[0]} < 0).to({kind})"


def _signbit(dtype: DType, operands: Sequence[str]) -> str:
    if dtype.is_floating:
        return f"{operands[0]}.to({'tl.int64' if dtype is DType.f64 else 'tl.int32'}, bitcast=True) < 0"
    return f"{operands[0]} < 0" if dtype.kind == "int" else f"{operands[0]} != {operands[0]}"


def _negative(dtype: DType, operands: Sequence[str]) -> str:
    return f"{operands[0]} * -1.0" if dtype.is_floating else f"-{operands[0]}"          # 0 - a, which -a is in some versions, loses the sign of zero


def _bitwise_not(dtype: DType, operands: Sequence[str]) -> str:
    if dtype.kind == "uint":                               # ~a is a ^ -1, and Triton's interpreter holds no -1 in an unsigned type
        return f"{operands[0]} ^ {(1 << 8 * dtype.itemsize) - 1}"
    return f"~{operands[0]}"


def _with_width(name: str) -> Text:
    return lambda dtype, operands: f"{name}({operands[0]}, {operands[1]}, {8 * dtype.itemsize})"


_LIBDEVICE = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh",
              "acosh", "atanh", "atan2", "hypot", "erf", "erfc", "lgamma", "trunc", "copysign", "rsqrt", "fma")

_TABLE: dict[str, Text] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "truediv": _divide,
    "floordiv": _by_kind(_call("floor_divide_float"), _call("floor_divide")),
    "truncdiv": _by_kind(lambda dtype, operands: f"libdevice.trunc({_divide(dtype, operands)})", _call("truncated_divide")),
    "fmod": _by_kind(_call("libdevice.fmod"), _call("truncated_remainder")),
    "remainder": _by_kind(_call("floor_remainder_float"), _call("floor_remainder")),
    "neg": _negative,
    "abs": _call("tl.abs"),
    "sign": _sign,
    "maximum": _extreme("maximum", ">"),
    "minimum": _extreme("minimum", "<"),
    "pow": _by_kind(_call("libdevice.pow"), _with_width("power")),
    "reciprocal": _call("libdevice.rcp_rn"),
    "floor": _call("tl.floor"),
    "ceil": _call("tl.ceil"),
    "round": _call("libdevice.rint"),
    "sqrt": lambda dtype, operands: f"tl.sqrt_rn({operands[0]})" if dtype is DType.f32 else f"tl.sqrt({operands[0]})",
    "sigmoid": lambda dtype, operands: f"libdevice.rcp_rn(1.0 + libdevice.exp({operands[0]} * -1.0))",
    "eq": _infix("=="), "ne": _infix("!="), "lt": _infix("<"), "le": _infix("<="), "gt": _infix(">"), "ge": _infix(">="),
    "isnan": lambda dtype, operands: f"{operands[0]} != {operands[0]}",
    "isinf": lambda dtype, operands: f"tl.abs({operands[0]}) == float(\"inf\")",
    "signbit": _signbit,
    "logical_and": _infix("&"), "logical_or": _infix("|"), "logical_xor": _infix("^"), "logical_not": lambda dtype, operands: f"~{operands[0]}",
    "bitwise_and": _infix("&"), "bitwise_or": _infix("|"), "bitwise_xor": _infix("^"), "bitwise_not": _bitwise_not,
    "left_shift": _with_width("shift_left"),
    "right_shift": _with_width("shift_right"),
    "where": _call("tl.where"),
    **{name: _call(f"libdevice.{name}") for name in _LIBDEVICE},
}
assert set(_TABLE) == set(OPERATORS)

# ---- helper functions of kernels.py; only those that a file needs are written --------------------------------------------------------------

HELPERS: dict[str, str] = {
    "safe_divisor": '''
@triton.jit
def safe_divisor(b):
    """``b`` where dividing by it is defined for every dividend; 1 for 0 and for -1, which callers treat themselves."""
    return tl.where((b == 0) | ((b < 0) & (b + 1 == 0)), b * 0 + 1, b)
''',
    "truncated_divide": '''
@triton.jit
def truncated_divide(a, b):
    """Integers: the quotient rounded to 0; dividing by -1 wraps."""
    return tl.where((b < 0) & (b + 1 == 0), a * b, a // safe_divisor(b))
''',
    "truncated_remainder": '''
@triton.jit
def truncated_remainder(a, b):
    """Integers: the remainder with the sign of a."""
    return a % safe_divisor(b)
''',
    "floor_divide": '''
@triton.jit
def floor_divide(a, b):
    """Integers: the quotient rounded to -inf (Triton's // rounds to 0)."""
    quotient = truncated_divide(a, b)
    return tl.where((a - quotient * b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)
''',
    "floor_remainder": '''
@triton.jit
def floor_remainder(a, b):
    """Integers: the remainder with the sign of b."""
    remainder = truncated_remainder(a, b)
    return tl.where((remainder != 0) & ((remainder < 0) != (b < 0)), remainder + b, remainder)
''',
    "floor_divide_float": '''
@triton.jit
def floor_divide_float(a, b):
    """Floats: Python's //, by way of fmod."""
    remainder = libdevice.fmod(a, b)
    quotient = libdevice.div_rn(a - remainder, b)
    quotient = tl.where((remainder != 0) & ((b < 0) != (remainder < 0)), quotient - 1.0, quotient)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1.0, whole)
    plain = libdevice.div_rn(a, b)
    whole = tl.where(quotient != 0, whole, libdevice.copysign(plain * 0.0, plain))
    return tl.where(b == 0, plain, whole)
''',
    "floor_remainder_float": '''
@triton.jit
def floor_remainder_float(a, b):
    """Floats: Python's %."""
    remainder = libdevice.fmod(a, b)
    return tl.where((remainder != 0) & ((b < 0) != (remainder < 0)), remainder + b, remainder)
''',
    "power": '''
@triton.jit
def power(a, b, width: tl.constexpr):
    """Integers, by squaring, wrapping; a negative exponent leaves 1 for 1, +-1 for -1, else 0."""
    one = a * 0 + 1
    result, base, exponent = one, a, b
    for _ in range(0, width):
        result = tl.where((exponent & 1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> 1
    odd = tl.where((b & 1) != 0, a, one)
    inverse = tl.where(a == 1, one, tl.where(a + 1 == 0, odd, one - 1))
    return tl.where(b < 0, inverse, result)
''',
    "shift_left": '''
@triton.jit
def shift_left(a, b, width: tl.constexpr):
    outside = (b < 0) | (b >= width)
    return tl.where(outside, a * 0, a << tl.where(outside, b * 0, b))
''',
    "shift_right": '''
@triton.jit
def shift_right(a, b, width: tl.constexpr):
    outside = (b < 0) | (b >= width)
    shifted = a >> tl.where(outside, b * 0, b)
    return tl.where(outside, tl.where(a < 0, a * 0 - 1, a * 0), shifted)
''',
    "combine_product": '''
@triton.jit
def combine_product(a, b):
    return a * b
''',
    "combine_maximum": '''
@triton.jit
def combine_maximum(a, b):
    """The larger; NaN if either is NaN."""
    return tl.where((a > b) | (a != a), a, b)
''',
    "combine_minimum": '''
@triton.jit
def combine_minimum(a, b):
    return tl.where((a < b) | (a != a), a, b)
''',
    "combine_exclusive_or": '''
@triton.jit
def combine_exclusive_or(a, b):
    return a ^ b
''',
    "combine_first_maximum": '''
@triton.jit
def combine_first_maximum(a, i, b, j):
    """Values with their positions: the larger value, NaN before all, the smaller position among equals."""
    greater = (a > b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = greater | (equal & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)
''',
    "combine_first_minimum": '''
@triton.jit
def combine_first_minimum(a, i, b, j):
    smaller = (a < b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = smaller | (equal & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)
''',
}
