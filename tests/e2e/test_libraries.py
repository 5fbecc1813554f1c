"""Code of an installed library that was compiled in: compared file by file when it is loaded, not per call."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from e2e_packages import ROOT

pytestmark = pytest.mark.slow

LIBRARY = '''"""A library."""
from . import inner

__version__ = "1.0"


def scaled(x):
    return inner.double(x) + 1
'''
INNER = '''def double(x):
    return x * 2
'''
MODEL = '''import torch
from torch import nn

import layers


class Net(nn.Module):
    def forward(self, x):
        return layers.scaled(x).tanh()


def net():
    return Net().eval(), (torch.arange(4.0),)
'''
SETTINGS = '''[tool.aotcompile]
packages = ["app"]

[[tool.aotcompile.entry]]
make = "app.model:net"
training = false
'''
USE = '''import torch, aotcompile, aotcompile.runtime
app = aotcompile.load("app")
import importlib
model = importlib.import_module(app.__name__ + ".model")
with torch.no_grad():
    print(model.Net().eval()(torch.arange(4.0)).tolist())
[region] = aotcompile.runtime.report().regions
print(region.hits, int(region.eager))
'''


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    files = {"site-packages/layers/__init__.py": LIBRARY, "site-packages/layers/inner.py": INNER, "app/__init__.py": "", "app/model.py": MODEL,
             "pyproject.toml": SETTINGS}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = command(folder, "-m", "aotcompile.cli", "build", "app", "--target", "cpu", "--no-host")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder / "site-packages"))), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, env=variables, timeout=300)


def use(folder: Path) -> tuple[str, str, str]:
    """What the model gives, hits and eager runs, and what is written about it."""
    done = command(folder, "-c", USE)
    assert done.returncode == 0, done.stderr
    values, counts = done.stdout.splitlines()
    return values, counts, done.stderr


def test_the_manifest_names_the_modules(built: Path) -> None:
    manifest = json.loads((built / "generated/app/manifest.json").read_text())
    assert sorted(manifest["libraries"]) == ["layers", "layers.inner"]
    assert all(version == "1.0" and len(source) == 64 for version, source in manifest["libraries"].values())
    [plan] = (built / "generated/app/_aot").rglob("plan.json")
    assert json.loads(plan.read_text())["libraries"] == ["layers", "layers.inner"]


def test_the_same_library_is_used(built: Path) -> None:
    assert use(built)[1:] == ("1 0", "")


@pytest.mark.parametrize(("file", "before", "after", "said", "doubled"), [
    ("inner.py", "x * 2", "x * 3", "AOT608 layers.inner is not the code that was compiled in (its file was edited, layers is 1.0 as it was)", 3),
    ("__init__.py", '"1.0"\n', '"1.1"\n# and more\n', "AOT608 layers is not the code that was compiled in (layers 1.0 then, 1.1 now)", 2),
])
def test_another_library_runs_eagerly(built: Path, file: str, before: str, after: str, said: str, doubled: int) -> None:
    path = built / "site-packages/layers" / file
    original = path.read_text()
    assert before in original
    path.write_text(original.replace(before, after))
    try:
        values, counts, errors = use(built)
        checked = command(built, "-m", "aotcompile.cli", "check", "app", "--target", "cpu", "--no-host") if file == "__init__.py" else None
    finally:
        path.write_text(original)
    expected = command(built, "-c", f"import torch; print((torch.arange(4.0) * {doubled} + 1).tanh().tolist())").stdout.strip()
    assert (values, counts) == (expected, "0 1")
    assert errors.count("AOT608") == 1 and said in errors
    assert checked is None or checked.returncode == 1 and "AOT639 layers" in checked.stdout, checked.stdout


def test_what_counts_as_the_same_code() -> None:
    from aotcompile.runtime.digest import LibraryCode, has_same_code, library_code

    found = library_code("json.decoder")
    assert found is not None and len(found.source) == 64
    assert has_same_code("json.decoder", LibraryCode("another", found.source))
    assert not has_same_code("json.decoder", LibraryCode(found.version, "0" * 64))
    assert has_same_code("json.decoder", LibraryCode(found.version, ""))
    assert not has_same_code("no_such_module_here", found)
