"""Traced torch functions through lowering and scheduling, their kernels in Triton's interpreter, against eager."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from triton_programs import PROGRAMS, ROWS, TOO_LARGE_TO_INTERPRET
from triton_running import Interpreter, execute
from triton_samples import copied, traced

from aotcompile.codegen.triton import shape


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in TOO_LARGE_TO_INTERPRET])
def test_program(interpreter: Interpreter, name: str) -> None:
    function, make = PROGRAMS[name]
    check(interpreter, function, make())


@pytest.mark.parametrize("name", ROWS)
def test_rows_in_a_loop(interpreter: Interpreter, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if rows were too long for one block, and the last block of a row is not full."""
    monkeypatch.setattr(shape, "LARGEST_ROW", 1)
    monkeypatch.setattr(shape, "LOOP_BLOCK", 16)
    function, make = PROGRAMS[name]
    check(interpreter, function, make())


def check(interpreter: Interpreter, function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    expected = function(*map(copied, inputs))
    found = execute(traced(function, *inputs), [copied(value) for value in inputs], interpreter.launch)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize("index", [[0, 7], [-9, 1]])
def test_index_out_of_range_stops_the_kernel(interpreter: Interpreter, index: list[int]) -> None:
    inputs = (torch.randn(5, 8), torch.tensor(index))
    with pytest.raises(RuntimeError, match="index out of range"):
        execute(traced(lambda x, i: x[i] + 1, *inputs), inputs, interpreter.launch)


def test_masked_branch_does_not_check_its_indices(interpreter: Interpreter) -> None:
    """What a pad does not read may hold any index."""
    def function(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(table[index] * 2, (0, 0, 1, 1))
    check(interpreter, function, (torch.randn(5, 8), torch.tensor([0, 4, -1])))
