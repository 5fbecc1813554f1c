"""The operator for recurrent layers against torch's own layers: results and gradients, padded and packed."""
from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import aotcompile.runtime.operators.recurrent  # noqa: F401  (it registers the operator)

KINDS: dict[str, Any] = {"rnn_tanh": torch.nn.RNN, "rnn_relu": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}


@pytest.mark.parametrize(("kind", "bidirectional", "packed", "projected"),
                         [case for case in itertools.product(KINDS, (False, True), (False, True), (False, True)) if case[0] == "lstm" or not case[3]])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_one_layer(kind: str, bidirectional: bool, packed: bool, projected: bool, bias: bool) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"nonlinearity": "relu"} if kind == "rnn_relu" else {"proj_size": 2} if projected else {}
    weights = list(KINDS[kind](4, 5, bidirectional=bidirectional, bias=bias, dtype=torch.float64, **options).parameters())
    x = torch.randn(6, 3, 4, dtype=torch.float64, requires_grad=True)
    states = [torch.randn(1 + bidirectional, 3, size, dtype=torch.float64, requires_grad=True) for size in ((2 if projected else 5), 5)]
    states = states if kind == "lstm" else states[1:]
    data, batch_sizes = x, None
    if packed:
        data, batch_sizes, *_ = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 2]))
    given = states if kind == "lstm" else states[0]
    if packed:
        wanted = getattr(torch, kind)(data, batch_sizes, given, weights, bias, 1, 0.0, False, bidirectional)
    else:
        wanted = getattr(torch, kind)(data, given, weights, bias, 1, 0.0, False, bidirectional, False)
    found = torch.ops.aotcompile.recurrent_layer(kind, data, batch_sizes, states, weights, bias, bidirectional)
    factors = [torch.randn_like(each) for each in wanted]
    inputs = [x, *states, *weights]
    gradients = [torch.autograd.grad(sum((a * b).sum() for a, b in zip(each, factors)), inputs, retain_graph=True) for each in (wanted, found)]
    for a, b in zip((*wanted, *gradients[0]), (*found[:len(wanted)], *gradients[1])):
        torch.testing.assert_close(b, a)
