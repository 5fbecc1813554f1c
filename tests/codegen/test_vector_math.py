"""Accuracy of the kernels' elementary functions against double precision, on all CPU levels that this machine runs."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from codegen_running import Builder, build

from aotcompile.package.cpp_build import LEVELS, native_target

LIMITS = {"exp": 1.1, "exp2": 1.1, "expm1": 1.6, "log": 1.1, "log2": 1.6, "log10": 2.0, "log1p": 1.6, "sin": 1.6, "cos": 1.6, "tanh": 1.5, "erf": 1.3,
          "sqrt": 0.51, "rsqrt": 1.6, "floor": 0.0, "ceil": 0.0, "round": 0.0, "trunc": 0.0}
RUNNABLE = ["cpu", *(name for name in LEVELS if name <= native_target())]


def samples() -> torch.Tensor:
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32).view(np.float32)        # every exponent, denormals, nan, inf
    parts = [bits, *(random.uniform(-bound, bound, 50_000).astype(np.float32) for bound in (1.0, 12.0, 110.0)), random.uniform(0.5, 2, 50_000).astype(np.float32)]
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 88.72283, 88.72284, 89, -87.3, -103.9, -104.1, 1e5, 1e30, 0.625, 1e-45], np.float32)
    return torch.from_numpy(np.concatenate([*parts, special]))


@pytest.mark.parametrize("target", RUNNABLE)
def test_elementary_functions(target: str) -> None:
    b = Builder()
    x = b.input("x", [len(samples())])
    names = [b.apply(operator, x) for operator in LIMITS]
    value = samples()
    for operator, got in zip(LIMITS, build(b.program(*names), target)([value])):
        exact = getattr(torch, operator)(value.double())
        single = exact.float()
        assert torch.equal(got.isnan(), single.isnan()), operator
        infinite = got.isinf() | single.isinf()
        assert torch.equal(got[infinite], single[infinite]), operator
        finite = single.isfinite()
        spacing = torch.from_numpy(np.spacing(np.maximum(np.abs(single[finite].numpy()), np.float32(1.2e-38)))).double()
        error = ((got[finite].double() - exact[finite]).abs() / spacing).max().item()
        assert error <= LIMITS[operator], f"{operator}: {error:.2f} units in the last place"
        zero = (value == 0) & (single == 0)
        assert torch.equal(torch.signbit(got[zero]), torch.signbit(single[zero])), operator


def test_the_headers_are_shipped_next_to_the_generator() -> None:
    from aotcompile.codegen.cpp import source
    assert sorted(path.name for path in Path(source.__file__).with_name("include").iterdir()) == [
        "aotcompile_instructions.h", "aotcompile_math.h", "aotcompile_parallel.h", "aotcompile_vector.h"]
