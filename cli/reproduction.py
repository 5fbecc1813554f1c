"""What is saved when aotcompile itself fails: a folder with the command, the versions, the traceback, and the sources of the package.

    aotcompile-report-1f0c93ab/
      report.txt          command, versions, traceback
      sources/mypkg/...   the package's Python files and configuration, so that the command can be run again

The folder's name comes from the command and the place of the failure, so that the same failure is saved once.
"""
from __future__ import annotations

import hashlib
import platform
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

PACKAGES = ("aotcompile", "torch", "bytecode", "libcst", "triton", "numpy")
LARGEST_FILE = 1 << 20


def save_reproduction(words: Sequence[str], error: BaseException, packages: Sequence[str] | None, folder: Path | None = None) -> Path:
    """Write the report below ``folder`` (default: the current one; a temporary one where that cannot be written) and return its path."""
    text = "".join(traceback.format_exception(error))
    place_of_error = traceback.extract_tb(error.__traceback__)[-1:]
    failure = [*words, type(error).__name__, str(error), *(f"{frame.name}:{frame.lineno}" for frame in place_of_error)]
    name = f"aotcompile-report-{hashlib.sha256(repr(failure).encode()).hexdigest()[:8]}"
    for place in (folder or Path.cwd(), Path(tempfile.gettempdir())):
        target = place / name
        try:
            target.mkdir(exist_ok=True)
            (target / "report.txt").write_text(_report(words, text), encoding="utf-8")
            for package in packages or ():
                _copy_sources(Path(package.partition(":")[0]), target / "sources")
        except OSError as problem:
            reason = problem
            continue
        return target
    print(text, file=sys.stderr)
    return Path(f"nowhere ({reason}); the traceback is above")


def _report(words: Sequence[str], text: str) -> str:
    lines = [f"command: aotcompile {shlex.join(words)}", f"python: {sys.version.split()[0]} on {platform.system()} {platform.machine()}"]
    for package in PACKAGES:
        try:
            lines.append(f"{package}: {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            lines.append(f"{package}: not installed")
    return "\n".join([*lines, "", text])


def _copy_sources(package: Path, target: Path) -> None:
    if not package.exists():
        return
    files = [package] if package.is_file() else [p for p in sorted(package.rglob("*")) if p.suffix in (".py", ".toml")]
    root = package.resolve().parent
    for file in files:
        if file.stat().st_size <= LARGEST_FILE and not {"generated", ".venv"} & set(file.parts):
            place = target / file.resolve().relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
    for name in ("aotcompile.toml", "pyproject.toml", "aotcompile-signatures.toml"):
        if (root / name).is_file():
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target / name)
