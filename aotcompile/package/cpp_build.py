"""Builds kernel texts (`kernels.cpp`) into shared objects, per CPU target.

Targets: ``cpu:x86-64-v2``, ``cpu:x86-64-v3``, ``cpu:x86-64-v4``, ``cpu`` (any CPU of this architecture), ``native`` (the best of these for this
machine). The same text gives the same bytes: the compiler runs in a folder of its own with relative names, without debug information or build ids,
and how a long file is cut into objects depends on the text alone.

Environment: ``CXX``, the compiler to use (with arguments, if need be).
"""
from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from aotcompile.base.diagnostic import AotCompileError, Diagnostic

INCLUDE = Path(__file__).resolve().parent.parent / "codegen" / "cpp" / "include"
LEVELS = {"cpu:x86-64-v2": "x86-64-v2", "cpu:x86-64-v3": "x86-64-v3", "cpu:x86-64-v4": "x86-64-v4"}
CANDIDATES = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O2", "-g0", "-fPIC", "-fopenmp", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fwrapv",
         "-fno-stack-protector", "-fno-exceptions", "-fno-rtti", "-frandom-seed=aotcompile", "-w")
LINK_FLAGS = ("-shared", "-fopenmp", "-Wl,--build-id=none", "-Wl,--as-needed", "-Wl,-s", "-lm")
KERNELS_PER_OBJECT = 8
TIMEOUT = 900                                                    # seconds; a compiler that takes longer hangs

_V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
_V4 = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_V2 = {"cx16", "sse4_1", "sse4_2", "ssse3", "popcnt"}


@dataclass(frozen=True)
class Compiler:
    command: tuple[str, ...]
    version: str                                                 # the first line of --version


@dataclass(frozen=True)
class Build:
    """One text to be built."""

    text: str
    target: str
    output_path: Path


def _error(code: str, message: str, hint: str = "") -> AotCompileError:
    return AotCompileError(Diagnostic(code, "error", message, None, hint))


def find_compiler() -> Compiler:
    """The C++ compiler: ``CXX``, else the first of c++, g++, clang++. Raises AotCompileError AOT501 if there is none."""
    return _find_compiler(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _find_compiler(chosen: str, path: str) -> Compiler:
    if chosen:
        command = tuple(shlex.split(chosen))
        if not command or shutil.which(command[0], path=path) is None:
            raise _error("AOT501", f"the compiler that CXX names is not found: {chosen}.", "Set CXX to a C++ compiler, or unset it.")
        candidates = [command]
    else:
        candidates = [(name,) for name in CANDIDATES if shutil.which(name, path=path)]
    for command in candidates:
        try:
            done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return Compiler(command, (done.stdout or done.stderr).partition("\n")[0])
    raise _error("AOT501", "no C++ compiler is found (looked for c++, g++, clang++).", "Install g++ 11 or newer or clang 14 or newer, or set CXX.")


def architecture() -> str:
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def _processor_flags() -> set[str]:
    """CPU features of this machine as Linux names them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    found = re.search(r"^flags\s*:\s*(.*)$", text, re.MULTILINE)
    return set(found.group(1).split()) if found else set()


def native_target() -> str:
    """The best target that this machine can run."""
    if architecture() != "x86_64":
        return "cpu"
    flags = _processor_flags()
    if flags >= _V2 | _V3 | _V4:
        return "cpu:x86-64-v4"
    if flags >= _V2 | _V3:
        return "cpu:x86-64-v3"
    return "cpu:x86-64-v2" if flags >= _V2 else "cpu"


def resolve_target(target: str) -> str:
    """``native`` as what it means here; other names checked. Raises AotCompileError AOT503 for a target that cannot be built here."""
    if target == "native":
        return native_target()
    if target != "cpu" and target not in LEVELS:
        raise _error("AOT503", f"unknown CPU target {target!r}.", f"Use one of: native, cpu, {', '.join(LEVELS)}.")
    if target in LEVELS and architecture() != "x86_64":
        raise _error("AOT503", f"target {target} cannot be built on {architecture()}.", "Build it on an x86-64 machine, or use the target cpu.")
    return target


def target_flags(target: str) -> tuple[str, ...]:
    resolved = resolve_target(target)
    return (f"-march={LEVELS[resolved]}",) if resolved in LEVELS else ()


def compile_library(text: str, *, target: str, output_path: Path) -> Path:
    """Build one kernel text. Raises AotCompileError: AOT501 no compiler, AOT502 the compiler's message, AOT503 a target that cannot be built here."""
    compile_libraries([Build(text, target, output_path)], jobs=1)
    return output_path


def compile_libraries(builds: Sequence[Build], jobs: int) -> None:
    """Build several texts with up to ``jobs`` compilers at a time. Errors as in `compile_library`; of several the first in order is raised."""
    if not builds:
        return
    compiler = find_compiler()
    flags = [target_flags(build.target) for build in builds]
    with tempfile.TemporaryDirectory(prefix="aotcompile-") as folder, ThreadPoolExecutor(max(1, jobs)) as pool:
        pending: list[tuple[Build, Path, list[Future[None]]]] = []
        for number, (build, march) in enumerate(zip(builds, flags)):
            place = Path(folder) / str(number)
            place.mkdir()
            futures = []
            for part, text in enumerate(split_text(build.text)):
                name = f"kernels{part}"
                (place / f"{name}.cpp").write_text(text, encoding="utf-8")
                command = [*compiler.command, *FLAGS, *march, f"-I{INCLUDE}", "-c", f"{name}.cpp", "-o", f"{name}.o"]
                futures.append(pool.submit(_run, command, place, build.target))
            pending.append((build, place, futures))
        for build, place, futures in pending:
            for future in futures:
                future.result()
            objects = [f"kernels{part}.o" for part in range(len(futures))]
            _run([*compiler.command, *objects, *LINK_FLAGS, "-o", "kernels.so"], place, build.target)
            _install(place / "kernels.so", build.output_path)


def split_text(text: str) -> list[str]:
    """The text cut into files of a few kernels each, all with the same beginning (includes)."""
    starts = [match.start() for match in re.finditer(r'^(?://[^\n]*\n)*extern "C" int32_t', text, re.MULTILINE)]
    if len(starts) <= KERNELS_PER_OBJECT:
        return [text]
    ends = [*starts[1:], len(text)]
    header = text[:starts[0]]
    kernels = [text[a:b] for a, b in zip(starts, ends)]
    return [header + "".join(kernels[k:k + KERNELS_PER_OBJECT]) for k in range(0, len(kernels), KERNELS_PER_OBJECT)]


def _run(command: list[str], folder: Path, target: str) -> None:
    environment = {**os.environ, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise _error("AOT502", f"the C++ compiler did not finish within {TIMEOUT} s for target {target}.", "Build fewer kernels at a time.") from None
    if done.returncode:
        message = (done.stderr or done.stdout).strip().replace(f"{folder}{os.sep}", "")
        raise _error("AOT502", f"the C++ compiler failed for target {target}:\n{message[:4000]}\n",
                     "If the message names a missing file or option, check the compiler's installation (OpenMP is needed); otherwise report this.")


def _install(built: Path, output_path: Path) -> None:
    """Puts the file in its place in one step, so that nobody sees half of it."""
    output_path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=output_path.parent, prefix=".kernels-", delete=False) as file:
        temporary = Path(file.name)
    try:
        shutil.copyfile(built, temporary)
        temporary.chmod(0o755)
        os.replace(temporary, output_path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
