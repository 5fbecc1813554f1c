"""The native extension of this environment, and helpers that write plans and guards by hand.

The extension is compiled by the first test session and comes from the user's cache afterwards; `kernels` compiles a few lines of C."""
from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aotcompile.base.diagnostic import AotCompileError
from aotcompile.package.host_build import build_host_extension, find_compiler

KERNELS = r"""
#include <cstdint>
#include <cmath>
extern "C" int32_t twice(void *const *buffers, const int64_t *sizes) {
    const float *x = (const float *)buffers[0]; float *y = (float *)buffers[1];
    for (int64_t i = 0; i < sizes[0]; ++i) y[i] = 2 * x[i];
    return 0;
}
extern "C" int32_t increment(void *const *buffers, const int64_t *sizes) {
    float *x = (float *)buffers[0];
    for (int64_t i = 0; i < sizes[0]; ++i) x[i] += 1;
    return 0;
}
extern "C" int32_t give_up(void *const *buffers, const int64_t *sizes) { return (int32_t)sizes[0]; }
"""


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    try:
        find_compiler()
    except AotCompileError as error:
        pytest.skip(str(error))
    path = build_host_extension(tmp_path_factory.mktemp("host"))
    loader = importlib.machinery.ExtensionFileLoader("_aotcompile_native", str(path))
    specification = importlib.util.spec_from_file_location("_aotcompile_native", path, loader=loader)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Addresses of the kernels above. The library stays loaded for the session."""
    folder: Path = tmp_path_factory.mktemp("kernels")
    (folder / "kernels.cpp").write_text(KERNELS, encoding="utf-8")
    subprocess.run([*find_compiler(), "-O2", "-shared", "-fPIC", "-o", "kernels.so", "kernels.cpp"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "kernels.so"))
    shutil.rmtree(folder)
    return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in ("twice", "increment", "give_up")}


def graph_plan(inputs: list[str], steps: list[dict[str, Any]], outputs: list[Any], symbols: list[list[Any]] | None = None) -> dict[str, Any]:
    """A PlanGraph as JSON. ``outputs``: a str is a buffer, anything else the output's own form."""
    return {"inputs": inputs, "symbols": symbols or [], "steps": steps,
            "outputs": [{"buffer": output} if isinstance(output, str) else output for output in outputs]}


def allocate(name: str, sizes: list[Any], strides: list[Any], dtype: str = "f32") -> dict[str, Any]:
    return {"step": "allocate", "name": name, "dtype": dtype, "sizes": sizes, "strides": strides, "device": "cpu"}


def kernel(name: str, buffers: list[str], sizes: list[Any]) -> dict[str, Any]:
    return {"step": "kernel", "kernel": name, "buffers": buffers, "sizes": sizes, "grid": None}


def call(operator: str, arguments: list[Any], results: list[str | None], strides: list[Any] | None = None, **keywords: Any) -> dict[str, Any]:
    """A library call; a str argument is a buffer."""
    return {"step": "call", "operator": operator, "arguments": [{"buffer": a} if isinstance(a, str) else a for a in arguments], "keywords": keywords,
            "results": results, "strides": strides or [None] * len(results)}


def tensor_facts(sizes: list[Any], strides: list[Any], **changes: Any) -> dict[str, Any]:
    return {"dtype": "f32", "sizes": sizes, "strides": strides, "device": "cpu", "requires_grad": None, "kind": "torch:Tensor", "is_leaf": None, **changes}


def argument(name: str, *steps: list[Any]) -> list[Any]:
    """The JSON of a path that starts at a parameter."""
    return [["argument", name], list(steps)]


@pytest.fixture
def guards(native: ModuleType) -> Callable[..., Any]:
    """``guards(parameters, [(kind, path, expected), ...], fetch=[path, ...], **context)`` -> native.Guards."""
    def make(parameters: tuple[str, ...], records: list[tuple[str, Any, Any]], fetch: list[Any] | None = None, **context: Any) -> Any:
        listed = [{"kind": kind, "path": path, "expected": expected, "span": None} for kind, path, expected in records]
        return native.Guards(listed, fetch or [], {"parameters": parameters, "globals": {}, "closure": {}, "package": "mypkg", "import_name": "generated.mypkg",
                                                   **context})
    return make
