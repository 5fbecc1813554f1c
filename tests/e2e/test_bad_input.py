"""What goes wrong at build time is said with a code, a place and an exit code, and leaves an earlier build as it was. All in this process."""
from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aotcompile.cli.main import main

Write = Callable[[dict[str, str]], Path]

MODEL = "import torch\n\n\ndef f(x):\n    return torch.sin(x) + 1\n"
PROVIDER = "import torch\nfrom tiny.model import f\n\n\ndef make():\n    return f, (torch.ones(4),)\n"
CONFIGURATION = "[tool.aotcompile]\npackages = ['tiny']\n[[tool.aotcompile.entry]]\nmake = 'tiny.inputs:make'\n"
TINY = {"tiny/__init__.py": "", "tiny/model.py": MODEL, "tiny/inputs.py": PROVIDER, "pyproject.toml": CONFIGURATION}

DECORATED = "import torch, aotcompile\n\n\n@aotcompile.entry(inputs=({text!r},))\ndef f(x):\n    return torch.sin(x)\n"
BAD: dict[str, tuple[dict[str, str], int, tuple[str, ...]]] = {
    "a package that does not import": ({"tiny/__init__.py": "import nothing_of_this_name\n"}, 2, ("AOT1", "nothing_of_this_name")),
    "a package with a syntax error": ({"tiny/__init__.py": "def f(:\n"}, 2, ("AOT1", "tiny/__init__.py")),
    "a package that is not there": ({"pyproject.toml": CONFIGURATION.replace("tiny", "absent")}, 2, ("AOT1", "absent")),
    "an entry that does not exist": ({"pyproject.toml": CONFIGURATION.replace(":make", ":made")}, 2, ("AOT1", "made")),
    "a provider that raises": ({"tiny/inputs.py": "def make():\n    raise RuntimeError('no such weights')\n"}, 2, ("AOT1", "no such weights", "tiny/inputs.py")),
    "a provider that gives something else": ({"tiny/inputs.py": "def make():\n    return 5\n"}, 2, ("AOT1", "make")),
    "a signature with a syntax error": ({"pyproject.toml": "", "tiny/model.py": DECORATED.format(text="f32[4, ")}, 2, ("AOT1", "f32[4, ")),
    "a signature of an unknown dtype": ({"pyproject.toml": "", "tiny/model.py": DECORATED.format(text="g32[4]")}, 2, ("AOT1", "g32")),
    "an unknown key": ({"pyproject.toml": CONFIGURATION.replace("packages", "packges")}, 2, ("AOT1", "packges", "packages")),
    "an unknown target": ({"pyproject.toml": CONFIGURATION.replace("[[", "targets = ['cpu:vax']\n[[", 1)}, 2, ("AOT", "vax")),
    "no entry at all": ({"pyproject.toml": "[tool.aotcompile]\npackages = ['tiny']\n"}, 2, ("AOT109", "@aotcompile.entry")),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what: str, write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    files, code, texts = BAD[what]
    folder = write_package({**TINY, **files})
    words = ["build"] if what in ("a package that is not there", "an unknown key") else ["build", "tiny"]
    assert main(words) == code
    captured = capsys.readouterr()
    assert all(text in captured.err for text in texts), captured.err
    assert captured.out == "" and "Traceback" not in captured.err
    assert not (folder / "generated").exists()


def test_no_compiler(write_package: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = write_package(TINY)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("CXX", raising=False)
    assert main(["build", "tiny"]) == 1
    assert "AOT501" in capsys.readouterr().err
    assert not (folder / "generated").exists()


@pytest.mark.slow
def test_output_that_cannot_be_written(write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_package({**TINY, "taken": "a file, not a folder"})
    assert main(["build", "tiny", "-o", "taken", "--backend", "eager"]) in (1, 2)
    error = capsys.readouterr().err
    assert "AOT6" in error and "taken" in error and "Traceback" not in error
    assert (folder / "taken").read_text() == "a file, not a folder"


@pytest.mark.slow
def test_a_failed_build_leaves_the_old_one(write_package: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_package(TINY)
    assert main(["build", "tiny"]) == 0
    built = {path: path.read_bytes() for path in sorted((folder / "generated").rglob("*")) if path.is_file()}
    assert any(path.suffix == ".so" for path in built)

    def unchanged() -> bool:
        return built == {path: path.read_bytes() for path in sorted((folder / "generated").rglob("*")) if path.is_file()}

    from aotcompile.package import writer
    from aotcompile.pipeline import package as packages

    with monkeypatch.context() as patch:
        patch.setattr(packages, "with_binaries", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
        assert main(["build", "tiny"]) == 3                      # before anything is written
        assert unchanged()
    with monkeypatch.context() as patch:
        real, count = writer._write_file, 0

        def failing(path: Path, content: object) -> None:
            nonlocal count
            count += 1
            if count == 5:
                raise OSError(28, "No space left on device", str(path))
            real(path, content)                                  # type: ignore[arg-type]

        patch.setattr(writer, "_write_file", failing)
        assert main(["build", "tiny"]) == 1                      # half-way through the files
        assert unchanged() and count == 5
    assert "No space left on device" in capsys.readouterr().err
    (folder / "tiny/inputs.py").write_text("def make():\n    raise RuntimeError('no')\n")
    monkeypatch.delitem(sys.modules, "tiny.inputs")
    assert main(["build", "tiny"]) == 2 and unchanged()
    capsys.readouterr()


@pytest.mark.slow
def test_damaged_manifest(write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_package(TINY)
    assert main(["build", "tiny", "--backend", "eager"]) == 0
    manifest = folder / "generated/tiny/manifest.json"
    good = manifest.read_text()
    capsys.readouterr()
    for text, code in (("{", "AOT631"), (json.dumps({**json.loads(good), "schema": 99}), "AOT631"), ("[]", "AOT631")):
        manifest.write_text(text)
        assert main(["check", "tiny", "--backend", "eager"]) == 1
        captured = capsys.readouterr()
        assert code in captured.out + captured.err and "Traceback" not in captured.err
    assert main(["build", "tiny", "--backend", "eager"]) == 0 and manifest.read_text() == good
