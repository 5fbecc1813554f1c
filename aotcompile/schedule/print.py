"""Text form of a schedule, for reading (`show --stage schedule`): steps in order, kernels as nested loops."""
from __future__ import annotations

from aotcompile.base.writer import Writer
from aotcompile.ir.nodes import Check, LibraryCall, Loop, ReadScalar, View
from aotcompile.ir.text.print import operation_text
from aotcompile.schedule.types import Allocate, Free, FusedKernel, Reuse, Schedule


def schedule_text(schedule: Schedule) -> str:
    """One line per step; a kernel shows its loops, stages and what each compute stores."""
    out = Writer()
    out.line(f"schedule {schedule.program.name}")
    for step in schedule.steps:
        match step:
            case Allocate(buffer):
                out.line(f"allocate {buffer}")
            case Reuse(buffer, previous):
                out.line(f"reuse {previous} as {buffer}")
            case Free(buffer):
                out.line(f"free {buffer}")
            case FusedKernel():
                _kernel(out, step)
            case LibraryCall() | View() | ReadScalar() | Check():
                out.line(operation_text(step))
    return out.text()


def _kernel(out: Writer, kernel: FusedKernel) -> None:
    local = f" locals {', '.join(kernel.locals)}" if kernel.locals else ""
    out.line(f"kernel {kernel.name}({', '.join((*kernel.inputs, *kernel.outputs))}){local}")
    with out.indented():
        out.line(f"outer {_loops(kernel.outer)}")
        for stage in kernel.stages:
            out.line(f"{stage.kind} {_loops(stage.inner)}".rstrip())
            with out.indented():
                for compute in stage.computes:
                    out.line(operation_text(compute))


def _loops(loops: tuple[Loop, ...]) -> str:
    return ", ".join(f"{loop.variable} < {loop.size}" for loop in loops)
