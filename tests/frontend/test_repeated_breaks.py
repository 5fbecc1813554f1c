"""A break that a region has at each of many arrivals is found a few times, not at every one; other breaks of later arrivals are found all the same."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import aotcompile
from aotcompile.frontend.record import driver, recorder

pytestmark = pytest.mark.filterwarnings("ignore")


class Printing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        print(end="")
        return y + 1


class Reading(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.cos()
        return y * float(f"{y.sum().item():.2f}")


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([*(Printing() for _ in range(12)), Reading()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_loop_over_many_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []
    learn = driver.Frontend._learn

    def counted(frontend: driver.Frontend, records: list[object]) -> bool:
        rounds.append(sum(isinstance(record, recorder.FoundBreak) for record in records))
        return learn(frontend, records)

    monkeypatch.setattr(driver.Frontend, "_learn", counted)
    module, x = Layers(), torch.randn(3)
    made = aotcompile.compile(module, example_inputs=((x,), {}), backend="eager")
    torch.testing.assert_close(made(x), module(x))
    assert {"AOT201", "AOT203"} <= {each.code for each in aotcompile.info(made).breaks}
    assert all(region.hits and not region.misses for region in aotcompile.info(made).report().regions)
    assert max(rounds) < 12, rounds
