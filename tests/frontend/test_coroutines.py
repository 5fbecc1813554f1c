"""Coroutine functions and generators given to ``aotcompile.compile``: they stay as they are, and say so."""
from __future__ import annotations

import asyncio

import pytest
import torch

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


async def added(x: torch.Tensor) -> torch.Tensor:
    await asyncio.sleep(0)
    return x + 1


async def doubled(x: torch.Tensor) -> torch.Tensor:
    y = await added(x)
    if y.sum() > 0:
        y = y * 2
    return y


def steps(x: torch.Tensor):                                      # type: ignore[no-untyped-def]
    for number in range(3):
        x = x + number
        yield x


@pytest.mark.parametrize("function", [added, doubled])
def test_coroutine(function) -> None:                            # type: ignore[no-untyped-def]
    compiled = aotcompile.compile(function, example_inputs=((torch.ones(2),), {}), backend="eager")
    assert torch.equal(asyncio.run(compiled(torch.ones(2))), asyncio.run(function(torch.ones(2))))
    explained = aotcompile.explain(function, example_inputs=((torch.ones(2),), {}))
    assert "await" in str(explained) or "coroutine" in str(explained)


def test_generator() -> None:
    compiled = aotcompile.compile(steps, example_inputs=((torch.ones(2),), {}), backend="eager")
    assert [x.tolist() for x in compiled(torch.ones(2))] == [[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]]
