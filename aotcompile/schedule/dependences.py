"""What each operation reads and writes, which operations must come before it, and which are needed at all.

Memory is named by its *root*: the buffer that owns it. A view and the result of an update share their base's root. Edges are read after write,
write after read and write after write on roots, and "reads the symbol that a `ReadScalar` makes and a `Check` looks at".
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import ONE, ZERO, Expression, Symbol, free_symbols, substitute
from aotcompile.ir.nodes import (
    Apply, Argument, Buffer, BufferReference, Cast, Compute, Constant, Check, LibraryCall, Load, Operation, Program, ReadScalar, Value, View,
)
from aotcompile.ir.operators import OPERATORS
from aotcompile.ir.traverse import Rewriter, compute_values, rewrite_store, value_symbols, walk

_RANDOM = ("rand", "bernoulli", "dropout", "normal", "uniform", "exponential", "multinomial", "rrelu", "geometric", "cauchy", "poisson")


def is_tuple(value: object) -> TypeGuard[tuple[Argument, ...]]:
    return isinstance(value, tuple)


def argument_buffers(arguments: Argument) -> Iterator[str]:
    """Names of the buffers among (nested) call arguments."""
    if isinstance(arguments, BufferReference):
        yield arguments.name
    elif is_tuple(arguments):
        for item in arguments:
            yield from argument_buffers(item)


def argument_expressions(arguments: Argument) -> Iterator[Expression]:
    if isinstance(arguments, Expression):
        yield arguments
    elif is_tuple(arguments):
        for item in arguments:
            yield from argument_expressions(item)


def call_buffers(call: LibraryCall) -> tuple[str, ...]:
    values: tuple[Argument, ...] = (*call.arguments, *(value for _, value in call.keywords))
    return tuple(dict.fromkeys(argument_buffers(values)))


def results_of(operation: Operation) -> tuple[str, ...]:
    match operation:
        case Compute(result=result) | View(result=result):
            return (result,)
        case LibraryCall(results=results):
            return tuple(name for name in results if name is not None)
    return ()


@dataclass
class Facts:
    """One operation's summary. ``reads`` are the names it reads from memory; ``updates`` the names whose memory it overwrites."""

    operation: Operation
    reads: tuple[str, ...]
    updates: tuple[str, ...]
    fallible: bool = False
    nodes: int = 1                      # distinct nodes of the body: what fusing it costs in text
    after: list[int] = field(default_factory=list)


def fallible(values: tuple[Value, ...]) -> bool:
    for value in values:
        for node in walk(value):
            if isinstance(node, Load) and node.checks:
                return True
            if isinstance(node, Apply) and node.dtype.is_integral and OPERATORS[node.operator].can_fail:
                return True
    return False


def facts_of(operation: Operation) -> Facts:
    match operation:
        case Compute():
            values = compute_values(operation)
            reads: dict[str, None] = {}
            nodes = 0
            for value in values:
                for node in walk(value):
                    nodes += 1
                    if isinstance(node, Load):
                        reads[node.buffer] = None
            updates = (operation.updates,) if operation.updates is not None else ()
            return Facts(operation, tuple(reads), updates, bool(operation.store.checks) or fallible(values), nodes)
        case LibraryCall():
            return Facts(operation, call_buffers(operation), operation.mutates)
        case View(base=base):
            return Facts(operation, (base,), ())
        case ReadScalar(buffer=buffer):
            return Facts(operation, (buffer,), ())
        case Check():
            return Facts(operation, (), (), fallible=True)
    raise TypeError(operation)


