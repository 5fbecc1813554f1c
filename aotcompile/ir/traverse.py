"""Walking and rewriting of values: trees with shared parts, so every function here visits each distinct node once.

Example: moving a body to other loop variables

    substitute_value(Load(f32, "x", i0*4 + i1), {i0: p1, i1: p0 + 2})   ->   Load(f32, "x", p1*4 + p0 + 2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from aotcompile.ir.expression import Expression, Like, Symbol, free_symbols, substitute
from aotcompile.ir.nodes import Apply, Cast, Compute, Constant, IndexValue, Load, Masked, Store, Value


def value_children(value: Value) -> tuple[Value, ...]:
    """The values a value is made of, those of a load's bindings included."""
    kind = type(value)                  # asked for every node of every walk: no chain of isinstance
    if kind is Apply:
        return value.arguments  # type: ignore[union-attr]
    if kind is Load:
        bindings = value.bindings  # type: ignore[union-attr]
        return tuple(bound for _, bound in bindings) if bindings else ()
    if kind is Cast:
        return (value.argument,)  # type: ignore[union-attr]
    if kind is Masked:
        return (value.mask, value.body, value.other)  # type: ignore[union-attr]
    return ()


def walk(value: Value) -> Iterator[Value]:
    """Every distinct node of ``value``, children before parents."""
    seen: set[int] = set()
    stack: list[Value | None] = [value]
    while stack:
        node = stack.pop()
        if node is None:                # the children of what lies below are done
            yield stack.pop()  # type: ignore[misc]
        elif id(node) not in seen:
            seen.add(id(node))
            children = value_children(node)
            if children:
                stack += (node, None)
                stack += children[::-1]
            else:
                yield node


def compute_values(compute: Compute) -> tuple[Value, ...]:
    """The values of a `Compute`: its body and what its store index is bound to."""
    return (compute.body, *(bound for _, bound in compute.store.bindings))


def loads(value: Value) -> tuple[Load, ...]:
    """The distinct loads of ``value``, in order of evaluation."""
    return tuple(dict.fromkeys(node for node in walk(value) if isinstance(node, Load)))


def buffers_read(compute: Compute) -> tuple[str, ...]:
    """Names of the buffers a `Compute` loads from, in order, each once (not the one it updates, unless it loads from it)."""
    return tuple(dict.fromkeys(load.buffer for value in compute_values(compute) for load in loads(value)))


def value_symbols(value: Value) -> frozenset[Symbol]:
    """Free symbols: loop variables and sizes, without the symbols that loads bind themselves."""
    bound: set[Symbol] = set()
    found: set[Symbol] = set()
    for node in walk(value):
        if isinstance(node, IndexValue):
            found |= free_symbols(node.expression)
        elif isinstance(node, Load):
            own = {symbol for symbol, _ in node.bindings}
            bound |= own
            found |= free_symbols(node.index)
            for _, size in node.checks:
                found |= free_symbols(size)
    return frozenset(found - bound)


def tree_size(value: Value) -> int:
    """Number of operators that evaluating ``value`` takes where nothing is shared (casts, constants and loads are free)."""
    sizes: dict[int, int] = {}
    for node in walk(value):
        sizes[id(node)] = isinstance(node, (Apply, Masked)) + sum(sizes[id(child)] for child in value_children(node))
    return sizes[id(value)]


class Rewriter:
    """Rewrites values bottom up. ``index`` maps every index expression, ``node`` every rebuilt node; equal parts are rewritten once."""

    def __init__(
        self, index: Callable[[Expression], Expression] = lambda expression: expression, node: Callable[[Value], Value] = lambda value: value
    ) -> None:
        self._index = index
        self._node = node
        self._done: dict[int, tuple[Value, Value]] = {}  # the key's object is kept alive: ids are not reused

    def __call__(self, value: Value) -> Value:
        for node in walk(value):
            if id(node) not in self._done:
                self._done[id(node)] = (node, self._node(self._rebuild(node)))
        return self._done[id(value)][1]

    def _rebuild(self, node: Value) -> Value:
        done = self._done
        match node:
            case Constant():
                return node
            case IndexValue(dtype, expression):
                return IndexValue(dtype, self._index(expression))
            case Load(dtype, buffer, index, bindings, checks):
                return Load(
                    dtype,
                    buffer,
                    self._index(index),
                    tuple((symbol, done[id(bound)][1]) for symbol, bound in bindings),
                    tuple((symbol, self._index(size)) for symbol, size in checks),
                )
            case Apply(dtype, operator, arguments):
                return Apply(dtype, operator, tuple(done[id(argument)][1] for argument in arguments))
            case Cast(dtype, argument):
                return Cast(dtype, done[id(argument)][1])
            case Masked(dtype, mask, body, other):
                return Masked(dtype, done[id(mask)][1], done[id(body)][1], done[id(other)][1])
        raise TypeError(f"not a value: {node!r}")


def rewrite_store(store: Store, rewriter: Rewriter, index: Callable[[Expression], Expression]) -> Store:
    """``store`` with its values and its index rewritten."""
    return Store(
        index(store.index),
        store.mode,
        tuple((symbol, rewriter(bound)) for symbol, bound in store.bindings),
        tuple((symbol, index(size)) for symbol, size in store.checks),
    )


def substitute_value(value: Value, replacements: Mapping[Symbol, Like]) -> Value:
    """``value`` with symbols of its index expressions replaced (bindings of loads keep their names)."""
    return Rewriter(lambda expression: substitute(expression, replacements))(value)
