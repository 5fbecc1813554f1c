"""What a region makes and gives away: functions, iterators and remembered results are made outside, the rest around them is compiled."""
from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Callable

import pytest
import torch

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


def built(function: Any, *arguments: Any) -> Any:
    return aotcompile.compile(function, example_inputs=(arguments, {}), backend="eager")


def hits(made: Any) -> list[int]:
    return [region.hits for region in aotcompile.info(made).report().regions]


def gives_a_lambda(x: torch.Tensor) -> Any:
    y = x.sin() * 2
    return y, lambda z: z + y


def gives_a_function(x: torch.Tensor) -> Any:
    y = x.sin() * 2

    def add(z: torch.Tensor) -> torch.Tensor:
        return z + y
    return y + 1, add


def gives_a_generator(x: torch.Tensor) -> Any:
    y = x.sin() * 2
    return y, (y * k for k in range(3))


def gives_iterators(x: torch.Tensor) -> Any:
    y = x.sin() * 2
    return y, map(lambda k: y * k, range(3)), zip([1, 2], [y, y]), iter([y])


@pytest.mark.parametrize("function", [gives_a_lambda, gives_a_function])
def test_a_function_made_inside_is_given_away(function: Callable[[torch.Tensor], Any]) -> None:
    made = built(function, torch.ones(3))
    for x in (torch.ones(3), torch.randn(3)):
        value, add = made(x)
        expected, plain = function(x)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(add(x), plain(x))
    assert hits(made)[0] == 2, "what comes before the function is compiled"


@pytest.mark.parametrize("function", [gives_a_generator, gives_iterators])
def test_an_iterator_made_inside_is_given_away(function: Callable[[torch.Tensor], Any]) -> None:
    made = built(function, torch.ones(3))
    (value, *iterators), (expected, *plain) = made(torch.ones(3)), function(torch.ones(3))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close([list(each) for each in iterators], [list(each) for each in plain])
    assert hits(made)[0] == 1


class Holder:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def add(self, x: torch.Tensor) -> torch.Tensor:
        return self.value + x


def test_a_bound_method_of_an_object_made_inside_is_given_away() -> None:
    def give(x: torch.Tensor) -> Any:
        holder = Holder(x * 2)
        return holder.add, holder

    made = built(give, torch.ones(3))
    add, holder = made(torch.ones(3))
    assert add.__self__ is holder
    torch.testing.assert_close(add(torch.ones(3)), torch.full((3,), 3.0))
    assert hits(made) == [1]


@functools.cache
def table(size: int) -> torch.Tensor:
    return torch.arange(float(size))


def uses_the_table(x: torch.Tensor) -> torch.Tensor:
    return x + table(3)


def gives_the_table(x: torch.Tensor) -> Any:
    return x.sin() + table(3), table(3)


def changes_the_table(x: torch.Tensor) -> torch.Tensor:
    found = table(3)
    return x + found.add_(1)


def test_a_remembered_tensor_is_one_object() -> None:
    made = built(uses_the_table, torch.ones(3))
    torch.testing.assert_close(made(torch.ones(3)), torch.tensor([1.0, 2.0, 3.0]))
    assert aotcompile.info(made).breaks == ()
    made = built(gives_the_table, torch.ones(3))
    assert made(torch.ones(3))[1] is made(torch.ones(3))[1] is table(3)
    assert 2 in hits(made)
    table.cache_clear()
    made = built(changes_the_table, torch.ones(3))
    assert [made(torch.ones(3))[0].item() for _ in range(3)] == [2, 3, 4]


class Coded(Exception):
    def __init__(self, code: int, value: torch.Tensor) -> None:
        super().__init__(f"code {code}")
        self.code, self.value = code, value


def gives_an_exception(x: torch.Tensor) -> Any:
    y = x * 2
    try:
        try:
            raise KeyError("k")
        except KeyError as inner:
            raise Coded(3, y) from inner
    except Coded as error:
        return error


def test_an_exception_keeps_its_state() -> None:
    made = built(gives_an_exception, torch.ones(3))
    found = made(torch.ones(3))
    assert (type(found), found.args, found.code, repr(found.__cause__)) == (Coded, ("code 3",), 3, "KeyError('k')")
    torch.testing.assert_close(found.value, torch.full((3,), 2.0))
    assert hits(made) == [1]


@dataclass
class Settings:
    size: int = 1
    name: str = "x"


def test_text_of_a_dataclass_is_no_break() -> None:
    def describe(x: torch.Tensor) -> Any:
        return x * 2, repr(Settings(4)), f"{Settings(5)!r:>30}"

    made = built(describe, torch.ones(2))
    assert made(torch.ones(2))[1:] == (repr(Settings(4)), f"{Settings(5)!r:>30}")
    assert aotcompile.info(made).breaks == ()


def numbers(log: list[str]) -> Any:
    try:
        yield 1
        yield 2
    finally:
        log.append("closed")


def leaves_a_loop(x: torch.Tensor, log: list[str]) -> Any:
    for number in numbers(log):
        x = x * 2 + number
        break
    log.append("after the loop")
    started = numbers(log)
    next(started)
    return x


def test_a_generator_that_nobody_holds_is_closed() -> None:
    made = built(leaves_a_loop, torch.ones(2), [])
    log: list[str] = []
    plain: list[str] = []
    torch.testing.assert_close(made(torch.ones(2), log), leaves_a_loop(torch.ones(2), plain))
    assert log == plain == ["closed", "after the loop", "closed"]
    assert hits(made) == [1]


def closes_with_a_break(x: torch.Tensor) -> Any:
    def steps() -> Any:
        try:
            yield x.sin()
        finally:
            print("finally")

    for step in steps():
        x = x + step
        break
    return x * 2


def test_a_break_in_a_generator_that_is_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    made = built(closes_with_a_break, torch.ones(2))
    capsys.readouterr()
    torch.testing.assert_close(made(torch.ones(2)), closes_with_a_break(torch.ones(2)))
    assert capsys.readouterr().out == "finally\nfinally\n"


def rounded(x: torch.Tensor) -> Any:
    size = x.shape[0]
    return x * round(size * 5, -1), round(size / 3, 1), ~size, divmod(size, 4), size.bit_length(), size & 3


def test_arithmetic_of_sizes_that_torch_does_not_have() -> None:
    made = aotcompile.compile(rounded, example_inputs=((torch.ones(14),), {}), dynamic_shapes=({0: "B"},), backend="eager")
    for size in (14, 15, 25):
        torch.testing.assert_close(made(torch.ones(size)), rounded(torch.ones(size)))


@pytest.mark.parametrize("dynamic_shapes", [None, ({0: "B"},)])
def test_views_of_an_expanded_leaf_have_gradients_of_their_own(dynamic_shapes: Any) -> None:
    """`as_strided`, by which views are made again, shares a gradient among the elements that are one in memory; eager's views do not."""
    def view(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[1:], x * 2

    row, gradients = torch.randn(1, 4), []
    built = aotcompile.compile(view, example_inputs=((row.expand(3, 4).requires_grad_(),), {}), dynamic_shapes=dynamic_shapes)
    for call in (view, built):
        x = row.expand(3, 4).requires_grad_()
        sum((result * torch.arange(result.numel()).view_as(result)).sum() for result in call(x)).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0])
