"""Elementwise operators: arithmetic, comparisons, elementary functions, casts, choices.

Rounding follows eager on the CPU. ``bf16 + bf16`` is one `Apply` of dtype bf16 (computed in f32, rounded). A product or quotient with a Python
number keeps the number in f32, so it is computed in f32 and cast; sums, powers and comparisons round the number to bf16 first. (Found by
comparing bits.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from aotcompile.ir.dtypes import DType
from aotcompile.ir.nodes import Constant, Value
from aotcompile.lower.graph_facts import dtype_of
from aotcompile.lower.operands import Operand, apply, constant, element, elementwise, fits, is_scalar, promoted
from aotcompile.lower.registry import lowering
from aotcompile.lower.symbols import ScalarValue, convert
from aotcompile.lower.tensors import Index, Tensor

if TYPE_CHECKING:
    from torch.fx import Node

    from aotcompile.lower.context import Context


def result_of(node: "Node") -> DType:
    return dtype_of(node.meta["val"].dtype)


# ---- one operand --------------------------------------------------------------------------------------------------------------------------

_FLOAT = {
    name: name
    for name in (
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf erfc "
        "lgamma sigmoid"
    ).split()
}


def _unary(operator: str, floats_only: bool) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", x: Tensor) -> Any:
        dtype = result_of(node)
        if dtype is DType.b8 or floats_only and not dtype.is_floating:
            return NotImplemented
        return elementwise(context, node, [x], dtype, lambda value: apply(operator, value))

    return lower


for _name in _FLOAT:
    lowering(f"aten.{_name}.default")(_unary(_FLOAT[_name], True))
for _name, _operator in {"neg": "neg", "abs": "abs", "sign": "sign", "sgn": "sign"}.items():
    lowering(f"aten.{_name}.default")(_unary(_operator, False))


def _rounding(operator: str) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", x: Tensor) -> Any:
        return elementwise(context, node, [x], x.dtype, lambda value: apply(operator, value) if value.dtype.is_floating else value)

    return lower


for _name in ("floor", "ceil", "trunc", "round"):
    lowering(f"aten.{_name}.default")(_rounding(_name))


def _test(operator: str) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", x: Tensor) -> Any:
        return elementwise(
            context, node, [x], x.dtype, lambda value: apply(operator, value) if value.dtype.is_floating else Constant(DType.b8, False)
        )

    return lower


for _name in ("isnan", "isinf"):
    lowering(f"aten.{_name}.default")(_test(_name))


@lowering("aten.signbit.default")
def _signbit(context: "Context", node: "Node", x: Tensor) -> Any:
    return NotImplemented if x.dtype is DType.b8 else elementwise(context, node, [x], x.dtype, lambda value: apply("signbit", value))


@lowering("aten.logical_not.default")
def _logical_not(context: "Context", node: "Node", x: Tensor) -> Any:
    return elementwise(context, node, [x], DType.b8, lambda value: apply("logical_not", value))


@lowering("aten.bitwise_not.default")
def _bitwise_not(context: "Context", node: "Node", x: Tensor) -> Any:
    return elementwise(context, node, [x], x.dtype, lambda value: apply("bitwise_not", value))


@lowering("aten.relu.default")
def _relu(context: "Context", node: "Node", x: Tensor) -> Any:
    return (
        NotImplemented
        if x.dtype is DType.b8
        else elementwise(context, node, [x], x.dtype, lambda value: apply("maximum", constant(value.dtype, 0), value))
    )


@lowering("aten.leaky_relu.default")
def _leaky_relu(context: "Context", node: "Node", x: Tensor, negative_slope: Operand = 0.01) -> Any:
    def function(value: Value, slope: Value) -> Value:
        return apply("where", apply("gt", value, constant(value.dtype, 0)), value, apply("mul", value, slope))

    return elementwise(context, node, [x, negative_slope], x.dtype, function, wide=True)


@lowering("aten.elu.default")
def _elu(context: "Context", node: "Node", x: Tensor, alpha: Operand = 1.0, scale: Operand = 1.0, input_scale: Operand = 1.0) -> Any:
    def function(value: Value, alpha: Value, scale: Value, input_scale: Value) -> Value:
        negative = apply("mul", apply("expm1", apply("mul", value, input_scale)), apply("mul", alpha, scale))
        return apply("where", apply("gt", value, constant(value.dtype, 0)), apply("mul", value, scale), negative)

    return elementwise(context, node, [x, alpha, scale, input_scale], x.dtype, function, wide=True)


@lowering("aten.gelu.default")
def _gelu(context: "Context", node: "Node", x: Tensor, *, approximate: str = "none") -> Any:
    def exact(value: Value) -> Value:
        inner = apply("erf", apply("mul", value, constant(value.dtype, math.sqrt(0.5))))
        return apply("mul", apply("mul", value, constant(value.dtype, 0.5)), apply("add", inner, constant(value.dtype, 1.0)))

    def tanh(value: Value) -> Value:
        cube = apply("mul", apply("mul", value, value), value)
        inner = apply("mul", apply("add", value, apply("mul", cube, constant(value.dtype, 0.044715))), constant(value.dtype, math.sqrt(2 / math.pi)))
        return apply("mul", apply("mul", value, constant(value.dtype, 0.5)), apply("add", apply("tanh", inner), constant(value.dtype, 1.0)))

    return elementwise(context, node, [x], x.dtype, tanh if approximate == "tanh" else exact, wide=True)


@lowering("aten.hardtanh.default")
def _hardtanh(context: "Context", node: "Node", x: Tensor, min_val: Operand = -1, max_val: Operand = 1) -> Any:
    return _clamp(context, node, x, min_val, max_val)


@lowering("aten.clamp.default", "aten.clamp.Tensor")
def _clamp(context: "Context", node: "Node", x: Tensor, min: Operand = None, max: Operand = None) -> Any:
    dtype = result_of(node)
    if dtype is DType.b8:
        return NotImplemented
    bounds = [(operator, bound) for operator, bound in (("maximum", min), ("minimum", max)) if bound is not None]

    def function(value: Value, *limits: Value) -> Value:
        for (operator, bound), limit in zip(bounds, limits):   # of equal operands, which 0 and -0 are, an extreme is the second one
            value = apply(operator, value, limit) if isinstance(bound, Tensor) else apply(operator, limit, value)
        return value

    return elementwise(context, node, [x, *(bound for _, bound in bounds)], dtype, function)


@lowering("aten.clamp_min.default", "aten.clamp_min.Tensor")
def _clamp_min(context: "Context", node: "Node", x: Tensor, min: Operand) -> Any:
    return _clamp(context, node, x, min, None)


@lowering("aten.clamp_max.default", "aten.clamp_max.Tensor")
def _clamp_max(context: "Context", node: "Node", x: Tensor, max: Operand) -> Any:
    return _clamp(context, node, x, None, max)


# ---- arithmetic ---------------------------------------------------------------------------------------------------------------------------


def _arithmetic(operator: str, *, bools: bool = False, wide: bool = False) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", a: Operand, b: Operand) -> Any:
        dtype = result_of(node)
        if dtype is DType.b8 and not bools:
            return NotImplemented
        return elementwise(context, node, [a, b], dtype, lambda x, y: apply(operator, x, y), wide=wide and is_scalar(b))

    return lower


lowering("aten.mul.Tensor", "aten.mul.Scalar")(_arithmetic("mul", bools=True, wide=True))
lowering("aten.maximum.default")(_arithmetic("maximum", bools=True))
lowering("aten.minimum.default")(_arithmetic("minimum", bools=True))
lowering("aten.atan2.default")(_arithmetic("atan2"))
lowering("aten.hypot.default")(_arithmetic("hypot"))
lowering("aten.copysign.Tensor", "aten.copysign.Scalar")(_arithmetic("copysign"))
lowering("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")(_arithmetic("remainder"))
lowering("aten.fmod.Tensor", "aten.fmod.Scalar")(_arithmetic("fmod"))
lowering("aten.floor_divide.default")(_arithmetic("floordiv"))


def _sum(operator: str) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", a: Operand, b: Operand, alpha: Operand = 1) -> Any:
        dtype = result_of(node)
        if dtype is DType.b8 and (operator != "add" or alpha not in (1, True)):
            return NotImplemented
        if alpha == 1 and not isinstance(alpha, ScalarValue):
            return elementwise(context, node, [a, b], dtype, lambda x, y: apply(operator, x, y))
        if not dtype.is_floating:
            return elementwise(context, node, [a, b, alpha], dtype, lambda x, y, scale: apply(operator, x, apply("mul", y, scale)))
        sign = (lambda scale: scale) if operator == "add" else (lambda scale: apply("neg", scale))
        return elementwise(context, node, [a, b, alpha], dtype, lambda x, y, scale: apply("fma", y, sign(scale), x), wide=True, rounded=True)

    return lower


lowering("aten.add.Tensor", "aten.add.Scalar")(_sum("add"))
lowering("aten.sub.Tensor", "aten.sub.Scalar")(_sum("sub"))


def _with_product(combine: Callable[[Value, Value, Value], Value]) -> Callable[..., Any]:
    """``x + value*a*b`` and the like. The operands are rounded to the result's type as in any operator; ``value`` is not, and f16/bf16 are computed
    with in f32."""

    def lower(context: "Context", node: "Node", x: Tensor, a: Tensor, b: Tensor, *, value: Operand = 1) -> Any:
        dtype = result_of(node)
        work = DType.f32 if dtype in (DType.f16, DType.bf16) else dtype
        if dtype is DType.b8 or not fits(value, work):
            return NotImplemented
        device = context.root(node).device

        def function(first: Value, second: Value, third: Value) -> Value:
            scaled = second if value == 1 and not isinstance(value, ScalarValue) else apply("mul", element(context, value, (), work, device), second)
            return combine(first, scaled, third)

        return elementwise(context, node, [x, a, b], dtype, function, wide=True, rounded=True)

    return lower


def _product_added(x: Value, a: Value, b: Value) -> Value:
    return apply("fma", a, b, x) if x.dtype.is_floating else apply("add", x, apply("mul", a, b))


lowering("aten.addcmul.default")(_with_product(_product_added))
lowering("aten.addcdiv.default")(_with_product(lambda x, a, b: apply("add", x, apply("truediv", a, b))))


@lowering("aten.lerp.Scalar", "aten.lerp.Tensor")
def _lerp(context: "Context", node: "Node", x: Tensor, end: Tensor, weight: Operand) -> Any:
    """From the nearer end, with one rounding, as eager's vectors do."""
    if not result_of(node).is_floating:
        return NotImplemented

    def function(first: Value, last: Value, by: Value) -> Value:
        difference, one = apply("sub", last, first), constant(by.dtype, 1)
        near = apply("lt", apply("abs", by), constant(by.dtype, 0.5))
        return apply("where", near, apply("fma", by, difference, first), apply("fma", difference, apply("sub", by, one), last))

    return elementwise(context, node, [x, end, weight], result_of(node), function, wide=True)


