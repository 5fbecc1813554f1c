"""What names a place in the user's file - tracebacks, warnings - names the same one in a compiled function."""
from __future__ import annotations

import traceback
import warnings
from typing import Any

import pytest
import torch

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


def failing(x: torch.Tensor, way: int) -> torch.Tensor:
    y = x * 2
    if way == 1:
        raise ValueError(
            f"no {way}")
    if way == 2:
        return y @ torch.ones(
            y.shape[0] + 1)
    print("at", way)
    z = torch.relu(y)
    if way == 3:
        return z[7]
    return z


def places(function: Any, *arguments: Any) -> tuple[str, list[tuple[int, str | None]]]:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one it is is compared
        function(*arguments)
    own = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if frame.filename == __file__ and frame.name != "places"]
    return repr(caught.value), [(frame.lineno or 0, frame.line) for frame in own[-1:]]


@pytest.mark.parametrize("way", [1, 2, 3])
def test_an_exception_is_raised_at_the_users_line(way: int) -> None:
    x = torch.ones(3)
    compiled = aotcompile.compile(failing, example_inputs=((x, 0), {}), backend="eager")
    assert places(compiled, x, way) == places(failing, x, way)
    built = aotcompile.compile(failing, example_inputs=((x, way), {}), backend="eager")
    assert places(built, x, way) == places(failing, x, way)


def warning(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    warnings.warn("careful", UserWarning, stacklevel=1)
    return y * 2


def test_a_warning_is_given_at_the_users_line() -> None:
    compiled = aotcompile.compile(warning, example_inputs=((torch.ones(2),), {}), backend="eager")
    found = []
    for function in (warning, compiled):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(torch.ones(2))
        found.append([(str(each.message), each.filename, each.lineno) for each in caught])
    assert found[0] == found[1] and found[0][0][1] == __file__
