"""`yield from`: what is sent, thrown in and closed goes to the inner iterator first."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import aotcompile

LOG: list[Any] = []


def inner(x: Any) -> Any:
    try:
        while True:
            try:
                got = yield x
                LOG.append(("sent", got))
                if got == 3:
                    return "done"
            except ValueError as error:
                LOG.append(("caught", str(error)))
                x = x * 2
    finally:
        LOG.append("inner closed")


def outer(x: Any) -> Any:
    try:
        LOG.append((yield from inner(x)))
        yield x - 1
        yield from [1, 2, 3]
    except KeyError as error:
        LOG.append(("outer caught", repr(error)))
        yield x + 100
    finally:
        LOG.append("outer closed")


def throws(x: torch.Tensor) -> torch.Tensor:
    g = outer(x)
    a = next(g)
    b = g.throw(ValueError("v"))
    c = g.send(3)
    d = next(g)
    return a + b + c + d


def throws_on(x: torch.Tensor) -> torch.Tensor:
    g = outer(x)
    a = next(g)
    b = g.throw(KeyError("k"))
    try:
        next(g)
    except StopIteration:
        LOG.append("end")
    return a + b


def plain_list(x: torch.Tensor) -> torch.Tensor:
    g = outer(x)
    a, b = next(g), g.send(3)
    next(g)
    c = g.throw(KeyError("l"))
    return a + b + c


def closes(x: torch.Tensor) -> torch.Tensor:
    g = outer(x)
    a = next(g)
    g.close()
    LOG.append("after")
    return a + 1


def stops(x: torch.Tensor) -> torch.Tensor:
    g = outer(x)
    a = next(g)
    try:
        g.throw(StopIteration(4))
    except RuntimeError as error:
        LOG.append(str(error))
    return a


@pytest.mark.parametrize("function", [throws, throws_on, plain_list, closes, stops])
def test_delegation(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.tensor([1.0, -2.0])
    LOG.clear()
    compiled = aotcompile.compile(function, example_inputs=((x,), {}), backend="eager")
    assert LOG == [] and not aotcompile.info(compiled).breaks
    expected, logged = function(x), LOG[:]
    LOG.clear()
    assert torch.equal(compiled(x), expected) and LOG == logged
    assert all(region.hits == 1 for region in aotcompile.info(compiled).report().regions)
