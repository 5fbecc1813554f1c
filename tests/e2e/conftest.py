"""Packages built once for all end-to-end tests of a session (also with pytest-xdist, where each worker is a process of its own)."""
from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {"gpt": "minigpt", "vision": "digits", "signal": "spectra"}

# A small package with a break, a helper, a global and a configurable module: the guards of a region in every situation.
SMALL = {
    "pyproject.toml": """
        [tool.aotcompile]
        packages = ["small"]
        [[tool.aotcompile.entry]]
        make = "small.inputs:make"
        training = false
        [[tool.aotcompile.entry]]
        make = "small.inputs:learn"
        training = true
        """,
    "small/__init__.py": "from small.model import Net, shift\n",
    "small/inputs.py": """
        import torch
        from small.model import Net, shift

        def net():
            torch.manual_seed(0)
            return Net()

        def make():
            return [(net().eval(), (torch.randn(4, 8), torch.randn(4, 8))), (shift, (torch.arange(8.0),))]

        def learn():
            return net().train(), (torch.randn(4, 8), torch.randn(4, 8))
        """,
    "small/model.py": """
        import torch
        from torch import nn

        OFFSET = 0.5


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(8, 8)
                self.norm = nn.BatchNorm1d(8)
                self.scale = 2.0

            def forward(self, x, y):
                h = torch.tanh(self.norm(self.first(x)) * self.scale + y + OFFSET)
                print("sum", round(h.sum().item(), 3))
                return torch.relu(h) + x


        def shift(x):
            x.add_(OFFSET)
            return x * 2
        """,
}


@dataclass(frozen=True)
class Built:
    """A folder with a package and its ``generated/``; ``output``: what the build printed."""

    folder: Path
    package: str
    output: str

    @property
    def generated(self) -> Path:
        return self.folder / "generated" / self.package


def aotcompile(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run([sys.executable, "-m", "aotcompile.cli", *words], cwd=folder, capture_output=True, text=True, env=variables, timeout=900)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return folder


def _lay_out(name: str, folder: Path) -> str:
    """Write or copy the package ``name`` into ``folder``; gives the package's name."""
    if name == "small":
        write(folder, SMALL)
        return name
    ignored = shutil.ignore_patterns("generated", "__pycache__", "aotcompile-report-*")
    shutil.copytree(ROOT / "examples" / name, folder, dirs_exist_ok=True, ignore=ignored)
    return EXAMPLES[name]


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
                _lay_out(name, folder)
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
