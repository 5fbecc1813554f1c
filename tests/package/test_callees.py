"""Split functions of other packages that a built package calls."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aotcompile

LIBRARY = '''
import torch
from torch import nn


def noisy(x):
    y = x * 2
    print("library", float(y.sum()))
    return y.cos()


class Block(nn.Module):
    def forward(self, x):
        h = torch.relu(x)
        print("block", tuple(h.shape), h.sum().item())
        return h.sin() + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x):
        return self.blocks(x)
'''
MODULE = '''
import aotcompile
import torch
from torch import nn

from other_library import Net, noisy


@aotcompile.entry(inputs=("f32[4]",))
class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return self.net(x)


@aotcompile.entry(inputs=("f32[4]",))
def use(x):
    return noisy(x.sin() + 1) * 3
'''
PROGRAM = '''
import torch
import aotcompile.runtime as runtime
import user.model as original
from generated.user import model
import other_library

x = torch.tensor([1.0, -2.0, 3.0, 4.0])
for module in (original, model):
    print(module.use(x).tolist(), module.Wrapper()(x).tolist())
print(sorted((region.name, region.hits, region.misses) for region in runtime.report().regions))
other_library.noisy = lambda x: x + 1
model.noisy = other_library.noisy
print(torch.equal(model.use(x), (x.sin() + 2) * 3))
'''


def test_a_break_in_a_library(write_package: Callable[[dict[str, str]], Path]) -> None:
    folder = write_package({"user/__init__.py": "", "user/model.py": MODULE, "other_library.py": LIBRARY, "use.py": PROGRAM})
    report = aotcompile.build("user", backend="eager")
    assert {f.name for f in report.functions} >= {"other_library:noisy", "other_library:Block.forward"}
    run = subprocess.run([sys.executable, "use.py"], cwd=folder, capture_output=True, text=True, env=_environment())
    assert run.returncode == 0, run.stderr
    *printed, regions, replaced = run.stdout.splitlines()
    assert printed[:len(printed) // 2] == printed[len(printed) // 2:] and len(printed) == 8
    assert regions == ("[('Block.forward:r0', 2, 0), ('Block.forward:r1', 2, 0), ('noisy:r0', 1, 0), ('noisy:r1', 1, 0), "
                       "('use:r0', 1, 0), ('use:r1', 1, 0)]")
    assert replaced == "True"                                    # a replaced library function is called as it is


OPERATORS = '''
import aotcompile

from other_library import Vector


class Own(Vector):
    @property
    def norm(self):
        scaled = self.values.exp()
        print("own norm")
        return scaled.norm()


@aotcompile.entry(inputs=("f32[4]",))
def use(x):
    total = Vector(x.sin()) + Vector(x)
    return total.norm * Own(x).norm
'''
VECTOR = '''
class Vector:
    def __init__(self, values):
        self.values = values

    def __add__(self, other):
        scaled = self.values.exp()
        print("add")
        return Vector(scaled * other.values)

    @property
    def norm(self):
        scaled = self.values.exp()
        print("norm")
        return scaled.norm()
'''
OPERATORS_PROGRAM = '''
import torch
import aotcompile.runtime as runtime
import user.model as original
from generated.user import model

x = torch.tensor([1.0, -2.0, 3.0, 4.0])
for module in (original, model):
    print(module.use(x).tolist())
print(sorted((region.name, region.hits, region.misses) for region in runtime.report().regions))
'''


def test_operators_and_properties(write_package: Callable[[dict[str, str]], Path]) -> None:
    folder = write_package({"user/__init__.py": "", "user/model.py": OPERATORS, "other_library.py": VECTOR, "use.py": OPERATORS_PROGRAM})
    aotcompile.build("user", backend="eager")
    text = (folder / "generated/user/model.py").read_text(encoding="utf-8")
    assert '_callee("+")(' in text and '_callee(".")(total, "norm")' in text          # of the other package
    assert "Own(x).norm" in text or "_t1.norm" in text                                # a class that is written anew has the split property itself
    run = subprocess.run([sys.executable, "use.py"], cwd=folder, capture_output=True, text=True, env=_environment())
    assert run.returncode == 0, run.stderr
    *printed, regions = run.stdout.splitlines()
    assert printed[:4] == printed[4:] and len(printed) == 8
    assert regions == ("[('Own.norm:r0', 1, 0), ('Own.norm:r1', 1, 0), ('Vector.__add__:r0', 1, 0), ('Vector.__add__:r1', 1, 0), "
                       "('Vector.norm:r0', 1, 0), ('Vector.norm:r1', 1, 0), ('use:r0', 1, 0), ('use:r1', 1, 0)]")


def test_a_damaged_callee_runs_eagerly(write_package: Callable[[dict[str, str]], Path]) -> None:
    folder = write_package({"user/__init__.py": "", "user/model.py": MODULE, "other_library.py": LIBRARY, "use.py": PROGRAM})
    aotcompile.build("user", backend="eager")
    source = folder / "generated/user/_aot/other-packages/other_library/noisy/source.py"
    source.write_text(source.read_text() + "# changed\n")
    run = subprocess.run([sys.executable, "use.py"], cwd=folder, capture_output=True, text=True, env=_environment())
    assert run.returncode == 0 and "AOT603" in run.stderr, run.stderr
    printed = run.stdout.splitlines()[:-2]
    assert printed[:len(printed) // 2] == printed[len(printed) // 2:]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(aotcompile.__file__).parent.parent)}


CONTROL_FLOW = '''
import aotcompile
import torch


@aotcompile.entry(inputs=("f32[4]",))
def use(x):
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x * 2,)) + 1
'''
USE_CONTROL_FLOW = '''
import sys
import torch
import aotcompile.runtime as runtime
from generated.user import model

before = set(sys.modules)
for x in (torch.ones(4), -torch.ones(4)):
    print(torch.allclose(model.use(x), (x * 2).sin() + 1 if x.sum() > 0 else (x * 2).cos() + 1))
print(sum(region.hits for region in runtime.report().regions), sum(region.misses for region in runtime.report().regions))
print([name for name in sys.modules if name not in before and name.startswith("torch._dynamo")])
'''


def test_sides_of_a_control_flow_operator_are_regions(write_package: Callable[[dict[str, str]], Path]) -> None:
    """And nothing starts torch.compile in production, as torch.cond does by itself."""
    folder = write_package({"user/__init__.py": "", "user/model.py": CONTROL_FLOW, "use.py": USE_CONTROL_FLOW})
    aotcompile.build("user", backend="eager")
    run = subprocess.run([sys.executable, "use.py"], cwd=folder, capture_output=True, text=True, env=_environment())
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[:4] == ["True", "True", "6 0", "[]"]


PROPERTIES = '''
import aotcompile
import torch
from torch import nn


@aotcompile.entry(inputs=("f32[4]",))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.factor = 2.0

    @property
    def scaled(self):
        y = self.weight.sin() * self.factor
        print("scaled", f"{y.sum().item():.2f}")
        return y + 1

    @scaled.setter
    def scaled(self, value):
        z = value.cos() * 2
        print("set", f"{z.sum().item():.2f}")
        self.extra = z + 1

    def forward(self, x):
        h = x.sin() * 3
        y = self.scaled * h
        self.scaled = y
        return self.extra + 1
'''
USE_PROPERTIES = '''
import torch
import aotcompile.runtime as runtime
import user.model as original
from generated.user import model

x = torch.tensor([1.0, -2.0, 3.0, 4.0])
for module in (original, model):
    print(module.Net()(x).tolist())
print(sorted((region.name, region.hits, region.misses) for region in runtime.report().regions if "scaled" in region.name))
'''


def test_a_break_in_a_property(write_package: Callable[[dict[str, str]], Path]) -> None:
    folder = write_package({"user/__init__.py": "", "user/model.py": PROPERTIES, "use.py": USE_PROPERTIES})
    aotcompile.build("user", backend="eager")
    run = subprocess.run([sys.executable, "use.py"], cwd=folder, capture_output=True, text=True, env=_environment())
    assert run.returncode == 0, run.stderr
    *printed, regions = run.stdout.splitlines()
    assert printed[:3] == printed[3:] and len(printed) == 6
    assert regions.count(", 1, 0)") == 4, regions            # before and after the break, of the getter and of the setter
