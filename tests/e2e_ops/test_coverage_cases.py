"""How the coverage lists compare."""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks" / "coverage"


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    import cases

    yield cases
    sys.modules.pop("cases", None)


def test_distance_from_float64(cases: Any) -> None:
    exact = {"result": torch.linspace(1.0, 2.0, 5, dtype=torch.float64), "gradients": [torch.zeros(3, dtype=torch.float64), torch.tensor([1, 2])]}

    def off(by: float, zero: float = 0.0, number: int = 1) -> dict[str, Any]:
        return {"result": (exact["result"] + by).float(), "gradients": [torch.full((3,), zero), torch.tensor([number, 2])]}

    assert not cases.further_from_exact([off(0.0), off(1e-2)], off(-1.5e-2), exact)
    assert "tensor 0" in cases.further_from_exact([off(1e-3)], off(1e-2), exact)                # ten times as far as eager
    assert "tensor 0" in cases.further_from_exact([off(1.0)], off(1.0), exact)                  # as far as eager, but both are guesses
    assert not cases.further_from_exact([off(1e-3)], off(1e-3, zero=1e-7), exact)               # rounding where the exact gradient is zero
    assert "tensor 1" in cases.further_from_exact([off(1e-3)], off(1e-3, zero=1e-3), exact)
    assert "another torch.int64" in cases.further_from_exact([off(1e-3)], off(1e-3, number=3), exact)
