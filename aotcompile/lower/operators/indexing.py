"""Reads and writes at positions that are data: gather, index, embedding, index_put, scatter.

A position is a value bound to a symbol (`Load.bindings`), negative ones wrapped; the kernel checks it against the size and stops where eager
would raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Expression, Integer, Symbol
from aotcompile.ir.nodes import Compute, Constant, IndexValue, Load, Store, Value
from aotcompile.ir.simplify import simplify
from aotcompile.ir.traverse import Rewriter
from aotcompile.lower.graph_facts import node_origin
from aotcompile.lower.operands import Operand, apply, element, fits
from aotcompile.lower.registry import lowering
from aotcompile.lower.symbols import convert
from aotcompile.lower.tensors import Index, Tensor, broadcast_index, flat_index

if TYPE_CHECKING:
    from torch.fx import Node

    from aotcompile.lower.context import Context

Bindings = tuple[tuple[Symbol, Value], ...]
Checks = tuple[tuple[Symbol, Expression], ...]


def position(context: "Context", value: Value, size: Expression, wrap: bool) -> tuple[Symbol, Value]:
    """A data-dependent index: (symbol, i64 value); ``wrap``: negative ones count from the end."""
    value = convert(value, DType.i64)
    if wrap:
        length = Constant(DType.i64, size.value) if isinstance(size, Integer) else IndexValue(DType.i64, size)
        value = apply("where", apply("lt", value, Constant(DType.i64, 0)), apply("add", value, length), value)
    return context.bind(value), value


def bound_load(x: Tensor, index: Index, bindings: Bindings, checks: Checks) -> Value:
    """``x[index]`` with symbols of ``index`` bound to data. ``x`` is memory."""
    assert x.root.buffer is not None
    return Load(x.dtype, x.root.buffer, flat_index(index, x.strides, x.offset), bindings, checks)


def _dimension(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


@lowering("aten.gather.default")
def _gather(context: "Context", node: "Node", x: Tensor, dim: int, index_tensor: Tensor, *, sparse_grad: bool = False) -> Any:
    if sparse_grad or not x.rank or not index_tensor.rank:
        return NotImplemented
    return _take(
        context,
        node,
        x,
        _dimension(dim, x.rank),
        lambda index: index_tensor.load(index),
        lambda index, at, dim: (*index[:dim], at, *index[dim + 1 :]),
        False,
    )


def _take(context: "Context", node: "Node", x: Tensor, dim: int, positions: Any, place: Any, wrap: bool) -> Tensor:
    context.realize_root(x.root)

    def function(index: Index) -> Value:
        symbol, value = position(context, positions(index), x.sizes[dim], wrap)
        return bound_load(x, place(index, symbol, dim), ((symbol, value),), ((symbol, x.sizes[dim]),))

    return context.fresh(context.root(node), function)


@lowering("aten.index_select.default")
def _index_select(context: "Context", node: "Node", x: Tensor, dim: int, index_tensor: Tensor) -> Any:
    if not x.rank or not index_tensor.rank:
        return NotImplemented
    dim = _dimension(dim, x.rank)
    return _take(
        context, node, x, dim, lambda index: index_tensor.load((index[dim],)), lambda index, at, dim: (*index[:dim], at, *index[dim + 1 :]), False
    )


@lowering("aten.embedding.default")
def _embedding(
    context: "Context", node: "Node", weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    return _take(context, node, weight, 0, lambda index: indices.load(index[:-1]), lambda index, at, dim: (at, index[-1]), False)


# ---- index, index_put ---------------------------------------------------------------------------------------------------------------------


def _index_layout(x: Tensor, indices: tuple[Tensor | None, ...]) -> tuple[list[int], int, int]:
    """(indexed dimensions, number of broadcast dimensions of the index tensors, where these stand in the result)."""
    indexed = [d for d, tensor in enumerate(indices) if tensor is not None]
    rank = max((tensor.rank for tensor in indices if tensor is not None), default=0)
    adjacent = indexed == list(range(indexed[0], indexed[0] + len(indexed)))
    return indexed, rank, indexed[0] if adjacent else 0


def _supported_indices(indices: tuple[Tensor | None, ...], device: str) -> bool:
    given = [tensor for tensor in indices if tensor is not None]
    return bool(given) and all(tensor.dtype in (DType.i64, DType.i32) and (tensor.device == device) for tensor in given)


def _address(context: "Context", x: Tensor, indices: tuple[Tensor | None, ...], index: Index, wrap: bool = True) -> tuple[Index, Bindings, Checks]:
    """The element of ``x`` that element ``index`` of ``x[indices]`` is."""
    indexed, rank, start = _index_layout(x, indices)
    inner = index[start : start + rank]
    rest = iter((*index[:start], *index[start + rank :]))
    result: list[Expression] = []
    bindings: dict[Symbol, Value] = {}
    checks: dict[tuple[Symbol, Expression], None] = {}
    for d in range(x.rank):
        tensor = indices[d] if d < len(indices) else None
        if tensor is None:
            result.append(next(rest))
        else:
            symbol, value = position(context, tensor.load(broadcast_index(inner, tensor.sizes)), x.sizes[d], wrap)
            bindings[symbol] = value
            checks[symbol, x.sizes[d]] = None
            result.append(symbol)
    return tuple(result), tuple(bindings.items()), tuple(checks)


@lowering("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(context: "Context", node: "Node", x: Tensor, indices: tuple[Tensor | None, ...]) -> Any:
    if not _supported_indices(indices, x.device):
        return NotImplemented  # masks: the result's size is data
    context.realize_root(x.root)
    return context.fresh(context.root(node), lambda index: bound_load(x, *_address(context, x, indices, index)))


@lowering("aten.index_put.default", "aten._unsafe_index_put.default")
def _index_put(context: "Context", node: "Node", x: Tensor, indices: tuple[Tensor | None, ...], values: Tensor, accumulate: bool = False) -> Any:
    given = [tensor for tensor in indices if tensor is not None]
    if not accumulate and len(given) == 1 and len(indices) == 1 and given[0].dtype is DType.b8 and not values.rank:
        mask = given[0]  # x[mask] = number: a choice, element by element
        return context.fresh(
            context.root(node),
            lambda index: apply(
                "where", mask.load(index[: mask.rank]), convert(element(context, values, (), values.dtype, x.device), x.dtype), x.load(index)
            ),
        )
    if (
        not _supported_indices(indices, x.device)
        or values.dtype is not x.dtype
        or (values.device != x.device and values.rank)
        or (accumulate and x.dtype is DType.b8)
    ):
        return NotImplemented
    indexed, rank, start = _index_layout(x, indices)
    inner = _broadcast_sizes([tensor.sizes for tensor in given], rank)
    kept = [x.sizes[d] for d in range(x.rank) if d not in indexed]
    sizes = (*kept[:start], *inner, *kept[start:])
    return update(
        context,
        node,
        x,
        sizes,
        lambda index: _address(context, x, indices, index),
        lambda index: element(context, values, index, x.dtype, x.device),
        "add" if accumulate else "assign",
    )


@lowering("aten.index_add.default")
def _index_add(context: "Context", node: "Node", x: Tensor, dim: int, index_tensor: Tensor, source: Tensor, *, alpha: Operand = 1) -> Any:
    def value(index: Index) -> Value:
        factor = element(context, alpha, (), x.dtype, x.device)
        return source.load(index) if isinstance(alpha, int) and alpha == 1 else apply("mul", source.load(index), factor)

    if x.dtype is DType.b8 or not fits(alpha, x.dtype):
        return NotImplemented
    if source.dtype is not x.dtype:
        return NotImplemented
    return _at_rows(context, node, x, dim, index_tensor, value, "add")


@lowering("aten.index_copy.default")
def _index_copy(context: "Context", node: "Node", x: Tensor, dim: int, index_tensor: Tensor, source: Tensor) -> Any:
    return NotImplemented if source.dtype is not x.dtype else _at_rows(context, node, x, dim, index_tensor, source.load, "assign")


@lowering("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def _index_fill(context: "Context", node: "Node", x: Tensor, dim: int, index_tensor: Tensor, value: Operand) -> Any:
    if not isinstance(value, Tensor) and not fits(value, x.dtype):
        return NotImplemented
    return _at_rows(context, node, x, dim, index_tensor, lambda index: element(context, value, (), x.dtype, x.device), "assign", wrap=True)


def _at_rows(context: "Context", node: "Node", x: Tensor, dim: int, index_tensor: Tensor, value: Any, mode: str, wrap: bool = False) -> Any:
    """``value`` into the slices of ``x`` that ``index_tensor`` names. ``wrap``: negative ones count from the end; otherwise they are errors."""
    if not x.rank or index_tensor.rank != 1 or index_tensor.dtype not in (DType.i64, DType.i32):
        return NotImplemented
    dim = _dimension(dim, x.rank)

    def address(index: Index) -> tuple[Index, Bindings, Checks]:
        symbol, at = position(context, index_tensor.load((index[dim],)), x.sizes[dim], wrap)
        return (*index[:dim], symbol, *index[dim + 1 :]), ((symbol, at),), ((symbol, x.sizes[dim]),)

    return update(context, node, x, (*x.sizes[:dim], index_tensor.sizes[0], *x.sizes[dim + 1 :]), address, value, mode)


def _broadcast_sizes(shapes: list[Index], rank: int) -> Index:
    result: list[Expression] = [Integer(1)] * rank
    for shape in shapes:
        for number, size in enumerate(reversed(shape)):
            if result[rank - 1 - number] == Integer(1):
                result[rank - 1 - number] = size
    return tuple(result)


def update(context: "Context", node: "Node", x: Tensor, sizes: Index, address: Any, value: Any, mode: Any) -> Tensor:
    """A copy of ``x``, then ``copy[address(i)] = value(i)`` (mode ``add``: ``+=``) for every ``i`` in ``sizes``."""
    root = context.root(node)
    origin = node_origin(node)
    copy = context.temporary(f"{root.name}_base", root.dtype, root.sizes, root.device, origin, x.load, root.strides)
    base = context.realize_root(copy.root)
    loops, index = context.loops(sizes)
    ranges = context.ranges(loops)
    target, bindings, checks = address(index)
    body, origins = context.body(value, index, loops, origin)
    rewrite = Rewriter(lambda expression: simplify(expression, ranges))
    store = Store(simplify(flat_index(target, root.strides), ranges), mode, tuple((symbol, rewrite(bound)) for symbol, bound in bindings), checks)
    root.buffer = context.new_buffer(root.name, root.dtype, root.sizes, root.strides, root.device)
    context.emit(Compute(root.buffer, loops, body, store, updates=base, origins=origins))
    context.aliases[root.buffer] = base
    return context.tensor(root)


# ---- scatter ------------------------------------------------------------------------------------------------------------------------------


def _scatter(context: "Context", node: "Node", x: Tensor, dim: int, index_tensor: Tensor, source: Operand, mode: str) -> Any:
    if (
        not x.rank
        or not index_tensor.rank
        or index_tensor.dtype is not DType.i64
        or not fits(source, x.dtype)
        or (mode == "add" and x.dtype is DType.b8)
    ):
        return NotImplemented
    if isinstance(source, Tensor) and (source.dtype is not x.dtype or source.device != x.device):
        return NotImplemented
    dim = _dimension(dim, x.rank)

    def address(index: Index) -> tuple[Index, Bindings, Checks]:
        symbol, value = position(context, index_tensor.load(index), x.sizes[dim], False)
        return (*index[:dim], symbol, *index[dim + 1 :]), ((symbol, value),), ((symbol, x.sizes[dim]),)

    def value(index: Index) -> Value:
        return source.load(index) if isinstance(source, Tensor) else element(context, source, index, x.dtype, x.device)

    return update(context, node, x, index_tensor.sizes, address, value, mode)


@lowering("aten.scatter.src", "aten.scatter.value")
def _scatter_assign(context: "Context", node: "Node", x: Tensor, dim: int, index_tensor: Tensor, source: Operand = None, **keywords: Any) -> Any:
    given = keywords.get("src", keywords.get("value", source))
    return _scatter(context, node, x, dim, index_tensor, given, "assign")


@lowering("aten.scatter_add.default")
def _scatter_add(context: "Context", node: "Node", x: Tensor, dim: int, index_tensor: Tensor, source: Tensor) -> Any:
    return _scatter(context, node, x, dim, index_tensor, source, "add")
