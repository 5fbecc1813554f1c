"""Variables of functions around that functions called by a region bind (``nonlocal``)."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import aotcompile


def counting() -> tuple[Callable[..., Any], Callable[..., Any], Callable[[], Any]]:
    count, seen = 0, []

    def increase(by: int = 1) -> int:
        nonlocal count
        count += by
        seen.append(count)
        return count

    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * increase() + increase(3)

    def reading(x: torch.Tensor) -> torch.Tensor:
        y = x * increase()
        return y + count

    return twice, reading, lambda: (count, list(seen))


def results(function: Callable[..., Any], state: Callable[[], Any], x: torch.Tensor) -> list[Any]:
    return [(function(x).tolist(), state()) for _ in range(3)]


def test_a_counter_of_the_function_around_is_an_effect() -> None:
    x = torch.tensor([1.0, 2.0])
    twice, _, state = counting()
    compiled = aotcompile.compile(twice, example_inputs=((x,), {}), backend="eager")
    assert state() == (0, []), "the build leaves no trace"
    expected, _, expected_state = counting()
    assert results(compiled, state, x) == results(expected, expected_state, x)
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (3, 0) and not aotcompile.info(compiled).breaks


def test_a_variable_that_the_region_was_given_is_read_again_after_the_call() -> None:
    x = torch.tensor([1.0, 2.0])
    _, reading, state = counting()
    compiled = aotcompile.compile(reading, example_inputs=((x,), {}), backend="eager")
    _, expected, expected_state = counting()
    assert results(compiled, state, x) == results(expected, expected_state, x)
    assert sum(region.hits for region in aotcompile.info(compiled).report().regions) >= 3
