"""Tensors made from nothing: full, arange, iota, eye-like index arithmetic, and constant tensors of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Expression, add, multiply
from aotcompile.ir.nodes import Constant, IndexValue, Origin, Value
from aotcompile.lower.graph_facts import known_dtype, tensor_root
from aotcompile.lower.operands import Operand, apply, constant, element
from aotcompile.lower.registry import lowering
from aotcompile.lower.symbols import ScalarValue, convert
from aotcompile.lower.tensors import Index, Tensor, contiguous_strides, flat_index
from aotcompile.lower.torch_private import constant_numbers

if TYPE_CHECKING:
    from torch.fx import Node

    from aotcompile.lower.context import Context

LARGEST_CONSTANT = 1024


def _filled(context: "Context", node: "Node", value: Operand) -> Any:
    if isinstance(value, complex) or not known_dtype(node.meta["val"]):
        return NotImplemented
    root = context.root(node)
    return context.fresh(root, lambda index: element(context, value, index, root.dtype, root.device))


@lowering("aten.full.default")
def _full(context: "Context", node: "Node", size: Any, fill_value: Operand, **keywords: Any) -> Any:
    return _filled(context, node, fill_value)


@lowering("aten.full_like.default", "aten.new_full.default")
def _full_like(context: "Context", node: "Node", x: Tensor, *arguments: Any, **keywords: Any) -> Any:
    return _filled(context, node, arguments[-1] if arguments else keywords["fill_value"])


@lowering("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero.default")
def _zeros(context: "Context", node: "Node", *arguments: Any, **keywords: Any) -> Any:
    return _filled(context, node, 0)


@lowering("aten.empty_strided.default")
def _empty_strided(context: "Context", node: "Node", *arguments: Any, **keywords: Any) -> Any:
    """Memory that is written before it is read, or whose content is anything: zeros, which vanish where nothing reads them."""
    return _filled(context, node, 0)


@lowering("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def _ones(context: "Context", node: "Node", *arguments: Any, **keywords: Any) -> Any:
    return _filled(context, node, 1)


@lowering("aten.arange.start_step")
def _arange(context: "Context", node: "Node", start: Operand, end: Operand, step: Operand = 1, **keywords: Any) -> Any:
    root = context.root(node)
    if not known_dtype(node.meta["val"]):
        return NotImplemented
    if all(isinstance(part, (int, Expression)) for part in (start, step)) and root.dtype.is_integral:
        return context.fresh(root, lambda index: convert(IndexValue(DType.i64, add(start, multiply(step, index[0]))), root.dtype))
    # eager accumulates in double: start + step * i, then converts
    work = DType.i64 if root.dtype.is_integral and not any(_is_float(part) for part in (start, step)) else DType.f64

    def function(index: Index) -> Value:
        value = convert(IndexValue(DType.i64, index[0]), work)
        if not _is_number(step, 1):
            value = apply("mul", element(context, step, index, work, root.device), value)
        if not _is_number(start, 0):
            value = apply("add", element(context, start, index, work, root.device), value)
        return convert(value, root.dtype)

    return context.fresh(root, function)


def _is_number(value: Operand, number: int) -> bool:
    return type(value) in (int, float) and value == number


def _is_float(value: Operand) -> bool:
    return isinstance(value, float) or (isinstance(value, ScalarValue) and value.dtype is DType.f64)


@lowering("prims.iota.default")
def _iota(context: "Context", node: "Node", length: Any, *, start: Operand, step: Operand, **keywords: Any) -> Any:
    return _arange(context, node, start, None, step)


@lowering("aten.linspace.default")
def _linspace(context: "Context", node: "Node", start: Operand, end: Operand, steps: Any, **keywords: Any) -> Any:
    """As eager: both halves are counted from their own end, with one rounding for f32 and f64, and whole numbers from whole ends, in f64."""
    root = context.root(node)
    ends = (start, end)
    if not known_dtype(node.meta["val"]) or root.dtype is DType.b8 or type(steps) is not int or not all(type(part) in (int, float) for part in ends):
        return NotImplemented
    work = DType.f64 if root.dtype.is_integral else root.dtype
    element_type = getattr(torch, work.torch_name)
    first, last = (torch.tensor(int(part) if root.dtype.is_integral else part, dtype=element_type) for part in ends)
    step = ((last - first) / torch.tensor(max(steps - 1, 1), dtype=element_type)).item()

    def counted(position: Value, by: float, origin: float) -> Value:
        if work in (DType.f32, DType.f64):
            return apply("fma", constant(work, by), position, constant(work, origin))
        return apply("add", constant(work, origin), apply("mul", constant(work, by), position))

    def function(index: Index) -> Value:
        if steps == 1:
            return convert(constant(work, first.item()), root.dtype)
        rest = add(steps - 1, multiply(-1, index[0]))
        at, to_go = (convert(IndexValue(DType.i64, position), work) for position in (index[0], rest))
        first_half = apply("lt", IndexValue(DType.i64, index[0]), constant(DType.i64, steps // 2))
        return convert(apply("where", first_half, counted(at, step, first.item()), counted(to_go, -step, last.item())), root.dtype)

    return context.fresh(root, function)


# ---- constants of the graph ---------------------------------------------------------------------------------------------------------------


def constant_tensor(context: "Context", node: "Node", value: Any) -> Any:
    """A tensor constant (``torch.tensor([1, 2, 3])``): its numbers become part of the program. Raises AotCompileError (AOT406) above 1024
    elements."""
    if not isinstance(value, torch.Tensor):
        return value
    numbers = constant_numbers(value) if value.numel() <= LARGEST_CONSTANT and known_dtype(value) else None
    if numbers is None:
        raise AotCompileError(
            Diagnostic(
                "AOT406",
                "error",
                f"the constant tensor {node.target} ({value.numel()} elements) cannot be part of a compiled graph",
                hint="Make it an attribute of the module (a buffer) or an argument.",
            )
        )
    root = tensor_root(context, node.name, value, Origin("constant"))
    root.uses = root.pending = context.facts.uses[node]
    root.wanted = node in context.facts.wanted
    strides = contiguous_strides(root.sizes)
    return context.fresh(root, lambda index: _choose(root.dtype, flat_index(index, strides), numbers, 0))


def _choose(dtype: DType, position: Expression, numbers: list[Any], first: int) -> Value:
    """``numbers[position - first]`` as a balanced tree of choices."""
    if not numbers:
        return constant(dtype, 0)
    if all(number == numbers[0] for number in numbers):
        return constant(dtype, numbers[0])
    middle = len(numbers) // 2
    low, high = _choose(dtype, position, numbers[:middle], first), _choose(dtype, position, numbers[middle:], first + middle)
    return apply("where", apply("lt", IndexValue(DType.i64, position), Constant(DType.i64, first + middle)), low, high)
