"""Kernels where more than arithmetic counts: masks, data-dependent indices, failures, scatters, updates of inputs, long sums."""
from __future__ import annotations

import pytest
import torch
from codegen_running import Builder, build, check, run

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Symbol, wrap
from aotcompile.ir.nodes import (
    Apply, Cast, Compute, Constant, IndexValue, Load, Loop, Masked, Origin, Store, Value,
)
from aotcompile.runtime.executor import KernelFailure

F32, I64 = DType.f32, DType.i64
P0, P1, K = Symbol("p0"), Symbol("p1"), Symbol("k0")


def loops(*sizes: int) -> tuple[Loop, ...]:
    return tuple(Loop(Symbol(f"p{k}"), wrap(size)) for k, size in enumerate(sizes))


def embedding(rows: int = 10, width: int = 33, count: int = 7) -> Builder:
    b = Builder()
    b.input("i", [count], I64)
    b.input("table", [rows, width])
    row: Value = Load(I64, "i", wrap(P0))
    result = b.fresh([count, width], F32)
    load = Load(F32, "table", K * width + P1, ((K, row),), ((K, wrap(rows)),))
    b.operations.append(Compute(result, loops(count, width), Apply(F32, "mul", (load, Constant(F32, 2.0))), Store(P0 * width + P1)))
    return b


def test_gather_by_rows() -> None:
    b = embedding()
    check(b.program("b1"), [torch.tensor([0, 9, 3, 3, 1, 0, 5]), torch.randn(10, 33)])


@pytest.mark.parametrize("bad", [-1, 10, 2**40])
def test_an_index_out_of_range_stops_the_kernel(bad: int) -> None:
    with pytest.raises(KernelFailure) as failure:
        run(embedding().program("b1"), [torch.tensor([0, bad, 3, 3, 1, 0, 5]), torch.randn(10, 33)])
    assert failure.value.status == 1


def test_gather_by_elements() -> None:
    b = Builder()
    b.input("x", [6, 20])
    b.input("i", [5, 20], I64)
    result = b.fresh([5, 20], F32)
    load = Load(F32, "x", K * 20 + P1, ((K, Load(I64, "i", P0 * 20 + P1)),), ((K, wrap(6)),))
    b.operations.append(Compute(result, loops(5, 20), load, Store(P0 * 20 + P1)))
    program = b.program(result)
    index = torch.randint(0, 6, (5, 20))
    check(program, [torch.randn(6, 20), index])
    index[4, 19] = 6
    with pytest.raises(KernelFailure):
        run(program, [torch.randn(6, 20), index])


@pytest.mark.parametrize("dtype", [I64, DType.i32, DType.i8, DType.u8])
@pytest.mark.parametrize("operator", ["floordiv", "remainder", "truncdiv", "fmod"])
def test_a_zero_divisor_stops_the_kernel(dtype: DType, operator: str) -> None:
    b = Builder()
    b.input("x", [19], dtype)
    b.input("y", [19], dtype)
    program = b.program(b.apply(operator, "x", "y"))
    value = torch.arange(19).to(getattr(torch, dtype.torch_name))
    run(program, [value, value + 1])
    with pytest.raises(KernelFailure) as failure:
        run(program, [value, value])
    assert failure.value.status == 2


def test_padding_reads_nothing_outside() -> None:
    """Row 0 lies at the very beginning of the memory: an unmasked load would be before it."""
    b = Builder()
    b.input("x", [4, 5])
    result = b.fresh([6, 9], F32)
    inside: Value = Apply(DType.b8, "logical_and", (
        Apply(DType.b8, "logical_and", (Apply(DType.b8, "ge", (IndexValue(I64, P0), Constant(I64, 1))), Apply(DType.b8, "lt", (IndexValue(I64, P0), Constant(I64, 5))))),
        Apply(DType.b8, "logical_and", (Apply(DType.b8, "ge", (IndexValue(I64, P1), Constant(I64, 2))), Apply(DType.b8, "lt", (IndexValue(I64, P1), Constant(I64, 7)))))))
    load = Load(F32, "x", (P0 - 1) * 5 + P1 - 2)
    b.operations.append(Compute(result, loops(6, 9), Masked(F32, inside, Apply(F32, "exp", (load,)), Constant(F32, -1.5)), Store(P0 * 9 + P1)))
    check(b.program(result), [torch.randn(4, 5)])


