"""The schedule stage: a `Program` becomes kernels and calls in execution order, with memory.

    add, relu, sum over rows, matrix product   ->   allocate; kernel (add, relu, sum); call (matrix product); free
"""
from __future__ import annotations

from typing import Literal

from aotcompile.ir.nodes import Compute, LibraryCall, Operation, Program, ReadScalar, View
from aotcompile.schedule.dependences import Dependences, call_buffers
from aotcompile.schedule.fusion import Fusion
from aotcompile.schedule.group import Group
from aotcompile.schedule.kernels import KernelBuilder, renamed
from aotcompile.schedule.memory import MemoryPlan, Work
from aotcompile.schedule.naming import fused_name, kernel_key
from aotcompile.schedule.types import FusedKernel, Schedule


def make_schedule(program: Program, *, backend: Literal["cpp", "triton"]) -> Schedule:
    """Fuse, order and plan memory for ``program``. The result is the same for both backends but for the kernels' names.

    Effort is linear in the number of operations: each is compared with a handful of kernels, and kernels have a largest size."""
    dependences = Dependences(program)
    items = Fusion(dependences).run().items
    readers = _readers(items, dependences)
    work: list[Work] = []
    names: dict[str, str] = {}
    suffix = "" if program.name in ("inference", "forward") else program.name
    for item in items:
        if not isinstance(item, Group):
            assert not isinstance(item, Compute)
            work.append(item)
            continue
        external = {name for name in item.made if any(reader != item.position for reader in readers.get(name, ()))}
        kernel = KernelBuilder(item, external).build("")
        if kernel is not None:
            key = kernel_key(kernel, program.buffers)
            if key not in names:
                names[key] = fused_name(backend, kernel, len(names), suffix)
            work.append(renamed(kernel, names[key]))
    return Schedule(program, MemoryPlan(dependences).steps(work))


_OUTPUT = -1


def _readers(items: "list[Group | Operation]", dependences: Dependences) -> dict[str, list[int]]:
    """Which items read a name from memory; outputs of the program count as one more reader."""
    readers: dict[str, list[int]] = {}

    def read(name: str, position: int) -> None:
        readers.setdefault(name, []).append(position)
    for position, item in enumerate(items):
        match item:
            case Group():
                for name in item.reads:
                    read(name, position)
                for member in item.members:
                    if member.compute.updates is not None:
                        read(member.compute.updates, _OUTPUT)
            case LibraryCall():
                for name in (*call_buffers(item), *item.mutates):
                    read(name, position)
            case View(base=base):
                read(base, position)
            case ReadScalar(buffer=buffer):
                read(buffer, position)
    for name in dependences.output_names:
        read(name, _OUTPUT)
    return readers


__all__ = ["FusedKernel", "make_schedule"]
