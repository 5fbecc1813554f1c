"""Programs: text form and back, well-formedness, evaluation."""
from __future__ import annotations

import dataclasses
import math
import pickle

import pytest

from aotcompile.ir.dtypes import DType
from aotcompile.ir.reference.evaluate import Array, evaluate
from aotcompile.ir.expression import Integer, Symbol, parse
from aotcompile.ir.nodes import (
    Apply, Buffer, BufferReference, Cast, Compute, Constant, DTypeReference, IndexValue, LibraryCall, Load, Loop, Masked, Origin, Program, ReadScalar, Reduction,
    SizeSymbol, Store, TorchReference, Value, View,
)
from aotcompile.ir.text.parse import parse_program, parse_value
from aotcompile.ir.text.print import program_text, value_text
from aotcompile.ir.traverse import buffers_read, loads, substitute_value, tree_size, value_symbols, walk
from aotcompile.ir.verify import verify

F32, I64 = DType.f32, DType.i64
I0, R0, K0, S0, U0 = map(Symbol, ("i0", "r0", "k0", "s0", "u0"))


def buffer(name: str, dtype: DType = F32, sizes: str = "s0, 4", strides: str = "4, 1") -> Buffer:
    split = lambda text: tuple(parse(part.strip()) for part in text.split(",")) if text else ()      # noqa: E731
    return Buffer(name, dtype, split(sizes), split(strides))


def example() -> Program:
    """Gather rows, sum them, scatter the sums, call a library operator, read a size."""
    position = Apply(I64, "where", (Apply(DType.b8, "lt", (Load(I64, "idx", I0), Constant(I64, 0))), Apply(I64, "add", (Load(I64, "idx", I0), IndexValue(I64, S0))),
                                    Load(I64, "idx", I0)))
    gathered = Load(F32, "x", K0 * 4 + R0, ((K0, position),), ((K0, S0),))
    body = Masked(F32, Apply(DType.b8, "ge", (IndexValue(I64, R0 - 1), Constant(I64, 0))), Apply(F32, "mul", (gathered, Constant(F32, -1.5))), Constant(F32, -math.inf))
    operations = (
        Compute("sums", (Loop(I0, Integer(3)),), body, Store(I0), Reduction("maximum", (Loop(R0, Integer(4)),), F32), origins=(Origin("aten.amax.default", "m.py:3"),)),
        Compute("base", (Loop(I0, S0),), Constant(F32, 0.0), Store(I0)),
        Compute("spread", (Loop(I0, Integer(3)),), Load(F32, "sums", I0), Store(K0, "add", ((K0, position),), ((K0, S0),)), updates="base"),
        Compute("halves", (Loop(I0, S0),), Cast(DType.f16, Load(F32, "spread", I0)), Store(I0)),
        LibraryCall("aten.thing.out", (BufferReference("halves"), (BufferReference("x"), None), S0 * 2, True, 3, 2.5, -math.inf, "floor", complex(1, -2)),
                    (("dtype", DTypeReference("float32")), ("device", TorchReference("device", "cpu")), ("layout", TorchReference("layout", "torch.strided"))),
                    ("count", None), ("spread",), (Origin("aten.thing.out"),)),
        View("first", "x", Integer(0), (Origin("aten.select.int"),)),
        ReadScalar(U0, "count"),
    )
    buffers = [buffer("x"), buffer("idx", I64, "3", "1"), buffer("sums", sizes="3", strides="1"), buffer("base", sizes="s0", strides="1"),
               buffer("spread", sizes="s0", strides="1"), buffer("halves", DType.f16, "s0", "1"), buffer("count", I64, "", ""), buffer("first", sizes="4", strides="1")]
    return Program("inference", {b.name: b for b in buffers}, ("x", "idx", None, None), (SizeSymbol(S0, 0, 0),), operations,
                   (BufferReference("spread"), BufferReference("first"), U0 * 2 + 1, None, 3, 2.5), ((2, Symbol("s7")),), {"s0": (1, None), "u0": (0, 9)})


def test_text_reads_back() -> None:
    text = program_text(example())
    assert parse_program(text) == example()
    assert program_text(parse_program(text)) == text
    assert "sums[i0] = for i0 < 3: maximum f32 over (r0 < 4): masked(ge(i64(r0 - 1), i64 0), mul(load(x[4*k0 + r0] where k0 = " in text


