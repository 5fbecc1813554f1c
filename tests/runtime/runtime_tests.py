"""Generated packages made by hand: plans with library calls only, so that no compiler is needed (kernels are built with the C compiler where a test wants them)."""
from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import pytest
import torch

from aotcompile.runtime import loader, reporting

HEADER = "from aotcompile.runtime import bind as _bind\n_region = _bind(__name__, __file__)\n"


def argument(name: str, *steps: tuple[Any, ...]) -> list[Any]:
    return [["argument", name], [list(step) for step in steps]]


def facts(sizes: list[Any], strides: list[Any] | None = None, dtype: str = "f32", requires_grad: bool | None = None, **more: Any) -> dict[str, Any]:
    if strides is None:
        strides, product = [], 1
        for size in reversed(sizes):
            strides.insert(0, product)
            product = product * size if isinstance(product, int) and isinstance(size, int) else size if product == 1 else f"{product}*{size}"
    return {"dtype": dtype, "sizes": sizes, "strides": strides, "device": "cpu", "requires_grad": requires_grad, "kind": "torch:Tensor", "is_leaf": None, **more}


def guard(kind: str, path: Any, expected: Any, line: int = 3) -> dict[str, Any]:
    return {"kind": kind, "path": path, "expected": expected, "span": ["model.py", line]}


def tensor_input(name: str, path: Any, sizes: list[Any], mutated: bool = False, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "tensor", "path": path, "facts": facts(sizes, **more), "number": "", "mutated": mutated}


def call(operator: str, arguments: list[Any], *results: str | None, **keywords: Any) -> dict[str, Any]:
    return {"step": "call", "operator": operator, "arguments": arguments, "keywords": keywords, "results": list(results), "strides": [None] * len(results)}


def buffer(name: str) -> dict[str, str]:
    return {"buffer": name}


def graph(inputs: list[str], steps: list[Any], outputs: list[str], symbols: list[Any] = ()) -> dict[str, Any]:      # type: ignore[assignment]
    return {"inputs": inputs, "symbols": list(symbols), "steps": steps, "outputs": [buffer(o) for o in outputs]}


