"""Functions of a package that have no source text: split in their bytecode, put in place at the end of the generated module."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aotcompile

MODULE = '''
import aotcompile
import torch

exec("def made(x):\\n    y = torch.relu(x) * 2\\n    print('sum', y.sum().item())\\n    return y + 1\\n")
made = aotcompile.entry(inputs=("f32[4]",))(made)
small = aotcompile.entry(inputs=("f32[3]",))(lambda x, k=2: torch.sin(x) * k)


@aotcompile.entry(inputs=("f32[5]",))
def plain(x):
    return made(x) * 2
'''
PROGRAM = '''
import sys
import torch
import aotcompile.runtime as runtime
from generated.sourceless import model

x = torch.tensor([1.0, -2.0, 3.0, 4.0])
print(model.made(x).tolist(), model.small(x[:3], 3).sum() == (torch.sin(x[:3]) * 3).sum(), model.plain(torch.ones(5)).tolist())
print(sorted((region.name, region.hits, region.misses) for region in runtime.report().regions))
print([name for name in ("bytecode", "libcst") if name in sys.modules])
'''


def test_exec_and_lambda_in_a_package(write_package: Callable[[dict[str, str]], Path]) -> None:
    folder = write_package({"sourceless/__init__.py": "", "sourceless/model.py": MODULE, "use.py": PROGRAM})
    aotcompile.build("sourceless", backend="eager")
    text = (folder / "generated/sourceless/model.py").read_text()
    assert text.count("bind_bytecode(__name__") == 1
    assert (folder / "generated/sourceless/_aot/model/made/bytecode.py").is_file()
    run = subprocess.run([sys.executable, "use.py"], cwd=folder, capture_output=True, text=True, env=_environment())
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "sum 16.0", "sum 10.0", "[3.0, 1.0, 7.0, 9.0] tensor(True) [6.0, 6.0, 6.0, 6.0, 6.0]",
        "[('<lambda>:r0', 1, 0), ('made:r0', 2, 0), ('made:r1', 2, 0), ('plain:r0', 1, 0)]", "[]"]


def test_changed_bytecode_is_refused(write_package: Callable[[dict[str, str]], Path]) -> None:
    folder = write_package({"sourceless/__init__.py": "", "sourceless/model.py": MODULE, "use.py": PROGRAM})
    aotcompile.build("sourceless", backend="eager")
    for path in (folder / "generated").rglob("bytecode.py"):
        path.write_text(path.read_text() + "# changed\n")
    run = subprocess.run([sys.executable, "use.py"], cwd=folder, capture_output=True, text=True, env=_environment())
    assert run.returncode == 0, run.stderr
    assert "[3.0, 1.0, 7.0, 9.0]" in run.stdout and "AOT603" in run.stderr


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(aotcompile.__file__).parent.parent)}
