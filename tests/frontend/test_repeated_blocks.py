"""Loops over equal blocks with breaks in them: the loop stays, and all iterations share one variant of each region."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")
BLOCKS = 10                                  # more than the variants that a region may have


class Block(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.norm, self.linear, self.index = nn.LayerNorm(4), nn.Linear(4, 4), index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(self.norm(x)))


class Printing(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        print("block", self.index, tuple(y.shape))
        return y * 2 - x


class Branching(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.norm(x))
        if y.sum() > 0:
            y = y * 2
        return x + y


class Model(nn.Module):
    def __init__(self, block: type[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block(index) for index in range(BLOCKS))
        self.plain = list(self.blocks)
        self.at = 0


class OverModules(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class BreakInTheLoop(Model):
    def forward(self, x: torch.Tensor) -> Any:
        seen = []
        for number, block in enumerate(self.blocks[1:]):
            x = block(x)
            print("after", number)
            seen.append(x)
        return x, seen


class OverPositions(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in range(len(self.blocks)):
            x = x * 0.5 + self.blocks[i](x)
            print("after", i)
        return x


class While(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        i = len(self.plain) - 1
        while i >= 0:
            x = self.plain[i](x)
            print("after", i)
            i -= 1
        return x


def variants(folder: Path) -> dict[str, int]:
    """Region -> how many situations it is compiled for."""
    return {str(region.relative_to(folder)): len(list(region.glob("v*"))) for region in folder.rglob("r[0-9]*") if region.is_dir()}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("model", "block"), [(OverModules, Printing), (OverModules, Branching), (BreakInTheLoop, Block), (OverPositions, Block),
                                              (OverPositions, Printing), (While, Block)])
def test_all_iterations_share_a_variant(model: type[Model], block: type[Block], requires_grad: bool, tmp_path: Path,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    original, x = model(block).requires_grad_(requires_grad), torch.randn(3, 4, requires_grad=requires_grad)
    compiled = aotcompile.compile(original, example_inputs=((x,), {}), backend="eager", out=str(tmp_path), training=None)
    found = variants(tmp_path)
    # With gradients: for inference, for training, and for what requires no gradient while gradients are on.
    assert found and max(found.values()) <= (3 if requires_grad else 1)
    [source] = [path for path in tmp_path.rglob("source.py") if f"{model.__name__}.forward" in str(path)]
    assert ("while " if model is While else "for ") in source.read_text(encoding="utf-8")
    capsys.readouterr()
    expected = original(x)
    said = capsys.readouterr().out
    got = compiled(x)
    assert capsys.readouterr().out == said
    torch.testing.assert_close(got, expected)
    regions = aotcompile.info(compiled).report().regions
    assert max(region.calls for region in regions) >= BLOCKS - 1 and all(region.hits == region.calls for region in regions)


def test_one_position_is_no_reason_to_break() -> None:
    class Chosen(Model):
        def forward(self, x: torch.Tensor, position: int) -> torch.Tensor:
            return self.blocks[position](x) + self.blocks[0](x)
    x = torch.randn(3, 4)
    original = Chosen(Block)
    compiled = aotcompile.compile(original, example_inputs=((x, 3), {}), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, 3), original(x, 3))
    torch.testing.assert_close(compiled(x, 4), original(x, 4))
