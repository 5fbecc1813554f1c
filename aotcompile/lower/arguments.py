"""Arguments of library calls as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Expression
from aotcompile.ir.nodes import Argument, BufferReference, DTypeReference, Origin, TorchReference
from aotcompile.lower.symbols import ScalarValue
from aotcompile.lower.tensors import Tensor

if TYPE_CHECKING:
    from aotcompile.lower.context import Context


def library_argument(context: "Context", value: Any) -> Argument:
    """An argument as data. A number that is only known at run time becomes a 0-dim buffer: the executor takes its one element where the operator
    wants a number."""
    if isinstance(value, Tensor):
        return BufferReference(context.realize(value))
    if isinstance(value, ScalarValue):
        scalar = value.value
        tensor = context.temporary("number", value.dtype, (), "cpu", Origin("number"), lambda index: scalar)
        if value.dtype is DType.i64:
            return context.symbols.read(context.symbols.new_symbol(), context, tensor)
        return BufferReference(context.realize(tensor), number=True)
    if isinstance(value, (list, tuple)):
        return tuple(library_argument(context, part) for part in value)
    if isinstance(value, torch.dtype):
        return DTypeReference(str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return TorchReference("device", value.type)
    if isinstance(value, torch.layout):
        return TorchReference("layout", str(value))
    if isinstance(value, torch.memory_format):
        return TorchReference("memory_format", str(value))
    if value is None or isinstance(value, (Expression, bool, int, float, complex, str)):
        return value
    raise AotCompileError(Diagnostic("AOT405", "error", f"{value!r} cannot be an argument of a compiled call"))
