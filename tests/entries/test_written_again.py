"""A compiled function written to the folder of one that is in use."""
from __future__ import annotations

from pathlib import Path

import torch

import aotcompile


def test_the_first_one_still_works(tmp_path: Path) -> None:
    x = torch.randn(5, 16)
    first = aotcompile.compile(lambda x: torch.relu(x) + 1, example_inputs=((x,), {}), out=str(tmp_path / "built"))
    expected = torch.relu(x) + 1
    torch.testing.assert_close(first(x), expected)
    second = aotcompile.compile(lambda x: torch.tanh(x) * x.std(-1, keepdim=True), example_inputs=((x,), {}), out=str(tmp_path / "built"))
    torch.testing.assert_close(second(x), torch.tanh(x) * x.std(-1, keepdim=True))
    torch.testing.assert_close(first(x), expected)
    assert not list(tmp_path.rglob("*.new"))
