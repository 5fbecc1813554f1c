"""``id()`` to tell objects apart, deep copies that remember what they have copied, and messages of operators: all inside a region."""
from __future__ import annotations

import collections
import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import aotcompile


def different_parameters(x: torch.Tensor, module: nn.Sequential) -> Any:
    seen, kept, depths = set(), [], {}
    for parameter in [p for child in module for p in child.parameters()]:
        if id(parameter) in seen:
            continue
        seen.add(id(parameter))
        kept.append(parameter)

    def walk(child: nn.Module, depth: int) -> int:
        if id(child) in depths:
            return 0
        depths[id(child)] = depth
        return 1 + sum(walk(each, depth + 1) for each in child.children())
    count = walk(module, 0)
    return module(x) * len(kept) + count, list(depths.values()), id(x) == id(x), id(module[0]) != id(module[1]), isinstance(id(x), int)


def test_objects_are_told_apart() -> None:
    module, x = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), torch.ones(1, 2)
    module[1].weight = module[0].weight
    compiled = aotcompile.compile(different_parameters, example_inputs=((x, module), {}), backend="eager", training=False)
    with torch.no_grad():
        found, expected = compiled(x, module), different_parameters(x, module)
        torch.testing.assert_close(found, expected)
        [region] = aotcompile.info(compiled).report().regions
        assert (region.hits, region.misses) == (1, 0) and not aotcompile.info(compiled).breaks
        module[1].weight = nn.Parameter(torch.ones(2, 2))                # now there is one more
        torch.testing.assert_close(compiled(x, module), different_parameters(x, module))
        assert aotcompile.info(compiled).report().regions[0].misses == 1


def looked_at(x: torch.Tensor) -> Any:
    y = x * 2
    return y + (id(y) % 2 in (0, 1)), f"{id(y)}".isdigit()


def kept_outside(x: torch.Tensor, seen: set[int], owner: Any) -> Any:
    fresh = id(owner) not in seen
    seen.add(id(owner))
    return x * 2 + fresh


def test_digits_are_looked_at_outside() -> None:
    x = torch.ones(2)
    compiled = aotcompile.compile(looked_at, example_inputs=((x,), {}), backend="eager")
    found, expected = compiled(x), looked_at(x)
    assert torch.equal(found[0], expected[0]) and found[1] is expected[1]
    seen: set[int] = set()
    owner = nn.Identity()
    kept = aotcompile.compile(kept_outside, example_inputs=((x, seen, owner), {}), backend="eager")
    assert kept(x, seen, owner).tolist() == [3, 3] and kept(x, seen, owner).tolist() == [2, 2] and seen == {id(owner)}


class Node:
    def __init__(self, value: torch.Tensor) -> None:
        self.value, self.parts, self.me = value, [value, {"value": value}], self

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        made = Node.__new__(Node)
        memo[id(self)] = made
        made.value, made.parts, made.me = (copy.deepcopy(each, memo) for each in (self.value, self.parts, self.me))
        return made


class Pair(NamedTuple):
    left: Any
    right: Any


def deeply_copied(x: torch.Tensor) -> Any:
    node = Node(x)
    made = copy.deepcopy(node)
    made.value.add_(1)
    table = collections.defaultdict(list, a=[x, collections.OrderedDict(b=collections.deque([x], 3))])
    other, pair = copy.deepcopy(table), copy.deepcopy(Pair(x, [x]))
    other["c"].append(pair.left)
    shared = made.parts[0] is made.value, made.parts[1]["value"] is made.value, made.me is made, pair.right[0] is pair.left
    return made.value, node.value, shared, list(other), type(other["a"][1]["b"]).__name__, other["a"][1]["b"].maxlen, pair


class Length:
    def __init__(self, size: int) -> None:
        self.size = size

    def __add__(self, other: Any) -> Any:
        return Length(self.size + other.size) if isinstance(other, Length) else NotImplemented

    def __lt__(self, other: Any) -> Any:
        return self.size < other.size if isinstance(other, Length) else NotImplemented


def said(x: torch.Tensor) -> Any:
    length, messages = Length(2), []
    for attempt in (lambda: length + "s", lambda: length < None, lambda: 3 * length, lambda: length ** 2, lambda: length @ length, lambda: -length):
        try:
            attempt()
        except TypeError as error:
            messages.append(str(error))
    try:
        length += 3
    except TypeError as error:
        messages.append(str(error))
    return x * (length + length).size, messages


@pytest.mark.parametrize("function", [deeply_copied, said])
def test_is_one_region(function: Callable[[torch.Tensor], Any]) -> None:
    x = torch.tensor([1.0, 2.0])
    compiled = aotcompile.compile(function, example_inputs=((x,), {}), backend="eager")
    found, expected = compiled(x.clone()), function(x.clone())
    assert repr(found) == repr(expected)
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (1, 0) and not aotcompile.info(compiled).breaks
