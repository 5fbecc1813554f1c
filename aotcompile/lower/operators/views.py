"""View operators, and operators that only move elements (flip, roll, repeat).

A view of memory is strides and an offset, taken from the fake run: no view ever costs a copy or a division. A view of a recipe is a map of indices::

    permute(x, (1, 0))          [i, j]  ->  x[j, i]
    view(x: [4, 6], (24,))      [i]     ->  x[i // 6, i % 6]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from aotcompile.ir.expression import ONE, ZERO, Expression, Integer, add, floor_divide, maximum, minimum, modulo, multiply
from aotcompile.ir.nodes import Check, Comparison, LibraryCall
from aotcompile.lower.arguments import library_argument
from aotcompile.lower.graph_facts import dtype_of, node_origin
from aotcompile.lower.registry import lowering
from aotcompile.lower.symbols import ScalarValue, size_of
from aotcompile.lower.tensors import Index, Remap, Root, Tensor, flat_index, product
from aotcompile.lower.torch_private import expression_as_traced

if TYPE_CHECKING:
    from torch.fx import Node

    from aotcompile.lower.context import Context

LARGEST_BY_LANES = 1 << 14  # elements


def view_like(context: "Context", base: Tensor, value: torch.Tensor, remap: Remap | None) -> Tensor:
    """The view of ``base`` with the fake tensor ``value``'s geometry; ``remap`` None: there is no index map, so the base becomes memory."""
    if remap is None:
        context.realize_root(base.root)
    inner = base.remap
    through: Remap = (lambda index: inner(remap(index))) if remap is not None else (lambda index: index)
    offset = add(size_of(context, value.storage_offset()), multiply(-1, base.root.offset))
    return context.tensor(
        base.root,
        tuple(size_of(context, size) for size in value.shape),
        tuple(size_of(context, stride) for stride in value.stride()),
        offset,
        through,
    )


