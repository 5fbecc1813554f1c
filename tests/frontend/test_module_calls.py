"""Modules whose class has a ``__call__`` of its own that goes on to torch's: what is called at last is compiled, with and without hooks."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


class Counting(nn.Module):
    """As transformers' layers that checkpoint themselves."""

    def __init__(self, hooked: bool) -> None:
        super().__init__()
        self.linear, self.calls = nn.Linear(3, 3), 0
        if hooked:
            self.register_forward_hook(lambda module, args, result: result * 2)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return super().__call__(*args, **kwargs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).sin()
        print(end="")
        return y.cos()


class Outer(nn.Module):
    def __init__(self, hooked: bool) -> None:
        super().__init__()
        self.inner = Counting(hooked)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + 1


@pytest.mark.parametrize("hooked", [False, True])
def test_super_call_leads_to_the_compiled_forward(hooked: bool) -> None:
    torch.manual_seed(0)
    module = Outer(hooked)
    torch.manual_seed(0)
    plain = Outer(hooked)
    x = torch.randn(2, 3)
    made = aotcompile.compile(module, example_inputs=((x,), {}), backend="eager")
    for _ in range(2):
        torch.testing.assert_close(made(x), plain(x))
    assert module.inner.calls == plain.inner.calls == 2
    regions = {region.name: (region.hits, region.misses) for region in aotcompile.info(made).report().regions}
    assert regions["Counting.forward:r0"] == regions["Counting.forward:r1"] == (2, 0)
    assert all(hits == 2 and not misses for hits, misses in regions.values()), regions
