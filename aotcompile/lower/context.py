"""What the lowerings work with: the program under construction, and the decisions on what becomes memory.

Which recipes become memory (`Context.settle`). A recipe is inlined into its users, so that ``relu(x + 1)`` is one loop; that is work done again
for every user, and exponential where every operator uses both of its predecessors. So a recipe that is used more than once becomes a buffer
unless it is trivial. The scheduler turns such a buffer back into a register where producer and users meet in one kernel; it can not do the
reverse.

Memory traffic counts as well. The residual stream of a transformer, ``h1 = h0 + f``, has three users; inlined, each reads ``h0`` and ``f``, and the
next layer's users three terms, then four. Kept, ``h1`` is written once and read three times, and all layers have the same kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import ONE, ZERO, Expression, Integer, Symbol, multiply
from aotcompile.ir.nodes import (
    Apply,
    Buffer,
    BufferReference,
    Compute,
    Constant,
    LibraryCall,
    Load,
    Loop,
    Operation,
    Origin,
    Reduction,
    Store,
    TorchReference,
    Value,
    View,
)
from aotcompile.ir.operators import OPERATORS
from aotcompile.ir.simplify import Ranges, simplify
from aotcompile.ir.traverse import Rewriter, loads, tree_size, value_symbols, walk
from aotcompile.lower.symbols import SymbolTable
from aotcompile.lower.tensors import Index, Recipe, Remap, Root, Tensor, contiguous_strides, flat_index

if TYPE_CHECKING:
    from torch.fx import Node

    from aotcompile.lower.graph_facts import GraphFacts

LONGEST_RECIPE = 48  # operators in one recipe: bounds the size of an expression in generated code, and the depth of its tree
SHARED_RECIPE = 6  # operators that are computed again, rather than kept, for a second user
MOST_LOADS = 12  # loads in one recipe
_RESERVED = frozenset(
    "auto bool break case char class const continue default delete do double else enum extern float for friend goto if inline int long namespace "
    "new operator private public register return short signed sizeof static struct switch template this throw union unsigned void volatile while "
    "min max buffers sizes".split()
)


class Context:
    """One graph's lowering: operations so far, buffers, symbols. Lowerings call `fresh`, `reduction`, `realize`, `emit`."""

    def __init__(self, symbols: SymbolTable, facts: "GraphFacts") -> None:
        self.symbols = symbols
        self.facts = facts
        self.inputs: dict[str, None] = {}  # buffers of the graph's inputs
        self.operations: list[Operation] = []
        self.buffers: dict[str, Buffer] = {}
        self.aliases: dict[str, str] = {}  # view buffer -> buffer whose memory it is
        self.live: list[Root] = []  # recipes that may still be read
        self._views: dict[tuple[Any, ...], str] = {}
        self._transferred: dict[tuple[str, str], Tensor] = {}
        self._reductions: dict[tuple[Any, ...], str] = {}  # what is reduced how -> buffer
        self._bindings: dict[Value, Symbol] = {}
        self._collected: list[dict[Origin, None]] = []

    # ---- names and shapes

    def name(self, wanted: str) -> str:
        """A buffer name that is free, a C identifier, made from ``wanted``."""
        base = wanted + "_" if wanted in _RESERVED else wanted
        name, number = base, 0
        while name in self.buffers:
            number += 1
            name = f"{base}_{number}"
        return name

    def new_buffer(self, wanted: str, dtype: DType, sizes: Index, strides: Index, device: str) -> str:
        name = self.name(wanted)
        if device not in ("cpu", "cuda"):
            raise AotCompileError(Diagnostic("AOT402", "error", f"tensors on device {device!r} cannot be compiled", hint="Use cpu or cuda."))
        self.buffers[name] = Buffer(name, dtype, sizes, strides, device)  # type: ignore[arg-type]
        return name

    def ranges(self, loops: Iterable[Loop]) -> Ranges:
        return Ranges.of(loops, self.symbols.ranges())

    def bind(self, value: Value) -> Symbol:
        """The symbol that stands for the data-dependent index ``value`` (equal values get the same one)."""
        return self._bindings.setdefault(value, Symbol(f"k{len(self._bindings)}"))

    # ---- tensors

    def root(self, node: "Node", position: int | None = None) -> Root:
        """An empty root for the result of ``node`` (result number ``position`` of several): sizes, strides, dtype of the fake run."""
        from aotcompile.lower.graph_facts import node_origin, result_users, tensor_root

        value = node.meta["val"] if position is None else node.meta["val"][position]
        owners = [node] if position is None else result_users(node, position)
        root = tensor_root(self, owners[0].name if owners else f"{node.name}_{position}", value, node_origin(node))
        root.uses = root.pending = sum(self.facts.uses[owner] for owner in owners)
        root.viewed = any(user in self.facts.views for owner in owners for user in owner.users)
        root.wanted = any(owner in self.facts.wanted for owner in owners)
        return root

    def transfer(self, tensor: Tensor, device: str) -> Tensor:
        """A 0-dim tensor on ``device`` (itself if it is there): kernels load from their own device's memory only."""
        if tensor.device == device:
            return tensor
        buffer = self.realize(tensor)
        key = (buffer, device)
        if key not in self._transferred:
            copy = Root(f"{buffer}_{device}", tensor.dtype, tensor.sizes, tensor.strides, device, tensor.root.origin)
            copy.buffer = self.new_buffer(copy.name, copy.dtype, copy.sizes, copy.strides, device)
            self.emit(
                LibraryCall(
                    "aten._to_copy.default",
                    (BufferReference(buffer),),
                    (("device", TorchReference("device", device)),),
                    (copy.buffer,),
                    origins=(copy.origin,),
                )
            )
            self._transferred[key] = self.tensor(copy)
        return self._transferred[key]

    def value_on_device(self, value: Value, device: str) -> Value:
        """``value``, made of one-element loads, with those loads moved to ``device``."""

        def move(node: Value) -> Value:
            if isinstance(node, Load) and self.buffers[node.buffer].device != device:
                buffer = self.buffers[node.buffer]
                root = Root(node.buffer, buffer.dtype, buffer.sizes, buffer.strides, buffer.device, Origin("number"), buffer=node.buffer)
                return self.transfer(self.tensor(root), device).load(tuple(ZERO for _ in buffer.sizes))
            return node

        return Rewriter(node=move)(value)

    def stable_item(self, source: Tensor, node: "Node") -> Tensor:
        """The tensor of an ``.item()`` as memory that nothing writes to later."""
        buffer = self.realize(source)
        if self.memory(buffer) not in self.inputs or not self.facts.mutated:
            return source
        copy = self.temporary(f"{node.name}_item", source.dtype, source.sizes, source.device, source.root.origin, source.load)
        self.realize_root(copy.root)
        return copy

    def tensor(
        self, root: Root, sizes: Index | None = None, strides: Index | None = None, offset: Expression = ZERO, remap: Remap | None = None
    ) -> Tensor:
        """A view of ``root``; by default the whole of it."""
        return Tensor(
            root,
            root.sizes if sizes is None else sizes,
            root.strides if strides is None else strides,
            offset,
            remap or (lambda index: index),
            self.load_root,
        )

    def fresh(self, root: Root, function: Recipe) -> Tensor:
        """A tensor computed by ``function``; realised at once where `settle` says so."""
        root.function = function
        if root.pending:
            self.live.append(root)
        self.settle(root)
        return self.tensor(root)

    def temporary(
        self, name: str, dtype: DType, sizes: Index, device: str, origin: Origin, function: Recipe, strides: Index | None = None, uses: int = 1
    ) -> Tensor:
        """A tensor that is no node of the graph: an intermediate step of a lowering."""
        root = Root(name, dtype, sizes, contiguous_strides(sizes) if strides is None else strides, device, origin, uses=uses)
        return self.fresh(root, function)

    def load_root(self, root: Root, index: Index) -> Value:
        """Element ``index`` of a root, inlined (remembered by index) or loaded."""
        if root.buffer is not None:
            return Load(root.dtype, root.buffer, flat_index(index, root.strides))
        known = root.memo.get(index)
        if known is None:
            assert root.function is not None
            self._collected.append({root.origin: None})
            value = root.function(index)
            known = root.memo[index] = (value, tuple(self._collected.pop()))
        if self._collected:
            self._collected[-1].update(dict.fromkeys(known[1]))
        return known[0]

    def consumed(self, root: Root) -> None:
        """One of the root's users has been lowered. After the last, nothing reads its recipe but recipes that have inlined it."""
        root.pending -= 1
        if root.pending <= 0 and root in self.live:
            self.live.remove(root)

    def settle(self, root: Root) -> None:
        """Realise a recipe where inlining it would be wasteful."""
        if root.wanted:
            self.realize_root(root)
            return
        value = self.load_root(root, self.loops(root.sizes)[1])
        size = tree_size(value)
        if root.viewed and can_fail(value):
            self.realize_root(root)  # a view may need a part only, but eager fails on any element
            return
        many = root.uses > 1 and (size > SHARED_RECIPE or is_costly(value) or self._read_too_often(root, value))
        if many or size > LONGEST_RECIPE or len(loads(value)) > MOST_LOADS:
            self.realize_root(root)

    def _read_too_often(self, root: Root, value: Value) -> bool:
        """Whether the users together read more elements where the recipe is inlined than where it is kept (which writes it, and reads it once for
        each). Only what differs from element to element counts: a bias or a scale is in the cache."""
        variables = {loop.variable for loop in self.loops(root.sizes)[0]}
        full = sum(variables <= value_symbols(load) for load in loads(value))
        return root.uses * full >= full + 1 + root.uses

    # ---- operations

    def loops(self, sizes: Index, prefix: str = "i") -> tuple[tuple[Loop, ...], Index]:
        """Loops over ``sizes`` and the index they make. A dimension of size 1 has no loop; its index is 0."""
        loops: list[Loop] = []
        index: list[Expression] = []
        for size in sizes:
            if size == ONE:
                index.append(ZERO)
            else:
                loops.append(Loop(Symbol(f"{prefix}{len(loops)}"), size))
                index.append(loops[-1].variable)
        return tuple(loops), tuple(index)

    def emit(self, operation: Operation) -> None:
        self.operations.append(operation)

    def body(self, function: Recipe, index: Index, loops: Iterable[Loop], origin: Origin) -> tuple[Value, tuple[Origin, ...]]:
        """Evaluate a recipe for a `Compute`: the value, its indices simplified, and the origins of all that was inlined."""
        self._collected.append({})
        value = function(index)
        found = self._collected.pop()
        found.pop(origin, None)
        ranges = self.ranges(loops)
        return Rewriter(lambda expression: simplify(expression, ranges))(value), (*found, origin)

    def realize_root(self, root: Root) -> str:
        """Make a root memory; its buffer."""
        if root.buffer is None:
            loops, index = self.loops(root.sizes)
            body, origins = self.body(lambda at: self.load_root(root, at), index, loops, root.origin)
            root.buffer = self.new_buffer(root.name, root.dtype, root.sizes, root.strides, root.device)
            self.emit(Compute(root.buffer, loops, body, Store(self.store_index(index, root.strides, loops)), origins=origins))
            self.forget(root)
        return root.buffer

    def forget(self, root: Root) -> None:
        root.memo.clear()
        root.function = None
        if root in self.live:
            self.live.remove(root)

    def store_index(self, index: Index, strides: Index, loops: Iterable[Loop]) -> Expression:
        return simplify(flat_index(index, strides), self.ranges(loops))

    def realize(self, tensor: Tensor) -> str:
        """A buffer that is exactly ``tensor`` (a `View` where it is part of one)."""
        base = self.realize_root(tensor.root)
        return (
            base
            if tensor.is_whole()
            else self.view(base, tensor.root.name, tensor.dtype, tensor.sizes, tensor.strides, tensor.offset, tensor.root.origin)
        )

    def view(self, base: str, name: str, dtype: DType, sizes: Index, strides: Index, offset: Expression, origin: Origin) -> str:
        """The name of a strided view of buffer ``base`` (made once)."""
        key = (base, dtype, sizes, strides, offset)
        if key not in self._views:
            result = self.new_buffer(f"{name}_view", dtype, sizes, strides, self.buffers[base].device)
            self.emit(View(result, base, offset, (origin,)))
            self.aliases[result] = base
            self._views[key] = result
        return self._views[key]

    def realize_output(self, tensor: Tensor, returned: Collection[str]) -> str:
        """`realize`, down to the strides that address nothing: of dimensions of size 1, and of tensors without elements. A buffer that this graph
        computes takes them as its own; what a library call has made, and what is among those ``returned`` already, gets a `View`."""
        name = self.realize(tensor)
        buffer = self.buffers[name]
        if buffer.strides == tensor.strides:
            return name
        computed = any(isinstance(operation, Compute) and operation.result == name and not operation.updates for operation in self.operations)
        if not computed or name in returned:
            return self.view(name, tensor.root.name, tensor.dtype, tensor.sizes, tensor.strides, tensor.offset, tensor.root.origin)
        self.buffers[name] = replace(buffer, strides=tensor.strides)
        return name

    def memory(self, buffer: str) -> str:
        """The buffer whose memory ``buffer`` is."""
        while buffer in self.aliases:
            buffer = self.aliases[buffer]
        return buffer

    def reduction(
        self, root: Root, kind: Any, function: Recipe, outer: Sequence[int], inner: Sequence[int], sizes: Index, accumulate: DType
    ) -> Tensor:
        """Emit a `Compute` that reduces ``function`` over dimensions ``inner`` of ``sizes``.

        ``function`` takes an index of ``sizes``; ``root`` has the result's sizes: those of ``outer``, in order, perhaps with ones for ``inner``
        (keepdim)."""
        loops, outer_index = self.loops(tuple(sizes[d] for d in outer))
        inner_loops, inner_index = self.loops(tuple(sizes[d] for d in inner), "r")
        at = dict(zip((*outer, *inner), (*outer_index, *inner_index)))
        body, origins = self.body(function, tuple(at[d] for d in range(len(sizes))), (*loops, *inner_loops), root.origin)
        keep = len(root.sizes) == len(sizes)
        result = tuple(ZERO if d in inner else at[d] for d in range(len(sizes))) if keep else outer_index
        store = Store(self.store_index(result, root.strides, loops))
        key = (root.device, loops, body, store, kind, inner_loops, accumulate)
        if key in self._reductions and not root.wanted:  # computed before: layer_norm's mean and variance both sum
            known = self._reductions[key]
            return self.fresh(root, lambda index: Load(root.dtype, known, flat_index(index, root.strides)))
        root.buffer = self.new_buffer(root.name, root.dtype, root.sizes, root.strides, root.device)
        self._reductions.setdefault(key, root.buffer)
        self.emit(Compute(root.buffer, loops, body, store, Reduction(kind, inner_loops, accumulate), origins=origins))
        return self.tensor(root)

    def before_mutation(self, buffer: str, keep: Root | None = None) -> None:
        """Realise every recipe that reads ``buffer``'s memory and is still to be used: the memory is about to change."""
        memory = self.memory(buffer)
        self._reductions.clear()
        for root in self.live:
            root.memo.clear()  # a recipe may have been inlined that is memory by now
        for root in tuple(self.live):
            if root is not keep and root.buffer is None and memory in self.memory_read(root):
                self.realize_root(root)

    def memory_read(self, root: Root) -> frozenset[str]:
        value = self.load_root(root, self.loops(root.sizes)[1])
        return frozenset(self.memory(load.buffer) for load in loads(value))


def is_costly(value: Value) -> bool:
    """Whether evaluating takes a transcendental function."""
    return any(isinstance(node, Apply) and OPERATORS[node.operator].costly for node in walk(value))


def can_fail(value: Value) -> bool:
    """Whether evaluating may stop the kernel: a checked index, or an integer division by something that is no constant."""
    for node in walk(value):
        if isinstance(node, Load) and node.checks:
            return True
        if isinstance(node, Apply) and OPERATORS[node.operator].can_fail and node.dtype.is_integral and not isinstance(node.arguments[1], Constant):
            return True
    return False


def known_nonzero(context: Context, sizes: Index) -> bool:
    """Whether no size can be 0."""
    ranges = context.ranges(())
    return all(ranges.positive(size) for size in sizes)


def count(sizes: Index) -> Expression:
    return multiply(*sizes) if sizes else Integer(1)
