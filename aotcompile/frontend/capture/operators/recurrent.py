"""Recurrent layers that are stacked with dropout between them, written as one call per layer: torch's Python form of them leaves the dropout out.

    torch.gru(x, h, weights, True, 2, 0.5, True, False, False)
        ->  x, h0 = torch.gru(x, h[0:1], weights[:4], True, 1, 0.0, ...); x = dropout(x, 0.5); x, h1 = torch.gru(x, h[1:2], weights[4:], True, 1, ...)

Checked on torch 2.11 to 2.14 (`torch._decomp.decompositions._rnn_helper`).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotcompile.frontend.capture.signals import GraphBreak

_WRONG_PROJECTIONS = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12)


def in_layers(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``: `torch.lstm`, `torch.gru`, `torch.rnn_tanh` or `torch.rnn_relu`. Packed sequences have another signature and are passed on."""
    def layers(input: torch.Tensor, hx: Any, params: Any, has_biases: Any, num_layers: Any, dropout: Any, *rest: Any) -> Any:
        whole = (input, hx, params, has_biases, num_layers, dropout, *rest)
        if _WRONG_PROJECTIONS and isinstance(hx, tuple) and hx[0].shape[-1] != hx[1].shape[-1]:
            raise GraphBreak("AOT205", "an LSTM with projections, whose form in this torch gives its state a dimension more")
        if not isinstance(params, (tuple, list)) or len(rest) != 3 or not isinstance(num_layers, int) or num_layers < 2 or not dropout or not rest[0]:
            return function(*whole)
        train, bidirectional, batch_first = rest
        states: Sequence[torch.Tensor] = [hx] if isinstance(hx, torch.Tensor) else list(hx)
        rows, weights = 2 if bidirectional else 1, len(params) // num_layers
        final: list[list[torch.Tensor]] = [[] for _ in states]
        sequence = input.transpose(0, 1) if batch_first else input
        for layer in range(num_layers):
            if layer:
                sequence = torch.dropout(sequence, dropout, True)
            own = [state[layer * rows:(layer + 1) * rows] for state in states]
            given = own[0] if isinstance(hx, torch.Tensor) else tuple(own)
            of_layer = params[layer * weights:(layer + 1) * weights]
            sequence, *ended = function(sequence, given, of_layer, has_biases, 1, 0.0, train, bidirectional, False)
            for kept, state in zip(final, ended):
                kept.append(state)
        return (sequence.transpose(0, 1) if batch_first else sequence, *(torch.cat(kept) for kept in final))
    return layers


RECURRENT: dict[Any, Callable[..., Any]] = {function: in_layers(function) for function in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)}
