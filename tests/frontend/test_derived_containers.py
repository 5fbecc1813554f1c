"""Instances of classes derived from dict, list, set, deque and OrderedDict that come from outside: guarded, changed at run time and not at build time."""
from __future__ import annotations

import collections
from typing import Any, NamedTuple

import pytest
import torch

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")
BACKENDS = ("eager", "native")


class Config(dict):
    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class Short(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__  # type: ignore[assignment]


class Lower(dict):
    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key.lower())

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key.lower(), value)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(str(key).lower())


class FromOne(list):
    def __getitem__(self, position: Any) -> Any:
        return super().__getitem__(position - 1)

    def append(self, value: Any) -> None:
        super().append(value * 2)


class Values(list):
    pass


class Names(set):
    pass


class Recent(collections.deque):
    pass


class Ordered(collections.OrderedDict):
    pass


def built(function: Any, *arguments: Any, backend: str = "eager") -> Any:
    return aotcompile.compile(function, example_inputs=(arguments, {}), backend=backend)


def misses(made: Any) -> int:
    return sum(region.misses for region in aotcompile.info(made).report().regions)


def hits(made: Any) -> int:
    return sum(region.hits for region in aotcompile.info(made).report().regions)


def reads(x: torch.Tensor, mapping: Any, values: Any) -> torch.Tensor:
    for key in mapping:
        x = x + mapping[key]
    for value in values:
        x = x * value
    return x + len(mapping) if mapping else x - len(values)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_held_is_guarded(backend: str) -> None:
    x = torch.ones(2)
    made = built(reads, x, Config(a=x), Values([2.0]), backend=backend)
    for mapping, values in ((Config(a=x), Values([2.0])), (Config(a=x, b=x), Values([2.0])), (Config(), Values([2.0, 3.0])), (Config(a=x), Values())):
        torch.testing.assert_close(made(x, mapping, values), reads(x, mapping, values))
    assert hits(made) == 1 and misses(made) == 3


def changes(x: torch.Tensor, mapping: Any, values: Any, names: Any, recent: Any, ordered: Any, counts: Any) -> Any:
    mapping["new"] = x
    mapping.update(m=2)
    values.append(x * 2)
    values[0] = 5
    names.add("z")
    names |= {"y"}
    recent.append(x)
    recent.appendleft(1)
    del ordered["a"]
    ordered.move_to_end("b")
    ordered.tag = 3
    counts.update("ab")
    return x + 1, mapping["new"] is x, type(names).__name__, len(values), counts["a"]


def given() -> tuple[Any, ...]:
    return (Config(a=1), Values([1, 2]), Names(["x"]), Recent([0], 3), Ordered(a=1, b=2, c=3), collections.Counter("aab"))


def content(found: tuple[Any, ...]) -> Any:
    mapping, values, names, recent, ordered, counts = found
    return dict(mapping), list(values), sorted(names), list(recent), recent.maxlen, list(ordered.items()), getattr(ordered, "tag", 0), dict(counts)


def test_changes_are_made_at_run_time_only() -> None:
    x, example, objects, plain = torch.ones(2), given(), given(), given()
    made = built(changes, x, *example)
    assert content(example) == content(given()), "the build leaves its example as it was"
    assert str(made(x, *objects)) == str(changes(x, *plain))
    assert str(content(objects)) == str(content(plain))
    assert (hits(made), misses(made), aotcompile.info(made).breaks) == (1, 0, ())


def attributes(x: torch.Tensor, config: Any, short: Any) -> Any:
    config.y = x * config.k
    short.z = config.y + short.w
    return config.y + short.z, hasattr(config, "nothing"), "y" in config


def test_attributes_that_are_items() -> None:
    x = torch.ones(2)
    example = (Config(k=2), Short(w=x))
    made = built(attributes, x, *example)
    assert list(example[0]) == ["k"] and list(example[1]) == ["w"]
    config, short = Config(k=2), Short(w=x)
    value, *rest = made(x, config, short)
    assert (value.tolist(), rest) == ([5.0, 5.0], [False, True])
    assert config["y"].tolist() == [2.0, 2.0] and short["z"].tolist() == [3.0, 3.0]
    assert (hits(made), misses(made)) == (1, 0)


def overridden(x: torch.Tensor, lower: Any, numbered: Any) -> Any:
    lower["NEW"] = x + lower["A"]
    numbered.append(x)
    return lower["new"] * 2, "NEW" in lower, numbered[1] + x, len(numbered)


