"""Results of one region that are computed from each other: autograd's graph has the edges between them that it has in eager."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")
Function = Callable[..., Any]
Inputs = Callable[[], tuple[Any, ...]]


def matrices() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))


def chain(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    first = torch.tanh(x @ w)
    second = first * y + x
    return first, second, (second @ w).sin().sum()


def past_a_result(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What is no result goes on beside the result that is computed from it."""
    body = torch.tanh(x @ w)
    result = body * y
    return result, (body + result.exp()).sum()


def written_in_place(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    hidden = x * w
    hidden += y
    hidden.relu_()
    flat = hidden * 1
    flat.view(-1).mul_(3)
    return hidden, flat.t().contiguous(), hidden.view(2, 8).sum(0), flat


def filled(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    hidden = x * w
    rows = torch.zeros(4, 4, dtype=x.dtype)
    rows[0] = y[1]
    rows[1:3] = hidden[:2] * 2
    return hidden, rows, rows.sum(0)


def several_results_of_one_operator(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    largest, places = (x * w).max(1)
    left, right = (x + y).chunk(2, 1)
    return largest, places, (left * largest[:, None]).cos(), right.sum() * largest


def without_gradients(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    hidden = x * w
    with torch.no_grad():
        factor = hidden * 2
    return hidden, factor, hidden.detach() * y, hidden * factor


def written_from_a_result(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What is written in place with a value computed from a result before it stays in one piece."""
    body = x + 1
    result = body.clone()
    body.mul_(y)
    body.add_(result)
    return result, body * w


def seen(function: Function, inputs: Inputs) -> list[Any]:
    """Everything about gradients that can be seen from outside: of each result by each other one, of inputs, in hooks."""
    given = inputs()
    results = function(*given)
    differentiable = [result for result in results if result.requires_grad]
    found: list[Any] = [*results, len(differentiable)]
    for result in differentiable:
        others = [other for other in differentiable if other is not result]
        found += torch.autograd.grad((result * result).sum(), [*others, *(t for t in given if t.requires_grad)], retain_graph=True, allow_unused=True)
    hooked: list[tuple[int, torch.Tensor]] = []
    for number, result in enumerate(differentiable):
        result.register_hook(lambda gradient, number=number: hooked.append((number, gradient.clone())))
        result.retain_grad()
    sum((result * (number + 1)).sum() for number, result in enumerate(differentiable)).backward()          # type: ignore[union-attr]
    found += [result.grad for result in differentiable] + [tensor.grad for tensor in given]
    return found + [gradient for _, gradient in sorted(hooked, key=lambda each: each[0])]


def same(function: Function, compiled: Function, inputs: Inputs) -> None:
    torch.testing.assert_close(seen(compiled, inputs), seen(function, inputs))
    assert all(region.hits == region.calls for region in aotcompile.info(compiled).report().regions)


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.parametrize("function", [chain, past_a_result, written_in_place, filled, several_results_of_one_operator, without_gradients])
def test_gradients_between_results_are_eagers(function: Function, backend: str) -> None:
    same(function, aotcompile.compile(function, example_inputs=(matrices(), {}), backend=backend), matrices)


def test_what_cannot_be_cut_has_the_right_gradients_of_inputs() -> None:
    compiled = aotcompile.compile(written_from_a_result, example_inputs=(matrices(), {}), backend="aot_eager")
    ours, theirs = matrices(), matrices()
    for function, given in ((compiled, ours), (written_from_a_result, theirs)):
        sum(result.sin().sum() for result in function(*given)).backward()
    torch.testing.assert_close([tensor.grad for tensor in ours], [tensor.grad for tensor in theirs])


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_sizes_that_vary(backend: str) -> None:
    def inputs(rows: int) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(rows)
        x, y, w = (torch.randn(size, 4, dtype=torch.float64) for size in (rows, rows, 4))
        return x.requires_grad_(), y, w.requires_grad_()

    compiled = aotcompile.compile(varying, example_inputs=(inputs(3), {}), dynamic_shapes=({0: "B"}, {0: "B"}, None), backend=backend)
    for rows in (3, 5, 1, 8):
        same(varying, compiled, lambda rows=rows: inputs(rows))


def varying(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    body = torch.tanh(x @ w)
    hidden = body * y
    pairs = torch.cat([hidden, body]).reshape(-1, 2)
    return hidden, pairs, (pairs.view(-1, 4) * torch.cat([hidden, body]) * x.shape[0]).sum()


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3), nn.ReLU()), nn.Linear(4, 5)
        self.activations: list[torch.Tensor] = []
        self.body[2].register_forward_hook(lambda module, given, result: self.activations.append(result))

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.head(self.body(images).mean((2, 3)))
        return {"logits": logits, "loss": cross_entropy(logits, labels)}


def test_class_activation_maps_from_a_forward_hook() -> None:
    torch.manual_seed(0)
    model, images, labels = Classifier(), torch.randn(2, 3, 8, 8), torch.tensor([1, 3])
    compiled = aotcompile.compile(model, example_inputs=((images, labels), {}), backend="aot_eager")
    found = []
    for each in (model, compiled):
        model.activations.clear()
        result = each(images, labels)
        [activation] = model.activations
        found.append([activation, *torch.autograd.grad(result["logits"][:, 2].sum(), activation, retain_graph=True),
                      *torch.autograd.grad(result["loss"], [activation, result["logits"], *model.parameters()])])
    torch.testing.assert_close(found[1], found[0])


def test_a_hook_changes_what_flows_on() -> None:
    compiled = aotcompile.compile(chain, example_inputs=(matrices(), {}), backend="aot_eager")
    found = []
    for function in (chain, compiled):
        given = matrices()
        first, second, loss = function(*given)
        second.register_hook(lambda gradient: gradient * 2)
        first.register_hook(lambda gradient: gradient.clamp(max=0.1))
        loss.backward()
        found.append([tensor.grad for tensor in given])
    torch.testing.assert_close(found[1], found[0])


def test_a_penalty_on_gradients_of_a_result() -> None:
    compiled = aotcompile.compile(chain, example_inputs=(matrices(), {}), backend="aot_eager")
    found = []
    for function in (chain, compiled):
        given = matrices()
        first, second, loss = function(*given)
        slopes = torch.autograd.grad(loss, [first, second], create_graph=True)
        (loss + sum((slope ** 2).sum() for slope in slopes)).backward()
        found.append([*slopes, *(tensor.grad for tensor in given)])
    torch.testing.assert_close(found[1], found[0])


def test_a_result_is_freed_on_its_own() -> None:
    """One backward pass frees what it went through, and nothing else."""
    for function in (chain, aotcompile.compile(chain, example_inputs=(matrices(), {}), backend="aot_eager")):
        first, second, loss = function(*matrices())
        torch.autograd.grad(loss, second)
        first.sum().backward(retain_graph=True)
        second.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def layers(x: torch.Tensor, weights: list[torch.Tensor]) -> list[torch.Tensor]:
    """Long enough for every operator to be traced once only."""
    hidden, results = x, []
    for number, weight in enumerate(weights):
        hidden = hidden + torch.tanh(hidden @ weight) * 0.5
        if number % 12 == 5:
            results.append(hidden)
    return [*results, hidden.sum()]


def test_repeated_parts() -> None:
    def inputs() -> tuple[Any, ...]:
        torch.manual_seed(0)
        return torch.randn(2, 4, requires_grad=True), [torch.randn(4, 4, requires_grad=True) for _ in range(36)]

    compiled = aotcompile.compile(layers, example_inputs=(inputs(), {}), backend="aot_eager")
    found = []
    for function in (layers, compiled):
        x, weights = inputs()
        results = function(x, weights)
        found.append([torch.autograd.grad(results[-1], [*results[:-1], x, *weights], retain_graph=True),
                      torch.autograd.grad(results[2].sum(), [results[0], results[1], weights[0]])])
    torch.testing.assert_close(found[1], found[0])
