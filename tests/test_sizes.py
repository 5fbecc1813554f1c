"""Sizes that keep the code readable: files of at most 600 lines, functions of at most 60, folders of at most 12 files.

Line length is ruff's business.
"""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path for folder in ("aotcompile", "cli") for path in (ROOT / folder).rglob("*.py"))
FOLDERS = sorted({path.parent for path in FILES})
FILE_LINES, FUNCTION_LINES, FOLDER_FILES = 600, 60, 12


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_table(statement: ast.stmt) -> bool:
    """A module-level assignment of data: its lines count as table, not as code."""
    value = getattr(statement, "value", None)
    return isinstance(statement, (ast.Assign, ast.AnnAssign)) and isinstance(value, (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.Call))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_file_and_its_functions_are_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    table = sum((s.end_lineno or s.lineno) - s.lineno + 1 for s in tree.body if is_table(s))
    lines = text.count("\n") - table
    assert lines <= FILE_LINES, f"{lines} lines besides tables, {FILE_LINES} allowed: split it along its meaning"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES, f"function {node.name} (line {node.lineno}) has {length} lines, {FUNCTION_LINES} allowed"


@pytest.mark.parametrize("folder", FOLDERS, ids=name)
def test_folder_is_small(folder: Path) -> None:
    files = [path.name for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(files) <= FOLDER_FILES, f"{len(files)} files, {FOLDER_FILES} allowed: {files}"
