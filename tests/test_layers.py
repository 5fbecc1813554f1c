"""The order of the stages, finer than import-linter says it: a stage imports its own folder, base, ir and *earlier* stages' ``types.py`` only
(and the two records that the user speaks in: ``options.py``, ``entry.py``)."""
from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = ("frontend", "graph", "lower", "schedule", "codegen", "package")     # between ir and pipeline
SHARED = ("base", "ir", "options", "entry")                                  # options and entry import base alone
WITHOUT_TORCH = ("base", "ir", "schedule", "codegen")
FILES = sorted((ROOT / "aotcompile").rglob("*.py"))


def imported(path: Path, package: str) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import in the file, inside functions too; ``from a import b`` gives ``a.b``; relative ones by ``package``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[:len(parents) - node.level + 1], *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def broken(path: Path, package: str) -> list[str]:
    """The imports of a file of ``aotcompile/<stage>/`` that the rule forbids."""
    stage = package.split(".")[1] if "." in package else ""
    found = []
    for line, target in imported(path, package):
        parts = target.split(".")
        if parts[0] in ("torch", "triton", "sympy") and stage in WITHOUT_TORCH:
            found.append(f"line {line}: {target} (no torch in {stage})")
        if parts[0] != "aotcompile" or stage not in (*ORDER, "base", "ir", "runtime"):
            continue
        other = parts[1] if len(parts) > 1 else ""
        earlier = ORDER[:ORDER.index(stage)] if stage in ORDER else ()
        allowed = other == stage or (stage in ORDER and (other in SHARED or (other in earlier and parts[2:3] == ["types"]))) \
            or (stage == "ir" and other == "base")
        if not allowed:
            found.append(f"line {line}: {target} (not for {stage})")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_keep_the_order(path: Path) -> None:
    package = ".".join(path.parent.relative_to(ROOT).parts)
    assert broken(path, package) == []


@pytest.mark.parametrize("stage, text, good", [
    ("schedule", "from aotcompile.ir.nodes import Program", True),
    ("graph", "from aotcompile.frontend.types import CapturedVariant", True),
    ("graph", "def f():\n    from aotcompile.frontend.entries import Entry", False),
    ("frontend", "from aotcompile.graph.types import AtenGraphs", False),
    ("ir", "import torch", False),
    ("runtime", "from aotcompile.ir.guards import Guard", False),
    ("runtime", "from aotcompile.runtime.loader import bind", True),
    ("lower", "from ..pipeline import build", False),
])
def test_the_rule_itself(tmp_path: Path, stage: str, text: str, good: bool) -> None:
    path = tmp_path / "sample.py"
    path.write_text(text)
    assert (broken(path, f"aotcompile.{stage}") == []) is good


def test_declared_packages_are_the_folders() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in FILES} | {"aotcompile.cli"}
    assert sorted(declared) == sorted(folders)
