"""Time of one call of a region with a single small kernel through the native stub, next to eager `torch.sin(x)`.

    python benchmarks/native_call.py

A call checks one tensor's guards (symbolic size), allocates the result, runs the kernel and makes the result's Python object. Prints nanoseconds per
call: the best of several rounds, since other programs only ever make a round slower.
"""
from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from aotcompile.package.host_build import build_host_extension, find_compiler

KERNEL = r"""
#include <cmath>
#include <cstdint>
extern "C" int32_t sine(void *const *buffers, const int64_t *sizes) {
    const float *x = (const float *)buffers[0]; float *y = (float *)buffers[1];
    for (int64_t i = 0; i < sizes[0]; ++i) y[i] = std::sin(x[i]);
    return 0;
}
"""
X = [["argument", "x"], []]
FACTS = {"dtype": "f32", "sizes": ["s0"], "strides": [1], "device": "cpu", "requires_grad": False, "kind": "torch:Tensor", "is_leaf": None}
PLAN = {"inputs": ["x"], "symbols": [["s0", 0, 0]], "outputs": [{"buffer": "y"}],
        "steps": [{"step": "allocate", "name": "y", "dtype": "f32", "sizes": ["s0"], "strides": [1], "device": "cpu"},
                  {"step": "kernel", "kernel": "sine", "buffers": ["x", "y"], "sizes": ["s0"], "grid": None}]}


class Region:
    """What the stub falls back to; never reached here."""

    def call(self, *arguments: Any) -> Any:
        raise AssertionError("the guards do not hold")


def nanoseconds(function: Callable[[torch.Tensor], Any], x: torch.Tensor, calls: int = 50_000, rounds: int = 9) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            function(x)
        best = min(best, time.perf_counter() - start)
    return best / calls * 1e9


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = build_host_extension(folder)
        loader = importlib.machinery.ExtensionFileLoader("_aotcompile_native", str(path))
        specification = importlib.util.spec_from_file_location("_aotcompile_native", path, loader=loader)
        assert specification is not None
        native: Any = importlib.util.module_from_spec(specification)
        loader.exec_module(native)
        Path(folder, "kernel.cpp").write_text(KERNEL, encoding="utf-8")
        subprocess.run([*find_compiler(), "-O2", "-shared", "-fPIC", "-o", "kernel.so", "kernel.cpp"], cwd=folder, check=True)
        address = ctypes.cast(ctypes.CDLL(str(Path(folder, "kernel.so"))).sine, ctypes.c_void_p).value
    records = [{"kind": "tensor", "path": X, "expected": FACTS, "span": None},
               {"kind": "expression", "path": None, "expected": "s0 >= 2", "span": None}]
    guards = native.Guards(records, [X], {"parameters": ("x",), "globals": {}, "closure": {}})
    stub = native.Stub(Region())
    stub.install([{"guards": guards, "graph": native.Graph(PLAN, {"sine": address}), "inputs": 1, "fetches": 0, "result": 0, "epilogue": None,
                   "numbers": [], "symbols": [["s0", 0, 0]], "mutated": [], "training": False, "grad_enabled": True, "output_requires_grad": [False],
                   "run": None}])
    x = torch.randn(8)
    torch.testing.assert_close(stub(x), torch.sin(x))
    measured: list[tuple[str, Callable[[torch.Tensor], Any]]] = [
        ("region", stub), ("eager torch.sin", torch.sin), ("eager torch.empty_like", torch.empty_like), ("empty call", lambda x: x)]
    for name, function in measured:
        print(f"{name:24}{nanoseconds(function, x):8.0f} ns")


if __name__ == "__main__":
    main()
