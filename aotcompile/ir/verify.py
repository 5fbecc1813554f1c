"""Is a program well formed? Run after each pass in tests, and on what `lower` hands on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Expression, Symbol, free_symbols
from aotcompile.ir.nodes import (
    Apply,
    Argument,
    BufferReference,
    Compute,
    Constant,
    IndexValue,
    LibraryCall,
    Load,
    Masked,
    Program,
    Check,
    ReadScalar,
    Value,
    View,
)
from aotcompile.ir.operators import KERNEL_DTYPES, result_dtype
from aotcompile.ir.traverse import walk

_POSITIONS = ("argmax", "argmin")
_TRUTH = ("any", "all")


def verify(program: Program) -> tuple[str, ...]:
    """The faults of a program, none if it is well formed: every buffer defined once and before its use, dtypes as in the operator table, every
    symbol of a size or an index bound (a loop in scope, a size symbol, a binding), reductions and stores of the right type."""
    return tuple(_Verifier(program).run())


class _Verifier:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.defined = {name for name in program.inputs if name is not None}
        self.symbols = {entry.symbol for entry in program.symbols} | {symbol for _, symbol in program.scalar_inputs}
        self.late: list[tuple[str, str]] = []

    def run(self) -> Iterator[str]:
        for name, buffer in self.program.buffers.items():
            if buffer.name != name:
                yield f"buffer {name} is called {buffer.name}"
            if len(buffer.sizes) != len(buffer.strides):
                yield f"buffer {name} has {len(buffer.sizes)} sizes and {len(buffer.strides)} strides"
        for number, operation in enumerate(self.program.operations):
            match operation:
                case Compute():
                    faults = self._compute(operation)
                case LibraryCall():
                    faults = self._call(operation)
                case View():
                    faults = self._view(operation)
                case ReadScalar():
                    faults = self._read(operation)
                case Check(alternatives):
                    faults = iter([fault for part in alternatives for side in (part.left, part.right) for fault in self._bound(side, (), "check")])
            for fault in faults:
                yield f"operation {number} ({getattr(operation, 'result', None) or getattr(operation, 'operator', None) or 'read'}): {fault}"
        for output in self.program.outputs:
            if isinstance(output, BufferReference) and output.name not in self.defined:
                yield f"output {output.name} is not defined"
            if isinstance(output, Expression):
                yield from self._bound(output, set(), "output")
        for name, buffer in self.program.buffers.items():
            for expression in (*buffer.sizes, *buffer.strides):
                yield from self._bound(expression, set(), f"buffer {name}")

    def _bound(self, expression: Expression, scope: Iterable[Symbol], place: str) -> Iterator[str]:
        unknown = free_symbols(expression) - self.symbols - set(scope)
        if unknown:
            yield f"{place}: {expression} uses {', '.join(sorted(map(str, unknown)))}, which is not bound"

    def _use(self, name: str) -> Iterator[str]:
        if name not in self.defined:
            yield f"{name} is used before it is defined" if name in self.program.buffers else f"{name} is no buffer"

    def _define(self, name: str) -> Iterator[str]:
        if name not in self.program.buffers:
            yield f"{name} is no buffer"
        elif name in self.defined:
            yield f"{name} is defined twice"
        self.defined.add(name)

    def _compute(self, compute: Compute) -> Iterator[str]:
        inner = compute.reduction.loops if compute.reduction else ()
        loops = [loop.variable for loop in (*compute.loops, *inner)]
        if len(set(loops)) != len(loops):
            yield "two loops have the same variable"
        for loop in (*compute.loops, *inner):
            yield from self._bound(loop.size, (), f"loop {loop.variable}")
        yield from self._value(compute.body, set(loops))
        outer = {loop.variable for loop in compute.loops}
        for symbol, bound in compute.store.bindings:
            yield from self._value(bound, outer)
            outer.add(symbol)
        yield from self._bound(compute.store.index, outer, "store")
        for symbol, size in compute.store.checks:
            if symbol not in outer:
                yield f"check of {symbol}, which is not bound"
            yield from self._bound(size, (), "check")
        if compute.updates is not None:
            yield from self._use(compute.updates)
        elif compute.store.mode == "add":
            yield "a store of mode add needs a buffer that it updates"
        yield from self._define(compute.result)
        if compute.result in self.program.buffers:
            yield from self._types(compute, self.program.buffers[compute.result].dtype)

    def _types(self, compute: Compute, result: DType) -> Iterator[str]:
        body = compute.body.dtype
        if result not in KERNEL_DTYPES:
            yield f"kernels do not store {result.value}"
        reduction = compute.reduction
        if reduction is None:
            if body is not result:
                yield f"the body is {body.value}, the result {result.value}"
            return
        if reduction.accumulate is not result:
            yield f"the accumulator is {reduction.accumulate.value}, the result {result.value}"
        if reduction.kind in _POSITIONS:
            if reduction.accumulate is not DType.i64 or body is DType.b8:
                yield f"{reduction.kind} accumulates {reduction.accumulate.value} of {body.value}"
        elif body is not reduction.accumulate:
            yield f"the body is {body.value}, the accumulator {reduction.accumulate.value}"
        elif (reduction.kind in _TRUTH) != (body is DType.b8):
            yield f"{reduction.kind} of {body.value}"

    def _value(self, value: Value, scope: set[Symbol]) -> Iterator[str]:
        bound = {symbol for node in walk(value) if isinstance(node, Load) for symbol, _ in node.bindings}
        for node in walk(value):
            match node:
                case Constant(dtype, number):
                    if isinstance(number, float) != dtype.is_floating or isinstance(number, bool) != (dtype is DType.b8):
                        yield f"constant {number!r} of dtype {dtype.value}"
                case IndexValue(_, expression):
                    yield from self._bound(expression, scope | bound, "index value")
                case Load(dtype, buffer, index, bindings, checks):
                    yield from self._use(buffer)
                    if buffer in self.program.buffers and self.program.buffers[buffer].dtype is not dtype:
                        yield f"load of {buffer} as {dtype.value}"
                    own = {symbol for symbol, _ in bindings}
                    yield from self._bound(index, scope | own, f"load of {buffer}")
                    for symbol, size in checks:
                        if symbol not in own:
                            yield f"check of {symbol}, which is not bound"
                        yield from self._bound(size, scope, "check")
                case Apply(dtype, operator, arguments):
                    try:
                        wanted = result_dtype(operator, [argument.dtype for argument in arguments])
                    except ValueError as error:
                        yield str(error)
                    else:
                        if wanted is not dtype:
                            yield f"{operator} gives {wanted.value}, not {dtype.value}"
                case Masked(dtype, mask, body, other):
                    if mask.dtype is not DType.b8 or body.dtype is not dtype or other.dtype is not dtype:
                        yield f"masked {dtype.value} of {mask.dtype.value}, {body.dtype.value}, {other.dtype.value}"
            if node.dtype not in KERNEL_DTYPES:
                yield f"kernels do not compute with {node.dtype.value}"

    def _arguments(self, argument: Argument) -> Iterator[str]:
        if isinstance(argument, BufferReference):
            yield from self._use(argument.name)
        elif isinstance(argument, tuple):
            for part in argument:
                yield from self._arguments(part)
        elif isinstance(argument, Expression):
            yield from self._bound(argument, (), "argument")

    def _call(self, call: LibraryCall) -> Iterator[str]:
        for argument in (*call.arguments, *(argument for _, argument in call.keywords)):
            yield from self._arguments(argument)
        for name in call.mutates:
            yield from self._use(name)
        for result in call.results:
            if result is not None:
                yield from self._define(result)

    def _view(self, view: View) -> Iterator[str]:
        yield from self._use(view.base)
        yield from self._bound(view.offset, (), "offset")
        yield from self._define(view.result)
        buffers = self.program.buffers
        if view.base in buffers and view.result in buffers and buffers[view.base].dtype.itemsize != buffers[view.result].dtype.itemsize:
            yield f"a view of {buffers[view.base].dtype.value} as {buffers[view.result].dtype.value}"

    def _read(self, read: ReadScalar) -> Iterator[str]:
        yield from self._use(read.buffer)
        if read.symbol in self.symbols:
            yield f"{read.symbol} is bound twice"
        self.symbols.add(read.symbol)
        if read.buffer in self.program.buffers and self.program.buffers[read.buffer].dtype.kind not in ("int", "uint", "bool"):
            yield f"{read.symbol} is read from {self.program.buffers[read.buffer].dtype.value}"
