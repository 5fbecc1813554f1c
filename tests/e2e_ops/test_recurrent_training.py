"""Training recurrent modules whose input needs no gradient: eager takes oneDNN's layer, which gives its backward a workspace in grad mode only."""
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import aotcompile


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("dynamic", [None, ({0: "T", 1: "B"},)], ids=["static", "dynamic"])
def test_lstm(native: bool, dynamic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr("aotcompile.runtime.loader.native", lambda package: None)
    torch.manual_seed(0)
    eager = torch.nn.LSTM(4, 3, num_layers=1, bidirectional=True)
    module = copy.deepcopy(eager)
    built = aotcompile.compile(module, example_inputs=((torch.randn(5, 2, 4),), {}), dynamic_shapes=dynamic)
    for length, batch in [(5, 2)] + [(1, 1), (7, 3)] * (dynamic is not None):
        x = torch.randn(length, batch, 4)
        wanted, found = eager(x)[0], built(x)[0]
        torch.testing.assert_close(found, wanted)
        wanted.square().sum().backward()
        found.square().sum().backward()
    for a, b in zip(eager.parameters(), module.parameters()):
        torch.testing.assert_close(b.grad, a.grad)
    assert sum(region.misses for region in aotcompile.info(built).report().regions) == 0


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("kind", "options"), [
    (torch.nn.LSTM, {"batch_first": True}), (torch.nn.LSTM, {"bidirectional": True, "proj_size": 2}), (torch.nn.GRU, {"bidirectional": True}),
    (torch.nn.RNN, {"nonlinearity": "relu", "batch_first": True})], ids=lambda value: value.__name__ if isinstance(value, type) else "")
def test_dropout_between_layers(kind: type[torch.nn.Module], options: dict[str, Any], training: bool) -> None:
    torch.manual_seed(0)
    module = kind(4, 3, num_layers=3, dropout=0.4, **options).train(training)
    x = torch.randn(3, 2, 4)

    def run(function: Any) -> Any:
        torch.manual_seed(1)
        output, state = function(x)
        return output, state, torch.autograd.grad(output.square().sum(), list(module.parameters())), torch.rand(1)

    built = aotcompile.compile(module, example_inputs=((x,), {}), backend="aot_eager")
    wanted, found = run(module), run(built)
    torch.testing.assert_close(found, wanted)
    assert found[0].stride() == wanted[0].stride()
    # Training an LSTM, and projections, stay eager before torch 2.12.
    assert [region.hits for region in aotcompile.info(built).report().regions] == [1] or torch.__version__ < "2.12"
