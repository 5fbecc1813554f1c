"""The command line: arguments, exit codes, what goes to which stream. The pipeline is a stand-in here; its own tests run it for real."""
from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aotcompile.base.diagnostic import AotCompileError, Diagnostic, UsageError
from aotcompile.base.span import Span
from aotcompile.cli.main import STAGES, main
from aotcompile.options import Options
from aotcompile.reports import (
    BreakLine,
    BuildReport,
    CheckReport,
    CleanReport,
    Comparison,
    Explanation,
    FunctionExplanation,
    FunctionReport,
    RegionExplanation,
    StaleFile,
    VariantExplanation,
    VerifyReport,
)

Write = Callable[[dict[str, str]], Path]
BREAK = BreakLine("AOT201", "mypkg/model.py", 18, "print", "Move it out.")
FUNCTION = FunctionReport("mypkg.model:Net.forward", "mypkg/model.py", 2, 3, (BREAK,), 4, 1, 18 * 1024, 0.41)


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A pipeline that records its calls and gives the answers set as its attributes."""
    calls: list[tuple[Any, ...]] = []
    answers: dict[str, Any] = {
        "build": BuildReport("mypkg", "generated/mypkg", (FUNCTION,), (), 0.9), "check": CheckReport("mypkg", ()), "clean": CleanReport("mypkg", ("generated/mypkg",)),
        "verify": VerifyReport("mypkg", (Comparison("mypkg.model:f", "native", "output 0", True, 0.0),)), "show": "def f(x): ...",
        "explain": Explanation("mypkg", (FunctionExplanation("mypkg.model:Net.forward", "decorator, mypkg/model.py:12", (
            RegionExplanation("Net.forward:r0", "mypkg/model.py", (14, 17), (VariantExplanation(5, ("x.shape[1] == 128",), "f32[B, 128]"),)),
            RegionExplanation("Net.forward:r1", "mypkg/model.py", (19, 22), (), "never reached")), (BREAK,)),)),
    }

    def answer(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls.append((name, *arguments))
            logging.getLogger("aotcompile").info("stage %s", name, extra={"done": 1, "total": 2})
            if isinstance(answers[name], BaseException):
                raise answers[name]
            return answers[name]
        return call

    fake = SimpleNamespace(**{name: answer(name) for name in answers})
    monkeypatch.setitem(sys.modules, "aotcompile.pipeline", fake)                 # type: ignore[arg-type]
    return SimpleNamespace(calls=calls, answers=answers)


def test_flags_become_options(pipeline: SimpleNamespace, write_package: Write) -> None:
    write_package({"mypkg/__init__.py": "", "pyproject.toml": "[tool.aotcompile]\ndynamic = 'none'\njobs = 9"})
    words = "build mypkg -o out --target cpu --target cuda:sm_90 --backend aot_eager --fullgraph --inference -j 3 --select a* --exclude b* --no-run"
    assert main(words.split()) == 0
    assert pipeline.calls == [("build", "mypkg", Options((), "out", ("cpu", "cuda:sm_90"), "aot_eager", True, "none", False, 3, ("a*",), ("b*",), False))]


def test_every_option_has_its_flag() -> None:
    help_text = subprocess.run([sys.executable, "-m", "aotcompile.cli", "build", "--help"], capture_output=True, text=True, check=True).stdout
    from aotcompile.options import FIELDS
    names = {"packages": "PKG", "targets": "--target", "training": "--training", "run": "--no-run", "host": "--no-host"}
    assert all(names.get(name, "--" + name) in help_text for name in FIELDS)


def test_packages_of_the_configuration(pipeline: SimpleNamespace, write_package: Write) -> None:
    write_package({"one/__init__.py": "", "two/__init__.py": "", "pyproject.toml": "[tool.aotcompile]\npackages = ['one', 'two']"})
    assert main(["check"]) == 0
    assert [Path(call[1]).name for call in pipeline.calls] == ["one", "two"]


@pytest.mark.parametrize("command, answer, code", [
    ("build mypkg", None, 0),
    ("build mypkg", BuildReport("mypkg", "generated/mypkg", (), (Diagnostic("AOT402", "error", "no."),)), 1),
    ("check mypkg", CheckReport("mypkg", (StaleFile("generated/mypkg/model.py", "mypkg/model.py has changed"),)), 1),
    ("check mypkg", None, 0),
    ("verify mypkg", None, 0),
    ("verify mypkg", VerifyReport("mypkg", ()), 1),
    ("verify mypkg", VerifyReport("mypkg", (Comparison("f", "native", "output 0", False, 0.5, "rtol"),)), 1),
    ("build mypkg", AotCompileError(Diagnostic("AOT203", "error", "break", Span("mypkg/model.py", 41, 8))), 1),
    ("build mypkg", UsageError(Diagnostic("AOT101", "error", "no package")), 2),
    ("show mypkg.model", None, 2),
    ("show mypkg.model:f", None, 0),
    ("explain mypkg", None, 0),
    ("clean mypkg", None, 0),
    ("bench mypkg", None, 1),
    ("wheel mypkg", None, 1),
    ("report mypkg", None, 1),
])
def test_exit_codes(pipeline: SimpleNamespace, write_package: Write, command: str, answer: Any, code: int) -> None:
    write_package({"mypkg/__init__.py": ""})
    if answer is not None:
        pipeline.answers[command.split()[0]] = answer
    assert main(command.split()) == code


@pytest.mark.parametrize("words", [[], ["bild"], ["build", "x", "--dynamic", "some"], ["build", "x", "--training", "--inference"], ["show", "a:b", "--stage", "c"],
                                   ["build", "x", "-j", "many"]])
def test_wrong_usage_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2 and "usage:" in capsys.readouterr().err


def test_no_package_is_2(write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write_package({})
    assert main(["build"]) == 2
    assert capsys.readouterr().err.startswith("error: AOT123 no package is named.")


def test_streams(pipeline: SimpleNamespace, write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write_package({"mypkg/__init__.py": ""})
    pipeline.answers["build"] = BuildReport("mypkg", "generated/mypkg", (FUNCTION,), (Diagnostic("AOT202", "warning", "slow.", Span("mypkg/model.py", 3), "Use f."),), 0.9)
    assert main(["build", "mypkg"]) == 0
    found = capsys.readouterr()
    assert "stage build" in found.err and "warning: AOT202 mypkg/model.py:3:1 slow. Use f." in found.err
    assert "[1/2] stage build\n" in found.err                          # no terminal: plain lines
    lines = found.out.splitlines()
    assert lines[0].split() == ["function", "regions", "variants", "breaks", "kernels", "library", "size", "time"]
    assert lines[1].split() == ["mypkg.model:Net.forward", "2", "3", "1", "4", "1", "18", "KiB", "0.4", "s"]
    assert lines[2:] == ["  AOT201 mypkg/model.py:18 print", "1 function, 2 regions, 1 break, in 0.9 s -> generated/mypkg"]
    assert main(["build", "mypkg", "-q"]) == 0
    assert "stage build" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["build", "check", "verify", "clean", "explain"])
def test_json_is_one_object_per_line(pipeline: SimpleNamespace, write_package: Write, capsys: pytest.CaptureFixture[str], command: str) -> None:
    write_package({"mypkg/__init__.py": ""})
    assert main([command, "mypkg", "--json"]) == 0
    found = capsys.readouterr()
    objects = [json.loads(line) for line in found.out.splitlines()]
    assert objects and objects[-1]["package"] == "mypkg" and found.err == ""


def test_json_diagnostics(pipeline: SimpleNamespace, write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write_package({"mypkg/__init__.py": ""})
    pipeline.answers["build"] = UsageError(Diagnostic("AOT110", "error", "bad signature.", Span("mypkg/model.py", 4, 2), "Fix it."))
    assert main(["build", "mypkg", "--json"]) == 2
    assert json.loads(capsys.readouterr().err) == {"code": "AOT110", "severity": "error", "file": "mypkg/model.py", "line": 4, "column": 3,
                                                   "message": "bad signature.", "hint": "Fix it."}


def test_explanation_in_the_order_of_the_source(pipeline: SimpleNamespace, write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write_package({"mypkg/__init__.py": ""})
    assert main(["explain", "mypkg:Net.forward"]) == 0
    assert pipeline.calls[0][1] == "mypkg" and pipeline.calls[0][3] == "Net.forward"
    assert [line.split("  ")[0] or line.strip().split("  ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "mypkg.model:Net.forward", "region", "variant", "x.shape[1] == 128", "break", "Move it out.", "region", "1 graph, 1 break, 5 operators"]


def test_stages_are_the_documented_ones(pipeline: SimpleNamespace, write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write_package({"mypkg/__init__.py": ""})
    assert STAGES == ("source", "bytecode", "regions", "graph", "aten", "ir", "schedule", "cpp", "triton", "wrapper", "guards", "plan")
    assert main(["show", "mypkg.model:f", "--stage", "ir"]) == 0
    assert pipeline.calls[0][:3] == ("show", "mypkg.model:f", "ir") and capsys.readouterr().out == "def f(x): ...\n"


def test_an_internal_error_leaves_a_reproduction(pipeline: SimpleNamespace, write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_package({"mypkg/__init__.py": "", "mypkg/model.py": "X = 1\n", "pyproject.toml": "[tool.aotcompile]\n"})
    pipeline.answers["build"] = ZeroDivisionError("inside")
    assert main(["build", "mypkg", "-j", "2"]) == 3
    assert "AOT199 internal error: ZeroDivisionError: inside" in capsys.readouterr().err
    (folder,) = root.glob("aotcompile-report-*")
    text = (folder / "report.txt").read_text()
    assert "command: aotcompile build mypkg -j 2" in text and "ZeroDivisionError: inside" in text and "torch: " in text
    assert (folder / "sources/mypkg/model.py").read_text() == "X = 1\n" and (folder / "sources/pyproject.toml").exists()
    assert main(["build", "mypkg", "-j", "2"]) == 3 and len(list(root.glob("aotcompile-report-*"))) == 1       # the same failure once


def test_show_config(write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write_package({"pyproject.toml": "[tool.aotcompile]\nout = 'here'"})
    assert main(["build", "--show-config", "--backend", "eager"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("out ") and line.endswith("# pyproject.toml") for line in lines)
    assert any(line.startswith("backend ") and line.endswith("# --backend") for line in lines)


def test_unknown_key_is_2_and_names_the_nearest(write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write_package({"mypkg/__init__.py": "", "pyproject.toml": "[tool.aotcompile]\ntarget = ['cpu']"})
    assert main(["build", "mypkg"]) == 2
    assert "AOT120 pyproject.toml:2:1 unknown key 'target' in [tool.aotcompile]. Did you mean 'targets'?" in capsys.readouterr().err


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor"])
    text = capsys.readouterr().out
    assert all(word in text for word in ("python", "torch", "cpu", "compiler", "libcst", "bytecode", "triton", "gpu"))
    assert code == (0 if "all requirements are met" in text else 1)
    assert main(["doctor", "--json"]) == code
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert objects[-1] == {"ok": code == 0} and {o["name"] for o in objects[:-1]} >= {"python", "torch", "compiler"}


def test_doctor_without_a_compiler(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["doctor"]) == 1
    assert "missing  compiler     no-such-compiler does not run" in capsys.readouterr().out


MANIFEST = {"schema": 1, "package": "mypkg", "built_with": {"torch": "2.13.0", "python": "3.11"},
            "regions": {"mypkg.model": {"f:r0": {"variants": ["_aot/model/f/r0/v0"], "lines": [3, 5]}}},
            "kernels": {"_aot/model/f/r0/v0": {"cpu-x86-64-v3": "_aot/bin/x.so"}}, "files": {"a": "1"},
            "breaks": [BREAK.as_json()], "eager": []}


def test_report(write_package: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write_package({"mypkg/__init__.py": "", "generated/mypkg/manifest.json": json.dumps(MANIFEST)})
    assert main(["report", "mypkg"]) == 0
    text = capsys.readouterr().out
    assert "mypkg.model:f:r0" in text and "break AOT201 mypkg/model.py:18 print" in text and "targets cpu-x86-64-v3" in text and "1 region, 1 break, 1 file" in text
    write_package({"generated/mypkg/manifest.json": "{"})
    assert main(["report", "mypkg"]) == 1 and "AOT192" in capsys.readouterr().err


def test_version_and_module() -> None:
    for words in (["-m", "aotcompile.cli"], ["-m", "aotcompile.cli.main"]):
        done = subprocess.run([sys.executable, *words, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("aotcompile ")


def test_the_command_line_is_light() -> None:
    """``aotcompile --help`` answers without importing torch."""
    code = "import sys; import aotcompile.cli.main as m; m.build_parser(); print([x for x in ('torch', 'libcst', 'bytecode', 'triton') if x in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
