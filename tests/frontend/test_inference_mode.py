"""torch.inference_mode as decorator and block: what it holds is compiled, and gives inference tensors as in eager."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


def hits(function: Any) -> dict[str, int]:
    return {region.name: region.hits for region in aotcompile.info(function).report().regions if region.hits}


@torch.inference_mode()
def decorated(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y += 1
    return y if torch.is_inference_mode_enabled() else y * 100


def block(x: torch.Tensor) -> torch.Tensor:
    a = x.sin() + 1
    with torch.inference_mode():
        y = (a * 2).relu() + 1
    return y


class Decorated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    @torch.inference_mode()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()


@pytest.mark.parametrize("target", [decorated, block, Decorated()], ids=["decorated", "block", "module"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_results_are_inference_tensors(target: Any, requires_grad: bool) -> None:
    x = torch.randn(2, 3, requires_grad=requires_grad)
    made = aotcompile.compile(target, example_inputs=((x,), {}), backend="aot_eager")
    ours, eager = made(x), target(x)
    assert eager.is_inference() and ours.is_inference() and ours.requires_grad == eager.requires_grad
    torch.testing.assert_close(ours.clone(), eager.clone())
    assert sum(hits(made).values()) == (2 if target is block else 1)


def test_question_for_the_mode_is_guarded() -> None:
    def asks(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.is_inference_mode_enabled() else x * 3

    x = torch.randn(3)
    made = aotcompile.compile(asks, example_inputs=((x,), {}), backend="eager")
    with torch.inference_mode():
        assert torch.equal(made(x), x * 2)
    assert torch.equal(made(x), x * 3) and sum(hits(made).values()) == 1


class Counting:
    """A context manager with a break of its own."""

    def __enter__(self) -> "Counting":
        print(end="")
        return self

    def __exit__(self, *error: Any) -> None:
        print(end="")


def test_block_of_a_context_manager_with_a_break_is_compiled() -> None:
    def inside(x: torch.Tensor) -> torch.Tensor:
        a = x.sin() + 1
        with Counting():
            a = a.cos() * 2
        return a + 1

    x = torch.randn(3)
    made = aotcompile.compile(inside, example_inputs=((x,), {}), backend="eager")
    torch.testing.assert_close(made(x), inside(x))
    assert sum(hits(made).values()) == 3
