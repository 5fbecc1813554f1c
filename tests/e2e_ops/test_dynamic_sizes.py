"""Operators that must leave a dynamic size dynamic, down to 1."""
from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

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
    "a part is written": lambda x: _doubled_half(x.clone()),
    "range of floats": lambda x: torch.arange(0.0, float(x.shape[1])) * 2 + x.sum(),
}


def _doubled_half(x: torch.Tensor) -> torch.Tensor:
    x[:, :x.shape[1] // 2] *= 2
    return x


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


def test_a_batch_of_one_is_no_special_case_of_a_maximum() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x.amax(1, keepdim=True) - x + x.max(1)[0][:, None]

    compiled = aotcompile.compile(run, example_inputs=((torch.randn(2, 6, 3),), {}), dynamic_shapes=({0: "B", 1: "T"},), training=False)
    for sizes in ((2, 6), (1, 4), (3, 1), (1, 1)):
        x = torch.randn(*sizes, 3)
        torch.testing.assert_close(compiled(x), run(x))
    region, = aotcompile.info(compiled).report().regions
    assert region.hits == 4, region.last_miss
    with pytest.raises(IndexError):
        compiled(torch.randn(2, 0, 3))


# Parts of random programs: each line takes and leaves a tensor of three dimensions.
LINES = (
    "v = v[:, :v.shape[1] // 2 + 1]", "v = v[:, ::2]", "v = v.transpose(1, 2) @ v", "v = torch.cat([v, x], 1)",
    "v = v + torch.arange(v.shape[1])[None, :, None]",
    "v = F.pad(v, (0, 0, 1, 0))", "v = v * v.shape[0] + max(v.shape[1], 3)", "v = v[:, min(v.shape[1], 5) - 1:]", "v = v.roll(v.shape[1] // 3, 1)",
    "v = v.reshape(-1, v.shape[2]).cumsum(0).view(v.shape)", "v = v * 2 if v.shape[1] > 3 else v + 1", "v = v[:, -1:] + v",
    "v = v.new_zeros(v.shape[0], v.shape[1] * 2, v.shape[2]) + v.mean()", "v = (v @ v.transpose(1, 2)) @ v / v.shape[1]", "v = v[:, :y.shape[1]]",
    "v = F.interpolate(v.transpose(1, 2), scale_factor=2).transpose(1, 2)", "v = v * (x.shape[1] % 3) + y.shape[1] // 2", "v = v.amax(1, keepdim=True) - v",
    "v = v.clone(); v[:, :v.shape[1] // 2] += 1", "v = v + torch.linspace(0, 1, v.shape[1])[:, None]", "v = v[:, [0, -1]]", "v = v.diff(dim=1)",
)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int) -> None:
    """Right inside and outside of the ranges; a size outside misses."""
    chosen = random.Random(seed)
    text = "\n    ".join(["def program(x, y):", "v = x", *chosen.choices(LINES, k=3), "return v, v.shape[1], v.sum(1)"])
    names: dict[str, Any] = {"torch": torch, "F": F}
    exec(text, names)                                       # noqa: S102 - our own lines
    program = names["program"]
    same = bool(seed % 2)
    shapes = ({0: "B", 1: Dim("T", max=9)}, {0: "B", 1: "T" if same else "U"})
    example = (torch.randn(3, 7, 4), torch.randn(3, 7 if same else 5, 4))
    compiled = aotcompile.compile(program, example_inputs=(example, {}), dynamic_shapes=shapes, training=False)
    for batch, first, second in ((3, 7, 5), (4, 8, 4), (2, 2, 3), (1, 4, 4), (1, 1, 1), (2, 0, 3), (0, 3, 2), (2, 12, 3)):
        x, y = torch.randn(batch, first, 4), torch.randn(batch, first if same else second, 4)
        try:
            wanted = program(x, y)
        except Exception as error:                          # noqa: BLE001 - whatever eager raises
            with pytest.raises(type(error)):
                compiled(x, y)
            continue
        torch.testing.assert_close(compiled(x, y), wanted, rtol=1e-4, atol=1e-4)
    region, = aotcompile.info(compiled).report().regions
    assert region.hits >= 2 and region.misses >= 1, (text, region.last_miss)


def test_positions_within_a_size_of_0() -> None:
    """The kernel computes ``i % T`` for all lanes, also where the part of size ``T*n`` is empty: the CPU would trap."""
    def run(x: torch.Tensor, y: torch.Tensor, n: int) -> torch.Tensor:
        return torch.cat([(x * 2).repeat(1, n, 1), y], 1)

    compiled = aotcompile.compile(run, example_inputs=((torch.randn(3, 6, 4), torch.randn(3, 5, 4), 2), {}), dynamic=True, training=False)
    for size in (6, 3, 1, 0):
        x, y = torch.randn(2, size, 4), torch.randn(2, 3, 4)
        torch.testing.assert_close(compiled(x, y, 2), run(x, y, 2))
    region, = aotcompile.info(compiled).report().regions
    assert region.hits == 4, region.last_miss
