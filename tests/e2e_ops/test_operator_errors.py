"""What eager refuses is refused: by its exception where the program is wrong for its example inputs, and where it becomes wrong later."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import aotcompile

IMAGE, ROWS, LINE = torch.rand(1, 2, 5, 6), torch.rand(4, 5), torch.rand(2, 3, 8)
WHOLE = torch.arange(20).reshape(4, 5)
LABELS = torch.tensor([0, 2, 4, 1])

WRONG: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "circular padding of nothing": (lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"), (torch.empty(1, 2, 0, 4),)),
    "an image without channels": (lambda x: F.interpolate(x, (4, 4), mode="bilinear"), (torch.empty(1, 0, 3, 4),)),
    "an image to nothing": (lambda x: F.interpolate(x, scale_factor=0.1, mode="bicubic"), (IMAGE,)),
    "bilinear of ints": (lambda x: F.interpolate(x, (3, 3), mode="bilinear"), (IMAGE.long(),)),
    "max_pool1d of ints": (lambda x: F.max_pool1d(x, 2), (LINE.int(),)),
    "labels of int32": (lambda x, y: F.cross_entropy(x, y), (ROWS, LABELS.int())),
    "weights of f64": (lambda x, y: F.cross_entropy(x, y, weight=torch.ones(5, dtype=torch.float64)), (ROWS, LABELS)),
    "cross entropy of ints": (lambda x, y: F.cross_entropy(x, y), (WHOLE, LABELS)),
    "targets of another dtype": (lambda x, y: F.binary_cross_entropy(x, y), (ROWS, ROWS.double())),
    "probabilities above one": (lambda x, y: F.binary_cross_entropy(x, y), (ROWS + 1, ROWS)),
    "a negative beta": (lambda x, y: F.smooth_l1_loss(x, y, beta=-1.0), (ROWS, ROWS)),
    "huber of ints": (lambda x, y: F.huber_loss(x, y), (WHOLE, WHOLE)),
    "a class that is none": (lambda x: F.one_hot(x, 3), (LABELS,)),
    "a negative class": (lambda x: F.one_hot(x, 3), (-LABELS,)),
    "a matrix of positions": (lambda x, i: torch.index_select(x, 1, i), (ROWS, torch.tensor([[1]]))),
    "positions of int16": (lambda x, i: torch.index_select(x, 1, i), (ROWS, torch.tensor([1], dtype=torch.int16))),
    "index_add at -1": (lambda x, i, y: x.index_add(0, i, y), (ROWS, torch.tensor([-1]), ROWS[:1])),
    "index_copy at -1": (lambda x, i, y: x.index_copy(0, i, y), (ROWS, torch.tensor([-1]), ROWS[:1])),
    "rows that are too short": (lambda x, i, y: x.index_add(0, i, y), (ROWS, torch.tensor([1]), ROWS[:1, :4])),
    "too many rows": (lambda x, i, y: x.index_put((i,), y), (ROWS, torch.tensor([0, 1]), ROWS[:3])),
    "a slice of another size": (lambda x, y: x.slice_scatter(y, 1, 0, 3), (ROWS, ROWS[:, :2])),
    "a column that is none": (lambda x, y: x.select_scatter(y, 1, 9), (ROWS, ROWS[:, 0])),
}


def outcome(function: Callable[..., Any], given: tuple[torch.Tensor, ...]) -> tuple[str, str]:
    try:
        return "result", str(function(*(tensor.clone() for tensor in given)))
    except Exception as error:  # noqa: BLE001  any is what is compared
        return type(error).__name__, str(error)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_raises_as_eager_does(name: str) -> None:
    function, given = WRONG[name]
    wanted = outcome(function, given)
    assert wanted[0] != "result"
    assert outcome(aotcompile.compile(function, example_inputs=(given, {})), given) == wanted


def test_an_exception_that_is_caught_in_a_region() -> None:
    def f(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, str]:
        y = x * 2
        try:
            y = torch.index_select(y, 1, i)
        except RuntimeError as error:
            return y + 1, str(error)
        return y, ""

    given = ROWS, torch.tensor([1], dtype=torch.int16)
    ours = aotcompile.compile(f, example_inputs=(given, {}))
    got, wanted = ours(*given), f(*given)
    torch.testing.assert_close(got[0], wanted[0])
    assert got[1] == wanted[1] != ""
    [region] = aotcompile.info(ours).report().regions
    assert region.hits == 1


@pytest.mark.parametrize(("function", "first", "others"), [
    (lambda x: F.interpolate(x * 1, (4, 4), mode="bilinear") + 1, (2, 2, 3, 4), ((0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4), (3, 3, 3, 5))),
    (lambda x: F.pad(x * 1, (1, 1, 1, 1), mode="circular") + 1, (2, 2, 3, 4), ((0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4), (3, 3, 3, 5))),
    (lambda x: F.avg_pool2d(x, 2) + 1, (2, 2, 3, 4), ((0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4), (3, 3, 3, 5))),
])
def test_sizes_of_zero_that_come_later(function: Callable[..., Any], first: tuple[int, ...], others: tuple[tuple[int, ...], ...]) -> None:
    ours = aotcompile.compile(function, example_inputs=((torch.rand(first),), {}), dynamic=True)
    for sizes in (first, *others):
        given = (torch.rand(sizes),)
        assert outcome(ours, given) == outcome(function, given)
    [region] = aotcompile.info(ours).report().regions
    assert region.hits >= 2


def test_data_that_becomes_wrong_later() -> None:
    def f(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.index_add(0, i, y, alpha=2) + 1, x.index_copy(0, i, y), F.one_hot(i, 4), F.binary_cross_entropy(y, y)

    good = ROWS, torch.tensor([3, 0]), torch.rand(2, 5)
    ours = aotcompile.compile(f, example_inputs=(good, {}))
    for got, wanted in zip(ours(*good), f(*good), strict=True):
        torch.testing.assert_close(got, wanted)
    for i, y in ((torch.tensor([0, -1]), good[2]), (torch.tensor([0, 4]), good[2]), (good[1], good[2] + 1)):
        assert outcome(ours, (ROWS, i, y)) == outcome(f, (ROWS, i, y))
    [region] = aotcompile.info(ours).report().regions
    assert region.hits == 1
