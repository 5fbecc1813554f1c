"""What is fused, in which order, and that the effort stays linear."""
from __future__ import annotations

import time

from codegen_running import Builder

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Symbol, wrap
from aotcompile.ir.nodes import BufferReference, LibraryCall, Program, View
from aotcompile.schedule.schedule import make_schedule
from aotcompile.schedule.types import FusedKernel, Schedule, parameters


def kernels(program: Program) -> list[FusedKernel]:
    return [step for step in make_schedule(program, backend="cpp").steps if isinstance(step, FusedKernel)]


def results(kernel: FusedKernel) -> list[list[str]]:
    return [[compute.result for compute in stage.computes] for stage in kernel.stages]


def test_softmax_is_one_kernel_with_three_stages() -> None:
    b = Builder()
    x = b.input("x", [64, 1000])
    s = b.apply("sub", x, b.reduce("maximum", x, [1]))
    p = b.apply("exp", s)
    y = b.apply("truediv", p, b.reduce("sum", p, [1]))
    [kernel] = kernels(b.program(y))
    assert results(kernel) == [["b1"], ["b2", "b3", "b4"], ["b2", "b3", "b5"]]
    assert [stage.kind for stage in kernel.stages] == ["reduce", "reduce", "map"]
    assert kernel.inputs == ("x",) and kernel.outputs == ("b5",) and kernel.locals == ("b1", "b2", "b3", "b4")
    assert kernel.name == "cpp_red_fused_exp_maximum_sub_sum_truediv_0"


def test_layer_norm_over_three_dimensions_is_one_kernel() -> None:
    b = Builder()
    x, w = b.input("x", [4, 16, 64]), b.input("w", [64])
    mean = b.constant(b.reduce("sum", x, [2]), "mul", 1 / 64)
    d = b.apply("sub", x, mean)
    scale = b.apply("rsqrt", b.constant(b.reduce("sum", b.apply("mul", d, d), [2]), "mul", 1 / 64))
    [kernel] = kernels(b.program(b.apply("mul", b.apply("mul", d, scale), w)))
    assert len(kernel.outer) == 1 and str(kernel.outer[0].size) == "64" and [stage.kind for stage in kernel.stages] == ["reduce", "reduce", "map"]


def test_pointwise_loops_are_merged_where_strides_allow() -> None:
    b = Builder()
    x, w = b.input("x", [4, 16, 64]), b.input("w", [64])
    [whole] = kernels(b.program(b.apply("exp", x)))
    assert [str(loop.size) for loop in whole.outer] == ["4096"]
    [rows] = kernels(b.program(b.apply("add", x, w)))
    assert [str(loop.size) for loop in rows.outer] == ["64", "64"]


def test_the_innermost_loop_is_contiguous_for_the_store() -> None:
    b = Builder()
    b.input("x", [8, 32], strides=[1, 8])
    b.operations.clear()
    y = b.apply("exp", "x")
    [kernel] = kernels(b.program(y))
    assert str(kernel.stages[0].computes[0].store.index) == "32*x0 + x1"


def test_siblings_that_read_the_same_data_share_a_kernel() -> None:
    b = Builder()
    x = b.input("x", [512, 64])
    assert len(kernels(b.program(b.apply("exp", x), b.apply("sin", x), b.reduce("sum", x, [1])))) == 1
    y = b.input("y", [512, 64])
    assert len(kernels(b.program(b.apply("exp", x), b.apply("sin", y)))) == 2


def test_a_transposed_producer_is_inlined_when_it_has_one_use() -> None:
    b = Builder()
    x = b.input("x", [16, 48])
    e = b.apply("exp", x)
    t = b.permute(e, [1, 0])
    assert len(kernels(b.program(t))) == 1
    [both] = kernels(b.program(t, e))                        # also stored: computed once, stored twice
    assert both.outputs == (e, t)


def test_a_reduction_over_leading_dimensions_takes_its_producer_in() -> None:
    b = Builder()
    x = b.input("x", [300, 64])
    [kernel] = kernels(b.program(b.reduce("sum", b.apply("exp", x), [0])))
    assert [str(loop.size) for loop in kernel.outer] == ["64"] and [str(loop.size) for loop in kernel.stages[0].inner] == ["300"]


def test_what_nothing_needs_is_dropped() -> None:
    b = Builder()
    x = b.input("x", [8])
    y = b.apply("exp", x)
    b.apply("sin", y)
    b.operations.append(View(b.buffer("v", [4]), y, wrap(2)))
    schedule = make_schedule(b.program(y), backend="cpp")
    assert [type(step).__name__ for step in schedule.steps] == ["Allocate", "FusedKernel"]
    assert results(schedule.steps[1]) == [[y]]               # type: ignore[arg-type]


def test_names_of_the_other_backend_and_of_other_graphs() -> None:
    b = Builder()
    x = b.input("x", [8])
    program = b.program(b.apply("exp", x), name="backward")
    assert make_schedule(program, backend="triton").steps[1].name == "triton_poi_fused_exp_backward_0"      # type: ignore[union-attr]


def blocks(count: int) -> Program:
    """Equal blocks as a transformer has them: normalisation, product, activation, residual."""
    b = Builder()
    x, w = b.input("x", [64, 256]), b.input("w", [256])
    for _ in range(count):
        h = b.apply("mul", b.apply("sub", x, b.reduce("sum", x, [1])), w)
        product = b.fresh([64, 256], DType.f32)
        b.operations.append(LibraryCall("aten.mm.default", (BufferReference(h), BufferReference(w)), (), (product,)))
        for k in range(8):
            product = b.apply(("add", "mul", "sub", "maximum")[k % 4], product, w)
        x = b.apply("add", x, b.apply("tanh", product))
    return b.program(x)


def test_equal_blocks_have_the_kernels_of_one() -> None:
    names = {kernel.name for kernel in kernels(blocks(6))}
    assert len(kernels(blocks(6))) > 6 and len(names) <= 3


def test_effort_is_linear() -> None:
    def seconds(count: int) -> float:
        program = blocks(count)
        begin = time.process_time()
        make_schedule(program, backend="cpp")
        return time.process_time() - begin
    seconds(5)
    assert seconds(160) < 12 * max(seconds(20), 0.02)        # 8 times the operations


def test_every_buffer_is_allocated_before_use_and_freed_once() -> None:
    schedule: Schedule = make_schedule(blocks(8), backend="cpp")
    there = {"x", "w"}
    for step in schedule.steps:
        match step:
            case FusedKernel():
                assert set(parameters(step)) <= there
            case LibraryCall(results=made):
                there.update(name for name in made if name)
            case _:
                name = step.buffer                           # type: ignore[union-attr]
                if type(step).__name__ == "Free":
                    there.remove(name)
                else:
                    assert name not in there
                    there.add(name)
    assert len(there) == 3


def test_a_dynamic_batch_is_one_loop() -> None:
    b = Builder()
    x = b.input("x", [Symbol("s0"), 16, 64])
    [kernel] = kernels(b.program(b.apply("exp", b.apply("neg", x))))
    assert [str(loop.size) for loop in kernel.outer] == ["1024*s0"] and kernel.symbols == (Symbol("s0"),)
