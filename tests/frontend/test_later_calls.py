"""State that the first call makes: a build also looks at the situation of the calls after it."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import aotcompile
from aotcompile.frontend.record.recorder import RecordingStub

pytestmark = pytest.mark.filterwarnings("ignore")
TABLE: dict[int, torch.Tensor] = {}


class Lazy(nn.Module):
    """Makes a buffer at its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.positions is None:
            self.positions = torch.arange(float(x.shape[-1])) * 2
        return x + self.positions


class Counting(nn.Module):
    """Changes at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.seen = 0, {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        size = x.shape[0]
        if size not in self.seen:
            self.seen[size] = torch.full((size,), 0.5)
        return x * self.seen[size] + self.calls


def from_a_table(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] not in TABLE:
        TABLE[x.shape[0]] = torch.arange(float(x.shape[0])).cos()
    return x * TABLE[x.shape[0]]


@pytest.mark.parametrize("make", [Lazy, Counting])
def test_calls_after_the_first_are_compiled_too(make: Any) -> None:
    x = torch.randn(3)
    module, plain = make(), make()
    made = aotcompile.compile(module, example_inputs=((x,), {}), backend="eager")
    assert not vars(module).get("seen") and vars(module).get("positions") is None, "the build leaves no trace"
    for _ in range(4):
        torch.testing.assert_close(made(x), plain(x))
    [region] = aotcompile.info(made).report().regions
    assert (region.hits, region.misses) == (4, 0)


def test_a_table_of_the_module_is_filled_by_the_first_call() -> None:
    x = torch.randn(3)
    made = aotcompile.compile(from_a_table, example_inputs=((x,), {}), backend="eager")
    assert not TABLE
    for _ in range(3):
        torch.testing.assert_close(made(x), x * torch.arange(3.0).cos())
    [region] = aotcompile.info(made).report().regions
    assert (region.hits, region.misses) == (3, 0) and list(TABLE) == [3]
    TABLE.clear()


def test_a_table_of_a_closure_is_filled_by_the_first_call() -> None:
    def make() -> Any:
        table: dict[str, torch.Tensor] = {}

        def function(x: torch.Tensor) -> torch.Tensor:
            if "mean" not in table:
                table["mean"] = x.mean() * 2
            return x + table["mean"]
        return function

    function = make()
    made = aotcompile.compile(function, example_inputs=((torch.ones(3),), {}), backend="eager")
    for value in (1.0, 2.0):
        torch.testing.assert_close(made(torch.full((3,), value)), torch.full((3,), value + 2.0))
    [region] = aotcompile.info(made).report().regions
    assert (region.hits, region.misses) == (2, 0)


def test_a_list_given_is_no_state() -> None:
    """What an argument holds is the caller's: the next call gives another."""
    def append(x: torch.Tensor, found: list[torch.Tensor]) -> torch.Tensor:
        found.append(x * 2)
        return x + len(found)

    x = torch.randn(3)
    made = aotcompile.compile(append, example_inputs=((x, []), {}), backend="eager")
    found: list[torch.Tensor] = []
    torch.testing.assert_close([made(x, found), made(x, found)], [x + 1, x + 2])
    [region] = aotcompile.info(made).report().regions
    assert region.hits == 1 and len(found) == 2


class Flag:
    up = False
    depth: int | None = None


FLAG = Flag()
FLAG.up, FLAG.depth = False, None


def with_a_flag(x: torch.Tensor, leave_up: bool) -> torch.Tensor:
    FLAG.up, FLAG.depth = True, x.ndim
    y = x * 2 if FLAG.up else x
    FLAG.up, FLAG.depth = leave_up, None
    return y


@pytest.mark.parametrize("leave_up", [False, True])
def test_what_is_put_back_is_no_other_situation(leave_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No second capture then: models set flags while they run."""
    runs = []
    capture = RecordingStub.capture
    monkeypatch.setattr(RecordingStub, "capture", lambda stub, arguments: runs.append(capture(stub, arguments)) or runs[-1])
    made = aotcompile.compile(with_a_flag, example_inputs=((torch.ones(3), leave_up), {}), backend="eager", training=False)
    [found] = [captured for captured in runs if captured is not None][:1]
    assert bool(found.changed) == leave_up
    for _ in range(2):
        FLAG.up = False
        assert torch.equal(made(torch.ones(3), leave_up), torch.full((3,), 2.0)) and (FLAG.up, FLAG.depth) == (leave_up, None)
    FLAG.up = False


class Total:
    """Counted in one region, read in another."""

    calls = 0


def counts_then_reads(x: torch.Tensor) -> torch.Tensor:
    Total.calls += 1
    y = x * 2
    print("between")
    return y + Total.calls


def test_a_counter_of_another_region_is_an_input(capsys: pytest.CaptureFixture[str]) -> None:
    Total.calls = 0
    made = aotcompile.compile(counts_then_reads, example_inputs=((torch.ones(2),), {}), backend="eager")
    for expected in (3, 4, 5, 6):
        assert made(torch.ones(2)).tolist() == [expected, expected]
    assert [(region.hits, region.misses) for region in aotcompile.info(made).report().regions] == [(4, 0), (4, 0)]


class Stepper:
    """No module: its methods and itself are called."""

    def __init__(self) -> None:
        self.step, self.log = 0, []

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        self.log.append(self.step)
        return x + self.step

    def alternating(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return x.sin() if self.step % 2 else x.cos()


@pytest.mark.parametrize("name", ["__call__", "alternating"])
def test_state_of_the_object_that_is_called(name: str) -> None:
    def target(stepper: Stepper) -> Any:
        return stepper if name == "__call__" else getattr(stepper, name)

    x, eager, mine = torch.ones(2), Stepper(), Stepper()
    compiled = aotcompile.compile(target(mine), example_inputs=((x,), {}), backend="eager")
    assert mine.step == 0
    for _ in range(6):
        assert torch.equal(compiled(x), target(eager)(x))
    assert (mine.step, mine.log) == (eager.step, eager.log)
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (6, 0)
