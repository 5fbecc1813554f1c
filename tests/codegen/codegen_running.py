"""Programs made by hand or at random, run through schedule, C++ and a real compiler, next to the reference evaluator."""
from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from aotcompile.codegen.cpp.source import generate_cpp
from aotcompile.codegen.python.plan import as_json, plan_graph
from aotcompile.ir.dtypes import DType
from aotcompile.ir.reference.evaluate import Array, evaluate
from aotcompile.ir.expression import Expression, Symbol, wrap
from aotcompile.ir.nodes import (
    Apply, Buffer, BufferReference, Cast, Compute, Constant, LibraryCall, Load, Loop, Operation, Origin, Program, Reduction, SizeSymbol, Store, Value,
    View,
)
from aotcompile.package.cpp_build import compile_library
from aotcompile.runtime.executor import Graph, Kernels
from aotcompile.schedule.schedule import make_schedule

_FOLDER = Path(tempfile.mkdtemp(prefix="aotcompile-test-kernels-"))


def torch_dtype(dtype: DType) -> torch.dtype:
    found = getattr(torch, dtype.torch_name)
    assert isinstance(found, torch.dtype)
    return found


def contiguous(sizes: Sequence[Expression]) -> tuple[Expression, ...]:
    strides: list[Expression] = []
    stride = wrap(1)
    for size in reversed(sizes):
        strides.insert(0, stride)
        stride = stride * size
    return tuple(strides)


@dataclass
class Builder:
    """Appends one operation per call, as the lowering does; sizes are ints or symbols."""

    buffers: dict[str, Buffer] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    symbols: list[SizeSymbol] = field(default_factory=list)
    made: int = 0

    def buffer(self, name: str, sizes: Sequence[Any], dtype: DType = DType.f32, strides: Sequence[Any] | None = None) -> str:
        expressions = tuple(map(wrap, sizes))
        self.buffers[name] = Buffer(name, dtype, expressions, contiguous(expressions) if strides is None else tuple(map(wrap, strides)))
        return name

    def input(self, name: str, sizes: Sequence[Any], dtype: DType = DType.f32, strides: Sequence[Any] | None = None) -> str:
        for dimension, size in enumerate(sizes):
            if isinstance(size, Symbol) and all(entry.symbol != size for entry in self.symbols):
                self.symbols.append(SizeSymbol(size, len(self.inputs), dimension))
        self.inputs.append(name)
        return self.buffer(name, sizes, dtype, strides)

    def fresh(self, sizes: Sequence[Any], dtype: DType) -> str:
        self.made += 1
        return self.buffer(f"b{self.made}", sizes, dtype)

    def loops(self, sizes: Sequence[Expression], prefix: str = "p") -> tuple[Loop, ...]:
        return tuple(Loop(Symbol(f"{prefix}{k}"), size) for k, size in enumerate(sizes))

    def index(self, name: str, at: Sequence[Expression]) -> Expression:
        """The element of ``name`` at ``at`` (aligned at the last dimension, size 1 broadcasts)."""
        buffer = self.buffers[name]
        index = wrap(0)
        for position, (size, stride) in enumerate(zip(buffer.sizes, buffer.strides)):
            if size != wrap(1):
                index = index + at[len(at) - len(buffer.sizes) + position] * stride
        return index

    def load(self, name: str, at: Sequence[Expression]) -> Load:
        return Load(self.buffers[name].dtype, name, self.index(name, at))

    def compute(self, sizes: Sequence[Any], dtype: DType, body: Any, name: str = "op") -> str:
        """A pointwise operation; ``body(at)`` gives the value at loop variables ``at``."""
        result = self.fresh(sizes, dtype)
        loops = self.loops(self.buffers[result].sizes)
        at = [loop.variable for loop in loops]
        value: Value = body(at)
        self.operations.append(Compute(result, loops, value, Store(self.index_all(result, at)), origins=(Origin(f"aten.{name}.default", "model.py:1"),)))
        return result

    def index_all(self, name: str, at: Sequence[Expression]) -> Expression:
        buffer = self.buffers[name]
        index = wrap(0)
        for variable, stride in zip(at, buffer.strides):
            index = index + variable * stride
        return index

    def apply(self, operator: str, *names: str, dtype: DType | None = None) -> str:
        """An operator on whole tensors, broadcasting."""
        rank = max(len(self.buffers[name].sizes) for name in names)
        sizes: list[Expression] = [wrap(1)] * rank
        for name in names:
            for k, size in enumerate(self.buffers[name].sizes, rank - len(self.buffers[name].sizes)):
                sizes[k] = size if size != wrap(1) else sizes[k]
        result = dtype or self.buffers[names[-1]].dtype
        return self.compute(sizes, result, lambda at: Apply(result, operator, tuple(self.load(name, at) for name in names)), operator)

    def constant(self, name: str, operator: str, value: float) -> str:
        dtype = self.buffers[name].dtype
        return self.compute(self.buffers[name].sizes, dtype, lambda at: Apply(dtype, operator, (self.load(name, at), Constant(dtype, value))), operator)

    def cast(self, name: str, dtype: DType) -> str:
        return self.compute(self.buffers[name].sizes, dtype, lambda at: Cast(dtype, self.load(name, at)), "to")

    def permute(self, name: str, order: Sequence[int]) -> str:
        """A contiguous copy with dimensions in another order."""
        buffer = self.buffers[name]
        inverse = [list(order).index(k) for k in range(len(order))]
        return self.compute([buffer.sizes[k] for k in order], buffer.dtype, lambda at: self.load(name, [at[inverse[k]] for k in range(len(order))]), "permute")

    def reduce(self, kind: Any, name: str, dimensions: Sequence[int], keep: bool = True) -> str:
        buffer = self.buffers[name]
        position = kind in ("argmax", "argmin")
        accumulate = DType.i64 if position else DType.f32 if buffer.dtype in (DType.f16, DType.bf16) else DType.b8 if kind in ("any", "all") else buffer.dtype
        dtype = DType.i64 if position else DType.b8 if kind in ("any", "all") else buffer.dtype
        outer = [k for k in range(len(buffer.sizes)) if k not in dimensions]
        sizes = [wrap(1) if k in dimensions else size for k, size in enumerate(buffer.sizes)] if keep else [buffer.sizes[k] for k in outer]
        result = self.fresh(sizes, dtype)
        loops = tuple(Loop(Symbol(f"p{k}"), buffer.sizes[k]) for k in outer)
        inner = tuple(Loop(Symbol(f"r{k}"), buffer.sizes[k]) for k in dimensions)
        at = [Symbol(f"r{k}") if k in dimensions else Symbol(f"p{k}") for k in range(len(buffer.sizes))]
        strides = self.buffers[result].strides
        index = wrap(0)
        for position_, k in enumerate(outer):
            index = index + Symbol(f"p{k}") * (strides[k] if keep else strides[position_])
        self.operations.append(Compute(result, loops, self.load(name, at), Store(index), Reduction(kind, inner, accumulate),
                                       origins=(Origin(f"aten.{kind}.default", "model.py:2"),)))
        return result

    def program(self, *outputs: str, name: str = "inference", ranges: dict[str, tuple[int, int | None]] | None = None) -> Program:
        used = {f"{entry.symbol.name}": (0, None) for entry in self.symbols}
        return Program(name, dict(self.buffers), tuple(self.inputs), tuple(self.symbols), tuple(self.operations),
                       tuple(BufferReference(output) for output in outputs), ranges={**used, **(ranges or {})})


