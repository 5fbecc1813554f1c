"""kernels.py of a variant: all kernels of its graphs as Triton, and what a build and a launch need to know of each.

``KernelSource.launch[kernel]``::

    {"arguments": ["x", "out", "s0", "XBLOCK"],            in order: pointers, sizes, block sizes
     "signature": {"x": "*fp32", "out": "*fp32", "s0": "i64", "XBLOCK": "constexpr"},
     "constants": {"XBLOCK": 1024}, "num_warps": 4, "num_stages": 1,
     "buffers": 2, "sizes": ["s0"], "size_type": "i64", "grid": ["(s0 + 1023) // 1024", 1, 1], "asserts": false}
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aotcompile.base.names import identifier, unique
from aotcompile.base.writer import Writer
from aotcompile.codegen.triton.kernel import KernelWriter
from aotcompile.codegen.triton.operators import HELPERS, SIGNATURE, helpers_of
from aotcompile.codegen.triton.shape import Shape, all_computes, shape_of
from aotcompile.codegen.types import KernelSource
from aotcompile.ir.nodes import Buffer, Load
from aotcompile.ir.traverse import compute_values, walk
from aotcompile.schedule.types import FusedKernel, Schedule, parameters

_RESERVED = frozenset({"tl", "triton", "libdevice", "x", "r", "x_mask", "r_mask", "r_lanes", "r_offset", "XBLOCK", "RBLOCK", "float", "range"})


def generate_triton(schedules: Sequence[Schedule]) -> KernelSource:
    """All kernels of one variant's schedules as one text; kernels of equal name are equal and stand there once."""
    kernels = Writer()
    launch: dict[str, dict[str, Any]] = {}
    for schedule in schedules:
        for step in schedule.steps:
            if isinstance(step, FusedKernel) and step.name not in launch:
                shape = shape_of(step, schedule.program.buffers, schedule.program.ranges)
                names = parameter_names(step)
                kernels.blank(2)
                KernelWriter(step, schedule.program.buffers, shape, names).write(kernels)
                launch[step.name] = _launch(step, schedule.program.buffers, shape, names)
    body = kernels.text()
    out = Writer()
    out.line('"""GPU kernels of this variant, one function each. Compiled at build time; nothing here is imported in production."""')
    out.line("import triton")
    out.line("import triton.language as tl")
    helpers = helpers_of(body)
    if "libdevice." in body or any("libdevice." in HELPERS[name] for name in helpers):
        out.line("from triton.language.extra import libdevice")
    for name in helpers:
        out.blank(2)
        out.lines(HELPERS[name].strip("\n").split("\n"))
    out.blank(2)
    text = out.text() + "\n\n" + body if body else out.text()
    return KernelSource("triton", text, tuple(launch), launch)


def launch_grid(kernel: FusedKernel, schedule: Schedule) -> tuple[int | str, int | str, int | str]:
    """The grid of a kernel's launch, for `PlanKernel`: programs along three axes, as numbers or expressions over the size symbols."""
    return shape_of(kernel, schedule.program.buffers, schedule.program.ranges).grid


def parameter_names(kernel: FusedKernel) -> dict[str, str]:
    """Pointer arguments, by buffer: the buffers' names as identifiers that shadow nothing."""
    symbols = {symbol.name for symbol in kernel.symbols}
    loops = {loop.variable.name for loop in (*kernel.outer, *(loop for stage in kernel.stages for loop in stage.inner))}
    bound = {symbol.name for _, compute in all_computes(kernel) for value in compute_values(compute) for node in walk(value) if isinstance(node, Load)
             for symbol, _ in node.bindings}
    taken = {*_RESERVED, *symbols, *loops, *bound, *HELPERS, kernel.name}
    names: dict[str, str] = {}
    for buffer in parameters(kernel):
        name = identifier(buffer)
        name = f"{name}_ptr" if name in taken or _is_temporary(name) else name
        names[buffer] = unique(name, taken)
        taken.add(names[buffer])
    return names


def _is_temporary(name: str) -> bool:
    return name.rstrip("0123456789") in ("t", "running")


def _launch(kernel: FusedKernel, buffers: Mapping[str, Buffer], shape: Shape, names: Mapping[str, str]) -> dict[str, Any]:
    blocks = {"pointwise": {"XBLOCK": shape.x_block}, "reduction": {"XBLOCK": shape.x_block, "RBLOCK": shape.r_block}, "sequential": {}}[shape.kind]
    pointers = {names[buffer]: f"*{SIGNATURE[buffers[buffer].dtype]}" for buffer in parameters(kernel)}
    sizes = {symbol.name: shape.index for symbol in kernel.symbols}
    checked = any(compute.store.checks or any(isinstance(node, Load) and node.checks for value in compute_values(compute) for node in walk(value))
                  for _, compute in all_computes(kernel))
    signature = {**pointers, **sizes, **{name: "constexpr" for name in blocks}}
    return {"arguments": list(signature), "signature": signature, "constants": blocks, "num_warps": shape.num_warps,
            "num_stages": 1, "buffers": len(pointers), "sizes": list(sizes), "size_type": shape.index, "grid": list(shape.grid), "asserts": checked}
