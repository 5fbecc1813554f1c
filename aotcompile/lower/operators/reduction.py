"""Reductions.

The accumulator's dtype is the result's (f32 for f16/bf16, i64 for integer sums); what comes after (rounding, the division of a mean) is
elementwise and fuses. Whatever eager refuses, or defines by raising (an extreme over nothing), stays a library call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import ONE, Integer
from aotcompile.ir.nodes import IndexValue, Value
from aotcompile.ir.traverse import tree_size
from aotcompile.lower.context import known_nonzero
from aotcompile.lower.graph_facts import dtype_of, node_origin
from aotcompile.lower.operands import apply, constant
from aotcompile.lower.registry import lowering
from aotcompile.lower.symbols import convert
from aotcompile.lower.tensors import Index, Recipe, Root, Tensor, contiguous_strides, product

if TYPE_CHECKING:
    from torch.fx import Node

    from aotcompile.lower.context import Context

_WIDE = {DType.f16: DType.f32, DType.bf16: DType.f32}


def dimensions(x: Tensor, dim: Any) -> tuple[int, ...]:
    """The dimensions that ``dim`` (an int, a list, None or an empty list: all) names, ascending."""
    if dim is None or (isinstance(dim, tuple) and not dim):
        return tuple(range(x.rank))
    given = dim if isinstance(dim, tuple) else (dim,)
    return tuple(sorted({d + x.rank if d < 0 else d for d in given})) if x.rank else ()


def _is_known(dim: Any) -> bool:
    return dim is None or all(isinstance(d, int) for d in (dim if isinstance(dim, tuple) else (dim,)))


def reduce_dimensions(context: "Context", root: Root, kind: str, x: Tensor, dims: tuple[int, ...], accumulate: DType, function: Recipe) -> Tensor:
    """Reduce ``function``, over the index space of ``x``, over ``dims`` into ``root``."""
    return context.reduction(root, kind, function, [d for d in range(x.rank) if d not in dims], dims, x.sizes, accumulate)


def step(context: "Context", node: "Node", like: Root, dtype: DType, suffix: str, sizes: Index | None = None) -> Root:
    """An empty root for an intermediate reduction of ``node``, shaped like its result."""
    own = like.sizes if sizes is None else sizes
    return Root(f"{like.name}_{suffix}", dtype, own, like.strides if sizes is None else contiguous_strides(own), like.device, node_origin(node))


def _finish(context: "Context", root: Root, total: Tensor, function: Callable[[Value], Value]) -> Tensor:
    return context.fresh(root, lambda index: convert(function(total.load(index)), root.dtype))


@lowering("aten.sum.dim_IntList", "aten.sum.default")
def _sum(context: "Context", node: "Node", x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return accumulate_over(context, node, x, dim, "sum")


@lowering("aten.prod.dim_int", "aten.prod.default")
def _prod(context: "Context", node: "Node", x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return accumulate_over(context, node, x, dim, "product")


def accumulate_over(context: "Context", node: "Node", x: Tensor, dim: Any, kind: str) -> Any:
    root = context.root(node)
    if root.dtype is DType.b8 or not _is_known(dim):
        return NotImplemented
    accumulate = _WIDE.get(root.dtype, root.dtype)
    dims = dimensions(x, dim)

    def function(index: Index) -> Value:
        # eager casts to the requested dtype first, then accumulates
        return convert(convert(x.load(index), root.dtype), accumulate)

    if accumulate is root.dtype:
        return reduce_dimensions(context, root, kind, x, dims, accumulate, function)
    total = reduce_dimensions(context, step(context, node, root, accumulate, "total"), kind, x, dims, accumulate, function)
    return _finish(context, root, total, lambda value: value)


@lowering("aten.mean.dim", "aten.mean.default")
def _mean(context: "Context", node: "Node", x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    root = context.root(node)
    if not _is_known(dim) or not root.dtype.is_floating:
        return NotImplemented
    accumulate, dims = _WIDE.get(root.dtype, root.dtype), dimensions(x, dim)
    total = reduce_dimensions(
        context, step(context, node, root, accumulate, "total"), "sum", x, dims, accumulate, lambda index: convert(x.load(index), accumulate)
    )
    return _finish(context, root, total, lambda value: apply("truediv", value, _count(x, dims, accumulate)))


def _count(x: Tensor, dims: tuple[int, ...], dtype: DType) -> Value:
    number = product(tuple(x.sizes[d] for d in dims))
    return constant(dtype, number.value) if isinstance(number, Integer) else convert(IndexValue(DType.i64, number), dtype)


# ---- extremes -----------------------------------------------------------------------------------------------------------------------------


def _may_be_empty(context: "Context", x: Tensor, dims: tuple[int, ...]) -> bool:
    return not known_nonzero(context, tuple(x.sizes[d] for d in dims))


def _extreme(kind: str, of_bools: str) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        dims = dimensions(x, dim)
        if not _is_known(dim) or _may_be_empty(context, x, dims):
            return NotImplemented
        root = context.root(node)
        return reduce_dimensions(context, root, of_bools if x.dtype is DType.b8 else kind, x, dims, x.dtype, x.load)

    return lower


lowering("aten.amax.default", "aten.max.default")(_extreme("maximum", "any"))
lowering("aten.amin.default", "aten.min.default")(_extreme("minimum", "all"))


def _comparable(x: Tensor) -> Recipe:
    return (lambda index: convert(x.load(index), DType.u8)) if x.dtype is DType.b8 else x.load


def _position(kind: str) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        dims = dimensions(x, dim)
        if not _is_known(dim) or _may_be_empty(context, x, dims):
            return NotImplemented
        return reduce_dimensions(context, context.root(node), kind, x, dims, DType.i64, _comparable(x))

    return lower


lowering("aten.argmax.default")(_position("argmax"))
lowering("aten.argmin.default")(_position("argmin"))


def _extreme_and_position(kind: str, of_bools: str, position: str) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", x: Tensor, dim: Any, keepdim: bool = False) -> Any:
        dims = dimensions(x, dim)
        if not _is_known(dim) or _may_be_empty(context, x, dims):
            return NotImplemented
        keep(context, x)
        value = reduce_dimensions(context, context.root(node, 0), of_bools if x.dtype is DType.b8 else kind, x, dims, x.dtype, x.load)
        return value, reduce_dimensions(context, context.root(node, 1), position, x, dims, DType.i64, _comparable(x))

    return lower


lowering("aten.max.dim")(_extreme_and_position("maximum", "any", "argmax"))
lowering("aten.min.dim")(_extreme_and_position("minimum", "all", "argmin"))


def keep(context: "Context", x: Tensor) -> None:
    """Make ``x`` memory if reading it twice would compute much twice."""
    if x.root.buffer is None and tree_size(context.load_root(x.root, context.loops(x.root.sizes)[1])) > 1:
        context.realize_root(x.root)


# ---- truth --------------------------------------------------------------------------------------------------------------------------------


def _truth(kind: str) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        root = context.root(node)
        if not _is_known(dim) or (isinstance(dim, tuple) and not dim):
            return NotImplemented
        dims = dimensions(x, dim)
        if root.dtype is DType.b8:
            return reduce_dimensions(context, root, kind, x, dims, DType.b8, lambda index: convert(x.load(index), DType.b8))
        total = reduce_dimensions(
            context, step(context, node, root, DType.b8, "truth"), kind, x, dims, DType.b8, lambda index: convert(x.load(index), DType.b8)
        )
        return _finish(context, root, total, lambda value: value)  # u8 gives u8

    return lower


lowering("aten.any.default", "aten.any.dim", "aten.any.dims")(_truth("any"))
lowering("aten.all.default", "aten.all.dim", "aten.all.dims")(_truth("all"))


# ---- variance -----------------------------------------------------------------------------------------------------------------------------


def _moments(context: "Context", node: "Node", x: Tensor, dim: Any, correction: Any, like: Root,
             accumulate: DType | None = None) -> tuple[Tensor, Callable[[Index], Value]]:
    """(mean with ones for the reduced dimensions, a function giving the variance of a result index): two passes, mean first. ``accumulate``: their
    dtype."""
    keep(context, x)
    dims, dtype = dimensions(x, dim), accumulate or _WIDE.get(x.dtype, x.dtype)
    kept = tuple(ONE if d in dims else size for d, size in enumerate(x.sizes))
    total = reduce_dimensions(
        context, step(context, node, like, dtype, "sum", kept), "sum", x, dims, dtype, lambda index: convert(x.load(index), dtype)
    )
    number = _count(x, dims, dtype)
    mean = context.temporary(
        f"{like.name}_mean", dtype, kept, like.device, node_origin(node), lambda index: apply("truediv", total.load(index), number)
    )

    def squared(index: Index) -> Value:
        difference = apply("sub", convert(x.load(index), dtype), mean.load(tuple(Integer(0) if d in dims else i for d, i in enumerate(index))))
        return apply("mul", difference, difference)

    squares = reduce_dimensions(context, step(context, node, like, dtype, "squares"), "sum", x, dims, dtype, squared)
    shift = constant(dtype, 1.0 if correction is None else correction)
    degrees = apply("maximum", apply("sub", number, shift), constant(dtype, 0.0))
    return mean, lambda index: apply("truediv", squares.load(index), degrees)


def _has_moments(dim: Any, correction: Any) -> bool:
    """Whether what is reduced, and by how much the count is corrected, is known when the kernel is written."""
    return _is_known(dim) and (correction is None or isinstance(correction, (int, float)))


def _of_variance(x: Tensor) -> DType | None:
    """What eager's variance (and with it batch normalization) accumulates in: doubles on the CPU. Layer and group normalization do not."""
    return DType.f64 if x.root.device == "cpu" and x.dtype in (DType.f32, *_WIDE) else None