def build(program: Program, target: str = "native") -> Graph:
    schedule = make_schedule(program, backend="cpp")
    source = generate_cpp([schedule])
    digest = hashlib.sha256(f"{target}\n{source.text}".encode()).hexdigest()[:20]
    path = _FOLDER / f"{digest}.so"
    if source.kernels and not path.exists():
        compile_library(source.text, target=target, output_path=path)
    return Graph(as_json(plan_graph(schedule)), Kernels(str(path) if source.kernels else None, source.kernels))


def run(program: Program, inputs: Sequence[Any], target: str = "native") -> list[Any]:
    """The program's outputs with compiled kernels. Inputs that it mutates are changed."""
    return build(program, target)(list(inputs))


def array(tensor: torch.Tensor, dtype: DType) -> Array:
    flat = torch.as_strided(tensor, (tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset(),), (1,))
    return Array(flat.tolist(), tuple(tensor.shape), tensor.stride(), dtype)


def reference(program: Program, inputs: Sequence[Any], library: Any = None) -> list[Any]:
    arrays = [array(value, program.buffers[name].dtype) if isinstance(value, torch.Tensor) and name is not None else value
              for name, value in zip(program.inputs, inputs)]
    return evaluate(program, arrays, library)


def close(got: float, wanted: float, tolerance: float) -> bool:
    if math.isnan(wanted) or math.isnan(got):
        return math.isnan(wanted) and math.isnan(got)
    if math.isinf(wanted) or math.isinf(got):
        return wanted == got
    return abs(got - wanted) <= tolerance * max(1.0, abs(wanted))


TOLERANCE = {DType.f64: 1e-12, DType.f32: 2e-6, DType.bf16: 2e-2, DType.f16: 3e-3}


def check(program: Program, inputs: Sequence[Any], target: str = "native", tolerance: float | None = None) -> None:
    """Compiled against evaluated, element by element."""
    copies = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    wanted = reference(program, copies)
    got = run(program, inputs, target)
    for output, expected, result in zip(program.outputs, wanted, got):
        assert isinstance(output, BufferReference)
        dtype = program.buffers[output.name].dtype
        values = result.flatten().tolist()
        elements = expected.elements()
        assert len(values) == len(elements)
        allowed = tolerance if tolerance is not None else TOLERANCE.get(dtype, 0)
        for k, (a, b) in enumerate(zip(values, elements)):
            assert a == b or dtype.is_floating and close(a, b, allowed), f"{output.name}[{k}]: {a} instead of {b}"


__all__ = ["Builder", "LibraryCall", "View", "build", "check", "run", "torch_dtype"]
