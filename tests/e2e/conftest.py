"""Packages built once for all end-to-end tests of a session (also with pytest-xdist, where each worker is a process of its own)."""
from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))                   # helpers of these tests, as modules of their own names

from e2e_packages import EXAMPLES, Built, aotcompile, lay_out    # noqa: E402


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Built]:
    """``built("gpt")``: that example (or "small") copied to a temporary folder and built there, once per session. Tests leave it as it is."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built"

    def build(name: str) -> Built:
        folder = shared / name
        folder.mkdir(parents=True, exist_ok=True)
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = shared / f"{name}.txt"
            package = EXAMPLES.get(name, name)
            if not done.exists():
                lay_out(name, folder)
                result = aotcompile("build", package, folder=folder)
                assert result.returncode == 0, result.stdout + result.stderr
                done.write_text(result.stdout, encoding="utf-8")
            return Built(folder, package, done.read_text(encoding="utf-8"))

    return build


@pytest.fixture
def copied(built: Callable[[str], Built], tmp_path: Path) -> Callable[[str], Built]:
    """``copied("small")``: a copy of that build, for tests that change it."""
    def copy(name: str) -> Built:
        original = built(name)
        folder = tmp_path / name
        shutil.copytree(original.folder, folder)
        return Built(folder, original.package, original.output)

    return copy