@pytest.mark.parametrize("backend", BACKENDS)
def test_past_the_methods_of_a_derived_class(backend: str) -> None:
    x = torch.ones(2)
    made = built(overridden, x, Lower(a=x), FromOne([x]), backend=backend)
    lower, numbered, plain_lower, plain_numbered = Lower(a=x), FromOne([x]), Lower(a=x), FromOne([x])
    torch.testing.assert_close(made(x, lower, numbered), overridden(x, plain_lower, plain_numbered))
    torch.testing.assert_close(dict(lower), dict(plain_lower))
    torch.testing.assert_close(list(numbered), list(plain_numbered))
    assert (hits(made), misses(made), aotcompile.info(made).breaks) == (1, 0, ())


class Counted(list):
    """Its constructor is not run again, and neither is ``extend``."""

    made = 0

    def __init__(self, *values: Any) -> None:
        super().__init__(values)
        Counted.made += 1

    def extend(self, values: Any) -> None:
        raise AssertionError("run by the epilogue")


class Numbered:
    def __new__(cls, number: int) -> Any:
        made = super().__new__(cls)
        made.number = number
        return made


def makes(x: torch.Tensor) -> Any:
    return Counted(x * 2, 3), Numbered(4), Recent([x], 2)


def test_objects_are_made_again_without_their_own_code() -> None:
    Counted.made = 0
    made = built(makes, torch.ones(2))
    values, numbered, recent = made(torch.ones(2))
    assert (type(values), len(values), numbered.number, recent.maxlen, Counted.made) == (Counted, 2, 4, 2, 1)
    assert hits(made) == 1


def getters(x: torch.Tensor, holder: Any, items: Any) -> Any:
    import operator

    both = operator.attrgetter("first.value", "second")(holder)
    ordered = sorted(items, key=operator.itemgetter("rank"))
    return both[0] + both[1], operator.methodcaller("mul", 3)(x), ordered[0]["value"], list(map(operator.itemgetter("value"), items))


def test_getters_of_operator_read_with_guards() -> None:
    import types

    def holder(number: float) -> Any:
        return types.SimpleNamespace(first=types.SimpleNamespace(value=torch.ones(2) * number), second=number)

    def items(number: float) -> list[dict[str, Any]]:
        return [{"rank": 2, "value": torch.ones(2)}, {"rank": 1, "value": torch.ones(2) * number}]

    made = built(getters, torch.ones(2), holder(2.0), items(2.0))
    for number in (2.0, 3.0):
        torch.testing.assert_close(made(torch.ones(2), holder(number), items(number)), getters(torch.ones(2), holder(number), items(number)))
    assert hits(made) == 1 and aotcompile.info(made).breaks == ()


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor

    def __getitem__(self, index: Any) -> Any:
        return Pair(self.left[index], self.right[index])


class Named(NamedTuple):
    value: torch.Tensor
    number: int = 3


class Extended(Named):
    pass


def indexed(pair: Any) -> Any:
    return pair.left + 1, pair[0].right, pair.right * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_named_tuple_with_its_own_items(backend: str) -> None:
    made = built(indexed, Pair(torch.ones(2), torch.ones(2)), backend=backend)
    for number in (1.0, 2.0):
        pair = Pair(torch.ones(2) * number, torch.ones(2))
        torch.testing.assert_close(made(pair), indexed(pair))
    assert (hits(made), misses(made)) == (2, 0)


def extends(found: Any, plain: tuple[Any, ...]) -> Any:
    found.extra = found.value * found.factor
    return found, plain, found.extra + 1


def test_attributes_of_a_named_tuple_and_the_tuples_given_themselves() -> None:
    def given() -> tuple[Any, tuple[Any, ...]]:
        found = Extended(torch.ones(2))
        found.factor = 4.0  # type: ignore[attr-defined]
        return found, (torch.ones(2), 5)

    made = built(extends, *given())
    found, plain = given()
    first, second, third = made(found, plain)
    assert first is found and second is plain and third.tolist() == [5.0, 5.0] and found.extra.tolist() == [4.0, 4.0]
    found.factor = 2.0
    assert made(found, plain)[2].tolist() == [3.0, 3.0]
    assert (hits(made), misses(made)) == (1, 1)