@pytest.mark.parametrize("value", [Constant(F32, math.inf), Constant(F32, -math.inf), Constant(F32, -0.0), Constant(F32, 1e-05), Constant(F32, 1e30), Constant(I64, -(2**63)),
                                   Constant(DType.b8, True), IndexValue(I64, parse("min(i0, 3) // 2 - s0*i0 % 5")), Apply(F32, "add", (Constant(F32, -1.0), Constant(F32, math.nan)))])
def test_values_read_back(value: Value) -> None:
    assert parse_value(value_text(value), {}) == value


def test_example_is_well_formed() -> None:
    assert verify(example()) == ()


def changed(number: int, **fields: object) -> Program:
    program = example()
    operations = list(program.operations)
    operations[number] = dataclasses.replace(operations[number], **fields)      # type: ignore[arg-type]
    return dataclasses.replace(program, operations=tuple(operations))


@pytest.mark.parametrize(("program", "fault"), [
    (changed(0, result="base"), "base is defined twice"),
    (changed(0, body=Load(F32, "spread", I0)), "spread is used before it is defined"),
    (changed(0, body=Load(F32, "nowhere", I0)), "nowhere is no buffer"),
    (changed(0, body=Load(F32, "x", Symbol("i9"))), "uses i9, which is not bound"),
    (changed(1, store=Store(R0)), "uses r0, which is not bound"),
    (changed(1, body=Constant(DType.f64, 0.0)), "the body is f64, the result f32"),
    (changed(1, body=Constant(F32, 0)), "constant 0 of dtype f32"),
    (changed(1, body=Load(F32, "idx", I0)), "load of idx as f32"),
    (changed(3, body=Apply(DType.f16, "add", (Constant(DType.f16, 1.0), Constant(F32, 1.0)))), "operands of different types"),
    (changed(0, reduction=Reduction("any", (Loop(R0, Integer(4)),), F32)), "any of f32"),
    (changed(0, reduction=Reduction("sum", (Loop(R0, Integer(4)),), DType.f64)), "the accumulator is f64"),
    (changed(2, updates=None), "needs a buffer that it updates"),
    (changed(1, loops=(Loop(I0, S0), Loop(I0, S0))), "two loops have the same variable"),
    (changed(1, loops=(Loop(I0, Symbol("s5")),)), "uses s5"),
    (changed(6, buffer="x"), "is read from f32"),
    (changed(5, base="halves"), "a view of f16 as f32"),
])
def test_faults_are_found(program: Program, fault: str) -> None:
    assert any(fault in found for found in verify(program)), verify(program)


def test_evaluation() -> None:
    program = example()
    x = Array([float(value) for value in range(8)], (2, 4), (4, 1), F32)
    index = Array([0, -1, 0], (3,), (1,), I64)

    def library(call: LibraryCall, argument: object) -> list[Array | None]:
        return [Array([4], (), (), I64), None]
    spread, first, *rest = evaluate(program, [x, index, 7, None], library)
    assert spread.elements() == [-1.5 + -1.5, -7.5]              # the largest of -1.5 * row[1:], added twice for row 0
    assert first.elements() == [0.0, 1.0, 2.0, 3.0]
    assert rest == [9, None, 3, 2.5]


def test_shared_values_are_walked_once() -> None:
    value: Value = Load(F32, "x", I0)
    for _ in range(100):
        value = Apply(F32, "add", (value, value))
    assert len(list(walk(value))) == 101 and tree_size(value) == 2**100 - 1
    moved = substitute_value(value, {I0: S0 * 2})
    assert value_symbols(moved) == {S0} and len(list(walk(moved))) == 101
    assert loads(moved) == (Load(F32, "x", S0 * 2),)
    again = pickle.loads(pickle.dumps(value))
    assert hash(again) == hash(value)


def test_buffers_read() -> None:
    sums, _, spread = example().operations[:3]
    assert isinstance(sums, Compute) and buffers_read(sums) == ("idx", "x")
    assert isinstance(spread, Compute) and buffers_read(spread) == ("sums", "idx")
