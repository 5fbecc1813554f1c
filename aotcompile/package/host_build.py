"""Builds the native runtime extension for the running torch and CPython: `build_host_extension(output_directory)`.

The extension is a single C++ translation unit (`runtime/native/unit.cpp`), compiled once per environment and kept in a cache folder of the user, so
that a later build or test only copies it. The cache key covers everything that decides the binary: the sources, the flags, the compiler's version,
torch and CPython.
The compiler runs inside the source folder with relative names, so that the same sources give the same bytes wherever they are installed.

Environment: ``CXX`` (the compiler, default ``c++``, ``g++`` or ``clang++``), ``AOTCOMPILE_CACHE_DIR`` (default ``$XDG_CACHE_HOME/aotcompile`` or
``~/.cache/aotcompile``).
"""
from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from aotcompile.base.diagnostic import AotCompileError, Diagnostic

MODULE = "_aotcompile_native"
SOURCES = Path(__file__).resolve().parent.parent / "runtime" / "native"
UNIT = "unit.cpp"
FLAGS = ("-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-fno-plt", "-shared", "-w", "-DNDEBUG")
LIBRARIES = ("torch_python", "torch_cpu", "torch", "c10")
TIMEOUT = 900                                                    # seconds; a compiler that takes longer hangs


def host_folder_name() -> str:
    """Name of the folder of this environment's extension: ``host-2.13.0-cp311``."""
    import torch
    return f"host-{torch.__version__.partition('+')[0]}-cp{sys.version_info[0]}{sys.version_info[1]}"


def cache_directory() -> Path:
    """Where compiled extensions are kept between builds."""
    chosen = os.environ.get("AOTCOMPILE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "aotcompile"


def find_compiler() -> list[str]:
    """The C++ compiler's command. Raises AotCompileError AOT501 if there is none."""
    chosen = os.environ.get("CXX")
    candidates = [shlex.split(chosen)] if chosen else [["c++"], ["g++"], ["clang++"]]
    for command in candidates:
        if command and shutil.which(command[0]):
            return command
    named = f"CXX is {chosen!r}, which cannot be run" if chosen else "none of c++, g++ and clang++ is on the PATH"
    raise _error("AOT501", f"no C++ compiler: {named}.", "Install one (C++17; C++20 for torch 2.14), or set CXX to it.")


def build_host_extension(output_directory: str | os.PathLike[str]) -> Path:
    """Path of ``<output_directory>/host-<torch>-<cpython>/_aotcompile_native.so``, compiled or copied from the cache.

    Raises AotCompileError: AOT501 no compiler, AOT502 the compiler fails (its output is in the message), AOT503 headers of CPython are missing."""
    target = Path(output_directory) / host_folder_name() / f"{MODULE}.so"
    built = _cached(_compile_command())
    target.parent.mkdir(parents=True, exist_ok=True)
    _install(built, target)
    return target


def language_standard() -> str:
    """The C++ standard that this torch's headers are written in: C++20 from torch 2.14 on."""
    import torch
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return "-std=c++20" if (major, minor) >= (2, 14) else "-std=c++17"


def _error(code: str, message: str, hint: str = "") -> AotCompileError:
    return AotCompileError(Diagnostic(code, "error", message, None, hint))


def _compile_command() -> list[str]:
    """The whole command but for the output file, to be run in `SOURCES`."""
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths
    python_include = sysconfig.get_paths()["include"]
    if not os.path.isfile(os.path.join(python_include, "Python.h")):
        raise _error("AOT503", f"CPython's headers are missing (no Python.h in {python_include}).", "Install the development package of this Python.")
    includes = [*dict.fromkeys(include_paths()), python_include]
    # -isystem: warnings of torch's headers are not ours. -ffile-prefix-map: their names in TORCH_CHECK messages come out the same everywhere.
    prefix_maps = [f"-ffile-prefix-map={include}=include" for include in includes]
    macros = [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    search = [flag for path in library_paths() for flag in ("-L", path)]
    system = [flag for include in includes for flag in ("-isystem", include)]
    linker = ["-Wl,--build-id=none", "-Wl,-s"] if sys.platform.startswith("linux") else ["-undefined", "dynamic_lookup"]
    libraries = [f"-l{name}" for name in LIBRARIES]
    return [*find_compiler(), language_standard(), *FLAGS, *macros, *prefix_maps, *system, UNIT, *search, *libraries, *linker]


def _cached(command: list[str]) -> Path:
    """The compiled extension in the cache, compiled now if it is not there."""
    import torch
    digest = hashlib.sha256()
    for path in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("include/*.h")]):
        digest.update(f"{path.relative_to(SOURCES).as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=False, timeout=TIMEOUT).stdout
    digest.update(repr((command, version, torch.__version__, torch.version.git_version, sys.version, sysconfig.get_config_var("SOABI"))).encode())
    folder = cache_directory() / f"{host_folder_name()}-{digest.hexdigest()[:20]}"
    built = folder / f"{MODULE}.so"
    if built.is_file():
        return built
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder / "lock"):
        if not built.is_file():                                  # another process may have compiled it while this one waited
            _compile(command, built)
    return built


@contextlib.contextmanager
def _lock(path: Path):                                           # type: ignore[no-untyped-def]
    """Held by one process at a time. Without fcntl (Windows) two processes may both compile; the last one's file stays."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(command: list[str], built: Path) -> None:
    with tempfile.TemporaryDirectory(dir=built.parent) as scratch:
        # The object is named as the final file: the linker may write the name of its output into it.
        output = Path(scratch) / built.name
        environment = {**os.environ, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
        try:
            done = subprocess.run([*command, "-o", str(output)], cwd=SOURCES, env=environment, capture_output=True, text=True, check=False,
                                  timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            raise _error("AOT502", f"the C++ compiler did not finish the runtime extension within {TIMEOUT} seconds.") from None
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            wanted = [line for line in lines if "error" in line][:10] or lines[-10:]
            raise _error("AOT502", "the C++ compiler rejects the runtime extension:\n" + "\n".join(wanted),
                         f"Check that the compiler knows {language_standard()} and that torch's headers belong to the torch that is imported.")
        os.replace(output, built)


def _install(built: Path, target: Path) -> None:
    """Copies through a temporary name, so that a process that has the old file open keeps it and no reader sees half of the new one."""
    if target.is_file() and target.read_bytes() == built.read_bytes():
        return
    descriptor, scratch = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(descriptor)
    try:
        shutil.copyfile(built, scratch)
        os.chmod(scratch, 0o755)
        os.replace(scratch, target)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
