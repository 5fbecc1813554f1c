"""Kernel texts to binaries, equal texts once, for all targets in parallel."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from aotcompile.codegen.types import KernelSource
from aotcompile.package.cpp_build import Build, compile_libraries, resolve_target

Binary = bytes | Mapping[str, bytes]


def build_binaries(kernels: Sequence[KernelSource | None], *, targets: Sequence[str], jobs: int) -> list[dict[str, Binary]]:
    """For each kernel text (None: nothing to build) its binaries by target folder name ("cpu-x86-64-v4", "cuda-sm_90").

    Raises AotCompileError AOT501 without a compiler, AOT502 with the compiler's message."""
    results: list[dict[str, Binary]] = [{} for _ in kernels]
    cpu = [target for target in targets if not target.startswith("cuda")]
    texts = sorted({source.text for source in kernels if source is not None and source.language == "cpp"})
    names = {target: resolve_target(target).replace(":", "-") for target in cpu}
    with tempfile.TemporaryDirectory(prefix="aotcompile-") as folder:
        work = {(text, target): Build(text, target, Path(folder) / f"{index}-{names[target]}.so")
                for index, text in enumerate(texts) for target in cpu}
        compile_libraries(list(work.values()), jobs or os.cpu_count() or 1)
        built = {key: build.output_path.read_bytes() for key, build in work.items()}
    for result, source in zip(results, kernels):
        if source is not None and source.language == "cpp":
            result.update({names[target]: built[source.text, target] for target in cpu})
    for target in targets:
        if target.startswith("cuda"):
            _cuda(kernels, target, results)
    return results


def _cuda(kernels: Sequence[KernelSource | None], target: str, results: list[dict[str, Binary]]) -> None:
    from aotcompile.package.triton_build import build_triton

    for result, source in zip(results, kernels):
        if source is not None and source.language == "triton":
            result[target.replace(":", "-")] = build_triton(source, target)
