"""What is refused at load, with which reason, and what must work: odd folders, threads, fork, light imports, the import hook."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import pytest
import torch
from runtime_tests import DOUBLE, HEADER, argument, buffer, double_plan, graph, one, plan, run_python, tensor_input, write_package

from aotcompile.runtime import loader, reporting

Loader = Callable[..., ModuleType]
REGIONS = {"model": {"f:r0": [{"plan.json": double_plan()}]}}
PLAN = "_aot/model/f/r0/v0/plan.json"
pytestmark = pytest.mark.filterwarnings("ignore::aotcompile.runtime.reporting.AotCompileWarning")


def edit_manifest(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return change


def damage(path: str, data: bytes | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / path).unlink() if data is None else (folder / path).write_bytes(data)
    return change


@pytest.mark.parametrize(("change", "code"), [
    (edit_manifest(schema=2), "AOT601"), (damage("manifest.json", b"{"), "AOT601"), (damage("manifest.json", b"[1]"), "AOT601"),
    (edit_manifest(files=[]), "AOT601"), (damage(PLAN, b"{}"), "AOT603"), (damage(PLAN, None), "AOT605"), (edit_manifest(files={}), "AOT603"),
    (edit_manifest(regions={}), "AOT605"), (edit_manifest(regions={"handmade.model": {"f:r0": {"variants": ["../../x"], "lines": [1, 2]}}}), "AOT605"),
    (edit_manifest(regions={"handmade.model": {"f:r0": {"variants": [7], "lines": [1, 2]}}}), "AOT60"),
])
def test_what_cannot_be_trusted_is_refused_and_eager_runs(load_package: Loader, change: Callable[[Path], None], code: str) -> None:
    model = load_package({"model.py": DOUBLE}, REGIONS, change=change)
    with pytest.warns(reporting.AotCompileWarning, match=code) as seen:
        assert model.f(torch.ones(2, 3)).tolist() == [[3.0] * 3] * 2
        model.f(torch.ones(2, 3))
    assert len(seen) == 1 and len(model.EAGER) == 2
    assert any(code in refusal for refusal in reporting.report().refusals)
    region = getattr(model._r0, "record", None)
    assert region is None or (region().eager and code in region().reason)


@pytest.mark.parametrize("name", ["guards.py", "wrapper.py"])
def test_texts_of_a_variant_are_verified_too(load_package: Loader, name: str) -> None:
    regions = {"model": {"f:r0": [{"plan.json": double_plan(), name: "x = 1\n"}]}}
    model = load_package({"model.py": DOUBLE}, regions, change=damage(f"_aot/model/f/r0/v0/{name}", b"x = 2\n"))
    model.f(torch.ones(2, 3))
    assert one(model).eager and "AOT603" in (one(model).reason or "")


@pytest.mark.parametrize("broken", [
    {"schema": 9}, {"guards": [{"kind": "mystery", "path": None, "expected": 1, "span": None}]}, {"graphs": {"inference": {"inputs": ["x"], "symbols": [],
     "steps": [{"step": "teleport"}], "outputs": []}}}, {"graphs": {"inference": graph(["x"], [{"step": "call", "operator": "aten.no_such_op.default",
     "arguments": [], "keywords": {}, "results": ["y"], "strides": [None]}], ["y"])}}, {"inputs": 3}, {"result": None}, {"graphs": {}},
])
def test_plans_that_are_not_understood_are_refused(load_package: Loader, broken: dict[str, Any]) -> None:
    model = load_package({"model.py": DOUBLE}, {"model": {"f:r0": [{"plan.json": {**double_plan(), **broken}}]}})
    model.f(torch.ones(2, 3))
    assert one(model).eager and (one(model).reason or "").startswith("AOT60")


def test_torch_outside_the_range(load_package: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [loader.torch_refusal(v) is None for v in ("2.10.1", "2.11.0", "2.13.0+cpu", "2.14.9a0+git", "2.15.0", "3.0", "main")] == [
        False, True, True, True, False, False, False]
    model = load_package({"model.py": DOUBLE}, REGIONS)
    monkeypatch.setattr(loader, "TORCH_VERSIONS", ((1, 0), (1, 9)))
    loader._packages[next(iter(p for p in loader._packages if "handmade" in p))] = fresh = loader.Package("x")
    with pytest.raises(loader.Refused, match="AOT602"):
        fresh.manifest()
    assert model.f(torch.ones(1)).item() == 3


KERNEL = '''
#include <stdint.h>
int32_t cpp_poi_fused_add_0(void *const *buffers, const int64_t *sizes) {
    const float *x = buffers[0]; float *y = buffers[1];
    for (int64_t i = 0; i < sizes[0]; ++i) { if (x[i] < 0) return 1; y[i] = x[i] + LEVEL; }
    return 0;
}
'''


def compile_kernel(folder: Path, level: int) -> bytes:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "k.c").write_text(KERNEL)
    subprocess.run([compiler, "-shared", "-fPIC", f"-DLEVEL={level}", "-o", str(folder / "k.so"), str(folder / "k.c")], check=True)
    return (folder / "k.so").read_bytes()


def kernel_plan() -> dict[str, Any]:
    steps = [{"step": "allocate", "name": "y", "dtype": "f32", "sizes": ["s0"], "strides": [1], "device": "cpu"},
             {"step": "kernel", "kernel": "cpp_poi_fused_add_0", "buffers": ["x", "y"], "sizes": ["s0"]}]
    return plan("f:r0", [tensor_input("x", argument("x"), ["s0"])], {"inference": graph(["x"], steps, ["y"], [["s0", 0, 0]])}, symbols=[["s0", 0, 0]])


def test_the_best_binary_of_this_processor_runs_and_a_status_means_eager(load_package: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = {f"cpu-x86-64-v{level}": compile_kernel(tmp_path, level) for level in (2, 3, 4)}
    regions = {"model": {"f:r0": [{"plan.json": kernel_plan(), "kernels": binaries}]}}
    monkeypatch.setattr(loader, "cpu_levels", lambda: ("x86-64-v3", "x86-64-v2", "x86-64"))
    model = load_package({"model.py": DOUBLE}, regions)
    assert model.f(torch.ones(5)).tolist() == [4.0] * 5 and one(model).hits == 1
    with pytest.warns(reporting.AotCompileWarning, match="AOT702.*status 1"):
        assert model.f(-torch.ones(5)).tolist() == [-1.0] * 5
    assert loader.best_target(["cpu-x86-64-v4", "cuda-sm_90"]) is None and loader.best_target(["cpu-x86-64-v2", "cpu-x86-64"]) == "cpu-x86-64-v2"


def test_no_binary_for_this_processor_and_a_damaged_binary(load_package: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    regions = {"model": {"f:r0": [{"plan.json": kernel_plan(), "kernels": {"cpu-x86-64-v9": b"no binary"}}]}}
    model = load_package({"model.py": DOUBLE}, regions)
    model.f(torch.ones(5))
    assert "AOT604" in (one(model).reason or "") and "cpu-x86-64-v9" in (one(model).reason or "")
    level = loader.cpu_levels()[0]
    regions["model"]["f:r0"][0]["kernels"] = {f"cpu-{level}": b"no binary"}

    def corrupt(folder: Path) -> None:
        for path in folder.rglob("*.so"):
            path.write_bytes(b"another")
    other = load_package({"model.py": DOUBLE}, regions, name="handmade2", change=corrupt)
    other.f(torch.ones(5))
    assert any("AOT603" in r and ".so" in r for r in reporting.report().refusals)


def test_the_processors_own_levels_are_ordered() -> None:
    levels = loader.cpu_levels()
    assert levels and (levels[0].startswith("x86-64") or os.uname().machine in levels)
    assert list(levels) == sorted(levels, reverse=True)


def test_threads_load_a_region_once(load_package: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_package({"model.py": DOUBLE}, REGIONS)
    loads: list[str] = []
    original = loader._load_shared
    monkeypatch.setattr(loader, "_load_shared", lambda *a: (loads.append("x"), original(*a))[1])
    barrier = threading.Barrier(6)
    results: list[Any] = []

    def work() -> None:
        barrier.wait()
        results.append(model.f(torch.ones(2, 3)).sum().item())
    threads = [threading.Thread(target=work) for _ in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == [18.0] * 6 and len(loads) == 1 and not model.EAGER


SERVE = '''
import sys
before = set(sys.modules)
import torch
loaded = set(sys.modules)
import aotcompile.runtime as runtime
model = __import__("importlib").import_module(runtime.load("handmade", sys.argv[1]).__name__ + ".model")
x = torch.ones(2, 3)
assert model.f(x).tolist() == [[3.0] * 3] * 2 and not model.EAGER, model.EAGER
runtime.report()
new = set(sys.modules) - loaded
banned = ("torch._dynamo", "torch._inductor", "sympy", "libcst", "bytecode", "triton")
print("BANNED", sorted(m for m in new if m.startswith(banned)))
print("OWN", sorted(m for m in new if m.startswith("aotcompile.") and not m.startswith("aotcompile.runtime")))
'''


def test_serving_imports_nothing_but_the_runtime_in_a_bare_environment_and_a_read_only_odd_folder(tmp_path: Path) -> None:
    root = tmp_path / "Größe mit Leerzeichen" / "mein generated"
    write_package(root, "handmade", {"model.py": DOUBLE}, REGIONS)
    listing = sorted(p.relative_to(root) for p in root.rglob("*"))
    for path in sorted(root.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    out = run_python(SERVE, str(root), environment={"HOME": "", "PATH": ""}, cwd=tmp_path)
    assert out.splitlines() == ["BANNED []", "OWN ['aotcompile.entry']"]
    assert sorted(p.relative_to(root) for p in root.rglob("*")) == listing


def test_fork_in_the_middle_of_loading(tmp_path: Path) -> None:
    write_package(tmp_path / "generated", "handmade", {"model.py": DOUBLE}, REGIONS)
    code = '''
import importlib, os, sys, threading, torch
import aotcompile.runtime as runtime
model = importlib.import_module(runtime.load("handmade", sys.argv[1]).__name__ + ".model")
from aotcompile.runtime import loader, reporting
held, release = threading.Event(), threading.Event()
def hold():
    region, = reporting.live_regions()
    package, = loader._packages.values()
    with loader._lock, package.lock, package.loading, region._lock:
        held.set(); release.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    ok = model.f(torch.ones(2, 3)).tolist() == [[3.0] * 3] * 2 and not model.EAGER
    os._exit(0 if ok else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
release.set()
'''
    assert run_python(code, str(tmp_path / "generated")).strip() == "0"


def test_importing_aotcompile_is_light_and_lists_its_names() -> None:
    code = '''
import sys, aotcompile
assert "torch" not in sys.modules
print([m for m in sys.modules if m.startswith("aotcompile.")])
assert {"build", "compile", "info", "trace", "explain", "load", "verify", "entry", "skip", "runtime"} <= set(dir(aotcompile))
from aotcompile import load
assert aotcompile.load is load and callable(aotcompile.runtime.report) and callable(aotcompile.runtime.install)
import aotcompile.runtime.loader
assert callable(aotcompile.runtime.report) and callable(aotcompile.runtime.install)
try: aotcompile.nothing
except AttributeError: print("ok")
'''
    assert run_python(code).splitlines() == ["['aotcompile.entry']", "ok"]


def test_stance_from_the_environment(tmp_path: Path) -> None:
    code = "from aotcompile.runtime import reporting; print(reporting.stance)"
    assert run_python(code, environment={"AOTCOMPILE_STANCE": "error_on_miss"}).strip() == "error_on_miss"
    assert run_python(code, environment={"AOTCOMPILE_STANCE": "nonsense"}).strip() == "default"


HOOK = '''
import sys, warnings
warnings.simplefilter("always")
import aotcompile.runtime as runtime
runtime.install("generated")
import torch, mypkg.model, mypkg.extra
print("generated" in mypkg.model.__file__, mypkg.model.f(torch.ones(2, 3)).sum().item(), len(getattr(mypkg.model, "EAGER", [])), mypkg.extra.VALUE)
import json
assert json.__name__ == "json"
'''


def test_import_hook_gives_the_fresh_twin_else_the_original_with_the_changed_file(tmp_path: Path) -> None:
    sources = {"__init__.py": "", "model.py": "def f(x):\n    return x * 2 + 1\n"}
    for name, text in {**sources, "extra.py": "VALUE = 5\n"}.items():
        (tmp_path / "mypkg").mkdir(exist_ok=True)
        (tmp_path / "mypkg" / name).write_text(text)
    write_package(tmp_path / "generated", "mypkg", {"model.py": DOUBLE}, REGIONS, sources=sources)
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *(p for p in sys.path if p)])}
    assert run_python(HOOK, cwd=tmp_path, environment=environment).strip() == "True 18.0 0 5"
    (tmp_path / "mypkg" / "model.py").write_text("def f(x):\n    return x * 3\n")
    done = subprocess.run([sys.executable, "-c", HOOK], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, **environment})
    assert done.stdout.strip() == "False 18.0 0 5" and done.stderr.count("AOT607") == 1 and "model.py differs" in done.stderr


def test_names_of_modules_and_main(tmp_path: Path) -> None:
    folder = write_package(tmp_path / "generated", "handmade", {"model.py": DOUBLE, "sub/__init__.py": "", "sub/deep.py": HEADER}, REGIONS)
    (folder.parent / "__init__.py").write_text("")               # as a build writes it; else a `generated` elsewhere on the path comes first
    (folder / "serve.py").write_text(textwrap.dedent('''
        from aotcompile.runtime import bind
        region = bind(__name__, __file__)
        from aotcompile.runtime import loader
        print(next(iter(loader._packages.values())).import_name)
    '''))
    code = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_module('generated.handmade.serve', run_name='__main__', alter_sys=True)"
    assert run_python(code, str(tmp_path)).strip() == "generated.handmade"
    assert [loader.bind(n, str(folder / f)) and loader.package_at(str(folder)).import_name for n, f in (
        ("generated.handmade", "__init__.py"), ("handmade.sub.deep", "sub/deep.py"), ("a.b.handmade.sub", "sub/__init__.py"))] == [
            "generated.handmade", "handmade", "a.b.handmade"]
    assert buffer("x") == {"buffer": "x"}
