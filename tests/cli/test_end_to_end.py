"""The command line with the real pipeline, on a package of two functions: build it, use it in a fresh process, ask every command about it."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aotcompile.cli.main import STAGES, main

Write = Callable[[dict[str, str]], Path]
MODEL = '''
    import torch
    from torch import nn


    class Scale(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))

        def forward(self, x):
            y = torch.relu(x) * self.weight
            print("rows:", y.shape[0])
            return (y.sum(1) + 1).sqrt()


    def spread(x):
        return (x - x.mean(0)).abs().max()
'''
INPUTS = '''
    import torch

    from tiny.model import Scale, spread


    def scale():
        return Scale(4), (torch.ones(3, 4),)


    def spreads():
        return spread, (torch.ones(5, 2),)
'''
CONFIGURATION = '''
    [tool.aotcompile]
    packages = ["tiny"]
    training = false

    [[tool.aotcompile.entry]]
    make = "tiny.aot_inputs:scale"

    [[tool.aotcompile.entry]]
    make = "tiny.aot_inputs:spreads"
'''
USE = '''
import json, sys
import torch
from tiny.model import Scale, spread

torch.manual_seed(0)
x = torch.randn(3, 4)
with torch.no_grad():
    results = [Scale(4)(x).tolist(), spread(torch.randn(5, 2)).item()]
report = {}
if "aotcompile" in sys.modules:
    import aotcompile.runtime
    report = {f"{r.module}:{r.name}": [r.hits, r.misses] for r in aotcompile.runtime.report().regions}
print(json.dumps({"results": results, "report": report, "modules": sorted(sys.modules)}))
'''


def use(root: Path) -> dict[str, object]:
    """What a fresh process gives that imports ``tiny`` from ``root``. It has no PATH: no compiler can be found."""
    environment = {name: value for name, value in os.environ.items() if name != "PATH"} | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True, check=True, env=environment, cwd=root)
    printed, answer = done.stdout.splitlines()
    assert printed == "rows: 3" and done.stderr == ""
    found: dict[str, object] = json.loads(answer)
    return found


def built_files(folder: Path) -> dict[Path, bytes]:
    """What a build wrote, by relative path; not the bytecode that Python caches beside what is imported."""
    found = sorted(path for path in (folder / "generated").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder): path.read_bytes() for path in found}


@pytest.mark.slow
def test_every_command_on_a_real_package(write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_package({"tiny/__init__.py": "", "tiny/model.py": MODEL, "tiny/aot_inputs.py": INPUTS, "pyproject.toml": CONFIGURATION})
    built = subprocess.run([sys.executable, "-m", "aotcompile.cli", "build", "tiny"], capture_output=True, text=True, check=True)
    assert "AOT201 tiny/model.py:13 print() is called" in built.stdout and "-> generated/tiny" in built.stdout
    before = built_files(folder)

    eager, compiled = use(folder), use(folder / "generated")
    assert eager["results"][0] == pytest.approx(compiled["results"][0], rel=1e-6)               # type: ignore[index]
    assert eager["results"][1] == pytest.approx(compiled["results"][1], rel=1e-6)               # type: ignore[index]
    assert eager["report"] == {}
    assert compiled["report"] == {"tiny.model:Scale.forward:r0": [1, 0], "tiny.model:Scale.forward:r1": [1, 0], "tiny.model:spread:r0": [1, 0]}
    needless = [name for name in compiled["modules"] if name.startswith(("aotcompile.frontend", "aotcompile.codegen", "libcst", "bytecode"))]  # type: ignore[attr-defined]
    assert needless == []

    # Another process's build would write the same bytes; a changed source is seen and named.
    assert main(["check", "tiny"]) == 0
    model = folder / "tiny" / "model.py"
    text = model.read_text()
    model.write_text(text.replace("+ 1)", "+ 2)"))
    capsys.readouterr()
    assert main(["check", "tiny"]) == 1 and "tiny/model.py" in capsys.readouterr().out
    model.write_text(text)

    assert main(["explain", "tiny"]) == 0
    explained = capsys.readouterr().out
    assert "print() is called" in explained and "Scale.forward:r1" in explained and "spread:r0" in explained
    assert main(["verify", "tiny"]) == 0
    assert "native" in capsys.readouterr().out
    assert before == built_files(folder)
    assert main(["clean", "tiny"]) == 0
    assert not (folder / "generated" / "tiny").exists()


EXPECTED = {"source": "def forward(self, x):", "bytecode": "RETURN_VALUE", "regions": "_r0(self, x)", "graph": "torch.relu", "aten": "aten.relu",
            "ir": "for ", "schedule": "kernel ", "cpp": "extern", "triton": "@triton.jit", "wrapper": "def inference(", "guards": "float32",
            "plan": '"region": "Scale.forward:r0"'}


@pytest.mark.slow
def test_show_every_stage(write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write_package({"tiny/__init__.py": "", "tiny/model.py": MODEL, "tiny/aot_inputs.py": INPUTS, "pyproject.toml": CONFIGURATION})
    assert set(EXPECTED) == set(STAGES)
    for stage in STAGES:
        assert main(["show", "tiny.model:Scale.forward", "--stage", stage]) == 0
        text = capsys.readouterr().out
        assert EXPECTED[stage] in text, (stage, text)
