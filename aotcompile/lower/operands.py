"""Operands of elementwise operators: tensors and Python numbers, with torch's type promotion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Expression
from aotcompile.ir.nodes import Apply, Constant, IndexValue, Value
from aotcompile.ir.operators import OPERATORS, result_dtype
from aotcompile.lower.graph_facts import dtype_of
from aotcompile.lower.symbols import ScalarValue, convert
from aotcompile.lower.tensors import Index, Tensor, broadcast_index

if TYPE_CHECKING:
    from torch.fx import Node

    from aotcompile.lower.context import Context

Operand = Any  # Tensor | ScalarValue | Expression | int | float | bool
_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
_LIMITS = {DType.i64: 63, DType.i32: 31, DType.i16: 15, DType.i8: 7}


def is_number(operand: Operand) -> bool:
    """A Python number (known or not), which takes part in promotion by its category only."""
    return not isinstance(operand, Tensor)


def is_scalar(operand: Operand) -> bool:
    """A number or a 0-dim tensor: what eager's CPU kernels for products keep in f32 next to f16/bf16."""
    return is_number(operand) or not operand.rank


def _category(operand: Operand) -> str:
    if isinstance(operand, ScalarValue):
        return operand.dtype.kind
    if isinstance(operand, bool):
        return "bool"
    return "int" if isinstance(operand, (int, Expression)) else "float" if isinstance(operand, float) else "complex"


def promoted(operands: Sequence[Operand]) -> DType:
    """The common dtype of operands, as `torch.result_type`: tensors with dimensions first, then 0-dim tensors, then numbers; a later group counts
    only where its category (bool, int, float, complex) is higher."""
    groups: list[list[torch.dtype]] = [[], [], []]
    for operand in operands:
        if isinstance(operand, Tensor):
            groups[0 if operand.rank else 1].append(getattr(torch, operand.dtype.torch_name))
        else:
            default = torch.get_default_dtype()
            groups[2].append({"bool": torch.bool, "int": torch.int64, "float": default, "complex": torch.complex64}[_category(operand)])
    result: torch.dtype | None = None
    for group in groups:
        merged: torch.dtype | None = None
        for dtype in group:
            merged = dtype if merged is None else torch.promote_types(merged, dtype)
        if merged is not None and (result is None or _RANK[dtype_of(merged).kind] > _RANK[dtype_of(result).kind]):
            result = merged
    assert result is not None
    return dtype_of(result)


def fits(operand: Operand, dtype: DType) -> bool:
    """Whether a known Python number can be a constant of ``dtype`` (eager raises where an integer does not fit)."""
    if not isinstance(operand, (bool, int, float)) or dtype.is_floating or dtype is DType.b8:
        return not isinstance(operand, complex)
    if isinstance(operand, float):
        return False
    return 0 <= operand < 256 if dtype is DType.u8 else -(1 << _LIMITS[dtype]) <= operand < 1 << _LIMITS[dtype]


def element(context: "Context", operand: Operand, index: Index, dtype: DType, device: str) -> Value:
    """The operand's value for element ``index`` of the result, as ``dtype``."""
    if isinstance(operand, Tensor):
        if operand.device != device and not operand.rank:
            operand = context.transfer(operand, device)
        return convert(operand.load(broadcast_index(index, operand.sizes)), dtype)
    if isinstance(operand, ScalarValue):
        return convert(context.value_on_device(operand.value, device), dtype)
    if isinstance(operand, Expression):
        return convert(IndexValue(DType.i64, operand), dtype)
    return constant(dtype, operand)


def constant(dtype: DType, value: "bool | int | float") -> Constant:
    return Constant(dtype, bool(value) if dtype is DType.b8 else float(value) if dtype.is_floating else int(value))


def apply(operator: str, *arguments: Value) -> Value:
    """``Apply`` with the result type from the operator table. Operators on b8 that torch defines as logic become logic."""
    if arguments[0].dtype is DType.b8 and not OPERATORS[operator].accepts(DType.b8):
        operator = {"add": "logical_or", "mul": "logical_and", "maximum": "logical_or", "minimum": "logical_and"}.get(operator, operator)
    return Apply(result_dtype(operator, [argument.dtype for argument in arguments]), operator, arguments)


def same_device(node: "Node", operands: Sequence[Operand], device: str) -> bool:
    """Whether all operands are on ``device``, 0-dim CPU tensors excepted."""
    return all(not isinstance(operand, Tensor) or operand.device == device or not operand.rank for operand in operands)


def elementwise(
    context: "Context",
    node: "Node",
    operands: Sequence[Operand],
    dtype: DType,
    function: Callable[..., Value],
    *,
    wide: bool = False,
    rounded: bool = False,
) -> Any:
    """A fresh tensor: ``function`` of the operands' elements, each converted to ``dtype`` first, converted to the result's dtype after.

    ``wide``: f16/bf16 elements are computed with in f32 throughout and rounded once at the end (what eager does for products with a Python
    number, and for composite operators such as gelu); ``rounded``: the operands are rounded to ``dtype`` before that. Returns NotImplemented
    where an operand has no such form."""
    root = context.root(node)
    if not same_device(node, operands, root.device) or not all(fits(operand, dtype) for operand in operands):
        return NotImplemented
    work = DType.f32 if wide and dtype in (DType.f16, DType.bf16) else dtype

    def recipe(index: Index) -> Value:
        given = (element(context, operand, index, dtype if rounded else work, root.device) for operand in operands)
        value = function(*(convert(operand, work) for operand in given))
        if work is not dtype and value.dtype is work:
            value = convert(value, dtype)
        return convert(value, root.dtype)

    return context.fresh(root, recipe)
