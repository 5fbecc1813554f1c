"""``functools.lru_cache`` on methods of objects that are made in the region."""
from __future__ import annotations

import dataclasses
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


class Recipe:
    def __init__(self, pattern: str) -> None:
        self.order = [pattern.index(name) for name in sorted(pattern)]


@functools.lru_cache(16)
def recipe_of(pattern: str) -> Recipe:
    return Recipe(pattern)


@functools.lru_cache(16)
def steps_of(recipe: Recipe, shape: tuple[int, ...], names: tuple[tuple[str, int], ...]) -> list[int]:
    return [shape[position] * dict(names).get("scale", 1) for position in recipe.order]


@dataclasses.dataclass(frozen=True)
class Setting:
    width: int
    name: str = ""


@functools.lru_cache
def width_of(setting: Setting) -> int:
    return setting.width + len(setting.name)


def by_tuples_and_equal_objects(x: torch.Tensor) -> tuple[Any, ...]:
    """As einops does it: objects made at the first call, and tuples of sizes and names; settings that are equal."""
    recipe = recipe_of("cab")
    first, again = steps_of(recipe, tuple(x.shape), (("scale", 2),)), steps_of(recipe, tuple(x.shape), (("scale", 2),))
    other = steps_of(recipe, tuple(x.shape), (("scale", 3),))
    return x * sum(first) + width_of(Setting(3)) * width_of(Setting(3)) + width_of(Setting(1, "w")), first is again, first is other, sum(other)


def test_tuples_and_equal_objects_are_keys() -> None:
    x = torch.arange(6.0).reshape(1, 2, 3)
    recipe_of.cache_clear()
    expected = by_tuples_and_equal_objects(x)
    recipe_of.cache_clear()
    built = aotcompile.compile(by_tuples_and_equal_objects, example_inputs=((x,), {}))
    torch.testing.assert_close(built(x), expected)
    assert not aotcompile.info(built).breaks
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 1


@functools.cache
def positions(count: int) -> torch.Tensor:
    return torch.arange(float(count))


@functools.cache
def settings(name: str) -> dict[str, Any]:
    return {"name": name, "values": [1, 2]}


def shifted(x: torch.Tensor) -> torch.Tensor:
    return x * positions(3) + len(settings("a")["values"])


def changing(x: torch.Tensor) -> tuple[Any, ...]:
    table = positions(3)
    table.add_(1)
    y = table * x
    print("between", settings("a")["name"])
    settings("a")["values"].append(y.sum())
    return y + positions(3), len(settings("a")["values"]), positions(3) is table


def test_a_remembered_result_is_one_object_for_all_calls() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    positions.cache_clear()
    settings.cache_clear()
    compiled = [aotcompile.compile(function, example_inputs=((x,), {}), backend="eager") for function in (shifted, changing)]
    assert positions.cache_info().currsize == settings.cache_info().currsize == 0, "the build remembers nothing"

    def results(first: Any, second: Any) -> str:
        positions.cache_clear()
        settings.cache_clear()
        return repr([first(x), second(x), second(x), positions(3), settings("a")["values"]])

    assert results(*compiled) == results(shifted, changing)
    assert aotcompile.info(compiled[0]).report().regions[0].hits == 1
    assert [each.code for each in aotcompile.info(compiled[1]).breaks] == ["AOT201"]
