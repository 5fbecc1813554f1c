"""The examples: they run eagerly, and their entries are found."""
from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aotcompile.frontend.entries import Entry, collect_entries, importable, locate_package
from aotcompile.options import load_configuration

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PACKAGES = {"gpt": "minigpt", "vision": "digits", "signal": "spectra"}
SHORT = {"gpt": ("--steps", "2", "--letters", "5"), "vision": ("--steps", "2"), "signal": ("--blocks", "6")}


def run(name: str, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *words], cwd=EXAMPLES / name, capture_output=True, text=True, check=check, env=environment, timeout=600)


def entries_of(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Entry, ...]:
    monkeypatch.chdir(EXAMPLES / name)
    package = locate_package(PACKAGES[name])
    return collect_entries(package, load_configuration(package.path.parent, environment={}).options)


@pytest.mark.parametrize("name", PACKAGES)
def test_runs_eagerly(name: str) -> None:
    text = run(name, "run.py", *SHORT[name]).stdout
    assert {"gpt": "sampled: ", "vision": "early exits: ", "signal": "after the gate: energy "}[name] in text


def test_forward_logs_and_the_text_is_the_same_every_time() -> None:
    first, second = (run("vision", "run.py", "--steps", "0", "-v").stdout for _ in range(2))
    assert first == second and len(re.findall(r"activations after stage 1: mean -?\d+\.\d{4}", first)) == 1 + 9


@pytest.mark.parametrize("name, expected", [
    ("gpt", [*["minigpt.model:GPT.forward"] * 2, *["minigpt.sampling:sample"] * 2]),
    ("vision", ["digits.model:DigitNet.forward"] * 2),
    ("signal", ["spectra.pipeline:describe", "spectra.pipeline:Follower.feed", "spectra.pipeline:Follower.feed"]),
])
def test_entries_are_found_and_can_be_called(name: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    entries = entries_of(name, monkeypatch)
    assert [entry.name for entry in entries] == expected
    with importable(EXAMPLES / name):
        for entry in entries:
            assert entry.target(*entry.args, **entry.kwargs) is not None
    dynamic = {f"{path}[{i}] {dimension}" for entry in entries for path, found in entry.dynamic_shapes.items() for i, dimension in found.items()}
    assert dynamic == {"gpt": {"tokens[1] 1 <= T <= 32", "tokens[1] T"}, "vision": {"images[0] 1 <= B <= 256"}, "signal": {"blocks[0] 1 <= N <= 64"}}[name]


@pytest.mark.parametrize("name", PACKAGES)
def test_is_ordinary_code(name: str) -> None:
    """No aotcompile in the packages, but for the decorator in one of them; no downloads."""
    for path in sorted((EXAMPLES / name / PACKAGES[name]).rglob("*.py")):
        names = {alias.name.split(".")[0] for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import) for alias in node.names}
        names |= {(node.module or "").split(".")[0] for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
        assert names <= {"torch", "numpy", "math", "logging", "dataclasses", "pathlib", PACKAGES[name], *(["aotcompile"] if name == "signal" else [])}


@pytest.mark.parametrize("name", PACKAGES)
def test_readme_fits_a_screen_and_names_the_commands(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text()
    assert len(text.splitlines()) <= 24
    assert all(command in text for command in ("python run.py", f"aotcompile build {PACKAGES[name]}", "python run.py --generated"))


def test_the_early_exit_is_taken_sometimes_and_not_always() -> None:
    text = run("vision", "run.py").stdout
    taken, calls = map(int, re.findall(r"early exits: (\d+) of (\d+)", text)[0])
    assert 0 < taken < calls, text
