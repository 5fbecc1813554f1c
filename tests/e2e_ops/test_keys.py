"""Dictionaries from outside, looked into at keys that are no plain constants."""
from __future__ import annotations

import enum
import json
import math
from typing import Any, Literal, Union, get_origin

import pytest
import torch

import aotcompile
from aotcompile.ir.paths import Path
from aotcompile.runtime.explain import path_text
from aotcompile.runtime.guards import Context, Guards, UnsupportedPlan


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


class Level(enum.IntEnum):
    LOW = 1


class Layer:
    pass


TABLE: dict[Any, float] = {torch.float32: 2.0, Mode.FAST: 3.0, Level.LOW: 4.0, Layer: 5.0, int: 6.0, torch.device("cpu"): 7.0, b"k": 8.0,
                           (torch.float32, Mode.EXACT): 9.0, None: 10.0, Literal: 12.0, math.sin: 13.0}


def by_dtype(x: torch.Tensor) -> torch.Tensor:
    return x * TABLE[x.dtype] * TABLE[(x.dtype, Mode.EXACT)]


def by_member(x: torch.Tensor) -> torch.Tensor:
    return x * TABLE[Mode.FAST] + TABLE[Level.LOW] if Mode.EXACT not in TABLE else x


def by_class(x: torch.Tensor) -> torch.Tensor:
    return x * TABLE[Layer] + TABLE[int] if Layer in TABLE and float not in TABLE else x


def by_device(x: torch.Tensor) -> torch.Tensor:
    return x * TABLE[x.device] + TABLE[b"k"] + TABLE.get(torch.float64, 1.0) + TABLE.get(None, 2.0) + TABLE.get("absent", 3.0)


def scale(x: torch.Tensor) -> torch.Tensor:
    return x * 14.0


TABLE[scale] = 15.0


def by_name(x: torch.Tensor) -> torch.Tensor:
    kind = get_origin(Literal["a"])
    return x * TABLE[kind] + TABLE[math.sin] + TABLE[scale] if Union not in TABLE and by_device not in TABLE else x


@pytest.mark.parametrize(("function", "key"), [
    (by_name, Literal), (by_name, math.sin), (by_name, scale), (by_dtype, torch.float32), (by_member, Level.LOW), (by_class, Layer), (by_device, torch.device("cpu")),
])
def test_keys_are_found_and_guarded(function: Any, key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, x = aotcompile.compile(function, example_inputs=((torch.ones(3),), {})), torch.arange(3.0)
    torch.testing.assert_close(compiled(x), function(x))
    monkeypatch.setitem(TABLE, key, 11.0)
    torch.testing.assert_close(compiled(x), function(x))
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (1, 1)


@pytest.mark.parametrize(("key", "text"), [
    (torch.float32, "torch.float32"), (Mode.FAST, "Mode.FAST"), (Level.LOW, "Level.LOW"), (Layer, "Layer"), (torch.device("cpu"), "torch.device('cpu')"),
    (b"k", "b'k'"), ((torch.float32, Mode.EXACT), "(torch.float32, Mode.EXACT)"), (("a",), "('a',)"), (Literal, "Literal"),
    (math.sin, "sin"), (scale, "scale"), (3, "3"), (True, "True"), (None, "None")])
def test_a_path_by_way_of_json(key: Any, text: str) -> None:
    path = Path(("argument", "table")).item(key)
    data = json.loads(json.dumps(path.as_json()))
    assert str(path) == str(Path.from_json(data)) == path_text(data) == f"table[{text}]"
    guards = Guards([], [data], Context(("table",), {}, {}))
    assert guards.check(({key: "found"},)) == ("found",)


def test_a_key_that_is_gone() -> None:
    data = [["argument", "table"], [["item", {"constant": {"type": "builtins:type", "value": f"{__name__}:Gone"}}]]]
    with pytest.raises(UnsupportedPlan):
        Guards([], [data], Context(("table",), {}, {}))


def test_a_key_that_nothing_names_is_a_break() -> None:
    key = Layer()
    table = {key: 2.0}

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * table[key] + 1

    compiled = aotcompile.compile(f, example_inputs=((torch.ones(3),), {}))
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 3.0))
    assert [found.code for found in aotcompile.info(compiled).breaks] == ["AOT205"]
