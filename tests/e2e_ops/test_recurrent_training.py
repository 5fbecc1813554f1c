"""Training recurrent modules whose input needs no gradient: eager takes oneDNN's layer, which gives its backward a workspace in grad mode only."""
from __future__ import annotations

import copy
from pathlib import Path
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


@pytest.mark.parametrize("backend", ["native", "aot_eager", "eager"])
@pytest.mark.parametrize(("kind", "options"), [
    (torch.nn.LSTM, {"num_layers": 2, "batch_first": True}), (torch.nn.GRU, {"bidirectional": True}), (torch.nn.RNN, {"nonlinearity": "relu"}),
    (torch.nn.LSTM, {"proj_size": 2})], ids=lambda value: value.__name__ if isinstance(value, type) else "")
def test_any_length(kind: type[torch.nn.Module], options: dict[str, Any], backend: str) -> None:
    """A dynamic length is served by one variant, with gradients of the input too; the input of length 0 raises as in eager."""
    torch.manual_seed(0)
    eager = kind(4, 3, **options)
    module = copy.deepcopy(eager)
    shapes = ({0: "B", 1: "T"},)
    built = aotcompile.compile(module, example_inputs=((torch.randn(2, 5, 4, requires_grad=True),), {}), dynamic_shapes=shapes, backend=backend)
    for sizes in ((2, 5), (7, 3), (1, 1), (3, 20)):
        x = torch.randn(*sizes, 4, requires_grad=True)
        gradients = []
        for function in (eager, built):
            output, state = function(x)
            states = state if isinstance(state, tuple) else (state,)
            loss = sum(each.square().sum() for each in (output, *states))
            gradients.append((output.detach(), *(each.detach() for each in states), *torch.autograd.grad(loss, [x, *function.parameters()])))
        torch.testing.assert_close(gradients[1], gradients[0])
    regions = aotcompile.info(built).report().regions
    assert sum(region.misses for region in regions) == 0 and sum(region.hits for region in regions) == 4
    empty = torch.randn(2, 0, 4) if options.get("batch_first") else torch.randn(0, 2, 4)
    with pytest.raises(RuntimeError, match="larger than 0"):
        eager(empty)
    with pytest.raises(RuntimeError, match="larger than 0"):
        built(empty)


def test_a_long_sequence_is_one_operator() -> None:
    """And not as many operators as there are steps."""
    torch.manual_seed(0)
    module = torch.nn.GRU(4, 3)
    x = torch.randn(300, 2, 4)
    built = aotcompile.compile(module, example_inputs=((x,), {}), training=True)
    for a, b in zip(torch.autograd.grad(built(x)[0].square().sum(), list(module.parameters())),
                    torch.autograd.grad(module(x)[0].square().sum(), list(module.parameters()))):
        torch.testing.assert_close(a, b)
    [forward] = (built_path for built_path in Path(aotcompile.info(built).out).glob("**/forward.py"))
    assert forward.read_text().count("torch.ops.aten") < 12
