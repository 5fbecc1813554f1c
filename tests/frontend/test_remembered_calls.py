"""``functools.lru_cache`` on methods of objects that are made in the region."""
from __future__ import annotations

import functools
from typing import Any

import torch

import aotcompile


class Tally:
    def __init__(self, total: int) -> None:
        self.total = total

    @functools.lru_cache                                          # noqa: B019
    def add(self, number: float, times: int = 1) -> float:
        self.total += number * times
        return self.total

    @functools.lru_cache(maxsize=1)                               # noqa: B019
    def add_forgetting(self, number: int) -> int:
        self.total += number
        return self.total


def tallied(x: torch.Tensor) -> tuple[Any, ...]:
    tally, other = Tally(4), Tally(1)
    seen = [tally.add(3), tally.add(3), tally.add(4), tally.add(3, times=2), tally.add(3, times=2), tally.add(3.0), tally.add(True), tally.add(1)]
    other.add(3)
    return x + tally.total, seen, other.total


def forgetting(x: torch.Tensor) -> tuple[Any, ...]:
    tally = Tally(4)
    seen = [tally.add_forgetting(1), tally.add_forgetting(2), tally.add_forgetting(1)]
    return x + tally.total, seen


def test_each_call_has_its_effects_once() -> None:
    x = torch.ones(2)
    compiled = aotcompile.compile(tallied, example_inputs=((x,), {}), backend="eager")
    for _ in range(2):
        found, expected = compiled(x), tallied(x)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (2, 0)


def test_a_small_cache_forgets() -> None:
    x = torch.ones(2)
    compiled = aotcompile.compile(forgetting, example_inputs=((x,), {}), backend="eager")
    for _ in range(2):
        found, expected = compiled(x), forgetting(x)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
