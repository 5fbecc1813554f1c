"""Both sides of branches on data: how many runs they cost, and which tests are looked at."""
from __future__ import annotations

import ast
import random
from typing import Any

import pytest
import torch

import aotcompile
from aotcompile.frontend.record.branches import Branches
from aotcompile.frontend.record.data_tests import ARGUMENTS, OUTSIDE, DataTests
from aotcompile.frontend.record.recorder import Recording

pytestmark = pytest.mark.filterwarnings("ignore")


def compiled(function: Any, *arguments: Any) -> Any:
    return aotcompile.compile(function, example_inputs=(arguments, {}), backend="eager")


def hits_and_misses(function: Any) -> tuple[int, int]:
    regions = aotcompile.info(function).report().regions
    return sum(r.hits for r in regions), sum(r.misses + r.calls * r.eager for r in regions)


class Clamped(torch.nn.Module):
    """What many models do in training after each of their parts."""

    def __init__(self) -> None:
        super().__init__()
        self.verbose = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.isfinite(x[0]).all():
            x = torch.clamp(x, -1, 1)
        if not torch.isfinite(x[1]).all():
            x = torch.clamp(x, -2, 2)
        if not torch.isfinite(x[2]).all():
            x = torch.clamp(x, -3, 3)
        if not torch.isfinite(x[3]).all():
            x = torch.clamp(x, -4, 4)
        if not torch.isfinite(x[4]).all():
            x = torch.clamp(x, -5, 5)
        if self.verbose:
            print(x.undefined)
        return x + 1


def test_runs_grow_with_the_number_of_branches(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Five branches: a run and five others with one side changed, not 2 ** 5."""
    log = tmp_path / "ends"
    log.touch()
    finish = Branches.finish

    def counted(self: Branches) -> None:
        with log.open("a") as file:
            file.write("end\n")
        finish(self)

    monkeypatch.setattr(Branches, "finish", counted)
    rounds: list[int] = []
    analyzed = Recording.__init__

    def started(self: Recording, *arguments: Any, **keywords: Any) -> None:
        rounds.append(log.read_text().count("end"))
        analyzed(self, *arguments, **keywords)

    monkeypatch.setattr(Recording, "__init__", started)
    made = compiled(Clamped(), torch.randn(5, 3))
    ends = [*rounds, log.read_text().count("end")]
    assert max(b - a for a, b in zip(ends, ends[1:])) == 6
    for row in (None, 0, 2, 4):
        x = torch.randn(5, 3)
        if row is not None:
            x[row] = float("inf")
        torch.testing.assert_close(made(x), Clamped()(x))
    assert hits_and_misses(made)[1] == 0
    assert not [b for b in aotcompile.info(made).breaks if b.code == "AOT206"]      # the side that prints is never taken


def numbers(x: torch.Tensor) -> torch.Tensor:
    if random.random() < 2:
        x = x * 3
    first = x.tolist()[0]
    if first > 0:
        return x.sin()
    return x.cos()


def test_number_computed_outside() -> None:
    made = compiled(numbers, torch.ones(3))
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(made(x), numbers(x))
    assert hits_and_misses(made) == (4, 0)


def counted_down(x: torch.Tensor, steps: int) -> torch.Tensor:
    while steps > 0:
        x = torch.sin(x)
        print(end="")
        steps -= 1
    return x


def test_loop_over_a_counter_is_run_as_it_is() -> None:
    made = compiled(counted_down, torch.ones(3), 3)
    torch.testing.assert_close(made(torch.ones(3), 3), counted_down(torch.ones(3), 3))
    assert hits_and_misses(made)[1] == 0


@pytest.mark.parametrize(("test", "origins"), [
    ("flag", set()),
    ("self.training and not mask_given", set()),
    ("outside > 3", {OUTSIDE}),
    ("outside is not None", set()),
    ("isinstance(outside, int)", set()),
    ("number > limit", {(0, 1)}),
    ("derived", {(0, 1)}),
    ("from_outside", {(1, 0), (1, ARGUMENTS)}),
    ("torch.equal(x, x)", {OUTSIDE}),
    ("_call_0(self.check)(x)", set()),
    ("self.options.get('debug')", set()),
    ("setting", set()),
    ("(walrus := outside) and flag", {OUTSIDE}),
])
def test_origins(test: str, origins: set[tuple[int, int]]) -> None:
    text = f"""
def f(self, x, flag, limit, kind):
    mask_given = kind is None
    y, number = _r0(x)
    derived = number + limit
    outside = x.tolist()
    setting = self.options.get("debug")
    from_outside = _r1(outside)
    if {test}:
        print()
"""
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    branch = function.body[-1]
    assert isinstance(branch, ast.If)
    assert DataTests(function).origins(branch.test) == origins


def mask_or_nothing(x: torch.Tensor) -> torch.Tensor | None:
    """What libraries do around a mask that lets everything through: dropped in eager, kept where the graph must fit other masks too."""
    if torch.compiler.is_compiling():
        return torch.ones_like(x)
    return None


def masked(x: torch.Tensor) -> torch.Tensor:
    x = x * 2
    mask = mask_or_nothing(x)
    print(end="")
    return x.sin() if mask is None else x.sin() * mask


def test_what_follows_a_region_is_built_for_what_the_compiled_region_gives() -> None:
    made = compiled(masked, torch.ones(3))
    torch.testing.assert_close(made(torch.ones(3)), masked(torch.ones(3)))
    assert hits_and_misses(made) == (2, 0)


def countdown(x: torch.Tensor, count: int) -> torch.Tensor:
    y = x.sin() + count
    print(end="")
    return countdown(y, count - 1) * 2 if count else y.cos()


def test_a_function_with_a_break_that_calls_itself() -> None:
    made = compiled(countdown, torch.ones(2), 3)
    torch.testing.assert_close(made(torch.ones(2), 3), countdown(torch.ones(2), 3))
    hits, misses = hits_and_misses(made)
    assert hits >= 8 and not misses

    def inner(x: torch.Tensor, count: int) -> torch.Tensor:
        y = x.sin() + count
        print(end="")
        return inner(y, count - 1) * 2 if count else y.cos()

    made = compiled(inner, torch.ones(2), 3)
    torch.testing.assert_close(made(torch.ones(2), 3), inner(torch.ones(2), 3))


def raising(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print(end="")
    if x.shape[0] > 1:
        raise ValueError("too long")
    return y.cos()


def checked(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.sum() > 100:
        raise ValueError("too large")
    return y.cos()


def test_an_example_that_raises_is_told(recwarn: Any) -> None:
    explanation = aotcompile.explain(raising, example_inputs=((torch.ones(2),), {}))
    note, = [note for function in explanation.functions for note in function.notes if note.code == "AOT218"]
    assert "ValueError: too long" in note.message and note.span is not None and note.span.line == raising.__code__.co_firstlineno + 4
    explanation = aotcompile.explain(checked, example_inputs=((torch.ones(2),), {}))                 # only the other side raises
    assert not [note for function in explanation.functions for note in function.notes if note.code == "AOT218"]


def loops(x: torch.Tensor) -> torch.Tensor:
    for k in range(4):
        print(end="")
        if k == 1:
            continue
        x = x * 2 + k
    return x


def test_a_situation_without_tensor_operations_is_no_miss() -> None:
    made = compiled(loops, torch.ones(2))
    torch.testing.assert_close(made(torch.ones(2)), loops(torch.ones(2)))
    assert [(region.hits, region.misses) for region in aotcompile.info(made).report().regions] == [(4, 0)]
