"""All kernels of a variant as one C++ file."""
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from aotcompile.codegen.cpp.kernel import KernelWriter
from aotcompile.codegen.types import KernelSource
from aotcompile.schedule.types import FusedKernel, Schedule, operator_name

INCLUDE = Path(__file__).resolve().parent / "include"


@lru_cache(maxsize=1)
def _header() -> str:
    """The file's beginning. It names the digest of the support headers: where they change, the text (and so the binary's name) changes too."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(INCLUDE.glob("*.h")))).hexdigest()[:12]
    return ("// Kernels of one compiled variant. C ABI: int32_t kernel(void *const *buffers, const int64_t *sizes), 0 on success.\n"
            f"// Support headers: aotcompile/codegen/cpp/include, version {digest}\n"
            '#include "aotcompile_parallel.h"\n\nusing namespace aotcompile;\n')


def generate_cpp(schedules: Sequence[Schedule]) -> KernelSource:
    """The C++ of all kernels of ``schedules``. Kernels with equal bodies are written once: one name within a schedule already, and a call to the
    first where two schedules have the same."""
    parts: list[str] = []
    declarations: dict[str, None] = {}
    names: dict[str, None] = {}
    bodies: dict[str, str] = {}
    for schedule in schedules:
        for step in schedule.steps:
            if not isinstance(step, FusedKernel) or step.name in names:
                continue
            names[step.name] = None
            lines = KernelWriter(step, schedule.program.buffers, schedule.program.ranges).body()
            first = bodies.setdefault("\n".join(lines), step.name)
            parts.append(f"\n{_comment(step)}\n")
            if first != step.name:
                declarations[f'extern "C" {{ int32_t {first}(void *const *buffers, const int64_t *sizes); }}\n'] = None
                parts.append(f'extern "C" int32_t {step.name}(void *const *buffers, const int64_t *sizes) {{ return {first}(buffers, sizes); }}\n')
                continue
            parts.append(f'extern "C" int32_t {step.name}(void *const *buffers, const int64_t *sizes) {{\n' + "\n".join(lines) + "\n}\n")
    return KernelSource("cpp", "".join([_header(), *declarations, *parts]), tuple(names))


def _comment(kernel: FusedKernel) -> str:
    """What is fused, by the user's line."""
    places: dict[str, dict[str, None]] = {}
    for stage in kernel.stages:
        for compute in stage.computes:
            for origin in compute.origins:
                places.setdefault(origin.place, {})[operator_name(origin.operator)] = None
    lines = [f"// {place + ': ' if place else ''}{', '.join(operators)}" for place, operators in places.items()]
    return "\n".join(lines or ["// (no origin)"])
