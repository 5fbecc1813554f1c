"""Dynamic dimensions whose example does not show what other sizes need: a size of 1, slices that end beyond the size, thresholds, numbers of parts."""
from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import aotcompile


def reduces(x: torch.Tensor) -> Any:
    return x.softmax(-1) + x.mean(0), x @ x.t()


def slices(x: torch.Tensor) -> Any:
    return x[:10] * 2, x[5:100] + 1, x[-3:].sum(0), x[:-2]


def decides(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0) if x.shape[0] > 8 else x.exp() if x.shape[0] != 3 else x - 1


def in_parts(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.softmax(0) for part in x.split(8)])


def with_a_break(x: torch.Tensor) -> Any:
    y = x.softmax(0)
    print(end="")
    return y[:10] * 2


@pytest.mark.parametrize(("function", "example", "served", "others"), [
    (reduces, 1, (1, 2, 5, 13), (0,)),
    (slices, 7, (2, 4, 5, 9, 10, 11, 17, 120), (0, 1, 3)),
    (decides, 5, (3, 5, 8, 9, 31), (0, 1)),
    (in_parts, 6, (5, 8, 13, 16), (1, 31, 0)),
    (with_a_break, 1, (1, 2, 9, 10, 11, 30), (0,)),
], ids=lambda value: getattr(value, "__name__", None))
def test_sizes(function: Any, example: int, served: tuple[int, ...], others: tuple[int, ...]) -> None:
    built = aotcompile.compile(function, example_inputs=((torch.randn(example, 4),), {}), dynamic_shapes=({0: "B"},), backend="aot_eager")
    for size in served:
        x = torch.randn(size, 4)
        torch.testing.assert_close(built(x), function(x))
    assert sum(region.misses for region in aotcompile.info(built).report().regions) == 0
    for size in others:
        x = torch.randn(size, 4)
        torch.testing.assert_close(built(x), function(x))


def test_a_declared_range_is_kept_to() -> None:
    built = aotcompile.compile(reduces, example_inputs=((torch.randn(1, 4),), {}), dynamic_shapes=({0: torch.export.Dim("B", min=1, max=3)},),
                               backend="aot_eager")
    for size in (1, 2, 3):
        built(torch.randn(size, 4))
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 3
    built(torch.randn(5, 4))
    [region] = aotcompile.info(built).report().regions
    assert region.misses == 1


def test_derived_sizes_and_layouts_of_the_example() -> None:
    def function(x: torch.Tensor, parts: list[torch.Tensor]) -> torch.Tensor:
        return (x.transpose(0, 1) * 2).sum(1) + parts[0].reshape(2, -1, 3).sum((0, 1)) if x.shape[0] < 3 else x.sum(0) + parts[0].sum(0)

    def inputs(size: int) -> Any:
        return torch.randn(3, size).t(), [torch.randn(2 * size, 3)]

    built = aotcompile.compile(function, example_inputs=(inputs(2), {}), dynamic_shapes=({0: "B"}, [{0: "2*B"}]), backend="aot_eager")
    for size in (2, 3, 5):
        arguments = inputs(size)
        torch.testing.assert_close(built(*arguments), function(*arguments))
    assert sum(region.misses for region in aotcompile.info(built).report().regions) == 0


def test_a_loop_over_a_size_is_captured_for_the_example_only() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for number in range(x.shape[0]):
            x = x + number
        return x

    built = aotcompile.compile(function, example_inputs=((torch.randn(4, 2),), {}), dynamic_shapes=({0: "B"},), backend="aot_eager")
    for size, hits in ((4, 1), (11, 1)):
        x = torch.randn(size, 2)
        torch.testing.assert_close(built(x), function(x))
        assert aotcompile.info(built).report().regions[0].hits == hits


def test_everything_dynamic_includes_examples_of_size_1() -> None:
    """A first call with a batch of one; what is one because it is broadcast still is."""
    def function(x: torch.Tensor, row: torch.Tensor) -> Any:
        return x * row + row.sum(), x.squeeze(0)

    built = aotcompile.compile(function, example_inputs=((torch.randn(1, 4), torch.randn(1, 4)), {}), dynamic=True, backend="aot_eager")
    for size in (1, 3, 5):
        x, row = torch.randn(size, 4), torch.randn(1, 4)
        torch.testing.assert_close(built(x, row), function(x, row))
    assert sum(region.misses for region in aotcompile.info(built).report().regions) == 0


@dataclasses.dataclass(frozen=True)
class Pair:
    first: torch.Tensor
    second: torch.Tensor


def adds(pair: Pair) -> torch.Tensor:
    return pair.first[:10] * 2 + pair.second[:10]


def test_sizes_inside_a_dataclass() -> None:
    built = aotcompile.compile(adds, example_inputs=((Pair(torch.randn(3, 2), torch.randn(3, 2)),), {}),
                               dynamic_shapes=({"first": {0: "B"}, "second": {0: "B"}},), training=False)
    for size in (3, 1, 20):
        pair = Pair(torch.randn(size, 2), torch.randn(size, 2))
        torch.testing.assert_close(built(pair), adds(pair))
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 3, region.last_miss
