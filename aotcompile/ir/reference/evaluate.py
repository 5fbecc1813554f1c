"""A slow interpreter of `Program`s in plain Python: the meaning of the IR, used by tests.

Tensors are `Array`s: a list of Python numbers (the memory, from the first element on) with sizes and strides. Library calls go to a callback.
"""

from __future__ import annotations

import itertools
import math
import operator
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Expression, FloorDivide, Integer, Maximum, Minimum, Modulo, Multiply, Symbol, children
from aotcompile.ir.nodes import (
    Apply,
    Argument,
    Buffer,
    BufferReference,
    Cast,
    Compute,
    Constant,
    IndexValue,
    LibraryCall,
    Load,
    Loop,
    Masked,
    Program,
    Check,
    ReadScalar,
    Reduction,
    Value,
    View,
)
from aotcompile.ir.reference.scalar_math import KernelFailure, Number, apply_operator, convert_number

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass
class Array:
    """A strided tensor: element (i, j, ...) is ``memory[offset + i*strides[0] + j*strides[1] + ...]``."""

    memory: list[Number]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    offset: int = 0

    def elements(self) -> list[Number]:
        """All elements in row-major order."""
        return [self.memory[self.offset + sum(i * s for i, s in zip(index, self.strides))] for index in itertools.product(*map(range, self.sizes))]


_CODES = {DType.f64: "d", DType.f32: "f", DType.f16: "e", DType.i64: "q", DType.i32: "i", DType.i16: "h", DType.i8: "b", DType.u8: "B", DType.b8: "?"}

Library = Callable[[LibraryCall, Callable[[Argument], Any]], Sequence[Array | None]]
Bound = Mapping[Symbol, int]


def evaluate_index(expression: Expression, symbols: Bound) -> int:
    """The value of an index expression. Raises KeyError for a symbol that is not given."""
    match expression:
        case Integer(value):
            return value
        case Symbol():
            return symbols[expression]
        case Multiply(coefficient, factors):
            return coefficient * math.prod(evaluate_index(factor, symbols) for factor in factors)
        case FloorDivide(a, b):
            return evaluate_index(a, symbols) // evaluate_index(b, symbols)
        case Modulo(a, b):
            return evaluate_index(a, symbols) % evaluate_index(b, symbols)
        case Minimum(a, b):
            return min(evaluate_index(a, symbols), evaluate_index(b, symbols))
        case Maximum(a, b):
            return max(evaluate_index(a, symbols), evaluate_index(b, symbols))
    return sum(evaluate_index(term, symbols) for term in children(expression))


def evaluate(program: Program, inputs: Sequence[Array | int | None], library: Library | None = None) -> list[Any]:
    """Run a program; its outputs: an `Array`, or a number. Inputs that the program mutates are changed in place.

    Raises KernelFailure where a kernel would stop, IndexError where one would read or write outside of a buffer."""
    return _Evaluator(program, inputs, library).run()