def plan(region: str, inputs: list[Any], graphs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A plan whose tensor inputs are guarded by their facts."""
    guards = [guard("tensor", given["path"], given["facts"]) for given in inputs if given["kind"] == "tensor"]
    values = {"schema": 1, "region": region, "inputs": inputs, "symbols": [], "guards": [*more.pop("first_guards", []), *guards, *more.pop("more_guards", [])],
              "fetches": [], "result": 0, "grad_enabled": True, "training": False, "output_requires_grad": [False], "graphs": graphs, "saved": [],
              "tangents": [], "reached": [], "groups": [], "output_count": 1}
    assert not set(more) - set(values), set(more) - set(values)
    return {**values, **more}


Files = dict[str, Any]


def write_package(root: Path, name: str, modules: dict[str, str], regions: dict[str, dict[str, list[Files]]], sources: dict[str, str] | None = None) -> Path:
    """``regions``: module ("model") -> region -> variants: file name -> text, with "plan.json" as a dict and "kernels" as target -> bytes."""
    folder = root / name
    files: dict[str, bytes] = {}
    listed: dict[str, Any] = {}
    kernels: dict[str, Any] = {}
    for module, found in regions.items():
        for region, variants in found.items():
            qualname, _, index = region.rpartition(":")
            folders = [f"_aot/{module}/{qualname}/{index}/v{number}" for number in range(len(variants))]
            listed.setdefault(f"{name}.{module}", {})[region] = {"variants": folders, "lines": [1, 2]}
            for place, variant in zip(folders, variants):
                for file, content in variant.items():
                    if file == "kernels":
                        for target, data in content.items():
                            path = f"_aot/bin/{target}/{hashlib.sha256(data).hexdigest()[:16]}.so"
                            files[path] = data
                            kernels.setdefault(place, {})[target] = path
                    else:
                        files[f"{place}/{file}"] = (json.dumps(content) if isinstance(content, dict) else content).encode()
    manifest = {"schema": 1, "package": name, "options": {}, "built_with": {}, "sources": {p: hashlib.sha256(t.encode()).hexdigest() for p, t in
                (sources or {}).items()}, "modules": {}, "regions": listed, "kernels": kernels,
                "files": {p: hashlib.sha256(data).hexdigest() for p, data in files.items()}, "breaks": [], "eager": []}
    for path, data in [*files.items(), ("manifest.json", json.dumps(manifest).encode()), *((p, t.encode()) for p, t in {"__init__.py": "", **modules}.items())]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


@functools.lru_cache(maxsize=1)
def native_extension() -> Any:
    """The native extension (compiled once per environment, a minute; then kept in the user's cache). Skips where there is no C++ compiler."""
    from aotcompile.base.diagnostic import AotCompileError
    from aotcompile.package.host_build import build_host_extension
    folder = Path(tempfile.mkdtemp(prefix="aotcompile-tests-"))
    try:
        path = build_host_extension(folder)
        relative = f"_aot/bin/{path.parent.name}/{path.name}"
        (folder / relative).parent.mkdir(parents=True)
        (folder / relative).write_bytes(path.read_bytes())
        files = {relative: hashlib.sha256(path.read_bytes()).hexdigest()}
        (folder / "manifest.json").write_text(json.dumps({"schema": 1, "package": "native", "regions": {}, "kernels": {}, "files": files}))
        return loader._load_native(loader.Package(str(folder)), f"_aot/bin/{path.parent.name}")
    except AotCompileError as error:
        pytest.skip(str(error))
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["python", pytest.param("native", marks=pytest.mark.slow)])
def runtime_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test on the Python runtime and on the native extension."""
    monkeypatch.setattr(loader, "_native", [native_extension() if request.param == "native" else None])
    return str(request.param)


@pytest.fixture
def load_package(tmp_path: Path, runtime_kind: str) -> Callable[..., ModuleType]:
    """Writes a package and gives its module ``model``. Each test has folders, modules and stance of its own."""
    before, packages = set(sys.modules), dict(loader._packages)
    root = tmp_path / "generated"

    def make(modules: dict[str, str], regions: dict[str, Any], name: str = "handmade", change: Callable[[Path], None] | None = None, **more: Any) -> ModuleType:
        folder = write_package(root, name, modules, regions, **more)
        if change is not None:
            change(folder)
        return importlib.import_module(f"{loader.load(name, root).__name__}.model")
    yield make                                                   # type: ignore[misc]
    reporting.set_stance("default")
    for module in set(sys.modules) - before:
        if module.startswith(("generated", "handmade")):
            del sys.modules[module]
    loader._packages.clear()
    loader._packages.update(packages)


def one(module: ModuleType, name: str = "_r0") -> reporting.RegionRecord:
    """The record of a region of a module."""
    return next(r for r in reporting.report().regions if r.module == f"handmade.{module.__name__.rpartition('.')[2]}" and r.name.endswith(name.strip("_"))
                and any(region is getattr(module, name) or region.native is getattr(module, name) for region in reporting.live_regions()
                        if region.record() == r))


def double_plan(sizes: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    """``x * 2 + 1`` of one input."""
    steps = [call("aten.mul.Tensor", [buffer("x"), 2], "a"), call("aten.add.Tensor", [buffer("a"), 1], "b"), {"step": "free", "name": "a"}]
    return plan("f:r0", [tensor_input("x", argument("x"), sizes or [2, 3])], {"inference": graph(["x"], steps, ["b"])}, **more)


DOUBLE = HEADER + '''
import torch
EAGER = []
def _r0_eager(x):
    EAGER.append(1)
    return x * 2 + 1
_r0 = _region("f:r0", _r0_eager)
def f(x):
    return _r0(x)
'''


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape)


def run_python(code: str, *arguments: str, environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Output of a fresh interpreter that runs ``code``. Raises AssertionError with its stderr where it fails."""
    import subprocess
    base = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=cwd, timeout=120,
                          env={**os.environ, **base} if environment is None else {**base, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout
