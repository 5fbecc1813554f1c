"""Python numbers that are said to be dynamic are sizes, positions, steps and factors of one variant; what forces a value is a guard or a note."""
from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

import aotcompile


def cut(x: torch.Tensor, n: int) -> Any:
    return x[:, :n] * 2, x[:, n] + 1, x[:, ::n].sum(1), x.narrow(1, n, 2) - 1


def made(x: torch.Tensor, n: int) -> Any:
    return torch.zeros(n, 3) + x.sum(), torch.arange(n) * x[0, 0], x[:, :1].expand(4, n + 1) + 1, x.repeat(1, n + 1)


def moved(x: torch.Tensor, n: int) -> Any:
    return torch.roll(x, n, 1) * n, torch.tril(x, n) + 1, x.topk(n, 1)[0]


def asks(x: torch.Tensor, n: int) -> Any:
    return x[:, :n] * 2 if n > 2 else x + n


def loops(x: torch.Tensor, n: int) -> Any:
    for number in range(n):
        x = x * number + 1
    return x


def prints(x: torch.Tensor, n: int) -> Any:
    y = x[:, :n] * 2
    print(n)
    return y + torch.arange(n)


def counts(x: torch.Tensor, n: int) -> Any:
    length = x.shape[1]
    y = x * 2
    print(n)
    return y + torch.arange(length)


def run(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:      # noqa: BLE001 - the kind of exception is compared
        return type(error)


def hits(built: Any) -> int:
    return sum(region.hits for region in aotcompile.info(built).report().regions)


def agrees(built: Any, function: Any, *arguments: Any) -> bool:
    """Checks the result against eager; whether every region that ran was a hit."""
    regions = aotcompile.info(built).report().regions
    before = sum(region.misses for region in regions)
    first = hits(built)
    wanted, found = run(function, *arguments), run(built, *arguments)
    if isinstance(wanted, type):
        assert found is wanted
    else:
        torch.testing.assert_close(found, wanted, equal_nan=True)
    return sum(region.misses for region in aotcompile.info(built).report().regions) == before and hits(built) > first


@pytest.mark.parametrize(("function", "general", "others"), [
    (cut, (3, 4, 2, 5), (0, -1, 12)),
    (made, (3, 5, 2, 9), (1, 0, -1)),
    (moved, (3, 5, 2, 1, 7), (0, -2, 13)),
    (asks, (3, 4, 12), (2, 0, -1, 20)),
    (loops, (3,), (5, 0)),
    (prints, (3,), (5, 12, 1, 0, 20)),
], ids=lambda value: getattr(value, "__name__", ""))
def test_an_argument(function: Any, general: tuple[int, ...], others: tuple[int, ...]) -> None:
    built = aotcompile.compile(function, example_inputs=((torch.randn(4, 12), 3), {}), dynamic_shapes=({1: "T"}, Dim.DYNAMIC))
    for number in general:
        assert agrees(built, function, torch.randn(4, 12), number), (number, aotcompile.info(built).report())
    for number in others:
        agrees(built, function, torch.randn(4, 12), number)


def test_the_line_that_forces_a_number_is_named() -> None:
    explanation = aotcompile.explain(loops, example_inputs=((torch.randn(4, 12), 3), {}), dynamic_shapes=(None, Dim.DYNAMIC))
    [note] = [note for found in explanation.functions for note in found.notes]
    assert note.code == "AOT216" and "the dynamic number n is fixed to 3" in note.message
    assert note.span is not None and note.span.line == loops.__code__.co_firstlineno + 1


def test_without_a_wish_the_number_that_was_seen_is_served() -> None:
    built = aotcompile.compile(cut, example_inputs=((torch.randn(4, 12), 3), {}))
    assert agrees(built, cut, torch.randn(4, 12), 3) and not agrees(built, cut, torch.randn(4, 12), 4)


def test_dynamic_all_and_a_second_example() -> None:
    examples = [((torch.randn(4, 12), 3), {}), ((torch.randn(4, 12), 5), {})]
    for built in (aotcompile.compile(cut, example_inputs=examples[0], dynamic=True), aotcompile.compile(cut, example_inputs=examples)):
        for number in (3, 4, 7):
            assert agrees(built, cut, torch.randn(4, 12), number)


def test_a_size_that_crosses_a_break_stays_dynamic() -> None:
    built = aotcompile.compile(counts, example_inputs=((torch.randn(4, 12), 3), {}), dynamic_shapes=({1: "T"}, None))
    for size in (12, 7, 2):
        assert agrees(built, counts, torch.randn(4, size), 3)


def reshapes(x: torch.Tensor) -> Any:
    rows, columns = x.shape                                       # no tensor operation: it stays outside of the regions
    print(rows, columns)
    return x.reshape(rows * columns) * 2, x.new_zeros(rows, columns + 1)


def test_sizes_read_between_regions_stay_dynamic() -> None:
    built = aotcompile.compile(reshapes, example_inputs=((torch.randn(6, 8),), {}), dynamic_shapes=({0: "B", 1: "T"},), training=False)
    for sizes in ((6, 8), (4, 5), (1, 7)):
        assert agrees(built, reshapes, torch.randn(*sizes)), aotcompile.info(built).report()


def added(x: torch.Tensor, n: int) -> Any:
    return x + torch.arange(n)


def added_to(n: int, x: torch.Tensor) -> Any:
    return x + torch.arange(n)


def doubled(x: torch.Tensor, n: int) -> Any:
    return torch.cat((x, x), 1) * torch.arange(2 * n)


@pytest.mark.parametrize("function", [added, added_to, doubled], ids=lambda value: value.__name__)
def test_a_size_equals_a_number(function: Any) -> None:
    """Whichever of the two symbols torch keeps for both: the tensor's size and the number are compared."""
    def arguments(n: int, size: int) -> tuple[Any, ...]:
        return (n, torch.randn(2, size)) if function is added_to else (torch.randn(2, size), n)

    shapes = (Dim.DYNAMIC, {1: "T"}) if function is added_to else ({1: "T"}, Dim.DYNAMIC)
    built = aotcompile.compile(function, example_inputs=(arguments(3, 3), {}), dynamic_shapes=shapes)
    for number in (3, 5, 4):
        assert agrees(built, function, *arguments(number, number)), aotcompile.info(built).report()
    for number, size in ((3, 5), (5, 3), (1, 5), (5, 1), (0, 3)):
        agrees(built, function, *arguments(number, size))


def divides(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * float(n) + 1 / n


def test_a_condition_that_only_the_graph_has() -> None:
    """The division asks whether n is 0 while the graph is traced."""
    built = aotcompile.compile(divides, example_inputs=((torch.randn(4), 3), {}), dynamic_shapes=(None, Dim.DYNAMIC))
    for number in (3, 5, -2):
        assert agrees(built, divides, torch.randn(4), number), aotcompile.info(built).report()
    assert not agrees(built, divides, torch.randn(4), 0)


def test_sizes_that_are_only_tried_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return F.avg_pool2d(x[None], n)                                             # raises for images that are smaller

    aotcompile.compile(function, example_inputs=((torch.randn(6, 4), 3), {}), dynamic_shapes=({0: "H"}, Dim.DYNAMIC))
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


class Cache(torch.nn.Module):
    """Writes at a position that it counts itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(8, 4))
        self.position = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.memory[self.position:self.position + x.shape[0]] = x
        self.position += x.shape[0]
        return self.memory[:self.position].sum(0)


def test_a_counter_is_a_position() -> None:
    eager, module = Cache(), Cache()
    built = aotcompile.compile(module, example_inputs=((torch.randn(2, 4),), {}), dynamic_shapes=({0: "T"},))
    for length in (2, 3, 1, 2):
        x = torch.randn(length, 4)
        torch.testing.assert_close(built(x), eager(x))
    assert hits(built) == 4 and built.position == 8


def test_gradients_with_a_size_that_is_a_number() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return (x[:, :n].exp() * n).sum() + (x * torch.arange(n + 1)[n]).sum()

    built = aotcompile.compile(function, example_inputs=((torch.randn(4, 12, requires_grad=True), 3), {}), dynamic_shapes=({1: "T"}, Dim.DYNAMIC))
    for number in (3, 5, 2):
        a = torch.randn(4, 12, requires_grad=True)
        b = a.detach().clone().requires_grad_()
        function(a, number).backward()
        built(b, number).backward()
        torch.testing.assert_close(b.grad, a.grad)
    assert hits(built) == 3


MASK = torch.ones(1, 1, 8, 8).tril()


def masked(x: torch.Tensor) -> torch.Tensor:
    length = x.shape[1]
    return (x @ x.transpose(1, 2))[:, None].masked_fill(MASK[:, :, :length, :length] == 0, -1.0)


def test_a_slice_of_the_whole_is_served_by_the_general_variant() -> None:
    built = aotcompile.compile(masked, example_inputs=((torch.randn(2, 5, 4),), {}), dynamic_shapes=({1: "T"},))
    for size in (5, 8, 2, 1):
        assert agrees(built, masked, torch.randn(2, size, 4)), aotcompile.info(built).report()


def factors(x: torch.Tensor, s: float) -> Any:
    return F.leaky_relu(x, s) * s, (x / s).softmax(-1), torch.add(x, x, alpha=s), torch.full((3,), s), torch.lerp(x, x * 2, s)


def roots(x: torch.Tensor, s: float) -> Any:
    return x * math.sqrt(s), x / math.sqrt(x.shape[1]), s * 2


def truncates(x: torch.Tensor, s: float) -> Any:
    return x[:int(s * 4)] + 1 if int(s * 2) > 0 else x * math.floor(s)


def smooths(x: torch.Tensor, s: float) -> Any:
    return F.smooth_l1_loss(x, x * 2, beta=s) * 2 if s < 4 else x * s


@pytest.mark.parametrize(("function", "general"), [(factors, True), (roots, True), (truncates, False), (smooths, False)],
                         ids=lambda value: getattr(value, "__name__", ""))
def test_a_float(function: Any, general: bool) -> None:
    built = aotcompile.compile(function, example_inputs=((torch.randn(4, 3), 0.5), {}), dynamic_shapes=({1: "C"}, Dim.DYNAMIC), training=False)
    assert agrees(built, function, torch.randn(4, 3), 0.5)
    for number in (0.25, 0.75, 1.0, 2.0):
        assert agrees(built, function, torch.randn(4, 3), number) is general
    for number in (0.0, -1.0, 5.0, float("inf")):
        agrees(built, function, torch.randn(4, 3), number)


def test_a_learning_rate_is_data() -> None:
    def step(weight: torch.Tensor, gradient: torch.Tensor, rate: float) -> None:
        weight.add_(gradient, alpha=-rate)
        weight.mul_(1 - rate * 0.1)

    built = aotcompile.compile(step, example_inputs=((torch.randn(3), torch.randn(3), 0.1), {}), dynamic_shapes=(None, None, Dim.AUTO))
    a, b, gradient = torch.randn(3), torch.randn(3), torch.randn(3)
    b.copy_(a)
    for rate in (0.1, 0.05, 1e-3):
        step(a, gradient, rate)
        built(b, gradient, rate)
    torch.testing.assert_close(b, a)
    assert hits(built) == 3
