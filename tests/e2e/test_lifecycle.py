"""What becomes of a built package: stale sources, a move to another place, damage, and the same build once more."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from e2e_packages import ROOT, Built, aotcompile, lay_out
from test_serving import check_facts, differences, eager, serve

pytestmark = pytest.mark.slow

COMMITTED = ROOT / "generated"


def texts_of(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix not in (".so", ".pyc")}


def python(code: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True, env=variables, timeout=300)


# ---- staleness ------------------------------------------------------------------------------------------------------------------------------

def test_check_names_what_is_stale(copied: Callable[[str], Built]) -> None:
    built = copied("small")
    fresh = aotcompile("check", "small", folder=built.folder)
    assert fresh.returncode == 0 and "small: up to date" in fresh.stdout, fresh.stdout + fresh.stderr

    option = aotcompile("check", "small", "--dynamic", "all", folder=built.folder)
    assert option.returncode == 1 and "option dynamic is 'all', built with 'auto'" in option.stdout

    source = built.folder / "small/model.py"
    source.write_text(source.read_text().replace("self.scale + y", "self.scale - y"))
    stale = aotcompile("check", "small", "--diff", folder=built.folder)
    assert stale.returncode == 1 and "small/model.py: AOT632" in stale.stdout
    assert "-    h = torch.tanh(self.norm(self.first(x)) * self.scale + y + OFFSET)" in stale.stdout
    assert "+    h = torch.tanh(self.norm(self.first(x)) * self.scale - y + OFFSET)" in stale.stdout

    before = texts_of(built.generated)
    assert aotcompile("build", "small", folder=built.folder).returncode == 0
    assert texts_of(built.generated) != before and aotcompile("check", "small", folder=built.folder).returncode == 0


def test_check_names_another_torch(copied: Callable[[str], Built]) -> None:
    built = copied("small")
    path = built.generated / "manifest.json"
    manifest = json.loads(path.read_text())
    here = torch.__version__.partition("+")[0]
    other = manifest["built_with"]["torch"] = "2.12.0" if here == "2.11.0" else "2.11.0"
    path.write_text(json.dumps(manifest))
    found = aotcompile("check", "small", folder=built.folder)
    assert found.returncode == 1 and f"version of torch is '{here}', built with '{other}'" in found.stdout


INSTALL = """
import sys, warnings, aotcompile.runtime
aotcompile.runtime.install("generated")
sys.path.insert(0, ".")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import small.model, small.inputs
print(small.model.__file__)
print([str(w.message) for w in caught])
"""


def test_install_serves_a_newer_original_as_it_is(copied: Callable[[str], Built]) -> None:
    built = copied("small")
    assert "/generated/small/model.py" in python(INSTALL, built.folder).stdout
    with open(built.folder / "small/model.py", "a") as file:
        file.write("\n# newer\n")
    text = python(INSTALL, built.folder).stdout
    assert "generated" not in text.splitlines()[0]
    assert text.count("AOT607") == 1 and "model.py differs" in text


# ---- moved ----------------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("program, name", [("signal", "signal"), ("gpt", "gpt")])
def test_moved_read_only(program: str, name: str, built: Callable[[str], Built], tmp_path: Path) -> None:
    """Only ``generated`` goes along (the serving process has PATH and HOME empty, may start no process and write no file)."""
    original = built(name)
    expected = eager(program, original.folder, tmp_path / "eager.pt")
    place = tmp_path / "Größe und mehr"
    shutil.copytree(original.folder / "generated", place / "generated", ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*place.rglob("*"), place]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted(path.relative_to(place) for path in place.rglob("*"))
    elsewhere = tmp_path / "cwd"
    elsewhere.mkdir()
    results, facts, warnings = serve(program, "load", place, elsewhere / "results.pt")
    assert differences(expected, results) == [] and "Warning" not in warnings
    check_facts(facts, program)
    assert sorted(path.relative_to(place) for path in place.rglob("*")) == before


NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_user(built: Callable[[str], Built]) -> None:
    """A user who owns nothing of it and may only read it."""
    original = built("signal")
    with tempfile.TemporaryDirectory() as folder:
        place, elsewhere = Path(folder) / "served", Path(folder) / "cwd"
        shutil.copytree(original.folder / "generated", place / "generated", ignore=shutil.ignore_patterns("__pycache__"))
        elsewhere.mkdir()
        os.chmod(folder, 0o755)
        os.chown(elsewhere, NOBODY, NOBODY)
        try:
            subprocess.run([sys.executable, "-c", "import torch, aotcompile.runtime"], check=True, capture_output=True, user=NOBODY, cwd=elsewhere)
        except (PermissionError, subprocess.CalledProcessError) as error:
            pytest.skip(f"another user cannot read this interpreter or this checkout: {error}")
        expected = eager("signal", original.folder, elsewhere / "eager.pt")
        results, facts, warnings = serve("signal", "load", place, elsewhere / "results.pt", user=NOBODY)
    assert differences(expected, results) == [] and "Warning" not in warnings
    check_facts(facts, "signal")


# ---- damage ---------------------------------------------------------------------------------------------------------------------------------

USE = """
import sys, torch, warnings
warnings.simplefilter("always")
sys.path.insert(0, ".")
from generated.small.model import shift
x = torch.arange(8.0)
assert torch.equal(shift(x), (torch.arange(8.0) + 0.5) * 2)
from aotcompile.runtime import report
print([(r.name, r.hits, r.eager, r.reason) for r in report().regions if r.name == "shift:r0"])
"""


def test_nothing_damaged_is_run(copied: Callable[[str], Built]) -> None:
    built = copied("small")
    manifest = json.loads((built.generated / "manifest.json").read_text())
    folder = manifest["regions"]["small.model"]["shift:r0"]["variants"][0]
    good = python(USE, built.folder)
    assert good.returncode == 0 and "('shift:r0', 1, False, None)" in good.stdout, good.stderr

    def damaged(path: Path, change: Callable[[bytes], bytes], code: str) -> None:
        data = path.read_bytes()
        path.write_bytes(change(data))
        found = python(USE, built.folder)
        path.write_bytes(data)
        assert found.returncode == 0, found.stderr
        assert "('shift:r0', 0, True" in found.stdout and code in found.stdout and code in found.stderr, found.stdout + found.stderr

    def flipped(data: bytes) -> bytes:
        middle = len(data) // 2
        return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]

    for path in manifest["kernels"][folder].values():
        damaged(built.generated / path, flipped, "AOT603")
    damaged(built.generated / folder / "plan.json", flipped, "AOT603")
    damaged(built.generated / "manifest.json", lambda _: b"{", "AOT601")
    damaged(built.generated / "manifest.json", lambda data: data.replace(b'"schema": 1', b'"schema": 7', 1), "AOT601")


# ---- the same build once more -----------------------------------------------------------------------------------------------------------------

def test_two_builds_give_the_same_texts(built: Callable[[str], Built], tmp_path: Path) -> None:
    first = built("small")
    second = tmp_path / "somewhere else"
    second.mkdir()
    lay_out("small", second)
    done = aotcompile("build", "small", "-j", "1", folder=second, PYTHONHASHSEED="4711")
    assert done.returncode == 0, done.stderr
    assert texts_of(first.generated) == texts_of(second / "generated/small")


def test_the_committed_example(tmp_path: Path) -> None:
    """``generated/`` at the top is what ``make generated`` writes now, and runs."""
    manifest = json.loads((COMMITTED / "spectra/manifest.json").read_text())
    lay_out("signal", tmp_path)
    results, facts, warnings = serve("signal", "load", ROOT, tmp_path / "results.pt")
    assert differences(eager("signal", tmp_path, tmp_path / "eager.pt"), results) == [] and "Warning" not in warnings
    check_facts(facts, "signal", native=False)
    if manifest["built_with"]["torch"] != torch.__version__.partition("+")[0] or manifest["built_with"]["python"] != ".".join(map(str, sys.version_info[:2])):
        pytest.skip("the committed example was built with another torch or Python")
    targets = [word for target in manifest["options"]["targets"] for word in ("--target", target)]
    done = aotcompile("build", "spectra", *targets, "--no-host", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert texts_of(tmp_path / "generated/spectra") == texts_of(COMMITTED / "spectra")
