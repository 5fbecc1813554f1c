"""Every sample program, interpreted and then run from what was captured, gives what CPython gives, side effects included."""
from __future__ import annotations

import types

import interpreter_samples
import language_samples
import pytest
from interpreted import check

SAMPLES = [value for module in (interpreter_samples, language_samples) for value in vars(module).values()
           if isinstance(value, types.FunctionType) and value.__code__.co_varnames[:2] == ("x", "s") and value.__module__ == module.__name__]


@pytest.mark.parametrize("function", SAMPLES, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore")
def test_sample(function: types.FunctionType) -> None:
    code, _, rest = function.__name__.partition("_")
    check(function, wanted=code if code.startswith("AOT") and rest else "captured")


def test_the_samples_are_there() -> None:
    assert len(SAMPLES) > 80
