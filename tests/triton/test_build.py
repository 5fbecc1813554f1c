"""Kernels compiled to cubins here, without a GPU."""
from __future__ import annotations

import json
from dataclasses import replace

import pytest
from triton_samples import every_operator, source_of

from aotcompile.base.diagnostic import AotCompileError
from aotcompile.codegen.triton.source import generate_triton
from aotcompile.codegen.types import KernelSource
from aotcompile.ir.dtypes import DType
from aotcompile.ir.operators import OPERATORS
from aotcompile.package.triton_build import LAUNCH_FILE, build_triton, compute_capability

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built() -> tuple[KernelSource, dict[str, bytes]]:
    source = source_of("pointwise", "softmax", "layer_norm", "scatter_add", "embedding")
    return source, build_triton(source, "cuda:sm_90")


def test_every_kernel_has_its_files(built: tuple[KernelSource, dict[str, bytes]]) -> None:
    source, files = built
    expected = {LAUNCH_FILE} | {f"{name}{ending}" for name in source.kernels for ending in (".cubin", ".aligned.cubin", ".ptx")}
    assert set(files) == expected
    assert all(content.startswith(b"\x7fELF") for name, content in files.items() if name.endswith(".cubin"))
    assert all(b".target sm_90\n" in content for name, content in files.items() if name.endswith(".ptx"))


def test_launch_facts(built: tuple[KernelSource, dict[str, bytes]]) -> None:
    source, files = built
    facts = json.loads(files[LAUNCH_FILE])
    assert facts["schema"] == 1 and facts["target"] == "sm_90"
    for name in source.kernels:
        kernel = facts["kernels"][name]
        assert kernel["entry"] == name and kernel["buffers"] == source.launch[name]["buffers"]
        assert kernel["threads"] == 32 * source.launch[name]["num_warps"] and 0 <= kernel["extra_pointers"] <= 2
        entry = files[kernel["ptx"]].decode().partition(".entry")[2].partition(")")[0]
        assert entry.count(".param") == kernel["buffers"] + len(kernel["sizes"]) + kernel["extra_pointers"]


def test_aligned_kernels_load_sixteen_bytes_at_once() -> None:
    """Not seen in the texts that are kept (those are for any pointers), so by the machine code: it differs, and the general one has no 128-bit loads."""
    import subprocess
    from pathlib import Path

    import triton
    source = source_of("pointwise_large")
    files = build_triton(source, "cuda:sm_90")
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    name, = source.kernels

    def loads(file: str, folder: Path) -> int:
        (folder / file).write_bytes(files[file])
        return subprocess.run([str(tool), "-sass", str(folder / file)], capture_output=True, text=True, check=True).stdout.count("LDG.E.128")
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        assert loads(f"{name}.cubin", Path(folder)) == 0
        assert loads(f"{name}.aligned.cubin", Path(folder)) > 0


def test_same_bytes_again_and_nothing_of_this_machine(built: tuple[KernelSource, dict[str, bytes]]) -> None:
    source, files = built
    again = build_triton(source, "cuda:sm_90", jobs=2)
    assert again == files
    import os
    import tempfile
    for content in files.values():
        assert os.getcwd().encode() not in content and tempfile.gettempdir().encode() + b"/" not in content and b"aotcompile-triton" not in content


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_100"])
def test_other_targets(target: str) -> None:
    source = source_of("softmax", "index_add")
    files = build_triton(source, target)
    assert sum(name.endswith(".ptx") for name in files) == len(source.kernels)


def test_every_operator_compiles_for_every_type() -> None:
    """Of the elementary functions, which are one template, the widest types."""
    schedules = every_operator(300, lambda name, dtype: not OPERATORS[name].costly or dtype in (DType.f32, DType.f64))
    source = generate_triton(list(schedules.values()))
    files = build_triton(source, "cuda:sm_80", jobs=2)
    assert sum(name.endswith(".aligned.cubin") for name in files) == len(OPERATORS)


def test_targets_and_their_errors() -> None:
    assert compute_capability("cuda:sm_90") == 90 and compute_capability("cuda:sm_100") == 100
    for wrong in ("cuda", "cuda:sm_75", "cuda:sm_9", "cpu"):
        with pytest.raises(AotCompileError, match="AOT510"):
            compute_capability(wrong)


def test_a_kernel_that_does_not_compile_is_named() -> None:
    source = source_of("pointwise")
    broken = replace(source, text=source.text.replace("tl.load(", "tl.no_such_function("))
    with pytest.raises(AotCompileError, match=f"AOT512 kernel {source.kernels[0]} does not compile for sm_90") as raised:
        build_triton(broken, "cuda:sm_90")
    assert "no_such_function" in str(raised.value)


def test_nothing_to_build() -> None:
    assert build_triton(KernelSource("triton", "", ()), "cuda:sm_90") == {}
