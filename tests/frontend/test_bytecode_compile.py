"""Functions without source, through the whole frontend and back: captured, written, loaded, and run by what was captured."""
from __future__ import annotations

import importlib.util
import py_compile
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import aotcompile

log: list[Any] = []


def outside(x: Any) -> Any:
    log.append(float(x.detach().sum()))
    return x


def made(text: str, **more: Any) -> types.FunctionType:
    """The function ``f`` that ``text`` defines, without source."""
    space: dict[str, Any] = {"torch": torch, "outside": torch.compiler.disable(outside), "log": log, **more}
    exec(text, space)
    function = space["f"]
    assert isinstance(function, types.FunctionType)
    return function


def compiled(function: Any, *arguments: Any, hits: int, **options: Any) -> Any:
    """Builds for the arguments, compares a call with the original's (and what it logs), and counts the regions that ran compiled."""
    built = aotcompile.compile(function, example_inputs=(arguments, {}), backend="eager", **options)
    for scale in (1.0, -2.0):
        given = [a * scale if isinstance(a, torch.Tensor) else a for a in arguments]
        log.clear()
        expected, logged = function(*given), list(log)
        log.clear()
        torch.testing.assert_close(built(*given), expected)
        assert log == logged
    report = aotcompile.info(built).report()
    assert sum(1 for region in report.regions if region.hits) == hits, report
    return built


X = torch.tensor([1.0, -2.0, 3.0])

PROGRAMS = {
    "whole": ("def f(x, k=3):\n    y = x * k\n    return torch.relu(y) + y.sum()\n", (X,), 1),
    "a break between": ("def f(x):\n    y = torch.relu(x) * 2\n    z = outside(y)\n    return torch.tanh(z) + y\n", (X,), 2),
    "a break inside an expression": ("def f(x):\n    return torch.relu(x) + outside(x * 2) * float(x.sum().item()) + x\n", (X,), 3),
    "a call that reads a value": ("def f(x):\n    return torch.add(torch.sin(x), torch.cos(x), alpha=float(x.sum().item()))\n", (X,), 2),
    "branches": ("def f(x):\n    y = x + 1\n    if y.sum() > 0:\n        y = y * 2\n    else:\n        y = y - 5\n    return (y.relu() + y) * 2\n", (X,), 4),
    "a loop with a break inside": ("def f(x):\n    for i in range(3):\n        x = x * 2 + i\n        outside(x)\n    return x - 1\n", (X,), 2),
    "a try around a break": (
        "def f(x):\n    y = x.exp()\n    try:\n        outside(y)\n        [][1]\n    except IndexError as e:\n        log.append(str(e))\n    return y + 1\n",
        (X,), 2),
    "a with around a break": ("def f(x):\n    with torch.no_grad():\n        y = x.exp() + 1\n        outside(y)\n    return y * 2\n", (X,), 2),
    "a comprehension over a local": ("def f(x, k):\n    y = x * k\n    outside(y)\n    return sum([y * i + k for i in range(3)])\n", (X, 2), 2),
    "stars": ("def f(x, *more, s=2, **named):\n    y = x * s + sum(more)\n    outside(y)\n    return {'y': y - 1, 'n': len(more)}\n", (X, X + 1, X + 2), 2),
    "a print": ("def f(x):\n    y = x.relu()\n    print('sum', y.sum().item())\n    return y + 1\n", (X,), 2),
    "a loop that runs until a value": ("def f(x):\n    while x.sum() < 20:\n        x = x * x + 1\n    return x.sqrt()\n", (X,), 3),
    "in-place and containers": ("def f(x):\n    out = []\n    y = x.clone()\n    out.append(y.mul_(2))\n    outside(y)\n    out.append(y + 1)\n    return out\n", (X,), 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    text, arguments, hits = PROGRAMS[name]
    compiled(made(text), *arguments, hits=hits)


def test_lambda_and_closure() -> None:
    compiled(lambda x: torch.sin(x) * 2, X, hits=1)
    scale = torch.tensor(3.0)
    compiled(lambda x, k=2: torch.sin(x) * scale + k, X, hits=1)


def test_a_callee_with_a_break_is_split_too() -> None:
    space = made("def f(x):\n    return g(x * 2) + 1\n").__globals__
    exec("def g(x):\n    y = x.relu()\n    outside(y)\n    return y * 3\n", space)
    built = compiled(space["f"], X, hits=4)
    names = {region.name for region in aotcompile.info(built).report().regions}
    assert {"f:r0", "g:r0", "g:r1"} <= names


def test_methods_and_super() -> None:
    space: dict[str, Any] = {"torch": torch, "outside": torch.compiler.disable(outside)}
    exec("class A(torch.nn.Module):\n    def forward(self, x):\n        return self.w * x\n"
         "class B(A):\n    def __init__(self):\n        super().__init__()\n        self.w = torch.nn.Parameter(torch.ones(3))\n"
         "    def forward(self, x):\n        y = super().forward(x)\n        outside(y)\n        return super().forward(y) + 1\n", space)
    module = space["B"]()
    built = aotcompile.compile(module, example_inputs=((X,), {}), backend="eager")
    torch.testing.assert_close(built(X), module(X))
    assert sum(1 for region in aotcompile.info(built).report().regions if region.hits) == 2


def test_the_files(tmp_path: Path) -> None:
    function = made(PROGRAMS["a break between"][0])
    built = aotcompile.compile(function, example_inputs=((X,), {}), backend="eager", out=str(tmp_path))
    text = next(tmp_path.rglob("bytecode.py")).read_text()
    assert "# _r0_eager(x)" in text and "LOAD_GLOBAL" in text and "CODES = {" in text
    assert not list(tmp_path.rglob("source.py"))
    first = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    aotcompile.compile(function, example_inputs=((X,), {}), backend="eager", out=str(tmp_path))
    assert first == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (found,) = aotcompile.info(built).breaks
    assert (found.code, found.line) == ("AOT207", 3)


def test_a_module_shipped_as_pyc(tmp_path: Path) -> None:
    source = tmp_path / "shipped.py"
    source.write_text("import torch\ndef f(x):\n    y = torch.relu(x)\n    print(y.sum().item())\n    return y + 1\n")
    py_compile.compile(str(source), cfile=str(tmp_path / "shipped.pyc"))
    source.unlink()
    specification = importlib.util.spec_from_file_location("shipped", tmp_path / "shipped.pyc")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    compiled(module.f, X, hits=2)


def test_a_generator_without_source_stays_eager() -> None:
    function = made("def f(x):\n    yield x + 1\n")
    built = aotcompile.compile(function, example_inputs=((X,), {}), backend="eager")
    torch.testing.assert_close(list(built(X)), list(function(X)))
