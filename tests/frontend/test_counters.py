"""Which attributes and globals are counted, and so are inputs of a region instead of facts."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import aotcompile
from aotcompile.frontend.capture.counters import counted, counts_item

pytestmark = pytest.mark.filterwarnings("ignore")
TOTAL = 0


def added(self: Any) -> None:
    self.calls += 1


def written_out(self: Any, x: Any) -> None:
    self.calls = min(self.calls + x.shape[0], self.limit)


def by_way_of_locals(self: Any, x: Any) -> None:
    start = self.position
    end, self.last = start + x.shape[0], x
    self.position = end


def corrected(self: Any, x: Any) -> int:
    if min(x.shape) < self.window:
        self.window = min(x.shape)
        self.shift = 0
    return int(self.window)


def overwritten(self: Any, x: Any) -> Any:
    before = self.length
    self.length = x.shape[0]
    return before


def of_another_name(self: Any) -> None:
    self.after = self.before + 1


def of_a_global(x: Any) -> None:
    global TOTAL
    TOTAL = TOTAL + len(x)


@pytest.mark.parametrize(("function", "names"), [
    (added, {("attribute", "calls")}), (written_out, {("attribute", "calls")}), (by_way_of_locals, {("attribute", "position")}), (corrected, set()),
    (overwritten, set()), (of_another_name, set()), (of_a_global, {("global", "TOTAL")}),
])
def test_counted(function: Any, names: set[tuple[str, str]]) -> None:
    assert counted(function.__code__) == names


class Windows(torch.nn.Module):
    """A setting that the first call corrects, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.window, self.calls = 4, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if min(x.shape) <= self.window:
            self.window = min(x.shape)
        self.calls += 1
        return x.reshape(-1, self.window).sin() * self.calls


def test_a_corrected_setting_is_no_input(tmp_path: Path) -> None:
    made, plain = Windows(), Windows()
    compiled = aotcompile.compile(made, example_inputs=((torch.ones(8, 8),), {}), backend="eager", out=str(tmp_path))
    plans = [json.loads(path.read_text()) for path in tmp_path.rglob("plan.json")]
    assert plans
    assert [[item["path"][1] for item in plan["inputs"] if item["kind"] == "number"] for plan in plans] == [[[["attribute", "calls"]]]] * len(plans)
    for _ in range(3):
        x = torch.randn(8, 8)
        torch.testing.assert_close(compiled(x), plain(x))
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (3, 0)


def items_added(state: Any) -> None:
    state["n"] += 1


def items_by_way_of_locals(state: Any) -> None:
    number = state["n"]
    number = number + 1
    state["n"] = number


def items_corrected(windows: Any, shifts: Any, masks: Any) -> None:
    shifts = shifts.copy()
    if windows[0] > 3:
        shifts[0] = 0
    for rows in masks:
        masks[rows[0]:rows[1]] = windows


def items_of_another_key(state: Any, x: Any) -> None:
    state["n"] = x.shape[0] + state["m"]


@pytest.mark.parametrize(("function", "keys", "others"), [
    (items_added, ["n"], []), (items_by_way_of_locals, ["n"], []), (items_corrected, [], [0, 1]), (items_of_another_key, [], ["n", "m", 0]),
])
def test_counted_items(function: Any, keys: list[Any], others: list[Any]) -> None:
    assert all(counts_item(function.__code__, key) for key in keys)
    assert not any(counts_item(function.__code__, key) for key in others)
