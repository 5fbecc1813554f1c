"""kernels.py of a variant compiled to cubins, on a machine that needs no GPU. Triton runs in child processes with a clean environment.

    build_triton(source, "cuda:sm_90")  ->  {"triton_poi_fused_add_0.cubin": ..., "triton_poi_fused_add_0.aligned.cubin": ...,
                                              "triton_poi_fused_add_0.ptx": ..., "launch.json": ...}

Per kernel: ``.cubin`` for any pointers, ``.aligned.cubin`` for pointers that are multiples of 16 bytes (it loads 16 bytes at once; the launcher
looks at the pointers), ``.ptx`` for GPUs newer than the target, where the driver compiles it. ``launch.json`` says how each is launched.
Nothing in the files depends on the machine.
"""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.codegen.types import KernelSource

SCHEMA = 1
LAUNCH_FILE = "launch.json"
TRITON_VERSIONS = ((3, 6), (3, 9))
ALIGNMENT = 16
_TARGET = re.compile(r"cuda:sm_(\d{2,3})")
_PTX_VERSION = {80: 80, 86: 80, 87: 80, 89: 80, 90: 80, 100: 86, 103: 88, 120: 87}     # the oldest that knows the target: older drivers accept it
_SOURCE = "kernels.py"


def compute_capability(target: str) -> int:
    """90 of "cuda:sm_90". Raises AotCompileError AOT510."""
    match = _TARGET.fullmatch(target)
    if match is None or int(match[1]) not in _PTX_VERSION:
        known = ", ".join(f"cuda:sm_{number}" for number in _PTX_VERSION)
        raise AotCompileError(Diagnostic("AOT510", "error", f"{target!r} is no GPU target.", None, f"Use one of {known}."))
    return int(match[1])


def build_triton(source: KernelSource, target: str, *, jobs: int = 1) -> dict[str, bytes]:
    """Compiles every kernel of ``source`` for ``target`` ("cuda:sm_90"). Returns file name -> content; the same source gives the same bytes.

    ``jobs``: how many child processes share the work. Raises AotCompileError: AOT510 no such target, AOT511 Triton is missing or of an unsupported
    version, AOT512 a kernel does not compile, AOT513 a compiled kernel needs what the launcher does not provide."""
    capability = compute_capability(target)
    if not source.kernels:
        return {}
    names = list(source.kernels)
    shares = [names[start::jobs] for start in range(min(jobs, len(names)))]
    files: dict[str, bytes] = {}
    kernels: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="aotcompile-triton-") as folder:
        children = [_start(Path(folder) / str(number), source, share, capability) for number, share in enumerate(shares)]
        answers = [_finish(child) for child in children]
        for number, answer in enumerate(answers):
            if "error" in answer:
                raise AotCompileError(Diagnostic(*answer["error"]))
            kernels.update(answer["kernels"])
            for name in answer["files"]:
                files[name] = (Path(folder) / str(number) / "out" / name).read_bytes()
    facts = {"schema": SCHEMA, "target": f"sm_{capability}", "kernels": {name: {**kernels[name], **_facts(source.launch[name])} for name in names}}
    files[LAUNCH_FILE] = (json.dumps(facts, indent=1, sort_keys=True) + "\n").encode()
    return dict(sorted(files.items()))


def _facts(launch: Mapping[str, Any]) -> dict[str, Any]:
    return {"buffers": launch["buffers"], "sizes": launch["sizes"], "size_type": launch["size_type"], "grid": launch["grid"]}


