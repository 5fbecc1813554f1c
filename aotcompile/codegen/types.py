"""What codegen hands on: source texts and the plan the runtime executes.

The plan is JSON-shaped data (``plan.json`` on disk) that both executors follow: the native one, and ``wrapper.py``, its readable Python twin.
Sizes are integers or expression text over the size symbols (``"s0*64"``; operators + - * // % and min(), max(); Python semantics).
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Union

Size = Union[int, str]


@dataclass(frozen=True)
class PlanAllocate:
    """``torch.empty_strided(sizes, strides, dtype, device)``."""

    name: str
    dtype: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    device: str


@dataclass(frozen=True)
class PlanView:
    """``torch.as_strided(base, sizes, strides, base.storage_offset() + offset)``, viewed as ``dtype`` if that differs. Also used to reuse memory."""

    name: str
    base: str
    dtype: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size


@dataclass(frozen=True)
class PlanKernel:
    """Launch ``kernel`` with the data pointers of ``buffers`` and the values of ``sizes``.

    C ABI of a CPU kernel: ``extern "C" int32_t kernel(void *const *buffers, const int64_t *sizes)``; 0 is success, 1 an index out of range,
    2 an integer division by zero: the runtime then runs the eager body, which raises eager's exception (kernels that can fail run before
    any that mutate an input). A GPU kernel has a ``grid`` (expressions), and the launch facts of its cubin."""

    kernel: str
    buffers: tuple[str, ...]
    sizes: tuple[Size, ...]
    grid: tuple[Size, Size, Size] | None = None


@dataclass(frozen=True)
class PlanCall:
    """``results = torch.ops.<operator>(*arguments, **keywords)``. Argument forms: {"buffer": name}, {"number": name} (its one element as a
    number), {"size": expression text}, {"dtype": "float32"}, {"device": "cpu"}, {"layout": "strided"}, {"memory_format": "channels_last"},
    {"complex": [re, im]}, {"float": "inf"|"-inf"|"nan"}, lists, and bare JSON constants. ``strides``: declared strides per result (None: not
    relied on); a result that comes back otherwise is copied to them."""

    operator: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    results: tuple[str | None, ...]
    strides: tuple[tuple[Size, ...] | None, ...]


@dataclass(frozen=True)
class PlanReadScalar:
    """Size symbol ``symbol`` = int(buffer.item())."""

    symbol: str
    buffer: str


@dataclass(frozen=True)
class PlanCheck:
    """``condition`` (comparisons of sizes, joined by ``or``) holds; if not, the graph stops with status 3 as a kernel does."""

    condition: str


@dataclass(frozen=True)
class PlanFree:
    name: str


PlanStep = Union[PlanAllocate, PlanView, PlanKernel, PlanCall, PlanReadScalar, PlanCheck, PlanFree]


@dataclass(frozen=True)
class PlanGraph:
    """One ATen graph as steps. ``inputs``: names in call order; ``symbols``: (symbol, input number, dimension) or (symbol, input number, -1) for an
    integer input; ``outputs``: {"buffer": name} | {"size": text} | {"constant": json}."""

    inputs: tuple[str, ...]
    symbols: tuple[tuple[str, int, int], ...]
    steps: tuple[PlanStep, ...]
    outputs: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class KernelSource:
    """A text file of kernels: ``language`` "cpp" or "triton"; ``kernels`` are the names defined, in order."""

    language: str
    text: str
    kernels: tuple[str, ...]
    # triton only: per kernel name, what is needed to build and launch it (signature, constants, num_warps, grid)
    launch: dict[str, dict[str, Any]] = field(default_factory=dict)
