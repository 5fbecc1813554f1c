"""Operators and Python arithmetic on dynamic sizes: one variant for all sizes where that can be said exactly, else the size that was seen."""
from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import aotcompile


def enlarged(x: torch.Tensor) -> Any:
    return F.interpolate(x, scale_factor=2, mode="nearest"), F.interpolate(x, size=(x.shape[2] * 2, 5), mode="bilinear", align_corners=False)


def middle(x: torch.Tensor) -> Any:
    y = x.clone()
    y[:, :, x.shape[2] // 2] = 0
    return x[:, :, x.shape[2] // 2] * 2, y


def padded(x: torch.Tensor) -> Any:
    return F.pad(x[x[:, 0, 0, 0] > 0], (0, 1)).sum(0)


def rounded(x: torch.Tensor) -> Any:
    return x[:, :, :int(x.shape[2] * 0.3)] + 1, math.ceil(x.shape[2] / 2), round(x.shape[2] / 3)


@pytest.mark.parametrize(("function", "all_sizes"), [(enlarged, True), (middle, True), (padded, True), (rounded, False)])
def test_sizes(function: Any, all_sizes: bool) -> None:
    def example(size: int) -> torch.Tensor:
        return torch.randn(3, 2, size, 4, generator=torch.Generator().manual_seed(size))

    built = aotcompile.compile(function, example_inputs=((example(8),), {}), dynamic_shapes=({2: "H"},))
    for size in (8, 5, 2, 13):
        torch.testing.assert_close(built(example(size)), function(example(size)))
    regions = aotcompile.info(built).report().regions
    assert sum(region.hits for region in regions) >= (4 if all_sizes else 1)
    assert not all_sizes or sum(region.misses for region in regions) == 0


def spaced(x: torch.Tensor) -> Any:
    steps = x.shape[2]
    return torch.linspace(-1, 2, steps) * 2, torch.linspace(0, 1, steps=steps + 1, dtype=torch.float64), torch.logspace(0, 1, steps, 2.0)


def triangles(x: torch.Tensor) -> Any:
    return torch.triu_indices(x.shape[2], 4, 1), torch.tril_indices(x.shape[2], x.shape[2] + 1)


def pooled(x: torch.Tensor) -> Any:
    rows = x.flatten(0, 1).transpose(1, 2)
    return F.max_pool1d(rows, 2, padding=1), torch.max_pool1d(rows, 3, 1, 1), F.max_pool1d(rows, 1, return_indices=True)


def made_of_numbers(x: torch.Tensor) -> Any:
    rows = x.shape[2]
    return (torch.tensor([rows, 2]), torch.tensor([[rows, 1.5], [2, rows / 2]]), torch.as_tensor(x.shape), x.new_tensor([rows, True]),
            torch.tensor((rows, 3), dtype=torch.int16), torch.tensor([True, rows > 2]))


def found_among(x: torch.Tensor) -> Any:
    return torch.isin(x.round(), torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize("function", [spaced, triangles, pooled, made_of_numbers, found_among])
def test_functions_that_take_plain_ints_only(function: Any) -> None:
    built = aotcompile.compile(function, example_inputs=((torch.randn(3, 2, 8, 4),), {}), dynamic_shapes=({2: "H"},), training=False)
    for size in (8, 5, 2, 1, 13):
        x = torch.randn(3, 2, size, 4)
        torch.testing.assert_close(built(x), function(x))
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 5, region.last_miss


def test_pooling_in_training() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (F.max_pool1d(x, 2) * torch.linspace(0, 1, x.shape[2] // 2)).sum()

    built = aotcompile.compile(function, example_inputs=((torch.randn(3, 2, 8, requires_grad=True),), {}), dynamic_shapes=({2: "H"},))
    for size in (8, 5, 2):
        a = torch.randn(3, 2, size, requires_grad=True)
        b = a.detach().clone().requires_grad_()
        function(a).backward()
        built(b).backward()
        torch.testing.assert_close(b.grad, a.grad)
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 3, region.last_miss


def doubled(x: torch.Tensor) -> Any:
    return x * 2 + x.shape[0]


def marked(**marks: Any) -> torch.Tensor:
    """An example with the attributes that torch's own functions leave on a tensor."""
    x = torch.randn(4, 3)
    for name, value in marks.items():
        setattr(x, f"_dynamo_{name}", value)
    return x


@pytest.mark.parametrize(("marks", "served", "dynamic"), [
    ({"dynamic_indices": {0}}, [2, 9], None), ({"weak_dynamic_indices": {0}}, [2, 9], None), ({"unbacked_indices": {-2}}, [2, 9], None),
    ({"dynamic_indices": {0}, "dynamic_range": [SimpleNamespace(dim=0, min=2, max=6)]}, [2], None), ({}, [], None), ({}, [2, 9], True),
    ({"static_indices": {0}}, [], True),
])
def test_marks_on_example_tensors(marks: dict[str, Any], served: list[int], dynamic: bool | None) -> None:
    built = aotcompile.compile(doubled, example_inputs=((marked(**marks),), {}), dynamic=dynamic)
    for size in (4, 2, 9):
        x = torch.randn(size, 3)
        torch.testing.assert_close(built(x), doubled(x))
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 1 + len(served), region.last_miss


def padded_up(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, 0, 0, math.ceil(x.shape[0] / 8) * 8 - x.shape[0]))


def halves(x: torch.Tensor) -> Any:
    return x[:int(x.shape[0] / 2)] * 2, x[math.floor(x.shape[0] / 3):] + 1, int((x.shape[0] - 20) / 3)


def square_part(x: torch.Tensor) -> torch.Tensor:
    side = int(math.sqrt(x.shape[0]))
    return x[:side * side].reshape(side, side, -1)


def without_itself(x: torch.Tensor) -> torch.Tensor:
    return (x @ x.t()).fill_diagonal_(-1.0)


@pytest.mark.parametrize(("function", "general"), [(padded_up, True), (halves, True), (square_part, False), (without_itself, True)])
def test_quotients_as_sizes(function: Any, general: bool) -> None:
    built = aotcompile.compile(function, example_inputs=((torch.randn(9, 3),), {}), dynamic_shapes=({0: "B"},), backend="aot_eager")
    for size in (9, 5, 8, 16, 17, 33):
        x = torch.randn(size, 3)
        torch.testing.assert_close(built(x), function(x))
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 6 if general else region.hits
