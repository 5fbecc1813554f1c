"""``aotcompile record PKG... -- CMD...``: runs the user's command and writes the signatures that it saw to ``aotcompile-signatures.toml``.

Calls that differ in sizes only become one entry: sizes that vary get a letter, sizes that vary together the same letter.

    f(f32[8, 3]), f(f32[5, 3])   ->   inputs = { x = "f32[s0, 3]" }
"""
from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aotcompile.base.diagnostic import AotCompileError, Diagnostic, UsageError

from .recorder import FOLDER, PACKAGES

HEADER = "# Signatures seen by aotcompile record: types, sizes, strides and Python constants, no values of tensors. Review and commit.\n"
START = """import os, sys
sys.path.remove(os.path.dirname(__file__))
ours = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ModuleNotFoundError as error:
    if error.name != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = ours         # the import system looks for it when we are done
from aotcompile.cli.recorder import install
install()
"""


def run_and_record(packages: Sequence[str], command: Sequence[str], output: Path) -> tuple[int, list[str], list[Diagnostic]]:
    """Run ``command``, write ``output``; the command's exit code, the functions written, and notes on calls that cannot be written.

    Raises UsageError AOT125 without packages or command, AotCompileError AOT131 where no call was seen."""
    names = [Path(package.rstrip("/")).stem if "/" in package or package.endswith(".py") else package for package in packages]
    if not names or not command:
        raise UsageError(Diagnostic("AOT125", "error", "record needs a package and a command.", None, "Write aotcompile record PKG -- CMD..."))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(START, encoding="utf-8")
        path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, PACKAGES: ",".join(names), FOLDER: folder}
        try:
            code = subprocess.run(list(command), env=environment).returncode
        except OSError as error:
            raise UsageError(Diagnostic("AOT125", "error", f"the command cannot be run: {error}.")) from None
        calls = read_notes(Path(folder))
    if not calls:
        raise AotCompileError(Diagnostic("AOT131", "error", f"the command (exit code {code}) called nothing of {', '.join(names)}.", None,
                                         "Name the package as the command imports it, and run something that calls it."))
    text, functions, notes = signatures_text(calls)
    output.write_text(text, encoding="utf-8")
    return code, functions, notes


def read_notes(folder: Path) -> list[dict[str, Any]]:
    """The notes of all processes, each once, in the order seen."""
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines()]
    return [json.loads(line) for line in dict.fromkeys(lines)]


def signatures_text(calls: list[dict[str, Any]]) -> tuple[str, list[str], list[Diagnostic]]:
    """The TOML file for calls; the functions in it; diagnostics AOT130 for those that cannot be written."""
    groups: dict[str, list[dict[str, Any]]] = {}
    notes = []
    for call in calls:
        if problem := unsupported(call["arguments"]):
            notes.append(Diagnostic("AOT130", "warning", f"{call['function']} was called with {problem}, which a signature cannot say.", None,
                                    "Write an input provider for it (make = ...)."))
        else:
            groups.setdefault(json.dumps([call["function"], form(call["arguments"])]), []).append(call)
    parts = [HEADER]
    for group in groups.values():
        sizes = [list_sizes(call["arguments"]) for call in group]
        letters = name_sizes(list(zip(*sizes)))
        inputs = toml_value({"dict": group[0]["arguments"]}, iter(letters))
        parts.append(f"\n[[entry]]\nfunction = {json.dumps(group[0]['function'])}\ninputs = {inputs}\n")
    functions = sorted({group[0]["function"] for group in groups.values()})
    return "".join(parts), functions, list(dict.fromkeys(notes))


def unsupported(arguments: dict[str, Any]) -> str:
    """What of a call cannot be written, or nothing."""
    for value in arguments.values():
        inner = value.get("dict") or dict(enumerate(value.get("list", ())))
        if problem := value.get("unsupported") or unsupported(inner):
            return str(problem)
    return ""


def form(value: Any) -> Any:
    """A call without its sizes: calls of the same form differ in sizes only."""
    if isinstance(value, dict) and "tensor" in value:
        dtype, sizes, strides, device = value["tensor"]
        return ["tensor", dtype, len(sizes), strides, device, sizes if strides is not None else None]
    if isinstance(value, dict):
        return {key: form(item) for key, item in value.items()}
    return [form(item) for item in value] if isinstance(value, list) else value


def list_sizes(value: Any) -> list[int]:
    """All sizes of a call's tensors, in the order written."""
    if isinstance(value, dict) and "tensor" in value:
        return list(value["tensor"][1])
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [size for item in items for size in list_sizes(item)]


def name_sizes(columns: list[tuple[int, ...]]) -> list[str]:
    """A number for a size that is the same in every call, else a letter; columns that are equal in every call share theirs."""
    letters: dict[tuple[int, ...], str] = {}
    return [str(column[0]) if len(set(column)) == 1 else letters.setdefault(column, f"s{len(letters)}") for column in columns]


def toml_value(value: dict[str, Any], sizes: Any) -> str:
    """A described value as inline TOML; ``sizes`` yields the text of the next size."""
    if "tensor" in value:
        dtype, shape, strides, device = value["tensor"]
        text = f"{dtype}[{', '.join(next(sizes) for _ in shape)}]" + (f"[{', '.join(map(str, strides))}]" if strides is not None else "")
        return json.dumps(text + ("" if device == "cpu" else device))
    if "list" in value:
        return "[" + ", ".join(toml_value(item, sizes) for item in value["list"]) + "]"
    if "dict" in value:
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml_value(item, sizes)}" for key, item in value["dict"].items()) + " }"
    constant = value["value"]
    if isinstance(constant, float):
        return repr(constant) if constant not in (float("inf"), float("-inf")) else ("inf" if constant > 0 else "-inf")
    return json.dumps(constant)
