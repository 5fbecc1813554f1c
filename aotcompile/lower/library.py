"""The fallback: an operator as a call through torch's dispatcher, with exactly its arguments.

``results`` of the call has one entry per returned value, lists flattened; None where nothing uses it or where it is no tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import ONE, Integer, Symbol, free_symbols
from aotcompile.ir.nodes import BufferReference, LibraryCall, Origin, ReadScalar
from aotcompile.lower.arguments import library_argument
from aotcompile.lower.graph_facts import mutated_arguments, node_origin, result_users
from aotcompile.lower.operators import views
from aotcompile.lower.symbols import size_of
from aotcompile.lower.tensors import Tensor
from aotcompile.lower.torch_private import expression_as_traced

if TYPE_CHECKING:
    from torch.fx import Node

    from aotcompile.lower.context import Context


def library_call(context: "Context", node: "Node", arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Emit the call (for a view operator: the strided view). Returns a `Tensor`, or a tuple with an entry per returned value."""
    if node in context.facts.views:
        return views.strided_views(context, node, arguments, keywords)
    mutated = mutated_tensors(node, arguments, keywords)
    for tensor in mutated:
        context.before_mutation(context.realize_root(tensor.root))
    values = node.meta.get("val")
    several = isinstance(values, (list, tuple))
    flat = list(values) if several else [values]
    unbound = [bind_new_sizes(context, value) if isinstance(value, torch.Tensor) else [] for value in flat]
    converted = tuple(library_argument(context, argument) for argument in arguments)
    converted_keywords = tuple((key, library_argument(context, argument)) for key, argument in keywords.items())
    aliases = _written_results(node, mutated)
    results: list[str | None] = []
    tensors: list[Any] = []
    for position, value in enumerate(flat):
        if position in aliases:
            results.append(None)
            tensors.append(aliases[position])
        elif isinstance(value, torch.Tensor) and (not several or any(user not in context.facts.dead for user in result_users(node, position))):
            root = context.root(node, position if several else None)
            root.offset = size_of(context, value.storage_offset())
            root.buffer = context.new_buffer(root.name, root.dtype, root.sizes, root.strides, root.device)
            results.append(root.buffer)
            tensors.append(context.tensor(root))
        else:
            results.append(None)
            tensors.append(value if not isinstance(value, torch.Tensor) else None)
    writes = tuple(dict.fromkeys(context.realize(tensor) for tensor in mutated))
    if values is None:
        results = []
    context.emit(LibraryCall(operator_name(node), converted, converted_keywords, tuple(results), writes, (node_origin(node),)))
    for position, dimensions in enumerate(unbound[:len(results)]):
        if (result := results[position]) is not None and dimensions:
            read_new_sizes(context, result, dimensions, node_origin(node))
            tensors[position] = _laid_out(context, tensors[position], {symbol for _, symbol in dimensions}, node_origin(node))
    return tuple(tensors) if several else tensors[0]


def operator_name(node: "Node") -> str:
    return str(node.target)


def mutated_tensors(node: "Node", arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Tensor, ...]:
    """The tensors among the arguments that the operator writes."""
    wanted = set(mutated_arguments(node))
    found: list[Tensor] = []

    def visit(original: Any, given: Any) -> None:
        if isinstance(original, (list, tuple)):
            for inner, value in zip(original, given):
                visit(inner, value)
        elif isinstance(given, Tensor) and original in wanted:
            found.append(given)

    visit(node.args, arguments)
    visit(tuple(node.kwargs.values()), tuple(keywords[key] for key in node.kwargs))
    return tuple(found)


def _written_results(node: "Node", mutated: tuple[Tensor, ...]) -> dict[int, Tensor]:
    """Results that are the written arguments themselves (``Tensor(a!) self -> Tensor(a!)``): result number -> tensor."""
    results = [result for result in node.target._schema.returns]
    positions = [number for number, result in enumerate(results) if result.alias_info is not None and result.alias_info.is_write]
    return dict(zip(positions, mutated)) if len(positions) <= len(mutated) else {}


# ---- results whose sizes depend on data ---------------------------------------------------------------------------------------------------


def bind_new_sizes(context: "Context", value: torch.Tensor) -> list[tuple[int, Symbol]]:
    """Size symbols that first appear in a result (``nonzero``): (dimension, symbol), to be read from the result."""
    found: list[tuple[int, Symbol]] = []
    for dimension, size in enumerate(value.shape):
        if not isinstance(size, torch.SymInt):
            continue
        for expression in dict.fromkeys((context.symbols.note(size), expression_as_traced(size))):
            if expression.is_Symbol and not context.symbols.is_bound(str(expression)) and str(expression) not in context.symbols.items:
                symbol = Symbol(str(expression))
                context.symbols.bind(symbol.name, symbol)
                found.append((dimension, symbol))
    return found


def _laid_out(context: "Context", tensor: Tensor, new: set[Symbol], origin: Origin) -> Tensor:
    """``tensor`` in its strides. They are not known at the call itself where they contain its result's own sizes: an alias is checked afterwards."""
    root = tensor.root
    if not any(new & free_symbols(stride) for stride in root.strides):
        return tensor
    assert root.buffer is not None
    result = context.new_buffer(root.name, root.dtype, root.sizes, root.strides, root.device)
    context.emit(LibraryCall("aten.alias.default", (BufferReference(root.buffer),), (), (result,), origins=(origin,)))
    context.aliases[result] = root.buffer
    root.buffer = result
    return tensor


def read_new_sizes(context: "Context", buffer: str, dimensions: list[tuple[int, Symbol]], origin: Origin) -> None:
    if dimensions:
        rank = len(context.buffers[buffer].sizes)
        shape = context.new_buffer(f"{buffer}_shape", DType.i64, (Integer(rank),), (ONE,), "cpu")
        context.emit(LibraryCall("aten._shape_as_tensor.default", (BufferReference(buffer),), (), (shape,), origins=(origin,)))
        for dimension, symbol in dimensions:
            context.emit(ReadScalar(symbol, context.view(shape, f"{buffer}_size", DType.i64, (), (), Integer(dimension), origin)))
