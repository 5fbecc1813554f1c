"""Programs for the tests: one operator applied to inputs, and traced torch functions."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from aotcompile.codegen.triton.source import generate_triton
from aotcompile.codegen.types import KernelSource
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Integer, Symbol
from aotcompile.ir.nodes import Apply, Buffer, BufferReference, Compute, Load, Loop, Origin, Program, Store, Value
from aotcompile.ir.operators import KERNEL_DTYPES, OPERATORS, result_dtype
from aotcompile.schedule.schedule import make_schedule
from aotcompile.schedule.types import Allocate, FusedKernel, Schedule, Stage


def pointwise(body: Value, inputs: dict[str, DType], count: int) -> Schedule:
    """``result[i] = body`` over ``count`` elements; the body's loop variable is ``i``."""
    sizes, strides = (Integer(count),), (Integer(1),)
    buffers = {name: Buffer(name, dtype, sizes, strides, "cuda") for name, dtype in inputs.items()}
    buffers["result"] = Buffer("result", body.dtype, sizes, strides, "cuda")
    index = Symbol("i")
    compute = Compute("result", (Loop(index, Integer(count)),), body, Store(index), origins=(Origin("aten.sample.default", "model.py:1"),))
    return make_schedule(Program("inference", buffers, tuple(inputs), (), (compute,), (BufferReference("result"),)), backend="triton")


def one_kernel(bodies: dict[str, Value], inputs: dict[str, DType], count: int) -> Schedule:
    """``bodies``, by result, as one kernel over ``count`` elements: few launches, for tests with many cases."""
    sizes, strides, index = (Integer(count),), (Integer(1),), Symbol("x0")
    kinds = {**inputs, **{name: body.dtype for name, body in bodies.items()}}
    buffers = {name: Buffer(name, dtype, sizes, strides, "cuda") for name, dtype in kinds.items()}
    loops = (Loop(index, Integer(count)),)
    computes = tuple(Compute(name, loops, body, Store(index)) for name, body in bodies.items())
    kernel = FusedKernel("triton_poi_fused_0", loops, (Stage("map", (), computes),), tuple(inputs), tuple(bodies), (), ())
    program = Program("inference", buffers, tuple(inputs), (), computes, tuple(map(BufferReference, bodies)))
    return Schedule(program, (*map(Allocate, bodies), kernel))


def operator_schedule(name: str, dtypes: Sequence[DType], count: int) -> Schedule:
    """The operator over each of the types, in one kernel; inputs by type, then by operand."""
    operator = OPERATORS[name]
    inputs: dict[str, DType] = {}
    bodies: dict[str, Value] = {}
    for dtype in dtypes:
        kinds = [DType.b8 if operator.rule == "select" and k == 0 else dtype for k in range(operator.arity)]
        names = [f"input{k}_{dtype.value}" for k in range(operator.arity)]
        inputs |= dict(zip(names, kinds))
        bodies[f"result_{dtype.value}"] = Apply(result_dtype(name, kinds), name, tuple(Load(k, n, Symbol("x0")) for n, k in zip(names, kinds)))
    return one_kernel(bodies, inputs, count)


def traced(function: Callable[..., Any], *inputs: Any) -> Schedule:
    """A torch function through the graph, lowering and schedule stages."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from aotcompile.graph.decompositions import decomposition_table
    from aotcompile.lower.program import lower_graph
    graph = make_fx(function, decomposition_table=decomposition_table(), tracing_mode="fake")(*inputs)
    return make_schedule(lower_graph(graph, name="inference"), backend="triton")


def copied(value: Any) -> Any:
    """The same with the same strides and offset, in memory of its own."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = value.untyped_storage().clone()
    return torch.empty(0, dtype=value.dtype, device=value.device).set_(storage, value.storage_offset(), value.shape, value.stride())


def values(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    """Ordinary and difficult values."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if dtype.is_floating_point:
        found = torch.randn(count, generator=generator, dtype=torch.float64) * 3
        hard = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, float("inf"), float("-inf"), float("nan"), 1e-3, 88.0, -88.0, 3.0]
        found[:len(hard)] = torch.tensor(hard, dtype=torch.float64)[torch.randperm(len(hard), generator=generator)]
        return found.to(dtype)
    limits = torch.iinfo(dtype)
    found = torch.randint(max(limits.min, -50), min(limits.max, 50), (count,), generator=generator).to(dtype)
    hard_integers = torch.tensor([limits.min, limits.max, 0, 1, 2, limits.max // 2], dtype=dtype)
    found[:len(hard_integers)] = hard_integers[torch.randperm(len(hard_integers), generator=generator)]
    return found


def operator_inputs(name: str, dtype: DType, count: int) -> list[torch.Tensor]:
    """Values for which torch defines what the operator gives."""
    operator = OPERATORS[name]
    kind = getattr(torch, dtype.torch_name)
    inputs = [values(torch.bool if operator.rule == "select" and k == 0 else kind, count, 7 * k + 1) for k in range(operator.arity)]
    if operator.can_fail and dtype.is_integral:
        inputs[1][inputs[1] == 0] = 3                         # eager raises on the CPU; on GPUs the result is unspecified
        inputs[0][(inputs[1] == -1) & (inputs[0] == torch.iinfo(kind).min)] = 5                    # undefined in eager
    if name in ("left_shift", "right_shift"):
        inputs[1] = (inputs[1] % 70).to(kind)
    if name == "pow" and dtype.is_integral:
        inputs[1] = (inputs[1] % 12).to(kind)
    return inputs


def renamed(schedule: Schedule, ending: str) -> Schedule:
    """With kernel names that end so: for several schedules in one text."""
    return replace(schedule, steps=tuple(replace(step, name=f"{step.name}_{ending}") if isinstance(step, FusedKernel) else step for step in schedule.steps))


def program_schedules(names: Iterable[str]) -> dict[str, Schedule]:
    from triton_programs import PROGRAMS
    return {name: renamed(traced(PROGRAMS[name][0], *PROGRAMS[name][1]()), name) for name in names}


def source_of(*names: str) -> KernelSource:
    """The kernels of several of the programs as one text."""
    return generate_triton(list(program_schedules(names).values()))


def every_operator(count: int, wanted: Callable[[str, DType], bool] = lambda name, dtype: True) -> dict[str, Schedule]:
    """A kernel for each operator, over all of its types that are wanted."""
    return {name: renamed(operator_schedule(name, [d for d in KERNEL_DTYPES if operator.accepts(d) and wanted(name, d)], count), name)
            for name, operator in OPERATORS.items()}