def _start(folder: Path, source: KernelSource, names: Sequence[str], capability: int) -> "tuple[subprocess.Popen[str], Path]":
    (folder / "out").mkdir(parents=True)
    (folder / _SOURCE).write_text(source.text, encoding="utf-8")
    request = {"capability": capability, "kernels": {name: source.launch[name] for name in names}}
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "LLVM_", "MLIR_"))}
    root = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [environment.get("PYTHONPATH")])])
    environment |= {"TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_HOME": str(folder), "TRITON_DISABLE_LINE_INFO": "1",
                    "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "aotcompile.package.triton_build"]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True), folder


def _finish(child: "tuple[subprocess.Popen[str], Path]") -> dict[str, Any]:
    process, folder = child
    _, errors = process.communicate()
    answer = folder / "answer.json"
    if process.returncode or not answer.exists():
        last = errors.strip().splitlines()[-1] if errors.strip() else f"exit status {process.returncode}"
        hint = "Build with --backend aot_eager to see whether the graph itself is right."
        return {"error": ("AOT512", "error", f"Triton stopped: {last}.", None, hint)}
    result: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return result


# ---- in the child process -----------------------------------------------------------------------------------------------------------------

class _Refusal(Exception):
    """(code, message, hint)."""


def _compile_all(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compiles the kernels of the working directory's kernels.py into ``out/``."""
    triton = _import_triton()
    variables: dict[str, Any] = {"__name__": "kernels"}
    # Under a relative name: assertion messages hold the file's name, and no machine's folders may be in a binary.
    exec(compile(Path(_SOURCE).read_text(encoding="utf-8"), _SOURCE, "exec"), variables)
    files: list[str] = []
    kernels: dict[str, Any] = {}
    for name, launch in request["kernels"].items():
        try:
            kernels[name] = _compile_kernel(triton, variables[name], name, launch, request["capability"], files)
        except _Refusal:
            raise
        except Exception as error:                               # whatever Triton, LLVM or ptxas raise: it is this kernel's error
            text = " ".join(str(error).split())
            raise _Refusal("AOT512", f"kernel {name} does not compile for sm_{request['capability']}: {type(error).__name__}: {text[:600]}.",
                           "Please report it with the kernel's text from kernels.py.") from error
    return {"kernels": kernels, "files": files}


def _import_triton() -> Any:
    try:
        import triton
        import triton.compiler
        from triton.backends.compiler import GPUTarget           # noqa: F401
    except ImportError as error:
        raise _Refusal("AOT511", f"Triton cannot be imported: {error}.", "Install the build extra: pip install 'aotcompile[build]'.") from error
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    low, high = TRITON_VERSIONS
    if not low <= version <= high:
        raise _Refusal("AOT511", f"Triton {triton.__version__} is not one of {low[0]}.{low[1]} to {high[0]}.{high[1]}.", "Install one of these.")
    return triton


def _compile_kernel(triton: Any, function: Any, name: str, launch: Mapping[str, Any], capability: int, files: list[str]) -> dict[str, Any]:
    general = _compile(triton, function, launch, capability, aligned=False)
    result = _binary(general, name, f"{name}.cubin", launch, files)
    if launch["buffers"]:
        result["aligned"] = _binary(_compile(triton, function, launch, capability, aligned=True), name, f"{name}.aligned.cubin", launch, files)
    ptx = _portable_ptx(triton, general.asm["ptx"], capability)
    if ptx is not None:
        _write(f"{name}.ptx", ptx.encode(), files)
        result["ptx"] = f"{name}.ptx"
    return result


def _compile(triton: Any, function: Any, launch: Mapping[str, Any], capability: int, *, aligned: bool) -> Any:
    from triton.backends.compiler import GPUTarget
    attributes = {(position,): [["tt.divisibility", ALIGNMENT]] for position in range(launch["buffers"])} if aligned else {}
    source = triton.compiler.ASTSource(fn=function, signature=dict(launch["signature"]), constexprs=dict(launch["constants"]), attrs=attributes)
    target = GPUTarget("cuda", capability, 32)
    # No contraction of a*b + c, which would round once where eager rounds twice; overflow wraps; denormals stay.
    wanted = {"num_warps": launch["num_warps"], "num_stages": launch["num_stages"], "enable_fp_fusion": False, "debug": bool(launch["asserts"]),
              "sanitize_overflow": False, "enable_reflect_ftz": False, "ptx_version": _PTX_VERSION[capability]}
    known = triton.compiler.make_backend(target).parse_options({}).__dict__
    return triton.compile(source, target=target, options={key: value for key, value in wanted.items() if key in known})


def _binary(compiled: Any, name: str, file: str, launch: Mapping[str, Any], files: list[str]) -> dict[str, Any]:
    """Writes the cubin; what its launch needs."""
    metadata = compiled.metadata
    scratch = [getattr(metadata, field, 0) for field in ("global_scratch_size", "profile_scratch_size", "tmem_size")]
    if any(scratch) or getattr(metadata, "num_ctas", 1) != 1:
        raise _Refusal("AOT513", f"kernel {name} needs scratch memory ({scratch} bytes) or clusters, which the launcher does not provide.",
                       "Please report it.")
    entry = metadata.name
    parameters = re.search(rf"\.entry\s+{re.escape(entry)}\s*\(([^)]*)\)", compiled.asm["ptx"])
    # Newer versions pass pointers to scratch memory behind the kernel's own parameters: null, as none is needed.
    extra = (parameters[1].count(".param") if parameters else 0) - launch["buffers"] - len(launch["sizes"])
    if parameters is None or not 0 <= extra <= 2:
        raise _Refusal("AOT513", f"kernel {name} has {extra} parameters more than it was given.", "This version of Triton is not supported yet.")
    _write(file, compiled.asm["cubin"], files)
    return {"file": file, "entry": entry, "shared": metadata.shared, "threads": metadata.num_warps * 32, "extra_pointers": extra}


def _portable_ptx(triton: Any, text: str, capability: int) -> str | None:
    """The text for any GPU from ``capability`` on. Triton writes ``sm_90a``, which newer GPUs refuse; None if the kernel really needs that."""
    portable = re.sub(r"(?m)^(\.target\s+sm_\d+)a", r"\1", text)
    portable = re.sub(r"(?m)^//.*\n|^\s*\.(?:loc|file)\b.*\n", "", portable)
    tools = sorted((Path(triton.__file__).parent / "backends" / "nvidia" / "bin").glob("ptxas*"), reverse=capability >= 90)
    Path("portable.ptx").write_text(portable, encoding="utf-8")
    for tool in tools:
        done = subprocess.run([str(tool), f"-arch=sm_{capability}", "portable.ptx", "-o", "portable.cubin"], capture_output=True)
        if done.returncode == 0:
            return portable
    return None


def _write(name: str, content: bytes, files: list[str]) -> None:
    (Path("out") / name).write_bytes(content)
    files.append(name)


def _main() -> None:
    request = json.loads(Path("request.json").read_text(encoding="utf-8"))
    try:
        answer = _compile_all(request)
    except _Refusal as refusal:
        code, message, hint = refusal.args
        answer = {"error": (code, "error", message, None, hint)}
    Path("answer.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    _main()
