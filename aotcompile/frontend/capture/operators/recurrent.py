"""Recurrent layers that torch's Python form does not serve, written as one call per layer.

    torch.gru(x, h, weights, True, 2, 0.5, True, False, False)       stacked, with dropout between: the Python form leaves the dropout out
        ->  x, h0 = torch.gru(x, h[0:1], weights[:4], True, 1, 0.0, ...); x = dropout(x, 0.5); x, h1 = torch.gru(x, h[1:2], weights[4:], True, 1, ...)

    torch.gru(x, h, weights, True, 1, 0.0, True, False, False)       x of a dynamic or a great length: the Python form is a loop, written out
        ->  x, h, _ = torch.ops.aotcompile.recurrent_layer("gru", x, None, [h], weights, True, False)

Checked on torch 2.11 to 2.14 (`torch._decomp.decompositions._rnn_helper`). The operator is the runtime's (`runtime/operators/recurrent.py`).
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotcompile.frontend.capture.signals import GraphBreak
from aotcompile.frontend.torch_private import in_transform

LONGEST_WRITTEN_OUT = 16             # steps
_WRONG_PROJECTIONS = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12)


def in_layers(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``: `torch.lstm`, `torch.gru`, `torch.rnn_tanh` or `torch.rnn_relu`. Packed sequences have another signature and are passed on."""
    def layers(input: torch.Tensor, hx: Any, params: Any, has_biases: Any, num_layers: Any, dropout: Any, *rest: Any) -> Any:
        whole = (input, hx, params, has_biases, num_layers, dropout, *rest)
        if not isinstance(params, (tuple, list)) or len(rest) != 3 or not isinstance(num_layers, int):
            return function(*whole)
        train, bidirectional, batch_first = rest
        as_operator = _is_operator(input, batch_first)
        if not as_operator and _WRONG_PROJECTIONS and isinstance(hx, tuple) and hx[0].shape[-1] != hx[1].shape[-1]:
            raise GraphBreak("AOT205", "an LSTM with projections, whose form in this torch gives its state a dimension more")
        if not as_operator and (num_layers < 2 or not dropout or not train):
            return function(*whole)
        states: Sequence[torch.Tensor] = [hx] if isinstance(hx, torch.Tensor) else list(hx)
        one_layer = functools.partial(_operator if as_operator else _call, function, has_biases, train, bidirectional)
        rows, weights = 2 if bidirectional else 1, len(params) // num_layers
        final: list[list[torch.Tensor]] = [[] for _ in states]
        sequence = input.transpose(0, 1) if batch_first else input
        for layer in range(num_layers):
            if layer and dropout and train:
                sequence = torch.dropout(sequence, dropout, True)
            own = [state[layer * rows:(layer + 1) * rows] for state in states] if num_layers > 1 else states
            sequence, *ended = one_layer(sequence, own, params[layer * weights:(layer + 1) * weights])
            for kept, state in zip(final, ended):
                kept.append(state)
        return (sequence.transpose(0, 1) if batch_first else sequence, *(torch.cat(kept) if num_layers > 1 else kept[0] for kept in final))
    return layers


def _is_operator(input: torch.Tensor, batch_first: bool) -> bool:
    """Whether a layer is the runtime's operator, which is neither batched nor cast."""
    if input.dim() != 3 or in_transform() or torch.is_autocast_enabled(input.device.type):
        return False
    length = input.shape[1 if batch_first else 0]
    return isinstance(length, torch.SymInt) or length > LONGEST_WRITTEN_OUT


def _call(function: Callable[..., Any], has_biases: bool, train: bool, bidirectional: bool, sequence: torch.Tensor, states: Sequence[torch.Tensor],
          weights: Sequence[torch.Tensor]) -> Any:
    given = tuple(states) if function is torch.lstm else states[0]
    return function(sequence, given, weights, has_biases, 1, 0.0, train, bidirectional, False)


def _operator(function: Callable[..., Any], has_biases: bool, train: bool, bidirectional: bool, sequence: torch.Tensor,
              states: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> Any:
    return torch.ops.aotcompile.recurrent_layer(function.__name__, sequence, None, list(states), list(weights), has_biases, bidirectional)


RECURRENT: dict[Any, Callable[..., Any]] = {function: in_layers(function) for function in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)}
