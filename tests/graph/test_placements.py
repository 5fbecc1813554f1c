"""Which variant is built for which device."""
from __future__ import annotations

import pytest
import torch
from captured import capture

from aotcompile.frontend.types import CapturedVariant
from aotcompile.pipeline.retarget import placements


def variant(device: str) -> CapturedVariant:
    return capture(lambda x: torch.relu(x), (torch.ones(3),), device=device)


def devices(captured: CapturedVariant) -> set[str]:
    return {given.facts.device for given in captured.inputs if given.facts is not None}


@pytest.mark.parametrize(("device", "targets", "expected"), [
    ("cpu", ("native",), ["cpu"]),
    ("cpu", ("cpu:x86-64-v3", "cuda:sm_90"), ["cpu", "cuda"]),          # captured on the CPU, built for a GPU as well
    ("cuda", ("native",), ["cuda"]),                                    # this machine's GPU, on which it was captured
    ("cuda", ("native", "cuda:sm_80"), ["cuda"]),
    ("cuda", ("cuda:sm_90",), ["cuda"]),
    ("cuda", ("cpu",), []),
])
def test_devices(device: str, targets: tuple[str, ...], expected: list[str]) -> None:
    placed = placements([variant(device)], targets)
    assert [where for _, where in placed] == expected
    assert all(devices(moved) == {where} for moved, where in placed)
