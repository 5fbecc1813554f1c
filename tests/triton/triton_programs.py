"""Functions whose kernels are checked: in the interpreter here, on a GPU by tests/gpu. Each with a maker of its inputs."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Program = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]


def r(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed + sum(sizes))).to(dtype)


def with_nan(*sizes: int) -> torch.Tensor:
    found = r(*sizes)
    found[0, -1] = float("nan")
    found[1, 0] = float("-inf")
    found[2] = float("-inf")
    found[3] = 1.0
    return found


def cumulative(x: torch.Tensor) -> torch.Tensor:
    """A chain of stages over rows that are read back."""
    centered = x - x.mean(-1, keepdim=True)
    scaled = torch.tanh(centered) / centered.abs().amax(-1, keepdim=True)
    return scaled * torch.rsqrt((scaled * scaled).mean(-1, keepdim=True) + 1e-5)


half = torch.bfloat16
PROGRAMS: dict[str, Program] = {
    "pointwise": (lambda x, y: torch.sin(x) * torch.cos(y) + torch.tanh(x), lambda: (r(33, 7), r(33, 7, seed=1))),
    "pointwise_large": (lambda x, y: x * y + 1, lambda: (r(1 << 19), r(1 << 19, seed=1))),
    "broadcast": (lambda x, y: (x + y).relu() * 0.1, lambda: (r(6, 1, 5), r(4, 1))),
    "half": (lambda x, y: torch.nn.functional.gelu(x * 3 + y) * 0.1, lambda: (r(40, 9, dtype=half), r(9, dtype=half))),
    "float16": (lambda x: torch.exp(x) / 3, lambda: (r(50, dtype=torch.float16),)),
    "double": (lambda x: x * 0.1 + 1 / 3, lambda: (r(50, dtype=torch.float64),)),
    "integers": (lambda x: (x * 3 // 4) % 5 + (x >> 1), lambda: (torch.arange(-30, 31),)),
    "small_integers": (lambda x: x + x * 3, lambda: (torch.arange(0, 250, dtype=torch.uint8),)),
    "booleans": (lambda x, y: (x > 0) & (y < 0.5) | (x == y), lambda: (r(70), r(70, seed=3))),
    "transpose": (lambda x: x.t().contiguous() + 1, lambda: (r(13, 21),)),
    "strided": (lambda x: x * 2 + x.flip(0), lambda: (r(12, 9).t()[::2],)),
    "softmax": (lambda x: torch.softmax(x, -1), lambda: (r(9, 100),)),
    "softmax_rows_of_one": (lambda x: torch.softmax(x, -1), lambda: (r(9, 1),)),
    "softmax_first": (lambda x: torch.softmax(x, 0), lambda: (r(50, 70),)),
    "softmax_half": (lambda x: torch.softmax(x, -1), lambda: (r(5, 130, dtype=half),)),
    "softmax_4200": (lambda x: torch.softmax(x, -1), lambda: (r(3, 4200),)),
    "softmax_long": (lambda x: torch.log_softmax(x, -1), lambda: (r(64, 17000),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (96,), w, b), lambda: (r(7, 96), r(96), r(96, seed=1))),
    "layer_norm_long": (lambda x, w, b: F.layer_norm(x, (17001,), w, b), lambda: (r(64, 17001), r(17001), r(17001, seed=1))),
    "rms": (lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w, lambda: (r(8, 64, dtype=half), r(64, dtype=half))),
    "read_back": (cumulative, lambda: (r(64, 16500),)),
    "read_back_short": (cumulative, lambda: (r(4, 45),)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), lambda: (r(6, 5, 4, 4), r(5), r(5, seed=1))),
    "sums": (lambda x: (x.sum(), x.sum(0), x.sum(1), x.mean((0, 2))), lambda: (r(10, 20, 30).abs(),)),
    "sum_long": (lambda x: (x.sum(), x.sin().amax()), lambda: (r(20000).abs(),)),
    "sum_integers": (lambda x: (x.sum(1), x.prod(0)), lambda: (torch.randint(-3, 4, (9, 17), generator=torch.Generator().manual_seed(1)),)),
    "sum_half": (lambda x: x.sum(1), lambda: (r(9, 517, dtype=half),)),
    "extremes": (lambda x: (x.amax(1), x.amin(1), x.argmax(1), x.argmin(1)), lambda: (with_nan(9, 40),)),
    "extremes_long": (lambda x: (x.amax(1), x.argmax(1), x.argmin(1)), lambda: (with_nan(64, 16500),)),
    "extremes_columns": (lambda x: (x.amax(0), x.argmax(0)), lambda: (with_nan(40, 70),)),
    "any_all": (lambda x: ((x > 2).any(1), (x > -2).all(1), (x > 3).any()), lambda: (r(20, 30),)),
    "empty_rows": (lambda x: x.sum(1), lambda: (r(4, 0),)),
    "empty": (lambda x: x + 1, lambda: (r(0, 4),)),
    "one": (lambda x: x + 1, lambda: (r(1),)),
    "scalar": (lambda x, y: x * y, lambda: (r(), r(3, 3))),
    "full": (lambda x: torch.full((5, 5), 2.5) + torch.arange(5) + x, lambda: (r(5, 5),)),
    "pad_cat": (lambda x, y: torch.cat([F.pad(x, (1, 2)), y], 0), lambda: (r(5, 7), r(3, 10))),
    "gather": (lambda x, i: torch.gather(x, 1, i), lambda: (r(6, 9), torch.randint(0, 9, (6, 4), generator=torch.Generator().manual_seed(1)))),
    "embedding": (lambda w, i: F.embedding(i, w) * 2, lambda: (r(20, 16), torch.tensor([[1, 19, 0], [4, 4, 2]]))),
    "index": (lambda x, i, j: x[i, j] + x[-1, -1], lambda: (r(6, 9), torch.tensor([0, -1, 3]), torch.tensor([8, 2, -9]))),
    "index_add": (lambda x, i, y: torch.index_add(x, 0, i, y), lambda: (r(6, 9), torch.tensor([0, 3, 3, 5]), r(4, 9))),
    "scatter_add": (lambda x, i, y: torch.scatter_add(x, 1, i, y), lambda: (r(4, 9), torch.tensor([[0, 3, 3], [8, 8, 8], [1, 2, 3], [0, 0, 1]]), r(4, 3))),
    "scatter_add_bytes": (lambda x, i, y: torch.scatter_add(x, 0, i, y),
                          lambda: (torch.arange(6, dtype=torch.int8), torch.tensor([0, 3, 3, 5]), torch.tensor([100, 100, 5, 3], dtype=torch.int8))),
    "index_put": (lambda x, i, y: torch.index_put(x, (i,), y), lambda: (r(6, 9), torch.tensor([0, 3, 5]), r(3, 9))),
    "where_masked": (lambda x: torch.where(x > 0, x, torch.tensor(float("-inf"))).amax(1), lambda: (r(6, 9),)),
    "attention_mask": (lambda s: torch.softmax(s.masked_fill(torch.ones(12, 12, dtype=torch.bool).triu(1), float("-inf")), -1), lambda: (r(2, 12, 12),)),
    "matrix_product": (lambda x, w, b: torch.relu(x @ w + b), lambda: (r(5, 6), r(6, 7), r(7))),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), lambda: (r(8, 50), torch.randint(0, 50, (8,), generator=torch.Generator().manual_seed(2)))),
}

TOO_LARGE_TO_INTERPRET = frozenset({"pointwise_large", "softmax_4200", "softmax_long", "layer_norm_long", "read_back", "extremes_long"})
ROWS = ("softmax", "softmax_first", "softmax_half", "layer_norm", "rms", "read_back_short", "batch_norm", "sums", "sum_integers", "sum_half", "extremes",
        "extremes_columns", "any_all", "where_masked", "attention_mask", "cross_entropy")
