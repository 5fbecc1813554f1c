"""Facts on the FX graph that are needed before lowering starts: which nodes are views, how often each is used, which must become memory."""

from __future__ import annotations

import operator
from collections.abc import Container
from typing import TYPE_CHECKING

import torch
from torch.fx import Graph, Node

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.ir.dtypes import BY_TORCH_NAME, DType
from aotcompile.ir.nodes import Origin
from aotcompile.ir.operators import KERNEL_DTYPES
from aotcompile.lower.symbols import size_of
from aotcompile.lower.tensors import Root
from aotcompile.lower.torch_private import OpOverload, same_storage

if TYPE_CHECKING:
    from aotcompile.lower.context import Context

_MAY_COPY = frozenset({"aten::reshape", "aten::contiguous", "aten::to", "aten::flatten", "aten::type_as", "aten::expand_as"})


def dtype_of(dtype: torch.dtype) -> DType:
    """Raises AotCompileError (AOT401) for a dtype that the IR has no name for."""
    name = str(dtype).removeprefix("torch.")
    if name not in BY_TORCH_NAME:
        raise AotCompileError(Diagnostic("AOT401", "error", f"tensors of dtype {dtype} cannot be compiled"))
    return BY_TORCH_NAME[name]


def shares_memory(node: Node) -> bool:
    """Whether the node is a call of a view operator: its results are its first argument's memory."""
    if not isinstance(node.target, OpOverload):
        return False
    schema = node.target._schema
    if not any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns):
        return False
    if schema.name in _MAY_COPY:
        base, value = node.args[0], node.meta.get("val")
        return isinstance(base, Node) and isinstance(value, torch.Tensor) and same_storage(base.meta.get("val"), value)
    return True


def mutated_arguments(node: Node) -> tuple[Node, ...]:
    """The tensors that an operator writes in place."""
    if not isinstance(node.target, OpOverload):
        return ()
    found: list[Node] = []
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            found += [part for part in (given if isinstance(given, (list, tuple)) else (given,)) if isinstance(part, Node)]
    return tuple(found)


def functional_name(node: Node) -> str:
    """``aten.add_.Tensor`` -> ``aten.add.Tensor``; the name itself for an operator that is not in place. ``copy_`` has a lowering of its own."""
    namespace, name, overload = str(node.target).split(".")
    return f"{namespace}.{name.removesuffix('_')}.{overload}" if mutated_arguments(node) and name != "copy_" else str(node.target)


def is_pure(node: Node) -> bool:
    """Whether dropping the node, where nothing uses it, changes nothing: it writes nothing, draws no random numbers, and is no check."""
    if node.op != "call_function":
        return False
    if not isinstance(node.target, OpOverload):
        return node.target is operator.getitem
    return (
        bool(node.target._schema.returns)
        and not mutated_arguments(node)
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        and node.target.namespace in ("aten", "prims")
    )


class GraphFacts:
    """``uses``: how many operators read a node or a view of it; ``wanted``: nodes that must become memory; ``mutated``: nodes that are written;
    ``dead``: nodes that nothing needs."""

    def __init__(self, graph: Graph, lowered: Container[str]) -> None:
        self.uses: dict[Node, int] = {}
        self.wanted: set[Node] = set()
        self.views: set[Node] = set()
        self.mutated: set[Node] = set()
        self.dead: set[Node] = set()
        self.on_gpu = any(isinstance(value := node.meta.get("val"), torch.Tensor) and value.device.type == "cuda" for node in graph.nodes)
        for node in graph.nodes:
            if shares_memory(node) or (node.target is operator.getitem and node.args[0] in self.views):
                self.views.add(node)
            self.mutated.update(mutated_arguments(node))
        for node in reversed(graph.nodes):
            users = [user for user in node.users if user not in self.dead]
            if not users and is_pure(node):
                self.dead.add(node)
            self.uses[node] = sum(self.uses[user] if user in self.views else 1 for user in users)
            if any(self._needs_memory(user, lowered) for user in users):
                self.wanted.add(node)

    def _needs_memory(self, user: Node, lowered: Container[str]) -> bool:
        if user in self.views:
            return user in self.wanted
        if user.op == "output":
            return True
        return (
            user.op == "call_function"
            and user.target is not operator.getitem
            and isinstance(user.target, OpOverload)
            and str(user.target) not in lowered
            and functional_name(user) not in lowered
        )

    def is_supported(self, node: Node) -> bool:
        """Whether our kernels can make the node: element types known, results on the program's own device (views are handled whatever the type)."""
        if node in self.views:
            return True
        values = [operand.meta.get("val") for operand in node.all_input_nodes]
        own = node.meta.get("val")
        results = own if isinstance(own, (list, tuple)) else [own]
        tensors = [value for value in (*values, *results) if isinstance(value, torch.Tensor)]
        if self.on_gpu and any(isinstance(value, torch.Tensor) and value.device.type == "cpu" for value in results):
            return False                                     # a program is one kernel language: what it makes on the CPU is torch's to make
        return all(known_dtype(tensor) and type(tensor.layout) is torch.layout and tensor.layout is torch.strided for tensor in tensors)


def known_dtype(tensor: torch.Tensor) -> bool:
    return BY_TORCH_NAME.get(str(tensor.dtype).removeprefix("torch.")) in KERNEL_DTYPES


def tensor_root(context: "Context", name: str, value: torch.Tensor, origin: Origin) -> Root:
    """An empty root with the dtype, sizes, strides and device of a fake tensor."""
    return Root(
        name,
        dtype_of(value.dtype),
        tuple(size_of(context, size) for size in value.shape),
        tuple(size_of(context, stride) for stride in value.stride()),
        value.device.type,
        origin,
    )


def node_origin(node: Node) -> Origin:
    return Origin(str(node.target), str(node.meta.get("place", "")))


def result_users(node: Node, position: int) -> list[Node]:
    """The ``getitem`` nodes that take result number ``position`` of a node with several results."""
    return [user for user in node.users if user.target is operator.getitem and user.args[1] == position]
