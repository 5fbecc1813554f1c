"""The scheduled form: the same operations, grouped into kernels and put in order.

A `FusedKernel` means::

    for outer in kernel.outer:                 # parallel over threads / blocks
        for stage in kernel.stages:            # in this order, for each point of `outer`
            for inner in stage.inner:          # reduction loops of a "reduce" stage, parallel loops of a "map" stage
                for compute in stage.computes: evaluate compute.body, accumulate or store
            # a reduce stage's accumulators are finished and stored here

so that softmax over rows is one kernel: outer = rows; stages reduce(max), reduce(sum of exp), map(divide). All `Compute`s of a kernel are
written in the kernel's loop variables. A buffer in ``locals`` never leaves the kernel: the result of a reduce stage that only later stages read
(one scalar per outer point), or of a compute read at the same point in the same stage (a register).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Union

from aotcompile.ir.expression import Expression, Symbol
from aotcompile.ir.nodes import Buffer, Check, Compute, LibraryCall, Loop, Program, ReadScalar, View


@dataclass(frozen=True)
class Stage:
    kind: Literal["map", "reduce"]
    inner: tuple[Loop, ...]
    computes: tuple[Compute, ...]


@dataclass(frozen=True)
class FusedKernel:
    """``name`` says what is fused: ``cpp_poi_fused_add_mul_3`` / ``triton_red_fused_softmax_0`` (poi pointwise, red reduction, sca scatter)."""

    name: str
    outer: tuple[Loop, ...]
    stages: tuple[Stage, ...]
    inputs: tuple[str, ...]          # buffers read from memory
    outputs: tuple[str, ...]         # buffers written to memory (an updated buffer is both)
    locals: tuple[str, ...]
    symbols: tuple[Symbol, ...]      # size symbols the kernel needs, in argument order


@dataclass(frozen=True)
class Allocate:
    """Fresh, uninitialised memory for ``buffer`` (sizes and strides from the program)."""

    buffer: str


@dataclass(frozen=True)
class Reuse:
    """``buffer`` takes the memory of ``previous``, which is dead and at least as large."""

    buffer: str
    previous: str


@dataclass(frozen=True)
class Free:
    buffer: str


Step = Union[Allocate, Reuse, Free, FusedKernel, LibraryCall, View, ReadScalar, Check]


@dataclass(frozen=True)
class Schedule:
    program: Program
    steps: tuple[Step, ...]


def parameters(kernel: FusedKernel) -> tuple[str, ...]:
    """The buffers a kernel is called with, in order: what it reads, then what it writes, each once."""
    return tuple(dict.fromkeys((*kernel.inputs, *kernel.outputs)))


def operator_name(operator: str) -> str:
    """``aten.add.Tensor`` -> ``add``; ``aten._softmax.default`` -> ``softmax``."""
    parts = operator.split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "op"


__all__ = ["Allocate", "Buffer", "Expression", "Free", "FusedKernel", "Reuse", "Schedule", "Stage", "Step", "operator_name", "parameters"]