def test_index_values_of_every_form() -> None:
    b = Builder()
    outputs = []
    for dtype in (F32, I64, DType.i32, DType.bf16, DType.b8, DType.u8):
        for expression in (P0 * 3 + P1 * 2 + 1, (P0 * 20 + P1) // 7, (P0 * 20 + P1) % 7, wrap(P0)):
            outputs.append(b.compute([3, 20], dtype, lambda at, d=dtype, e=expression: IndexValue(d, e)))
    check(b.program(*outputs), [])


def scatter_add(sizes: tuple[int, ...], along: int, rows: int, dtype: DType = F32) -> Builder:
    """out[i[p], q] += v[p, q] (along 0) or out[p, i[p, q]] += v[p, q] (along 1), into a copy of x."""
    b = Builder()
    whole = (rows, sizes[1]) if along == 0 else (sizes[0], rows)
    b.input("x", whole, dtype)
    b.input("i", sizes, I64)
    b.input("v", sizes, dtype)
    copy = b.compute(whole, dtype, lambda at: b.load("x", at), "clone")
    result = b.fresh(whole, dtype)
    bound = Load(I64, "i", P0 * sizes[1] + P1)
    index = K * whole[1] + P1 if along == 0 else P0 * whole[1] + K
    store = Store(index, "add", ((K, bound),), ((K, wrap(rows)),))
    b.operations.append(Compute(result, loops(*sizes), Load(dtype, "v", P0 * sizes[1] + P1), store, updates=copy, origins=(Origin("aten.scatter_add.default"),)))
    return b


@pytest.mark.parametrize("dtype", [F32, DType.bf16, I64])
@pytest.mark.parametrize("sizes, along", [((9, 35), 0), ((9, 35), 1), ((500, 70), 0), ((64, 700), 1)])
def test_scatter_add_with_equal_targets(sizes: tuple[int, int], along: int, dtype: DType) -> None:
    b = scatter_add(sizes, along, 5, dtype)
    result = f"b{b.made}"
    kind = getattr(torch, dtype.torch_name)
    whole = (5, sizes[1]) if along == 0 else (sizes[0], 5)
    value = torch.randint(-5, 5, sizes).to(kind)
    x, index = torch.zeros(whole, dtype=kind), torch.randint(0, 5, sizes)
    [got] = run(b.program(result), [x, index, value])
    torch.testing.assert_close(got, x.scatter_add(along, index, value), rtol=0, atol=0)
    assert not x.any()


def test_scatter_add_is_the_same_for_any_number_of_threads() -> None:
    b = scatter_add((3000, 130), 0, 7)
    graph = build(b.program(f"b{b.made}"))
    inputs = [torch.randn(7, 130), torch.randint(0, 7, (3000, 130)), torch.randn(3000, 130)]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = graph(inputs)[0]
        torch.set_num_threads(4)
        four = graph(inputs)[0]
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one, four)


def test_an_update_of_an_input_reads_the_old_values_first() -> None:
    """y = x + 1; x.copy_(flip(x)): the flipped values are a buffer of their own."""
    b = Builder()
    b.input("x", [70])
    flipped = b.compute([70], F32, lambda at: Load(F32, "x", 69 - at[0]), "flip")
    plus = b.constant("x", "add", 1.0)
    result = b.buffer("x_new", [70])
    b.operations.append(Compute(result, loops(70), Load(F32, flipped, wrap(P0)), Store(wrap(P0)), updates="x"))
    after = b.constant("x_new", "mul", 2.0)
    x = torch.arange(70.0)
    old = x.clone()
    got = run(b.program(plus, after), [x])
    assert torch.equal(x, old.flip(0)) and torch.equal(got[0], old + 1) and torch.equal(got[1], x * 2)


def test_updates_of_inputs_come_after_everything_that_can_fail() -> None:
    b = embedding(count=7, width=33)
    result = b.buffer("table_new", [10, 33])
    body = Apply(F32, "add", (Load(F32, "table", P0 * 33 + P1), Constant(F32, 1.0)))
    b.operations.insert(0, Compute(result, loops(10, 33), body, Store(P0 * 33 + P1), updates="table"))
    b.operations.insert(0, b.operations.pop())              # the gather comes first in program order ...
    table = torch.randn(10, 33)
    old = table.clone()
    with pytest.raises(KernelFailure):                      # ... and even the other way round the table must be untouched
        run(b.program("b1"), [torch.tensor([0, 1, 2, 3, 4, 5, 10]), table])
    assert torch.equal(table, old)
    run(b.program("b1"), [torch.tensor([0, 1, 2, 3, 4, 5, 6]), table])
    assert torch.equal(table, old + 1)


@pytest.mark.parametrize("sizes, dimensions", [((1_000_003,), (0,)), ((3, 400_001), (1,)), ((200_003, 5), (0,)), ((100_000, 3, 4), (0,))])
def test_long_sums_stay_accurate_and_deterministic(sizes: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    b = Builder()
    x = b.input("x", sizes)
    graph = build(b.program(b.reduce("sum", x, dimensions), b.reduce("maximum", x, dimensions)))
    value = torch.rand(sizes)
    got, largest = graph([value])
    exact = value.double().sum(dimensions, keepdim=True)
    assert ((got - exact).abs() / exact).max() < 3e-7
    assert torch.equal(largest, value.amax(dimensions, keepdim=True))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(graph([value])[0], got)
    finally:
        torch.set_num_threads(before)


def test_casts_round_at_every_operation() -> None:
    """bf16 chains round after each step, as eager does: no hidden precision."""
    b = Builder()
    x = b.input("x", [1000], DType.bf16)
    y = b.constant(b.constant(x, "add", 1.0), "sub", 1.0)
    value = torch.randn(1000).bfloat16()
    assert torch.equal(run(b.program(y), [value])[0], (value + 1) - 1)


def test_strided_inputs() -> None:
    b = Builder()
    b.input("x", [8, 20], F32, strides=[1, 8])
    y = b.apply("exp", "x")
    z = b.reduce("sum", y, [1])
    check(b.program(y, z), [torch.randn(20, 8).t()])


def test_cast_of_position_dependent_sums() -> None:
    b = Builder()
    x = b.input("x", [4, 33], DType.b8)
    total = b.reduce("sum", b.compute([4, 33], I64, lambda at: Cast(I64, b.load(x, at))), [1])
    check(b.program(total), [torch.rand(4, 33) > 0.5])
