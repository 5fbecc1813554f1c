"""Recurrent layers as operators: one layer of ``torch.lstm``, ``torch.gru``, ``torch.rnn_tanh`` or ``torch.rnn_relu``, whatever its length.

    aotcompile::recurrent_layer(kind, input, batch_sizes, states, weights, has_biases, bidirectional) -> (output, last state, last cell)
    aotcompile::recurrent_layer_backward(kind, gradients of the three, output, input, ...) -> gradients of input, states and weights

torch's layers are loops over the steps, of operators that autograd knows. In a graph they would be as many operators as there are steps, and each
number of steps another graph. Here the loop is torch's own in forward; the backward operator goes through the steps once more, the other way. All
that does not depend on the gradient of the next step (gates, products with weights) is computed for all steps at once.

Sizes: input [T, B, features], states [1 or 2, B, hidden]; or, with ``batch_sizes`` [T], a packed input [sum of batch_sizes, features].
The last cell is empty but for ``lstm``. Imported where a graph calls the operators, and by the compiler.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensors = Sequence[torch.Tensor]
_KINDS: dict[str, Callable[..., Any]] = {"lstm": torch.lstm, "gru": torch.gru, "rnn_tanh": torch.rnn_tanh, "rnn_relu": torch.rnn_relu}
_LAYER = "(str kind, Tensor input, Tensor? batch_sizes, Tensor[] states, Tensor[] weights, bool has_biases, bool bidirectional)"
_BACKWARD = ("(str kind, Tensor grad_output, Tensor grad_state, Tensor grad_cell, Tensor output, Tensor input, Tensor? batch_sizes, Tensor[] states, "
             "Tensor[] weights, bool has_biases, bool bidirectional)")


def _layer(kind: str, input: torch.Tensor, batch_sizes: torch.Tensor | None, states: Tensors, weights: Tensors, has_biases: bool,
           bidirectional: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    given: Any = list(states) if kind == "lstm" else states[0]
    options = (list(weights), has_biases, 1, 0.0, False, bidirectional)
    if batch_sizes is None:
        output, *last = _KINDS[kind](input, given, *options, False)
    else:
        output, *last = _KINDS[kind](input, batch_sizes, given, *options)
    state, cell = last if kind == "lstm" else (*last, input.new_empty(0))
    return output.contiguous(), state.contiguous(), cell.contiguous()


def _layer_sizes(kind: str, input: torch.Tensor, batch_sizes: torch.Tensor | None, states: Tensors, weights: Tensors, has_biases: bool,
                 bidirectional: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    features = states[0].shape[-1] * (2 if bidirectional else 1)
    cell = input.new_empty(states[1].shape) if kind == "lstm" else input.new_empty(0)
    return input.new_empty((*input.shape[:-1], features)), input.new_empty(states[0].shape), cell


# ---- backward -------------------------------------------------------------------------------------------------------------------------------------


def _backward(kind: str, grad_output: torch.Tensor, grad_state: torch.Tensor, grad_cell: torch.Tensor, output: torch.Tensor, input: torch.Tensor,
              batch_sizes: torch.Tensor | None, states: Tensors, weights: Tensors, has_biases: bool, bidirectional: bool) -> list[torch.Tensor]:
    sizes = [input.shape[1]] * input.shape[0] if batch_sizes is None else batch_sizes.tolist()
    rows = input.reshape(-1, input.shape[-1])
    hidden, per_direction = states[0].shape[-1], len(weights) // (2 if bidirectional else 1)
    grad_input = torch.zeros_like(rows)
    grad_states: list[list[torch.Tensor]] = [[] for _ in states]
    grad_weights: list[torch.Tensor] = []
    for direction in range(2 if bidirectional else 1):
        columns = slice(direction * hidden, (direction + 1) * hidden)
        layer = _Direction(kind, rows, [state[direction] for state in states], weights[direction * per_direction:(direction + 1) * per_direction],
                           has_biases, _steps(sizes, backwards=direction == 1))
        last = [each[direction] for each in (grad_state, grad_cell)[:len(states)]]
        of_input, of_states, of_weights = layer.backward(grad_output.reshape(-1, grad_output.shape[-1])[:, columns], last,
                                                         output.reshape(-1, output.shape[-1])[:, columns])
        grad_input += of_input
        grad_weights += of_weights
        for kept, gradient in zip(grad_states, of_states):
            kept.append(gradient)
    return [grad_input.reshape(input.shape), *(torch.stack(kept) for kept in grad_states), *grad_weights]


def _steps(sizes: Sequence[int], backwards: bool) -> list[slice]:
    """The rows of each step, in the order in which the layer goes through them."""
    found, start = [], 0
    for size in sizes:
        found.append(slice(start, start + size))
        start += size
    return found[::-1] if backwards else found


class _Direction:
    """One direction of a layer on ``rows`` [sum of steps' sizes, features]. Each step takes the first of the state's rows."""

    def __init__(self, kind: str, rows: torch.Tensor, states: Tensors, weights: Tensors, has_biases: bool, steps: Sequence[slice]) -> None:
        self.kind, self.rows, self.states, self.steps, self.has_biases = kind, rows, states, steps, has_biases
        self.of_input, self.of_state, *rest = weights
        self.biases: Sequence[torch.Tensor | None] = rest[:2] if has_biases else (None, None)
        self.projection = rest[-1] if len(rest) % 2 else None

    def backward(self, gradient: torch.Tensor, last: Tensors, output: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """Gradients of rows, states and weights from those of the output and of the ``last`` states."""
        before = self._before(output, self.states[0])
        from_input = torch.nn.functional.linear(self.rows, self.of_input, self.biases[0])
        from_state = torch.nn.functional.linear(before, self.of_state, self.biases[1])
        find = self._lstm if self.kind == "lstm" else self._gru if self.kind == "gru" else self._plain
        to_input, to_state, states, more = find(gradient, [each.clone() for each in last], output, before, from_input, from_state)
        biases = [to_input.sum(0), to_state.sum(0)] if self.has_biases else []
        return to_input @ self.of_input, states, [to_input.t() @ self.rows, to_state.t() @ before, *biases, *more]

    def _before(self, after: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """The state before each row's step, from the one after it (``after``) and the one that was given (``first``)."""
        found, state = torch.empty_like(after), first.clone()
        for step in self.steps:
            count = step.stop - step.start
            found[step] = state[:count]
            state[:count] = after[step]
        return found

    def _back(self, gradient: torch.Tensor, carried: torch.Tensor, factors: torch.Tensor, kept: torch.Tensor | None) -> torch.Tensor:
        """Goes back through the steps: the gradient of each row's output, from its own and what comes from the step after it. ``factors`` [rows,
        gates, hidden]: the gates' derivatives by the output; ``kept``: that of the state which goes on as it is. ``carried`` becomes the first
        state's."""
        found = torch.empty_like(gradient)
        for step in reversed(self.steps):
            count = step.stop - step.start
            whole = found[step] = gradient[step] + carried[:count]
            before = (whole.unsqueeze(1) * factors[step]).flatten(1) @ self.of_state
            carried[:count] = before if kept is None else before.addcmul_(whole, kept[step])
        return found

    def _plain(self, gradient: torch.Tensor, last: list[torch.Tensor], output: torch.Tensor, before: torch.Tensor, from_input: torch.Tensor,
               from_state: torch.Tensor) -> Any:
        slope = 1 - output * output if self.kind == "rnn_tanh" else (output > 0).to(output.dtype)
        gate = self._back(gradient, last[0], slope.unsqueeze(1), None) * slope
        return gate, gate, last, []

    def _gru(self, gradient: torch.Tensor, last: list[torch.Tensor], output: torch.Tensor, before: torch.Tensor, from_input: torch.Tensor,
             from_state: torch.Tensor) -> Any:
        new_from_state = from_state.chunk(3, 1)[2]
        reset, update = (torch.sigmoid(a + b) for a, b in list(zip(from_input.chunk(3, 1), from_state.chunk(3, 1)))[:2])
        new = torch.tanh(from_input.chunk(3, 1)[2] + reset * new_from_state)
        to_new = (1 - update) * (1 - new * new)
        to_reset = to_new * new_from_state * reset * (1 - reset)
        to_update = (before - new) * update * (1 - update)
        factors = torch.stack((to_reset, to_update, to_new * reset), 1)
        whole = self._back(gradient, last[0], factors, update).unsqueeze(1)
        to_state = (whole * factors).flatten(1)
        return torch.cat((to_state[:, :2 * update.shape[1]], whole.squeeze(1) * to_new), 1), to_state, last, []

    def _lstm(self, gradient: torch.Tensor, last: list[torch.Tensor], output: torch.Tensor, before: torch.Tensor, from_input: torch.Tensor,
              from_state: torch.Tensor) -> Any:
        gates = (from_input + from_state).chunk(4, 1)
        enter, forget, leave = (torch.sigmoid(gates[number]) for number in (0, 1, 3))
        entering = torch.tanh(gates[2])
        cells = self._cells(forget, enter * entering)
        before_cells = self._before(cells, self.states[1])
        squashed = torch.tanh(cells)
        by_cell = torch.stack((entering * enter * (1 - enter), before_cells * forget * (1 - forget), enter * (1 - entering * entering)), 1)
        by_output, to_cell = squashed * leave * (1 - leave), leave * (1 - squashed * squashed)
        to_gates, hidden = torch.empty_like(from_input), torch.empty_like(cells)
        state, cell = last
        to_output = torch.empty_like(output)
        for step in reversed(self.steps):
            count = step.stop - step.start
            to_output[step] = whole = gradient[step] + state[:count]
            hidden[step] = raw = whole if self.projection is None else whole @ self.projection
            of_cell = torch.addcmul(cell[:count], raw, to_cell[step])
            to_gates[step] = torch.cat(((of_cell.unsqueeze(1) * by_cell[step]).flatten(1), raw * by_output[step]), 1)
            state[:count] = to_gates[step] @ self.of_state
            cell[:count] = of_cell * forget[step]
        more = [] if self.projection is None else [to_output.t() @ (leave * squashed)]
        return to_gates, to_gates, last, more

    def _cells(self, forget: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        """The cell after each row's step."""
        found, cell = torch.empty_like(added), self.states[1].clone()
        for step in self.steps:
            count = step.stop - step.start
            cell[:count] = found[step] = torch.addcmul(added[step], forget[step], cell[:count])
        return found


def _backward_sizes(kind: str, grad_output: torch.Tensor, grad_state: torch.Tensor, grad_cell: torch.Tensor, output: torch.Tensor,
                    input: torch.Tensor, batch_sizes: torch.Tensor | None, states: Tensors, weights: Tensors, has_biases: bool,
                    bidirectional: bool) -> list[torch.Tensor]:
    return [given.new_empty(given.shape) for given in (input, *states, *weights)]


# ---- registration ---------------------------------------------------------------------------------------------------------------------------------


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    kind, input, batch_sizes, states, weights, has_biases, bidirectional = inputs
    ctx.options = kind, len(states), has_biases, bidirectional
    ctx.save_for_backward(output[0], input, batch_sizes, *states, *weights)


def _derivative(ctx: Any, grad_output: torch.Tensor, grad_state: torch.Tensor, grad_cell: torch.Tensor) -> tuple[Any, ...]:
    kind, count, has_biases, bidirectional = ctx.options
    output, input, batch_sizes, *rest = ctx.saved_tensors
    states, weights = rest[:count], rest[count:]
    of_input, *of_rest = torch.ops.aotcompile.recurrent_layer_backward(
        kind, grad_output, grad_state, grad_cell, output, input, batch_sizes, states, weights, has_biases, bidirectional)
    return None, of_input, None, of_rest[:count], of_rest[count:], None, None


torch.library.define("aotcompile::recurrent_layer", f"{_LAYER} -> (Tensor, Tensor, Tensor)")
torch.library.define("aotcompile::recurrent_layer_backward", f"{_BACKWARD} -> Tensor[]")
for _name, _function, _sizes in (("recurrent_layer", _layer, _layer_sizes), ("recurrent_layer_backward", _backward, _backward_sizes)):
    torch.library.impl(f"aotcompile::{_name}", "CompositeExplicitAutograd", _function)
    torch.library.register_fake(f"aotcompile::{_name}", _sizes)
torch.library.register_autograd("aotcompile::recurrent_layer", _derivative, setup_context=_save)
