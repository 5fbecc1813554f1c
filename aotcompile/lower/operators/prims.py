"""``prims.*`` operators: what torch's reference decompositions leave behind (``prims.where`` of ``xlogy``, ``prims.var`` of ``layer_norm``).

Most mean what an ATen operator with a lowering means, once types have been promoted, and use that lowering.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotcompile.ir.expression import ONE, ZERO
from aotcompile.lower.operands import apply, elementwise
from aotcompile.lower.operators import creation, joining, pointwise, reduction, views  # noqa: F401  (they fill the registry)
from aotcompile.lower.registry import LOWERINGS, lowering
from aotcompile.lower.symbols import size_of
from aotcompile.lower.tensors import Index, Tensor

if TYPE_CHECKING:
    from torch.fx import Node

    from aotcompile.lower.context import Context

_SAME = {
    name: "default"
    for name in (
        "abs acos acosh asin asinh atan atanh atan2 bitwise_not ceil cos cosh erf erfc exp exp2 expm1 floor fmax fmin hypot lgamma log log10 log1p "
        "log2 maximum minimum neg reciprocal round rsqrt sign signbit sin sinh sqrt tan tanh trunc clone scalar_tensor"
    ).split()
}
_SAME |= {name: "Tensor" for name in "add sub mul eq ne lt le gt ge fmod remainder bitwise_and bitwise_or bitwise_xor".split()}
_RENAMED = {
    "where": "aten.where.self",
    "pow": "aten.pow.Tensor_Tensor",
    "shift_left": "aten.bitwise_left_shift.Tensor",
    "fill": "aten.fill.Scalar",
    "shift_right_arithmetic": "aten.bitwise_right_shift.Tensor",
    "rev": "aten.flip.default",
    "cat": "aten.cat.default",
    "transpose": "aten.permute.default",
    "amax": "aten.amax.default",
    "amin": "aten.amin.default",
    "full": "aten.full.default",
    "full_like": "aten.full_like.default",
    "squeeze": "aten.squeeze.dims",
    "reshape": "aten.reshape.default",
}

for _name, _target in {**{name: f"aten.{name}.{overload}" for name, overload in _SAME.items()}, **_RENAMED}.items():
    lowering(f"prims.{_name}.default")(LOWERINGS[_target])


@lowering("prims.div.default")
def _div(context: "Context", node: "Node", a: Tensor, b: Tensor) -> Any:
    dtype = pointwise.result_of(node)
    return elementwise(context, node, [a, b], dtype, lambda x, y: apply("truediv" if dtype.is_floating else "truncdiv", x, y))


@lowering("prims.sum.default")
def _sum(context: "Context", node: "Node", x: Tensor, dims: Any, *, output_dtype: Any = None) -> Any:
    return reduction.accumulate_over(context, node, x, _listed(x, dims), "sum")


@lowering("prims.prod.default")
def _prod(context: "Context", node: "Node", x: Tensor, dims: Any, *, output_dtype: Any = None) -> Any:
    return reduction.accumulate_over(context, node, x, _listed(x, dims), "product")


@lowering("prims.var.default")
def _var(context: "Context", node: "Node", x: Tensor, dims: Any, correction: Any = 1, *, output_dtype: Any = None) -> Any:
    return reduction.variance(context, node, x, _listed(x, dims), correction)


def _listed(x: Tensor, dims: Any) -> Any:
    """Prims name every dimension that they reduce; ATen's empty list means all of them."""
    return tuple(range(x.rank)) if dims is None else dims


@lowering("prims.broadcast_in_dim.default")
def _broadcast_in_dim(context: "Context", node: "Node", x: Tensor, shape: Any, broadcast_dimensions: tuple[int, ...]) -> Tensor:
    own = x.sizes

    def remap(index: Index) -> Index:
        return tuple(ZERO if size == ONE else index[d] for size, d in zip(own, broadcast_dimensions))

    return views.view_like(context, x, node.meta["val"], remap)


@lowering("prims.collapse_view.default", "prims.split_dim.default")
def _regroup(context: "Context", node: "Node", x: Tensor, *_: Any) -> Tensor:
    sizes = tuple(size_of(context, size) for size in node.meta["val"].shape)
    return views.view_like(context, x, node.meta["val"], lambda index: views.reshape_index(index, sizes, x.sizes))
