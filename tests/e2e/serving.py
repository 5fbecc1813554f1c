"""A serving process for the tests: run as a script, in a fresh interpreter, with everything blocked that a production machine does not have.

    python serving.py PROGRAM FORM ROOT OUTPUT

PROGRAM is a function of `programs.py`; FORM is how the package comes in: "eager" (the original), "import" (``generated.<package>``), "load"
(`aotcompile.load`), "install" (the import hook). ROOT holds the package and, built, ``generated/``. Results go to OUTPUT (torch.save), facts about the
process to stdout as one line of JSON, marked so that the program's own printing is told apart.
"""
from __future__ import annotations

import importlib
import importlib.abc
import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
BLOCKED = ("triton", "libcst", "bytecode", "torch._dynamo", "torch._inductor")
BUILD_ONLY = tuple(f"aotcompile.{name}" for name in ("frontend", "graph", "lower", "schedule", "codegen", "package", "pipeline", "api"))


class Block(importlib.abc.MetaPathFinder):
    """These packages are not installed here."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if any(name == blocked or name.startswith(f"{blocked}.") for blocked in BLOCKED):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def no_processes(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: a serving process starts no other, and writes no file but those of the test."""
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"):
        raise RuntimeError(f"{event} in a serving process: {arguments!r}")
    if event == "open":
        path, mode, flags = arguments
        writes = isinstance(mode, str) and any(letter in mode for letter in "wax+") or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and "/proc/" not in str(path) and "/dev/" not in str(path) and str(path) not in _allowed:
            raise RuntimeError(f"{path} is opened for writing in a serving process")


_allowed: set[str] = set()


def bring_in(package: str, form: str, root: Path) -> ModuleType:
    sys.path.insert(0, str(root))
    if form == "eager":
        return importlib.import_module(package)
    if form == "import":
        return importlib.import_module(f"generated.{package}")
    if form == "load":
        import aotcompile
        return aotcompile.load(package, root=str(root / "generated"))
    if form == "install":
        import aotcompile.runtime
        aotcompile.runtime.install(str(root / "generated"))
        return importlib.import_module(package)
    raise SystemExit(f"no form {form}")


def main() -> None:
    program, form, root, output = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    sys.path[0] = str(HERE.parents[1])                           # the repository instead of this folder
    import torch

    torch.manual_seed(0)
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location("programs", HERE / "programs.py")
    assert spec and spec.loader
    programs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(programs)
    function = getattr(programs, program)
    facts: dict[str, Any] = {}
    if form != "eager":
        sys.meta_path.insert(0, Block())
        os.environ["PATH"] = ""
        os.environ.pop("HOME", None)
        sys.dont_write_bytecode = True
        _allowed.add(output)
        sys.addaudithook(no_processes)
    text = io.StringIO()
    with redirect_stdout(text):
        package = bring_in(programs.PACKAGES[program], form, root)
        results = function(package)
    loaded = set(sys.modules) - before
    results["printed"] = text.getvalue()
    if form != "eager":
        from aotcompile.runtime import report

        facts["regions"] = {f"{r.module.removeprefix('generated.')}:{r.name}": [r.calls, r.hits, r.misses, r.eager, r.last_miss] for r in report().regions}
        facts["refusals"] = [str(refusal) for refusal in report().refusals]
        facts["unwanted"] = sorted(name for name in loaded if name.split(".")[0] in ("triton", "libcst", "bytecode", "sympy")
                                   or name.startswith(("torch._dynamo", "torch._inductor")) or name.startswith(BUILD_ONLY))
        facts["native"] = "_aotcompile_native" in sys.modules or any("_aotcompile_native" in line for line in open("/proc/self/maps"))
    torch.save(results, output)
    print("FACTS " + json.dumps(facts))


if __name__ == "__main__":
    main()
