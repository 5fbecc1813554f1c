"""Which binary a GPU gets, and what is refused: the parts of the launcher that need no GPU (tests/gpu launches)."""
from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from aotcompile.runtime.cuda import CudaKernels, capability_of, choose, runs_cubin
from aotcompile.runtime.guards import UnsupportedPlan


@pytest.mark.parametrize(("device", "expected"), [
    (90, ("cuda-sm_90", "cubin")), (80, ("cuda-sm_80", "cubin")), (86, ("cuda-sm_80", "cubin")), (89, ("cuda-sm_80", "cubin")),
    (100, ("cuda-sm_90", "ptx")), (120, ("cuda-sm_90", "ptx")), (75, None), (70, None)])
def test_choice(device: int, expected: tuple[str, str] | None) -> None:
    assert choose(["cpu-x86-64-v3", "cuda-sm_80", "cuda-sm_90"], device) == expected


def test_capabilities() -> None:
    assert capability_of("cuda-sm_90") == capability_of("cuda:sm_90") == 90
    assert capability_of("cpu-x86-64-v4") is None and capability_of("cuda-sm_") is None
    assert runs_cubin(80, 86) and not runs_cubin(86, 80) and not runs_cubin(80, 90)
    assert runs_cubin(100, 100) and not runs_cubin(100, 103)               # Triton builds these for one capability alone


def launch_file(**changes: Any) -> dict[str, bytes]:
    kernel = {"file": "k.cubin", "entry": "k", "shared": 0, "threads": 128, "extra_pointers": 2, "buffers": 1, "sizes": [], "size_type": "i32", "grid": [1, 1, 1]}
    return {"launch.json": json.dumps({"schema": 1, "target": "sm_90", "kernels": {"k": kernel}, **changes}).encode()}


@pytest.mark.parametrize(("content", "names", "message"), [
    ({}, ["k"], "has no launch.json"), (launch_file(schema=9), ["k"], "schema 9"), (launch_file(), ["k", "other"], "no kernel other")])
def test_what_cannot_be_trusted_is_refused(content: dict[str, bytes], names: list[str], message: str) -> None:
    with pytest.raises(UnsupportedPlan, match=message):
        CudaKernels({"cuda-sm_90": {name: name for name in content}}, content.__getitem__, names)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu() -> None:
    content = launch_file()
    with pytest.raises(UnsupportedPlan, match="no GPU here"):
        CudaKernels({"cuda-sm_90": {name: name for name in content}}, content.__getitem__, ["k"])