def strided_views(context: "Context", node: "Node", arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Any view operator on memory: the strides and offsets of the fake run. A tuple where the operator returns a list."""
    values = node.meta["val"]
    base = arguments[0]
    if isinstance(values, (list, tuple)):
        return tuple(view_like(context, base, value, None) for value in values)
    dtype = dtype_of(values.dtype)
    if dtype.itemsize != base.dtype.itemsize or "complex" in (dtype.kind, base.dtype.kind):
        return aliasing_call(context, node, arguments, keywords)
    if dtype is base.dtype:
        return view_like(context, base, values, None)
    root = context.root(node)
    root.offset = size_of(context, values.storage_offset())
    root.buffer = context.view(context.realize(base), node.name, root.dtype, root.sizes, root.strides, ZERO, node_origin(node))
    return context.tensor(root)


def aliasing_call(context: "Context", node: "Node", arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor:
    """A view operator as a library call (conjugation, real parts, element types of another size): its result is the first argument's memory."""
    root = context.root(node)
    root.offset = size_of(context, node.meta["val"].storage_offset())
    converted = tuple(library_argument(context, argument) for argument in arguments)
    converted_keywords = tuple((key, library_argument(context, argument)) for key, argument in keywords.items())
    root.buffer = context.new_buffer(root.name, root.dtype, root.sizes, root.strides, root.device)
    context.emit(LibraryCall(str(node.target), converted, converted_keywords, (root.buffer,), origins=(node_origin(node),)))
    context.aliases[root.buffer] = context.realize(arguments[0])
    return context.tensor(root)


def better_copied(root: Root) -> bool:
    """Whether copying whole rows, as torch does, beats a choice for each element along the last dimension: in a large result on the CPU."""
    count = product(root.sizes)
    return root.device == "cpu" and isinstance(count, Integer) and count.value >= LARGEST_BY_LANES


@lowering("aten.roll.default")
def _roll(context: "Context", node: "Node", x: Tensor, shifts: tuple[Any, ...], dims: tuple[int, ...] = ()) -> Any:
    root = context.root(node)
    whole_numbers = all(isinstance(shift, (int, Expression)) for shift in shifts)
    if len(dims) != len(shifts) or not whole_numbers or better_copied(root) or not x.rank or ZERO in x.sizes:
        return NotImplemented

    def function(index: Index) -> Any:
        positions = list(index)
        for shift, dim in zip(shifts, dims):
            size = x.sizes[dim]
            positions[dim] = modulo(add(positions[dim], size, multiply(-1, modulo(shift, size))), size)
        return x.load(tuple(positions))

    return context.fresh(root, function)


def _normal(dimension: int, rank: int) -> int:
    return dimension + rank if dimension < 0 else dimension


@lowering("aten.permute.default")
def _permute(context: "Context", node: "Node", base: Tensor, dims: tuple[int, ...]) -> Tensor:
    order = [_normal(d, base.rank) for d in dims]
    where = {d: position for position, d in enumerate(order)}
    return view_like(context, base, node.meta["val"], lambda index: tuple(index[where[d]] for d in range(len(order))))


@lowering("aten.t.default")
def _t(context: "Context", node: "Node", base: Tensor) -> Tensor:
    return view_like(context, base, node.meta["val"], lambda index: tuple(reversed(index)))


@lowering("aten.transpose.int")
def _transpose(context: "Context", node: "Node", base: Tensor, first: int, second: int) -> Tensor:
    if not base.rank:
        return view_like(context, base, node.meta["val"], lambda index: index)
    a, b = _normal(first, base.rank), _normal(second, base.rank)
    order = list(range(base.rank))
    order[a], order[b] = b, a
    return view_like(context, base, node.meta["val"], lambda index: tuple(index[d] for d in order))


@lowering("aten.alias.default", "aten.detach.default", "aten.lift_fresh.default", "aten.view_of.default", "prims.view_of.default")
def _alias(context: "Context", node: "Node", base: Tensor) -> Tensor:
    return view_like(context, base, node.meta["val"], lambda index: index)


@lowering("aten.expand.default")
def _expand(context: "Context", node: "Node", base: Tensor, size: Any, *, implicit: bool = False) -> Tensor:
    from aotcompile.lower.context import is_costly

    sizes = tuple(size_of(context, s) for s in node.meta["val"].shape)
    if (
        base.root.buffer is None
        and product(sizes) != product(base.sizes)
        and is_costly(context.load_root(base.root, context.loops(base.root.sizes)[1]))
    ):
        context.realize_root(base.root)  # else every copy would compute it again
    own = base.sizes

    def remap(index: Index) -> Index:
        trailing = index[len(index) - len(own) :]
        return tuple(ZERO if mine == ONE else position for mine, position in zip(own, trailing))

    return view_like(context, base, node.meta["val"], remap)


def reshape_index(index: Index, sizes: Index, target: Index) -> Index:
    """The index in a tensor of ``target`` sizes of the element that is at ``index`` in row-major ``sizes`` (equal numbers of elements).

    Runs of dimensions with equal products are mapped on their own, so that most dimensions keep their index."""
    if ZERO in target:
        return tuple(ZERO for _ in target)  # no element
    result: list[Expression] = []
    left, right = list(zip(index, sizes)), list(target)
    while left or right:
        mine, theirs = left[:1], right[:1]
        del left[:1], right[:1]
        while product(tuple(s for _, s in mine)) != product(tuple(theirs)):
            a, b = product(tuple(s for _, s in mine)), product(tuple(theirs))
            grow_mine = not right if not (isinstance(a, Integer) and isinstance(b, Integer)) else a.value < b.value
            if left and (grow_mine or not right):
                mine.append(left.pop(0))
            elif right:
                theirs.append(right.pop(0))
            else:
                break
        if not theirs:
            continue  # the rest of mine are ones
        if len(mine) == 1 and len(theirs) == 1:
            result.append(mine[0][0])
            continue
        flat: Expression = ZERO
        for position, size in mine:
            flat = add(multiply(flat, size), position)
        parts: list[Expression] = []
        for number, size in enumerate(reversed(theirs)):
            parts.append(flat if number == len(theirs) - 1 else modulo(flat, size))
            flat = floor_divide(flat, size)
        result += reversed(parts)
    return tuple(result)


@lowering("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten._reshape_alias.default")
def _view(context: "Context", node: "Node", base: Tensor, size: Any, *_: Any) -> Any:
    value = node.meta["val"]
    sizes = tuple(size_of(context, s) for s in value.shape)
    own = base.sizes
    if node not in context.facts.views:  # a reshape that copied, or _unsafe_view
        if str(node.target) == "aten._unsafe_view.default":
            context.facts.views.add(node)
        else:
            return context.fresh(context.root(node), lambda index: base.load(reshape_index(index, sizes, own)))
    return view_like(context, base, value, lambda index: reshape_index(index, sizes, own))


@lowering("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.unsqueeze.default")
def _squeeze(context: "Context", node: "Node", base: Tensor, *_: Any) -> Tensor:
    sizes = tuple(size_of(context, s) for s in node.meta["val"].shape)
    own = base.sizes
    return view_like(context, base, node.meta["val"], lambda index: reshape_index(index, sizes, own))


@lowering("aten.select.int")
def _select(context: "Context", node: "Node", base: Tensor, dim: int, position: Any) -> Any:
    dim = _normal(dim, base.rank)
    size = base.sizes[dim]
    if isinstance(position, ScalarValue):
        position = argument_as_size(context, node, 2, position)
        context.emit(Check((Comparison(position, ">=", multiply(-1, size)),)))
        context.emit(Check((Comparison(position, "<", size),)))
        if not context.ranges(()).non_negative(position):
            position = modulo(position, size)
        define_geometry(context, node.meta["val"], base.rank, ZERO, add(base.root.offset, base.offset, multiply(position, base.strides[dim])))
    elif isinstance(position, Expression) and not context.ranges(()).non_negative(position):
        return view_like(context, base, node.meta["val"], None)
    where = position if isinstance(position, Expression) else Integer(position) if position >= 0 else add(size, position)
    return view_like(context, base, node.meta["val"], lambda index: (*index[:dim], where, *index[dim:]))


def slice_start(context: "Context", start: Any, size: Expression) -> Expression | None:
    """Where a slice begins: ``start`` wrapped and clamped. None where its sign is not known."""
    if start is None:
        return ZERO
    if isinstance(start, ScalarValue):
        return None
    if isinstance(start, int):
        return minimum(start, size) if start >= 0 else maximum(0, add(size, start))
    return minimum(start, size) if context.ranges(()).non_negative(start) else None


def slice_bound(context: "Context", bound: Any, size: Expression) -> Expression:
    """A bound of a slice, wrapped and clamped into [0, size], also one whose sign is known at run time only."""
    known = slice_start(context, bound, size)
    if known is not None:
        return known
    negative = minimum(maximum(multiply(-1, bound), 0), 1)
    return add(multiply(negative, maximum(add(bound, size), 0)), multiply(add(1, multiply(-1, negative)), minimum(maximum(bound, 0), size)))


def argument_as_size(context: "Context", node: "Node", position: int, given: Any) -> Any:
    """An argument of a view operator as an expression: a number that is data is read here."""
    value = node.args[position] if len(node.args) > position else None
    return size_of(context, value.meta["val"]) if isinstance(given, ScalarValue) and not isinstance(value, (int, type(None))) else given  # type: ignore[union-attr]


def define_geometry(context: "Context", value: torch.Tensor, dim: int, size: Expression, offset: Expression) -> None:
    """The size and the storage offset of a view with bounds that are data have symbols of their own in the fake run: what they are."""
    for number, expression in ((value.shape[dim] if dim < value.dim() else 0, size), (value.storage_offset(), offset)):
        if isinstance(number, torch.SymInt):
            for symbol in (context.symbols.note(number), expression_as_traced(number)):
                if symbol.is_Symbol and not context.symbols.is_bound(symbol.name) and symbol.name not in context.symbols.items:
                    context.symbols.bind(symbol.name, expression)


@lowering("aten.slice.Tensor")
def _slice(context: "Context", node: "Node", base: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Tensor:
    dim = _normal(dim, base.rank)
    if isinstance(step, ScalarValue):
        return view_like(context, base, node.meta["val"], None)
    size, value = base.sizes[dim], node.meta["val"]
    begin = slice_bound(context, argument_as_size(context, node, 2, start), size)
    if isinstance(value.shape[dim], torch.SymInt) and context.symbols.is_unknown(value.shape[dim]):      # also one that is known to be a number
        last = size if end is None else slice_bound(context, argument_as_size(context, node, 3, end), size)
        count = floor_divide(add(maximum(add(last, multiply(-1, begin)), 0), step, -1), step)
    else:
        count = ZERO                                         # its size is known otherwise
    define_geometry(context, value, dim, count, add(base.root.offset, base.offset, multiply(begin, base.strides[dim])))

    def remap(index: Index) -> Index:
        return (*index[:dim], add(begin, multiply(index[dim], step)), *index[dim + 1 :])

    return view_like(context, base, node.meta["val"], remap)


@lowering(
    "aten.split.Tensor",
    "aten.split_with_sizes.default",
    "aten.unbind.int",
    "aten.chunk.default",
    "aten.unsafe_split.Tensor",
    "aten.unsafe_split_with_sizes.default",
)
def _split(context: "Context", node: "Node", base: Tensor, *arguments: Any) -> Any:
    if node not in context.facts.views:
        return NotImplemented
    name = str(node.target)
    position = 0 if name == "aten.unbind.int" else 1
    dim = _normal(arguments[position] if len(arguments) > position else 0, base.rank)
    parts: list[Tensor] = []
    begin: Expression = ZERO
    for number, value in enumerate(node.meta["val"]):
        if name == "aten.unbind.int":
            parts.append(view_like(context, base, value, _inserted(dim, Integer(number))))
        else:
            parts.append(view_like(context, base, value, _shifted(dim, begin)))
            begin = add(begin, size_of(context, value.shape[dim]))
    return tuple(parts)


def _inserted(dim: int, position: Expression) -> Remap:
    return lambda index: (*index[:dim], position, *index[dim:])


def _shifted(dim: int, begin: Expression) -> Remap:
    return lambda index: (*index[:dim], add(begin, index[dim]), *index[dim + 1 :])


@lowering("aten.diagonal.default")
def _diagonal(context: "Context", node: "Node", base: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    if isinstance(offset, (Expression, ScalarValue)):
        return view_like(context, base, node.meta["val"], None)
    a, b = _normal(dim1, base.rank), _normal(dim2, base.rank)

    def remap(index: Index) -> Index:
        rest = list(index[:-1])
        result: list[Expression] = []
        for d in range(base.rank):
            result.append(add(index[-1], max(-offset, 0)) if d == a else add(index[-1], max(offset, 0)) if d == b else rest.pop(0))
        return tuple(result)

    return view_like(context, base, node.meta["val"], remap)


@lowering("aten.unfold.default")
def _unfold(context: "Context", node: "Node", base: Tensor, dim: int, size: Any, step: Any) -> Any:
    if not base.rank:
        return view_like(context, base, node.meta["val"], None)
    dim = _normal(dim, base.rank)

    def remap(index: Index) -> Index:
        return (*index[:dim], add(multiply(index[dim], step), index[-1]), *index[dim + 1 : -1])

    return view_like(context, base, node.meta["val"], remap)


@lowering("aten.as_strided.default")
def _as_strided(context: "Context", node: "Node", base: Tensor, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    if base.root.buffer in context.inputs and storage_offset is not None:
        # an absolute position in the input's storage: the offset of the input that comes at run time is not known here
        return aliasing_call(context, node, (base, size, stride, storage_offset), {})
    return view_like(context, base, node.meta["val"], None)


# ---- copies that move elements ------------------------------------------------------------------------------------------------------------


@lowering("aten.flip.default")
def _flip(context: "Context", node: "Node", base: Tensor, dims: tuple[int, ...]) -> Tensor:
    turned = {_normal(d, base.rank) for d in dims}
    return context.fresh(
        context.root(node),
        lambda index: base.load(
            tuple(
                add(base.sizes[d], -1, multiply(-1, position)) if d in turned and base.sizes[d] != ONE else position
                for d, position in enumerate(index)
            )
        ),
    )


@lowering("aten.repeat.default")
def _repeat(context: "Context", node: "Node", base: Tensor, repeats: Any) -> Tensor:
    def function(index: Index) -> Any:
        trailing = index[len(index) - base.rank :]
        return base.load(tuple(ZERO if size in (ZERO, ONE) else modulo(position, size) for position, size in zip(trailing, base.sizes)))

    return context.fresh(context.root(node), function)


__all__ = ["flat_index", "reshape_index", "slice_start", "strided_views", "view_like"]
