"""Operators that must leave a dynamic size dynamic, down to 1."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import aotcompile

WEIGHT = torch.linspace(-1, 1, 32).reshape(8, 4)
PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "linear without a bias": lambda x: F.linear(x, WEIGHT).split(4, dim=2)[0] * x.shape[1],
    "layer_norm": lambda x: F.layer_norm(x, (4,)).view(-1, 4).mean(0),
    "matmul": lambda x: x @ x.transpose(1, 2),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True).contiguous().view(2, x.shape[1], 4),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_size_stays_dynamic(name: str) -> None:
    program = PROGRAMS[name]

    def run(x: torch.Tensor) -> torch.Tensor:
        return program(x)

    compiled = aotcompile.compile(run, example_inputs=((torch.randn(2, 5, 4),), {}), dynamic_shapes={"x": {1: "T"}}, backend="eager")
    for size in (5, 9, 2, 1):
        x = torch.randn(2, size, 4)
        torch.testing.assert_close(compiled(x), program(x))
    region, = aotcompile.info(compiled).report().regions
    assert region.hits == 4, region.last_miss


SQUARE = torch.linspace(-1, 1, 9).reshape(3, 3)
SIZES = ((2, 6), (2, 9), (3, 3), (2, 2), (2, 1), (1, 5), (1, 1), (2, 0), (0, 4), (5, 5))
TWO_SIZES: dict[str, Callable[[torch.Tensor], object]] = {
    "einsum": lambda x: (torch.einsum("bic,cd->bid", x, SQUARE), torch.einsum("bic,bjc->bij", x, x), torch.einsum("...ic,cd->...id", x, SQUARE)),
    "cross_entropy": lambda x: F.cross_entropy(x.reshape(-1, 3), x.new_zeros(x.shape[0] * x.shape[1], dtype=torch.int64), reduction="none"),
    "halves": lambda x: x[:, :x.shape[1] // 2].sum(1) + x[:, x.shape[1] // 2:].sum(1),
    "stack": lambda x: torch.stack([x, x * 2], 1).flatten(1, 2),
    "gather": lambda x: x.gather(1, x.new_zeros(x.shape[0], x.shape[1], 1, dtype=torch.int64)),
    "repeat": lambda x: (x.repeat_interleave(2, 1), x.repeat(1, 2, 1)),
    "normalize": lambda x: (F.layer_norm(x, (3,)), F.normalize(x, dim=1)),
    "identity": lambda x: torch.eye(x.shape[1]) @ x,
    "range of floats": lambda x: torch.arange(0.0, float(x.shape[1])) * 2 + x.sum(),
}


@pytest.mark.parametrize("name", TWO_SIZES)
def test_one_variant_serves_sizes_0_and_1_and_equal_ones(name: str) -> None:
    program = TWO_SIZES[name]

    def run(x: torch.Tensor) -> object:
        return program(x)

    compiled = aotcompile.compile(run, example_inputs=((torch.randn(2, 6, 3),), {}), dynamic_shapes=({0: "B", 1: "T"},), training=False)
    for sizes in SIZES:
        x = torch.randn(*sizes, 3)
        torch.testing.assert_close(compiled(x), program(x))
    region, = aotcompile.info(compiled).report().regions
    assert region.hits == len(SIZES), region.last_miss


def test_a_recurrent_layer_is_not_given_empty_sequences() -> None:
    layer = torch.nn.LSTM(3, 4, batch_first=True)

    def run(x: torch.Tensor) -> torch.Tensor:
        return layer(x)[0]

    compiled = aotcompile.compile(run, example_inputs=((torch.randn(2, 6, 3),), {}), dynamic_shapes=({0: "B", 1: "T"},), training=False)
    with torch.no_grad():
        for sizes in ((2, 6), (1, 1), (3, 9), (0, 4)):
            x = torch.randn(*sizes, 3)
            torch.testing.assert_close(compiled(x), run(x))
        for function in (run, compiled):
            with pytest.raises(RuntimeError, match="larger than 0"):
                function(torch.randn(2, 0, 3))


def last_rows(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x[-1:], x[1:], x.narrow(0, 0, 1)


def turned(x: torch.Tensor) -> torch.Tensor:
    return x.permute(1, 0).contiguous()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [last_rows, turned])
def test_views_of_sizes_0_and_1(function: Any, backend: str) -> None:
    """Two sizes among the examples: the second variant serves all; what is a view at size 1 alone, or raises at size 0, is eager there."""
    made = aotcompile.compile(function, example_inputs=[((torch.ones(size, 4),), {}) for size in (3, 5)], backend=backend)
    for size in (7, 2, 1, 0):
        x, y = torch.randn(2, size, 4).unbind()
        y.copy_(x)
        try:
            want = function(x)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                made(y)
            continue
        got = made(y)
        for a, b in zip(want if isinstance(want, tuple) else (want,), got if isinstance(got, tuple) else (got,), strict=True):
            assert (a.shape, a.stride()) == (b.shape, b.stride())
            a.zero_(), b.zero_()
        torch.testing.assert_close(y, x, rtol=0, atol=0)                    # shared memory is shared
    region, = aotcompile.info(made).report().regions
    assert region.hits >= 2
