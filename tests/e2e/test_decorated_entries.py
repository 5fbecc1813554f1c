"""Entries under decorators of libraries: the user's function is what is built, and what a caller of the package gets runs compiled. Entries that are
functions of libraries: said to be out of reach."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from e2e_packages import ROOT

pytestmark = pytest.mark.slow

MODEL = '''import contextlib
import functools

import torch
from torch import nn


@contextlib.contextmanager
def doubled(log):
    log.append("in")
    yield
    log.append("out")


LOG = []


@torch.no_grad()
def generate(net, x, steps=2):
    """Steps of a net."""
    for _ in range(steps):
        x = net(x).tanh()
    print("steps", steps)
    return x * 2


@doubled(LOG)
@torch.inference_mode()
def both(x):
    return x.sin() + 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x):
        return self.layer(x).float() + x


def generated():
    return generate, (Net().eval(), torch.arange(4.0)[None])


def of_both():
    return both, (torch.arange(4.0),)


def net():
    return Net(), (torch.arange(4.0)[None],)
'''
USE = '''import sys, torch, aotcompile.runtime
if "generated" in sys.argv:
    aotcompile.runtime.install()
from app import model
torch.manual_seed(0)
net = model.Net()
x = torch.arange(4.0)[None]
result = net(x)
result.sum().backward()
print(result.tolist(), net.layer.weight.grad.tolist(), model.LOG)
result = model.generate(net.eval(), x)
print(result.tolist(), result.requires_grad, model.generate.__doc__, model.generate.__name__)
print(model.both(x[0]).is_inference(), model.LOG)
if "generated" in sys.argv:
    regions = aotcompile.runtime.report().regions
    assert len(regions) >= 4 and not any(region.misses or not region.hits for region in regions), regions
'''


INHERITING = '''import torch
from torch import nn


class Stack(nn.Sequential):
    pass


class Calling(nn.Sequential):
    def forward(self, x):
        return super().forward(x)


def stack():
    return Stack(nn.Linear(4, 4), nn.ReLU()).eval(), (torch.ones(2, 4),)


def calling():
    return Calling(nn.Linear(4, 4), nn.ReLU()).eval(), (torch.ones(2, 4),)
'''


def build(folder: Path, model: str, entries: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    settings = '[tool.aotcompile]\npackages = ["app"]\n' + "".join(f'\n[[tool.aotcompile.entry]]\nmake = "app.model:{name}"\n' for name in entries)
    (folder / "app").mkdir()
    for name, text in (("app/__init__.py", ""), ("app/model.py", model), ("pyproject.toml", settings), ("use.py", USE)):
        (folder / name).write_text(text)
    return run(folder, "-m", "aotcompile.cli", "build", "app", "--no-host")


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def regions_of(folder: Path) -> set[str]:
    modules = json.loads((folder / "generated/app/manifest.json").read_text())["regions"]
    return {name.partition(":")[0] for module in modules.values() for name in module}


def test_they_run_compiled(tmp_path: Path) -> None:
    build(tmp_path, MODEL, ("generated", "of_both", "net"))
    assert regions_of(tmp_path) == {"generate", "both", "Net.forward"}
    assert run(tmp_path, "use.py", "generated").stdout == run(tmp_path, "use.py").stdout


def test_a_function_of_a_library_is_out_of_reach(tmp_path: Path) -> None:
    said = build(tmp_path, INHERITING, ("stack", "calling")).stderr
    assert said.count("AOT127") == 1 and "app.model:Stack.forward is a function of another package (torch.nn.modules.container)" in said
    assert regions_of(tmp_path) == {"Calling.forward"}
