"""Entries under decorators of libraries: the user's function is what is built, and what a caller of the package gets runs compiled."""
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
SETTINGS = '[tool.aotcompile]\npackages = ["app"]\n' + "".join(
    f'\n[[tool.aotcompile.entry]]\nmake = "app.model:{name}"\n' for name in ("generated", "of_both", "net"))
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


def test_they_run_compiled(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    for name, text in (("app/__init__.py", ""), ("app/model.py", MODEL), ("pyproject.toml", SETTINGS), ("use.py", USE)):
        (tmp_path / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "OMP_NUM_THREADS": "1"}

    def ran(*command: str) -> str:
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    ran("-m", "aotcompile.cli", "build", "app", "--no-host")
    regions = json.loads((tmp_path / "generated/app/manifest.json").read_text())["regions"]
    assert {name.partition(":")[0] for module in regions.values() for name in module} == {"generate", "both", "Net.forward"}
    assert ran("use.py", "generated") == ran("use.py")
