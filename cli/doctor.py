"""``aotcompile doctor``: what this machine has, and whether each requirement is met."""
from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

Need = Literal["run", "build", "optional"]
TORCH = ((2, 11), (2, 15))
PROGRAM = """#include <omp.h>
extern "C" int threads() { int n = 0;
#pragma omp parallel reduction(+ : n)
n += 1;
return n; }
"""


@dataclass(frozen=True)
class Finding:
    """One line: ``need`` is what it is needed for; ``met`` None where nothing is required of it."""

    name: str
    value: str
    need: Need
    met: bool | None
    hint: str = ""

    def __str__(self) -> str:
        mark = {True: "ok", False: "missing" if self.need != "optional" else "none", None: ""}[self.met]
        return f"{mark:<8} {self.name:<12} {self.value}" + (f"   {self.hint}" if self.hint and not self.met else "")


@dataclass(frozen=True)
class DoctorReport:
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not any(f.met is False and f.need != "optional" for f in self.findings)

    def as_text(self) -> str:
        lines = []
        for need, title in (("run", "to run generated code"), ("build", "to build"), ("optional", "optional")):
            lines += [title, *(f"  {f}" for f in self.findings if f.need == need)]
        return "\n".join([*lines, "all requirements are met" if self.ok else "some requirements are not met"])

    def as_json(self) -> list[dict[str, Any]]:
        return [{"name": f.name, "value": f.value, "need": f.need, "met": f.met, "hint": f.hint} for f in self.findings] + [{"ok": self.ok}]


def examine() -> DoctorReport:
    """Look at everything. Imports torch if it is there."""
    findings = [_python(), *_torch(), *_packages(), _compiler(), Finding("system", f"{platform.system()} {platform.machine()}", "run", None)]
    return DoctorReport(tuple(findings))


def _python() -> Finding:
    met = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Finding("python", platform.python_version(), "run", met, "CPython 3.11 to 3.13 is needed.")


def _torch() -> list[Finding]:
    try:
        import torch
    except ImportError as error:
        return [Finding("torch", str(error), "run", False, "pip install 'torch>=2.11,<2.15'")]
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    found = [Finding("torch", torch.__version__, "run", TORCH[0] <= release < TORCH[1], "torch from 2.11 to 2.14 is needed.")]
    capability = torch.backends.cpu.get_cpu_capability()
    machine = "x86-64" if platform.machine() in ("x86_64", "AMD64") else platform.machine()
    level = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"}.get(capability, machine)
    found.append(Finding("cpu", f"{level} ({capability}), {os.cpu_count()} cores, {torch.get_num_threads()} torch threads", "run", None))
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            major, minor = torch.cuda.get_device_capability(index)
            found.append(Finding("gpu", f"{torch.cuda.get_device_name(index)}, sm_{major}{minor}", "optional", True))
    else:
        found.append(Finding("gpu", "no CUDA device", "optional", False))
    return found


def _packages() -> list[Finding]:
    found = []
    for name, need in (("bytecode", "build"), ("libcst", "build"), ("triton", "optional")):
        try:
            found.append(Finding(name, metadata.version(name), need, True))      # type: ignore[arg-type]
        except metadata.PackageNotFoundError:
            hint = "pip install 'aotcompile[build]'" if need == "build" else "Needed to build for GPUs."
            found.append(Finding(name, "not installed", need, False, hint))      # type: ignore[arg-type]
    return found


def _compiler() -> Finding:
    """The C++ compiler, tried on a small program with OpenMP."""
    command = os.environ.get("CXX") or next((c for c in ("g++", "clang++") if shutil.which(c)), None)
    hint = "Install g++ or clang++ with OpenMP, or set CXX."
    if command is None:
        return Finding("compiler", "no C++ compiler", "build", False, hint)
    try:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "probe.cpp"
            source.write_text(PROGRAM)
            first = subprocess.run([*command.split(), "--version"], capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()[0]
            flags = ["-O1", "-std=c++17", "-fPIC", "-shared", "-fopenmp", str(source), "-o", str(source.with_suffix(".so"))]
            built = subprocess.run([*command.split(), *flags], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        return Finding("compiler", f"{command} does not run: {error}", "build", False, hint)
    if built.returncode:
        why = (built.stderr.strip().splitlines() or ["no message"])[0]
        return Finding("compiler", f"{command} cannot build a shared library with OpenMP: {why}", "build", False, hint)
    return Finding("compiler", first, "build", True)
