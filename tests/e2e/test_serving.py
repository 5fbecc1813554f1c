"""The examples built, then used in a fresh process that has no compiler: results, gradients, printed text and state are eager's, and all of it ran
compiled."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from e2e_packages import Built

HERE = Path(__file__).resolve().parent
PROGRAMS = {"gpt": "gpt", "gpt_training": "gpt", "vision": "vision", "vision_training": "vision", "signal": "signal"}
# Regions that a program's inputs do not reach.
NOT_REACHED = {
    "gpt_training": {"minigpt.sampling:sample:r0", "minigpt.sampling:sample:r1"},
    "vision_training": {"digits.model:DigitNet.forward:r1"},     # the early exit is for evaluation only
}

pytestmark = pytest.mark.slow


def serve(program: str, form: str, folder: Path, output: Path, *, user: int | None = None,
          **environment: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """(results, facts, stderr) of a serving process; ``user``: the number of the user it runs as (needs root)."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **environment}
    variables.pop("PYTHONPATH", None)
    done = subprocess.run([sys.executable, str(HERE / "serving.py"), program, form, str(folder), str(output)], capture_output=True, text=True, env=variables,
                          timeout=300, cwd=output.parent, user=user)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.rpartition("FACTS ")[2])
    return torch.load(output, weights_only=False), facts, done.stderr


def differences(expected: Any, found: Any, place: str = "") -> list[str]:
    """Where two results differ: values within the tolerance of the dtype, everything else exactly."""
    if type(expected) is not type(found):
        return [f"{place}: {type(expected).__name__} and {type(found).__name__}"]
    if isinstance(expected, torch.Tensor):
        facts = [(t.shape, t.dtype, t.stride(), t.requires_grad) for t in (expected, found)]
        if facts[0] != facts[1]:
            return [f"{place}: {facts[0]} and {facts[1]}"]
        try:
            torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-4, atol=2e-5)
        except AssertionError as error:
            return [f"{place}: {error}"]
        return []
    if isinstance(expected, dict):
        if list(expected) != list(found):
            return [f"{place}: keys {list(expected)} and {list(found)}"]
        return [text for key in expected for text in differences(expected[key], found[key], f"{place}[{key!r}]")]
    if isinstance(expected, (list, tuple)):
        if len(expected) != len(found):
            return [f"{place}: {len(expected)} and {len(found)} items"]
        return [text for index, pair in enumerate(zip(expected, found)) for text in differences(*pair, f"{place}[{index}]")]
    if isinstance(expected, float):
        return [] if expected == pytest.approx(found, rel=1e-4, abs=1e-5) else [f"{place}: {expected} and {found}"]
    return [] if expected == found else [f"{place}: {expected!r} and {found!r}"]


_eager: dict[str, dict[str, Any]] = {}


def eager(program: str, folder: Path, output: Path) -> dict[str, Any]:
    if program not in _eager:
        _eager[program] = serve(program, "eager", folder, output)[0]
    return _eager[program]


def check_facts(facts: dict[str, Any], program: str, native: bool = True) -> None:
    assert facts["unwanted"] == [] and facts["refusals"] == []
    assert facts["native"] is native
    unreached = NOT_REACHED.get(program, set())
    for name, (calls, hits, misses, is_eager, last_miss) in facts["regions"].items():
        if name in unreached:
            assert calls == 0
        else:
            assert hits == calls > 0 and misses == 0 and not is_eager, (name, calls, hits, misses, last_miss)
    assert facts["regions"]


@pytest.mark.parametrize("form", ["import", "load", "install"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_results_without_a_compiler(program: str, form: str, built: Callable[[str], Built], tmp_path: Path) -> None:
    folder = built(PROGRAMS[program]).folder
    expected = eager(program, folder, tmp_path / "eager.pt")
    results, facts, warnings = serve(program, form, folder, tmp_path / "compiled.pt")
    assert differences(expected, results) == []
    check_facts(facts, program)
    assert "Warning" not in warnings


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_python_wrapper_gives_the_same(program: str, built: Callable[[str], Built], tmp_path: Path) -> None:
    folder = built(PROGRAMS[program]).folder
    expected = eager(program, folder, tmp_path / "eager.pt")
    results, facts, _ = serve(program, "install", folder, tmp_path / "compiled.pt", AOTCOMPILE_NATIVE="0")
    assert differences(expected, results) == []
    check_facts(facts, program, native=False)


@pytest.mark.parametrize("name", ["gpt", "vision", "signal"])
def test_run_prints_the_same_eager_and_generated(name: str, built: Callable[[str], Built]) -> None:
    """The examples' own script, with the optimizers of torch.optim and the logging of `forward`."""
    folder = built(name).folder
    words = {"gpt": ["--steps", "2", "--letters", "40"], "vision": ["--steps", "2", "-v"], "signal": []}[name]
    texts = []
    for more in ([], ["--generated"]):
        variables = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "run.py", *words, *more], cwd=folder, capture_output=True, text=True, env=variables, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "AOT7" not in done.stderr, done.stderr
        texts.append(done.stdout)
    assert texts[0] == texts[1] and texts[0].strip()


def test_the_table_of_the_build(built: Callable[[str], Built]) -> None:
    text = built("vision").output
    assert "digits.model:DigitNet.forward" in text and "AOT203 digits/model.py:48" in text and "AOT202 digits/model.py:51" in text
    assert "_contextlib" not in built("gpt").output
