"""Objects from outside that hold native state (numbers of numpy, dates, patterns, iterators): what is in them now must not become a constant."""
from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import aotcompile
from aotcompile.frontend.capture.outside import _has_native_state


def through_float(x: Any, s: Any) -> Any:
    return x * float(s)


def multiplied(x: Any, s: Any) -> Any:
    return x * s


def of_a_date(x: Any, day: Any) -> Any:
    return x + day.year


def in_a_list(x: Any, items: Any) -> Any:
    return x + sum(items)


def matched(x: Any, pattern: Any) -> Any:
    return x + 1 if pattern.match("abc") else x - 1


@pytest.mark.parametrize("function, first, second", [
    (through_float, np.float32(2), np.float32(3)), (multiplied, np.float64(2), np.float64(3)), (matched, re.compile("a"), re.compile("b")),
    (of_a_date, datetime.date(2000, 1, 1), datetime.date(2001, 1, 1)), (in_a_list, [np.float32(1), np.float32(2)], [np.float32(1), np.float32(5)]),
])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_another_value_gives_another_result(function: Callable[..., Any], first: Any, second: Any) -> None:
    x = torch.arange(3.0)
    compiled = aotcompile.compile(function, example_inputs=((x, first), {}), backend="eager")
    for value in (first, second):
        assert torch.equal(compiled(x, value), function(x, value))


class Plain:
    pass


class Slots(Plain):
    __slots__ = ("a", "b")


def test_which_types_have_native_state() -> None:
    assert not any(map(_has_native_state, (Plain, Slots, object, torch.nn.Linear, torch.nn.ModuleList)))
    assert all(map(_has_native_state, (np.float32, np.ndarray, re.Pattern, datetime.date, type(iter([])), int)))
