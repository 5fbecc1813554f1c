"""Concatenation, padding, and results with some elements from one tensor and some from another (slice_scatter, select_scatter)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import ONE, Expression, Integer, add, floor_divide, modulo, multiply
from aotcompile.ir.nodes import Constant, IndexValue, Masked, Value
from aotcompile.lower.operands import Operand, apply, element
from aotcompile.lower.operators.views import argument_as_size, better_copied, slice_bound
from aotcompile.lower.registry import lowering
from aotcompile.lower.symbols import ScalarValue, convert
from aotcompile.lower.tensors import Index, Tensor

if TYPE_CHECKING:
    from torch.fx import Node

    from aotcompile.lower.context import Context

MOST_PARTS = 8


def at_least(position: Expression, bound: Expression) -> Value:
    return apply(
        "ge", IndexValue(DType.i64, position), IndexValue(DType.i64, bound) if not isinstance(bound, Integer) else Constant(DType.i64, bound.value)
    )


def below(position: Expression, bound: Expression) -> Value:
    return apply(
        "lt", IndexValue(DType.i64, position), IndexValue(DType.i64, bound) if not isinstance(bound, Integer) else Constant(DType.i64, bound.value)
    )


def both(conditions: list[Value]) -> Value:
    result = conditions[0] if conditions else Constant(DType.b8, True)
    for condition in conditions[1:]:
        result = apply("logical_and", result, condition)
    return result


@lowering("aten.cat.default")
def _cat(context: "Context", node: "Node", tensors: tuple[Tensor, ...], dim: int = 0) -> Any:
    root = context.root(node)
    parts = [tensor for tensor in tensors if not (tensor.rank == 1 and tensor.sizes[0] == Integer(0))]  # legacy: empty 1-d tensors are ignored
    if not parts or len(parts) > MOST_PARTS or any(tensor.device != root.device or tensor.rank != len(root.sizes) for tensor in parts):
        return NotImplemented
    dim = dim + len(root.sizes) if dim < 0 else dim
    if len(parts) > 1 and dim == len(root.sizes) - 1 and better_copied(root):
        return NotImplemented
    starts: list[Expression] = [Integer(0)]
    for tensor in parts:
        starts.append(add(starts[-1], tensor.sizes[dim]))

    def function(index: Index) -> Value:
        result: Value | None = None
        for tensor, start in zip(reversed(parts), reversed(starts[:-1])):
            position = add(index[dim], multiply(-1, start))
            value = convert(
                tensor.load(
                    tuple(
                        Integer(0) if size == ONE and d != dim else position if d == dim else i
                        for d, (i, size) in enumerate(zip(index, tensor.sizes))
                    )
                ),
                root.dtype,
            )
            mask = at_least(index[dim], start) if result is None else below(index[dim], add(start, tensor.sizes[dim]))
            if result is None:
                result = (
                    value
                    if len(parts) == 1
                    else Masked(
                        root.dtype, mask, value, Constant(root.dtype, 0.0 if root.dtype.is_floating else False if root.dtype is DType.b8 else 0)
                    )
                )
            else:
                result = Masked(root.dtype, mask, value, result)
        assert result is not None
        return result

    return context.fresh(root, function)


@lowering("aten.constant_pad_nd.default")
def _pad(context: "Context", node: "Node", x: Tensor, pad: tuple[Any, ...], value: Operand = 0) -> Any:
    if any(isinstance(part, ScalarValue) for part in (*pad, value)) or isinstance(value, complex):
        return NotImplemented
    root = context.root(node)
    before = {x.rank - 1 - number: pad[2 * number] for number in range(len(pad) // 2)}
    after = {x.rank - 1 - number: pad[2 * number + 1] for number in range(len(pad) // 2)}
    if any(pad[:2]) and better_copied(root):
        return NotImplemented

    def function(index: Index) -> Value:
        inside = tuple(add(i, multiply(-1, before.get(d, 0))) for d, i in enumerate(index))
        conditions: list[Value] = []
        for d in range(x.rank):
            if before.get(d, 0) != 0 and not _is_negative(before[d]):
                conditions.append(at_least(inside[d], Integer(0)))
            if after.get(d, 0) != 0 and not _is_negative(after[d]):
                conditions.append(below(inside[d], x.sizes[d]))
        if not conditions:
            return x.load(inside)
        return Masked(root.dtype, both(conditions), x.load(inside), element(context, value, index, root.dtype, root.device))

    return context.fresh(root, function)


def _is_negative(amount: Any) -> bool:
    return isinstance(amount, int) and amount < 0


@lowering("aten.slice_scatter.default")
def _slice_scatter(
    context: "Context", node: "Node", x: Tensor, source: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    dim = dim + x.rank if dim < 0 else dim
    if not isinstance(step, int):
        return NotImplemented
    begin, length = slice_bound(context, argument_as_size(context, node, 3, start), x.sizes[dim]), source.sizes[dim]
    root = context.root(node)

    def function(index: Index) -> Value:
        offset = add(index[dim], multiply(-1, begin))
        conditions = [] if begin == Integer(0) else [at_least(index[dim], begin)]
        if add(begin, multiply(length, step)) != x.sizes[dim] or step != 1:
            conditions.append(below(index[dim], add(begin, multiply(length, step))))
        if step != 1:
            conditions.append(apply("eq", IndexValue(DType.i64, modulo(offset, step)), Constant(DType.i64, 0)))
        value = convert(source.load((*index[:dim], floor_divide(offset, step), *index[dim + 1 :])), root.dtype)
        return value if not conditions else Masked(root.dtype, both(conditions), value, x.load(index))

    return context.fresh(root, function)


@lowering("aten.select_scatter.default")
def _select_scatter(context: "Context", node: "Node", x: Tensor, source: Tensor, dim: int, position: Any) -> Any:
    position = argument_as_size(context, node, 3, position)
    dim = dim + x.rank if dim < 0 else dim
    if isinstance(position, Expression):                     # a select of the same position has checked it
        position = modulo(position, x.sizes[dim])
    where = position if isinstance(position, Expression) else Integer(position) if position >= 0 else add(x.sizes[dim], position)
    root = context.root(node)

    def function(index: Index) -> Value:
        equal = apply("eq", IndexValue(DType.i64, index[dim]), convert(IndexValue(DType.i64, where), DType.i64))
        return Masked(root.dtype, equal, convert(source.load((*index[:dim], *index[dim + 1 :])), root.dtype), x.load(index))

    return context.fresh(root, function)
