"""Special methods that native code calls (sorting, hashing, comparing, formatting) read their objects with guards."""
from __future__ import annotations

import bisect
import collections
import functools
import heapq
import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


class Ranked:
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __lt__(self, other: "Ranked") -> bool:
        return self.rank < other.rank

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranked) and self.rank == other.rank

    def __hash__(self) -> int:
        return hash(self.rank)

    def __repr__(self) -> str:
        return f"Ranked({self.rank})"

    def __index__(self) -> int:
        return self.rank

    def __bool__(self) -> bool:
        return self.rank > 1

    def __add__(self, other: "Ranked") -> "Ranked":
        return Ranked(self.rank + other.rank)


@dataclass
class Holding:
    items: Any


class Pair(NamedTuple):
    first: Any
    second: int


OPERATIONS = {
    "sorted": lambda a, b: sorted([a, b])[0].rank, "reverse": lambda a, b: sorted([a, b], reverse=True)[0].rank, "max": lambda a, b: max(a, b).rank,
    "set": lambda a, b: len({a, b}), "key": lambda a, b: {a: 1}.get(b), "in_set": lambda a, b: a in {b}, "index": lambda a, b: [a, b].index(b),
    "count": lambda a, b: [a, b].count(a), "list": lambda a, b: [a] == [b], "less": lambda a, b: (a, 1) < (b, 1), "dict": lambda a, b: {1: a} == {1: b},
    "nested": lambda a, b: [[(a,)]] != [[(b,)]], "sets": lambda a, b: len({a} & {b}), "from_keys": lambda a, b: len(dict.fromkeys([a, b])),
    "comprehension": lambda a, b: len({v: 1 for v in (a, b)}), "heap": lambda a, b: heapq.nsmallest(1, [a, b])[0].rank,
    "bisect": lambda a, b: bisect.bisect_left([a], b), "text": lambda a, b: f"{[a]} {(b,)}", "percent": lambda a, b: "%s" % [a],
    "slice": lambda a, b: [1, 2, 3, 4, 5, 6][a:], "range": lambda a, b: list(range(a)), "times": lambda a, b: "x" * a, "hex": lambda a, b: hex(a),
    "accumulate": lambda a, b: [v.rank for v in itertools.accumulate([a, b])], "group": lambda a, b: [len(list(g)) for _, g in itertools.groupby([a, b])],
    "counter": lambda a, b: collections.Counter([a, b])[a], "deque": lambda a, b: collections.deque([a, b]).count(a), "ne": lambda a, b: a != b,
    "dataclass": lambda a, b: Holding([a]) == Holding([b]), "named": lambda a, b: Pair(a, 1) == Pair(b, 1), "filter": lambda a, b: len([*filter(None, [a, b])]),
    "reduce": lambda a, b: functools.reduce(max, [a, b]).rank,
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_what_they_read_is_guarded(operation: Any) -> None:
    def function(x: torch.Tensor, a: Ranked, b: Ranked) -> Any:
        return x + 1, operation(a, b)

    own = dict(vars(Ranked))
    made = aotcompile.compile(function, example_inputs=((torch.ones(2), Ranked(1), Ranked(2)), {}), backend="eager")
    assert dict(vars(Ranked)) == own, "the class is as it was"
    for first, second in ((1, 2), (2, 1), (3, 3)):
        assert made(torch.ones(2), Ranked(first), Ranked(second))[1] == operation(Ranked(first), Ranked(second))
    a, b = Ranked(1), Ranked(2)
    made(torch.ones(2), a, b)
    a.rank = 5
    assert made(torch.ones(2), a, b)[1] == operation(a, b)
    assert sum(region.hits for region in aotcompile.info(made).report().regions) >= 2 and aotcompile.info(made).breaks == ()


class Loud(Ranked):
    def __lt__(self, other: "Ranked") -> bool:
        print("compared")
        return self.rank < other.rank

    __hash__ = Ranked.__hash__


def test_a_break_in_one_leaves_the_class_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: torch.Tensor, values: Any) -> Any:
        y = x.sin()
        first = sorted(values)[0]
        return y * first.rank

    own = dict(vars(Loud))
    made = aotcompile.compile(function, example_inputs=((torch.ones(2), [Loud(2), Loud(1)]), {}), backend="eager")
    assert dict(vars(Loud)) == own
    capsys.readouterr()
    torch.testing.assert_close(made(torch.ones(2), [Loud(3), Loud(2)]), torch.ones(2).sin() * 2)
    assert capsys.readouterr().out == "compared\n"
