"""The packages of the end-to-end tests, and the command line in a process of its own."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

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


def lay_out(name: str, folder: Path) -> str:
    """Write or copy the package ``name`` into ``folder``; gives the package's name."""
    if name == "small":
        write(folder, SMALL)
        return name
    ignored = shutil.ignore_patterns("generated", "__pycache__", "aotcompile-report-*")
    shutil.copytree(ROOT / "examples" / name, folder, dirs_exist_ok=True, ignore=ignored)
    return EXAMPLES[name]
