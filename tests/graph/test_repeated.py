"""Programs whose operators are traced one by one: the same graphs as from one trace of the whole."""
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from captured import capture
from test_aot import CASES, check_inference, check_training, tensor

from aotcompile.graph import aot
from aotcompile.graph.aten_source import aten_source
from aotcompile.graph.tracing import repeated

WHOLE = {"in_place_views", "several", "autocast_inside"}          # written in place; a result that is no tensor; casts that are kept


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Every program is tried; gives a list of whether it was traced operator by operator."""
    monkeypatch.setattr(repeated, "MINIMUM_CALLS", 0)
    monkeypatch.setattr(repeated, "MAXIMUM_SHARE", 1.0)
    trace, outcomes = aot._trace_repeated, []

    def noted(*arguments: Any) -> Any:
        found = trace(*arguments)
        outcomes.append(found is not None)
        return found

    monkeypatch.setattr(aot, "_trace_repeated", noted)
    return outcomes


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("training", [False, True])
def test_against_eager(name: str, training: bool, always: list[bool]) -> None:
    function, inputs = CASES[name]
    graphs = aot.build_aten_graphs(capture(function, inputs), training=training)
    assert always == [name not in WHOLE]
    (check_training if training else check_inference)(function, graphs, inputs)


def deep(x, w, scale, table, i):
    for _ in range(8):
        y = F.layer_norm(x, (8,), scale, None)
        parts = (y @ w).split([8, 8, 8], -1)
        a, b = parts[0], parts[1]
        q = torch.softmax(a @ b.transpose(-2, -1) / 3.0, -1)
        x = x + F.dropout(q @ b, 0.2, True) * y.detach() + F.embedding(i, table).squeeze(0)
        x = x.transpose(0, 1).contiguous().t() * 0.5 + x.expand(2, 4, 8).sum(0) * 0.1
        x = x - x.max(-1, keepdim=True)[0].to(torch.float64) * torch.tensor(0.5)
    return x, x.sum()


DEEP: list[Any] = [*(tensor(*sizes, grad=True, dtype=torch.float64) for sizes in ((4, 8), (8, 24), (8,), (5, 8))), torch.tensor([[1, 2, 2, 4]])]


@pytest.mark.parametrize("training", [False, True])
def test_deep_program(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts with several results of which some are unused, views, random numbers, constants, values used twice; traced for each kind once."""
    traced = []
    trace = repeated.trace_functional
    monkeypatch.setattr(repeated, "trace_functional", lambda *arguments: traced.append(1) or trace(*arguments))
    variant = capture(deep, DEEP)
    graphs = aot.build_aten_graphs(variant, training=training)
    assert 0 < len(traced) < (80 if training else 45) < repeated.MINIMUM_CALLS < len(variant.nodes)
    (check_training if training else check_inference)(deep, graphs, DEEP)
    if not training:
        monkeypatch.setattr(aot, "_trace_repeated", lambda *arguments: None)
        whole = aot.build_aten_graphs(variant, training=training)
        assert aten_source(graphs.forward, "inference") == aten_source(whole.forward, "inference")


def test_arguments_that_compare_equal_but_differ() -> None:
    keys = {repeated._constant_key(value, repeated._anything) for value in (1, 1.0, True, -0.0, 0.0, 0, False, (1,), [1], torch.float32, None, "None")}
    assert len(keys) == 12


def test_in_place_far_down_is_traced_as_a_whole() -> None:
    def function(x):
        for _ in range(60):
            x = x * 2 + 1
        x.view(-1)[:1].add_(5)
        return x

    inputs = [tensor(3, 4)]
    check_inference(function, aot.build_aten_graphs(capture(function, inputs), training=False), inputs)