def variance(context: "Context", node: "Node", x: Tensor, dim: Any, correction: Any, accumulate: DType | None = None, *,
             root_of: bool = False) -> Any:
    """The variance, or with ``root_of`` its square root (taken before it is rounded), as a result of ``node``."""
    if not _has_moments(dim, correction):
        return NotImplemented
    root = context.root(node)
    _, variance = _moments(context, node, x, dim, correction, root, accumulate)
    return context.fresh(root, lambda index: convert(_rooted(variance(index), root_of), root.dtype))


def _rooted(value: Value, root_of: bool) -> Value:
    return apply("sqrt", value) if root_of else value


def _spread(root_of: bool) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        return variance(context, node, x, dim, correction, _of_variance(x), root_of=root_of)

    return lower


def _spread_and_mean(root_of: bool) -> Callable[..., Any]:
    def lower(context: "Context", node: "Node", x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        if not _has_moments(dim, correction):
            return NotImplemented
        first, second = context.root(node, 0), context.root(node, 1)
        mean, variance = _moments(context, node, x, dim, correction, first, _of_variance(x))
        dims = dimensions(x, dim)
        result = context.fresh(first, lambda index: convert(_rooted(variance(index), root_of), first.dtype))

        def mean_at(index: Index) -> Value:
            if len(index) == x.rank:
                return convert(mean.load(index), second.dtype)
            rest = iter(index)
            return convert(mean.load(tuple(Integer(0) if d in dims else next(rest) for d in range(x.rank))), second.dtype)

        return result, context.fresh(second, mean_at)

    return lower


lowering("aten.var.correction")(_spread(False))
lowering("aten.std.correction")(_spread(True))
lowering("aten.var_mean.correction")(_spread_and_mean(False))
lowering("aten.std_mean.correction")(_spread_and_mean(True))


__all__ = ["dimensions", "dtype_of", "reduce_dimensions"]