class Dependences:
    """The program's operations with their edges. ``operations`` have loads of views rewritten into loads of the view's base."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.buffers: dict[str, Buffer] = program.buffers
        self.root: dict[str, str] = {}
        self.updated_roots = self._roots(program)
        self.input_roots = {self.root_of(name) for name in program.inputs if name is not None}
        self.facts = [facts_of(operation) for operation in self._without_views(program)]
        self.producer: dict[str, int] = {name: i for i, fact in enumerate(self.facts) for name in results_of(fact.operation)}
        self.output_names = tuple(o.name for o in program.outputs if isinstance(o, BufferReference))
        self.live = self._live()
        self._edges()

    def root_of(self, name: str) -> str:
        return self.root.get(name, name)

    def _roots(self, program: Program) -> set[str]:
        updated: set[str] = set()
        for operation in program.operations:
            match operation:
                case View(result=result, base=base):
                    self.root[result] = self.root_of(base)
                case Compute(result=result, updates=str(base)):
                    self.root[result] = self.root_of(base)
                    updated.add(self.root[result])
                case LibraryCall(mutates=mutates):
                    updated.update(map(self.root_of, mutates))
        return updated

    def _without_views(self, program: Program) -> Iterator[Operation]:
        """Loads of a view read its base directly, where nothing is ever written in place and the element type is the same."""
        views: dict[str, tuple[str, Expression]] = {}
        for operation in map(self._without_single_loops, program.operations):
            if isinstance(operation, View):
                result, base = program.buffers[operation.result], program.buffers[operation.base]
                if result.dtype == base.dtype and self.root_of(operation.result) not in self.updated_roots:
                    name, offset = views.get(operation.base, (operation.base, None))
                    views[operation.result] = (name, operation.offset if offset is None else offset + operation.offset)
                yield operation
            elif isinstance(operation, Compute) and views:
                def resolved(node: Value) -> Value:
                    if isinstance(node, Load) and node.buffer in views:
                        name, offset = views[node.buffer]
                        return replace(node, buffer=name, index=node.index + offset)
                    return node
                rewriter = Rewriter(node=resolved)
                yield replace(operation, body=rewriter(operation.body), store=rewrite_store(operation.store, rewriter, lambda e: e))
            else:
                yield operation

    def _without_single_loops(self, operation: Operation) -> Operation:
        """Loops of size 1 go, and a reduction over one element is that element."""
        if not isinstance(operation, Compute):
            return operation
        reduced = operation.reduction.loops if operation.reduction else ()
        point = {loop.variable: ZERO for loop in (*operation.loops, *reduced) if loop.size == ONE}
        if point:
            def index(expression: Expression) -> Expression:
                return substitute(expression, point)
            rewriter = Rewriter(index)
            operation = replace(operation, loops=tuple(loop for loop in operation.loops if loop.size != ONE), body=rewriter(operation.body),
                                store=rewrite_store(operation.store, rewriter, index))
        if operation.reduction is None:
            return operation
        kept = tuple(loop for loop in reduced if loop.size != ONE)
        if kept:
            return replace(operation, reduction=replace(operation.reduction, loops=kept))
        reduction, dtype = operation.reduction, self.program.buffers[operation.result].dtype
        if reduction.kind in ("argmax", "argmin"):
            body: Value = Constant(DType.i64, 0)
        else:
            body = operation.body if operation.body.dtype is reduction.accumulate else Cast(reduction.accumulate, operation.body)
        return replace(operation, body=body if body.dtype is dtype else Cast(dtype, body), reduction=None)

    def _live(self) -> list[bool]:
        needed = set(self.output_names)
        live = [False] * len(self.facts)
        for i in range(len(self.facts) - 1, -1, -1):
            fact = self.facts[i]
            operation = fact.operation
            names = results_of(operation)
            live[i] = any(name in needed for name in names) or isinstance(operation, (ReadScalar, Check))
            if isinstance(operation, LibraryCall):
                effect = bool(operation.mutates) or not names or not operation.operator.startswith("aten.")
                live[i] = live[i] or effect or any(word in operation.operator for word in _RANDOM)
            elif isinstance(operation, Compute) and operation.updates is not None:
                live[i] = live[i] or self.root_of(operation.updates) in self.input_roots
            if live[i]:
                needed.update(fact.reads)
                needed.update(fact.updates)
        return live

    def _edges(self) -> None:
        writer: dict[str, int] = {}
        readers: dict[str, list[int]] = {}
        scalars: dict[Symbol, list[int]] = {}
        for i, fact in enumerate(self.facts):
            if not self.live[i]:
                continue
            after: dict[int, None] = {}
            for name in (*fact.reads, *fact.updates):
                if name in self.producer and self.live[self.producer[name]]:
                    after[self.producer[name]] = None
            for root in dict.fromkeys(map(self.root_of, fact.reads)):
                if root in self.updated_roots:
                    if root in writer:
                        after[writer[root]] = None
                    readers.setdefault(root, []).append(i)
            written = dict.fromkeys(map(self.root_of, fact.updates))
            for root in written:
                if root in writer:
                    after[writer[root]] = None
                for reader in readers.get(root, ()):
                    after[reader] = None
            for root in written:
                writer[root] = i
                readers[root] = []
            if isinstance(fact.operation, ReadScalar):
                scalars[fact.operation.symbol] = [i]
            elif scalars:
                for symbol in self._symbols(fact.operation):
                    after.update(dict.fromkeys(scalars.get(symbol, ())))
            if isinstance(fact.operation, Check):
                for symbol in self._symbols(fact.operation):
                    scalars.setdefault(symbol, []).append(i)
            after.pop(i, None)
            fact.after = list(after)

    def _symbols(self, operation: Operation) -> set[Symbol]:
        expressions: list[Expression] = []
        found: set[Symbol] = set()
        for name in results_of(operation):
            buffer = self.buffers[name]
            expressions += [*buffer.sizes, *buffer.strides]
        match operation:
            case Compute(loops=loops, reduction=reduction, store=store):
                expressions += [loop.size for loop in (*loops, *(reduction.loops if reduction else ()))]
                expressions += [store.index, *(size for _, size in store.checks)]
                for value in compute_values(operation):
                    found |= value_symbols(value)
            case LibraryCall(arguments=arguments, keywords=keywords):
                values: tuple[Argument, ...] = (*arguments, *(value for _, value in keywords))
                expressions += argument_expressions(values)
            case View(offset=offset):
                expressions.append(offset)
            case Check(alternatives):
                expressions += [side for part in alternatives for side in (part.left, part.right)]
        return found.union(*map(free_symbols, expressions)) if expressions else found