@lowering("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def _div(context: "Context", node: "Node", a: Operand, b: Operand) -> Any:
    return elementwise(context, node, [a, b], result_of(node), lambda x, y: apply("truediv", x, y), wide=is_scalar(b))


@lowering("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div_mode(context: "Context", node: "Node", a: Operand, b: Operand, *, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return _div(context, node, a, b)
    dtype = result_of(node)
    if dtype is DType.b8:
        return NotImplemented

    def function(x: Value, y: Value) -> Value:
        if rounding_mode == "floor":
            return apply("floordiv", x, y)
        return apply("trunc", apply("truediv", x, y)) if dtype.is_floating else apply("truncdiv", x, y)

    return elementwise(context, node, [a, b], dtype, function, wide=is_scalar(b))


@lowering("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def _pow(context: "Context", node: "Node", a: Operand, b: Operand) -> Any:
    dtype = result_of(node)
    return NotImplemented if dtype is DType.b8 else elementwise(context, node, [a, b], dtype, lambda x, y: apply("pow", x, y))


@lowering("aten.pow.Tensor_Scalar")
def _pow_scalar(context: "Context", node: "Node", a: Tensor, b: Operand) -> Any:
    dtype = result_of(node)
    if dtype is DType.b8 or (dtype.is_integral and not (isinstance(b, int) and b >= 0)):
        return NotImplemented  # a negative power of integers: eager raises
    special = _powers(dtype)
    if isinstance(b, (int, float)):
        function = special.get(float(b))
        if function is not None:
            return elementwise(context, node, [a], dtype, lambda x: convert(function(x), x.dtype), wide=dtype is DType.f16)
        return elementwise(context, node, [a, b], dtype, lambda x, y: apply("pow", x, y))

    def unknown(x: Value, exponent: Value) -> Value:
        result = apply("pow", x, exponent)
        for number, power in special.items() if dtype.is_floating else ():
            result = apply("where", apply("eq", exponent, constant(exponent.dtype, number)), power(x), result)
        return result

    return elementwise(context, node, [a, b], dtype, unknown)


def _powers(dtype: DType) -> dict[float, Callable[[Value], Value]]:
    """Exponents that eager computes in another way than by raising to a power: they differ in -0.0 and -inf as well as in the last bit."""
    powers: dict[float, Callable[[Value], Value]] = {
        0.0: lambda x: constant(x.dtype, 1),
        1.0: lambda x: x,
        2.0: lambda x: apply("mul", x, x),
        3.0: lambda x: apply("mul", apply("mul", x, x), x),
    }
    if dtype.is_floating:
        powers |= {-1.0: lambda x: apply("reciprocal", x), -2.0: lambda x: apply("reciprocal", apply("mul", x, x))}
    if dtype.is_floating and dtype is not DType.f16:
        powers |= {0.5: lambda x: apply("sqrt", x), -0.5: lambda x: apply("rsqrt", x)}
    return powers


def _ignoring_nan(operator: str) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", a: Tensor, b: Tensor) -> Any:
        dtype = result_of(node)

        def function(x: Value, y: Value) -> Value:
            if not dtype.is_floating:
                return apply(operator, x, y)
            extreme = apply(operator, x, y) if dtype in (DType.bf16, DType.f16) else apply(operator, y, x)
            return apply("where", apply("isnan", x), y, apply("where", apply("isnan", y), x, extreme))

        return elementwise(context, node, [a, b], dtype, function)

    return lower


lowering("aten.fmax.default")(_ignoring_nan("maximum"))
lowering("aten.fmin.default")(_ignoring_nan("minimum"))


@lowering("prims.fma.default")
def _fma(context: "Context", node: "Node", a: Operand, b: Operand, c: Operand) -> Any:
    return (
        elementwise(context, node, [a, b, c], result_of(node), lambda x, y, z: apply("fma", x, y, z))
        if result_of(node).is_floating
        else NotImplemented
    )


# ---- comparisons, logic, bits -------------------------------------------------------------------------------------------------------------


def _comparison(operator: str) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", a: Operand, b: Operand) -> Any:
        return elementwise(context, node, [a, b], promoted([a, b]), lambda x, y: apply(operator, x, y))

    return lower


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    lowering(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(_comparison(_name))


def _logical(operator: str) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", a: Tensor, b: Tensor) -> Any:
        return elementwise(context, node, [a, b], DType.b8, lambda x, y: apply(operator, x, y))

    return lower


for _name in ("logical_and", "logical_or", "logical_xor"):
    lowering(f"aten.{_name}.default")(_logical(_name))


def _bitwise(operator: str, shift: bool) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", a: Operand, b: Operand) -> Any:
        dtype = result_of(node)
        if dtype.is_floating or (shift and dtype is DType.b8):
            return NotImplemented
        return elementwise(context, node, [a, b], dtype, lambda x, y: apply(operator, x, y))

    return lower


for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    lowering(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar", f"aten.{_name}.Scalar_Tensor")(_bitwise(_name, False))
for _name, _operator in {"bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift"}.items():
    lowering(f"aten.{_name}.Tensor", f"aten.{_name}.Tensor_Scalar", f"aten.{_name}.Scalar_Tensor")(_bitwise(_operator, True))
for _name, _operator in {"__lshift__": "left_shift", "__rshift__": "right_shift"}.items():
    lowering(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(_bitwise(_operator, True))


# ---- choices and copies -------------------------------------------------------------------------------------------------------------------


@lowering("aten.where.self")
def _where(context: "Context", node: "Node", condition: Tensor, a: Operand, b: Operand) -> Any:
    root, dtype = context.root(node), result_of(node)
    if any(isinstance(operand, Tensor) and operand.device != root.device and operand.rank for operand in (condition, a, b)):
        return NotImplemented

    def recipe(index: Index) -> Value:
        chosen = (element(context, operand, index, dtype, root.device) for operand in (a, b))
        return apply("where", element(context, condition, index, DType.b8, root.device), *chosen)

    return context.fresh(root, recipe)


@lowering(
    "aten._to_copy.default",
    "aten.clone.default",
    "aten.lift_fresh_copy.default",
    "prims.convert_element_type.default",
    "aten.contiguous.default",
    "aten.to.dtype",
    "aten.view_copy.default",
    "aten.alias_copy.default",
    "aten.detach_copy.default",
)
def _copy(context: "Context", node: "Node", x: Tensor, *arguments: Any, **keywords: Any) -> Any:
    value = node.meta["val"]
    if node in context.facts.views or value.device.type != x.device or "view" in str(node.target):
        return NotImplemented
    return elementwise(context, node, [x], x.dtype, lambda element_: element_)


@lowering("aten.copy.default")
def _functional_copy(context: "Context", node: "Node", target: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
    return elementwise(context, node, [source], source.dtype, lambda value: value)


@lowering("aten.fill.Scalar", "aten.fill.Tensor")
def _fill(context: "Context", node: "Node", x: Tensor, value: Operand) -> Any:
    root = context.root(node)
    if isinstance(value, complex):
        return NotImplemented
    return context.fresh(root, lambda index: element(context, value, index, root.dtype, root.device))


@lowering("aten.scalar_tensor.default")
def _scalar_tensor(context: "Context", node: "Node", value: Operand, **keywords: Any) -> Any:
    root = context.root(node)
    if isinstance(value, complex) or not isinstance(node.meta["val"], torch.Tensor):
        return NotImplemented
    return context.fresh(root, lambda index: element(context, value, index, root.dtype, root.device))