class _Evaluator:
    def __init__(self, program: Program, inputs: Sequence[Array | int | None], library: Library | None) -> None:
        self.program = program
        self.library = library
        self.symbols: dict[Symbol, int] = {}
        self.arrays: dict[str, Array] = {}
        for entry in program.symbols:
            given = inputs[entry.input]
            assert isinstance(given, Array)
            self.symbols[entry.symbol] = given.sizes[entry.dimension]
        for number, symbol in program.scalar_inputs:
            value = inputs[number]
            assert isinstance(value, int)
            self.symbols[symbol] = value
        for name, array in zip(program.inputs, inputs):
            if name is not None:
                assert isinstance(array, Array)
                self.arrays[name] = array

    def run(self) -> list[Any]:
        for operation in self.program.operations:
            match operation:
                case Compute():
                    self._compute(operation)
                case LibraryCall():
                    self._call(operation)
                case View(result, base, offset):
                    self.arrays[result] = self._view(result, self.arrays[base], self.index(offset))
                case ReadScalar(symbol, buffer):
                    self.symbols[symbol] = int(self.arrays[buffer].elements()[0])
                case Check(alternatives):
                    if not any(_COMPARE[part.sign](self.index(part.left), self.index(part.right)) for part in alternatives):
                        raise KernelFailure(3)
        return [self.argument(output) if isinstance(output, (BufferReference, Expression)) else output for output in self.program.outputs]

    def index(self, expression: Expression) -> int:
        return evaluate_index(expression, self.symbols)

    def argument(self, argument: Argument) -> Any:
        """A library call's argument: Arrays for buffers, ints for sizes, the rest as it is."""
        if isinstance(argument, BufferReference):
            return self.arrays[argument.name]
        if isinstance(argument, Expression):
            return self.index(argument)
        return [self.argument(part) for part in argument] if isinstance(argument, tuple) else argument

    def _view(self, name: str, base: Array, offset: int) -> Array:
        buffer = self.program.buffers[name]
        if buffer.dtype is not base.dtype:
            return self._reinterpret(buffer, base, offset)
        return Array(base.memory, tuple(map(self.index, buffer.sizes)), tuple(map(self.index, buffer.strides)), buffer.dtype, base.offset + offset)

    def _reinterpret(self, buffer: Buffer, base: Array, offset: int) -> Array:
        """The same bytes as another dtype of equal size. A copy: writes through such a view are not modelled."""
        packed = [struct.pack(f"<{_CODES[base.dtype]}", 0 if value is None else value) for value in base.memory]
        memory = [struct.unpack(f"<{_CODES[buffer.dtype]}", part)[0] for part in packed]
        return Array(memory, tuple(map(self.index, buffer.sizes)), tuple(map(self.index, buffer.strides)), buffer.dtype, base.offset + offset)

    def _call(self, call: LibraryCall) -> None:
        if self.library is None:
            raise NotImplementedError(call.operator)
        for name, result in zip(call.results, self.library(call, self.argument)):
            if name is not None:
                assert result is not None
                self.arrays[name] = result

    def _allocate(self, name: str) -> Array:
        buffer = self.program.buffers[name]
        sizes, strides = tuple(map(self.index, buffer.sizes)), tuple(map(self.index, buffer.strides))
        length = 0 if 0 in sizes else 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
        return Array([None] * length, sizes, strides, buffer.dtype)

    def _points(self, loops: Sequence[Loop], outer: Bound) -> Iterator[dict[Symbol, int]]:
        for point in itertools.product(*(range(evaluate_index(loop.size, self.symbols)) for loop in loops)):
            yield {**outer, **{loop.variable: at for loop, at in zip(loops, point)}}

    def _compute(self, compute: Compute) -> None:
        if compute.updates is not None:
            target = self._view(compute.result, self.arrays[compute.updates], 0)
        else:
            target = self._allocate(compute.result)
        dtype = self.program.buffers[compute.result].dtype
        for point in self._points(compute.loops, self.symbols):
            value = self.value(compute.body, point) if compute.reduction is None else self._reduce(compute.reduction, compute.body, point)
            scope = self._bind(compute.store.bindings, compute.store.checks, point)
            at = target.offset + evaluate_index(compute.store.index, scope)
            if not 0 <= at < len(target.memory):
                raise IndexError(f"{compute.result}[{at}]")
            target.memory[at] = apply_operator("add", dtype, (target.memory[at], value)) if compute.store.mode == "add" else value
        self.arrays[compute.result] = target

    def _bind(
        self, bindings: Sequence[tuple[Symbol, Value]], checks: Sequence[tuple[Symbol, Expression]], point: dict[Symbol, int]
    ) -> dict[Symbol, int]:
        if not bindings:
            return point
        scope = {**point, **{symbol: int(self.value(bound, point)) for symbol, bound in bindings}}
        for symbol, size in checks:
            if not 0 <= scope[symbol] < evaluate_index(size, scope):
                raise KernelFailure(1)
        return scope

    def _reduce(self, reduction: Reduction, body: Value, outer: dict[Symbol, int]) -> Number:
        values = (self.value(body, point) for point in self._points(reduction.loops, outer))
        kind, dtype = reduction.kind, reduction.accumulate
        if kind in ("argmax", "argmin"):
            return _position(kind, list(values))
        total: Number = {"sum": 0, "product": 1, "any": False, "all": True, "xor_sum": 0}.get(kind)
        if total is None:
            total = -math.inf if kind == "maximum" else math.inf
            numbers = list(values)
            if not dtype.is_floating:
                return max(numbers) if kind == "maximum" else min(numbers)
            values = (number for number in numbers)
        total = convert_number(dtype, total)
        operator = {"sum": "add", "product": "mul", "any": "logical_or", "all": "logical_and", "xor_sum": "bitwise_xor"}.get(kind, kind)
        for value in values:
            total = apply_operator(operator, dtype, (total, value))
        return total

    def value(self, value: Value, point: dict[Symbol, int]) -> Number:
        """One value at one loop point (shared parts are computed again)."""
        match value:
            case Constant(dtype, number):
                return convert_number(dtype, number)
            case IndexValue(dtype, expression):
                return convert_number(dtype, evaluate_index(expression, point))
            case Load(_, buffer, index, bindings, checks):
                array = self.arrays[buffer]
                at = array.offset + evaluate_index(index, self._bind(bindings, checks, point))
                if not 0 <= at < len(array.memory):
                    raise IndexError(f"{buffer}[{at}]")
                return array.memory[at]
            case Apply(_, operator, arguments):
                return apply_operator(operator, arguments[-1].dtype, tuple(self.value(argument, point) for argument in arguments))
            case Cast(dtype, argument):
                return convert_number(dtype, self.value(argument, point))
            case Masked(_, mask, body, other):
                return self.value(body if self.value(mask, point) else other, point)
        raise TypeError(f"not a value: {value!r}")


def _position(kind: str, values: list[Number]) -> int:
    """The first extreme; a nan is more extreme than anything."""
    best = 0
    for number, value in enumerate(values):
        if values[best] != values[best]:
            break
        if value != value or (value > values[best] if kind == "argmax" else value < values[best]):
            best = number
    return best
