"""Elements beyond number 2**31: indices have 64 bits. The memory is reserved only: pages that nothing touches cost nothing."""
from __future__ import annotations

from typing import Any

import pytest
import torch

import aotcompile

LENGTH = 2**31 + 64


def ends(x: torch.Tensor, index: torch.Tensor) -> Any:
    return x[-64:].long() * 2, x[LENGTH - 70:].to(torch.int32) + 1, x[::2**24].float() * 2


def folded(x: torch.Tensor, index: torch.Tensor) -> Any:
    return x.view(2, -1)[1, -8:].long() + 1, x.shape[0] * 2, x.numel() // 3


def taken(x: torch.Tensor, index: torch.Tensor) -> Any:
    return x[index].long() + 1, x.index_select(0, index).float() * 2, torch.gather(x, 0, index).long() + 5


@pytest.fixture(scope="module")
def large() -> torch.Tensor:
    try:
        x = torch.empty(LENGTH, dtype=torch.int8)
    except RuntimeError:
        pytest.skip("this machine reserves no 2 GiB")
    x[-70:] = torch.arange(70, dtype=torch.int8)
    x[::2**24] = 3
    return x


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [ends, folded, taken])
def test_one_dimension(function: Any, dynamic: bool | None, large: torch.Tensor) -> None:
    index = torch.tensor([LENGTH - 1, LENGTH - 2, 0, 2**24 * 127])
    built = aotcompile.compile(function, example_inputs=((large, index), {}), dynamic=dynamic, training=False)
    torch.testing.assert_close(built(large, index), function(large, index))
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 1, region.last_miss


@pytest.mark.parametrize("dynamic", [None, True])
def test_an_expanded_tensor(dynamic: bool | None) -> None:
    def function(x: torch.Tensor) -> Any:
        return x[50000:50002, 60000:60003] * 2 + 1, x[-1:].sum(1), x.numel()

    x = torch.ones(1).expand(70000, 70000)
    built = aotcompile.compile(function, example_inputs=((x,), {}), dynamic=dynamic, training=False)
    torch.testing.assert_close(built(x), function(x))
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 1, region.last_miss
