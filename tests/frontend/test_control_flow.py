"""torch's control flow operators on tensors: both sides of `torch.cond`, loops, maps and scans, with gradients, against torch's own."""
from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
from torch import nn
from torch._higher_order_ops import associative_scan, map, scan, while_loop
from torch.utils import _pytree

import aotcompile
from aotcompile.runtime.twins import control_flow

pytestmark = pytest.mark.filterwarnings("ignore")


def counts(function: Any) -> tuple[int, int, int]:
    """(hits, misses, breaks)."""
    info = aotcompile.info(function)
    regions = info.report().regions
    return sum(r.hits for r in regions), sum(r.misses for r in regions), len(info.breaks)


def with_gradients(function: Callable[..., Any], *arguments: torch.Tensor) -> tuple[Any, Any]:
    result = function(*arguments)
    leaves = [leaf for leaf in _pytree.tree_leaves(result) if leaf.requires_grad]
    loss = sum((leaf * torch.arange(1.0, leaf.numel() + 1).reshape(leaf.shape)).sum() for leaf in leaves)
    return result, torch.autograd.grad(loss, arguments)                  # type: ignore[arg-type]


# ---- the plain forms are torch's --------------------------------------------------------------------------------------------------------


def step(carry: torch.Tensor, x: dict[str, torch.Tensor]) -> tuple[torch.Tensor, Any]:
    carry = carry * 0.5 + x["a"]
    return carry, {"sine": carry.sin(), "both": (carry + x["b"]).clone()}


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"dim": 1}, {"dim": -1, "reverse": True}], ids=str)
def test_scan_is_torchs(options: dict[str, Any]) -> None:
    a, b = (torch.randn(3, 2, requires_grad=True) for _ in range(2))
    initial = torch.ones(3 if options.get("dim") else 2, requires_grad=True)
    torchs, ours = (with_gradients(lambda i, a, b: function(step, i, {"a": a, "b": b}, **options), initial, a, b)          # noqa: B023
                    for function in (scan, control_flow.scan))
    torch.testing.assert_close(ours, torchs)


def test_map_and_loops_are_torchs() -> None:
    x, weight = torch.randn(4, 2, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    torchs, ours = (with_gradients(lambda x, w: function(lambda t, w: (t @ w, {"sum": t.sum()}), x, w), x, weight)          # noqa: B023
                    for function in (map, control_flow.map))
    torch.testing.assert_close(ours, torchs)
    with torch.no_grad():
        for start in (0, 5):
            torchs, ours = (function(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(start), x))          # noqa: B023
                            for function in (while_loop, control_flow.while_loop))
            torch.testing.assert_close(ours, torchs)
    for function in (map, control_flow.map):
        with pytest.raises(RuntimeError, match="cannot be 0"):
            function(torch.sin, torch.ones(0, 3))


def test_scan_of_nothing_is_torchs() -> None:
    def add(carry: torch.Tensor, x: torch.Tensor) -> Any:
        return carry + x, x * 2

    found = []
    for function in (scan, control_flow.scan):
        try:
            found.append(function(add, torch.ones(3), torch.ones(0, 3)))
        except RuntimeError as error:
            found.append(str(error))
    if isinstance(found[0], str):
        assert found[0] == found[1]
    else:
        torch.testing.assert_close(found[1], found[0])


# ---- in a program -----------------------------------------------------------------------------------------------------------------------


def both_sides(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,)) * 2


def test_both_sides_of_cond_are_compiled_before_they_are_taken() -> None:
    positive, negative = torch.ones(3, requires_grad=True), (-torch.ones(3)).requires_grad_()
    made = aotcompile.compile(both_sides, example_inputs=((positive,), {}), backend="aot_eager")
    for x in (positive, negative):
        torch.testing.assert_close(with_gradients(made, x), with_gradients(both_sides, x))
    hits, misses, breaks = counts(made)
    assert hits == 6 and misses == 0 and breaks == 2


def test_sides_of_every_cond() -> None:
    """Two calls of one operator, each with functions of its own, one of them after a side of the other."""
    weight = torch.full((3,), 0.5)

    def first(t: torch.Tensor, u: torch.Tensor) -> Any:
        return t.sin() + weight, u.clone()

    def second(t: torch.Tensor, u: torch.Tensor) -> Any:
        return t.cos(), u * 2

    def function(x: torch.Tensor) -> torch.Tensor:
        p, q = torch.cond(x.sum() > 0, first, second, (x, x + 1))
        return torch.cond(p.mean() > 0.5, lambda: p + 1, lambda: q - 1) * 2

    examples = [torch.full((3,), value) for value in (1.0, -1.0, 3.0, -3.0)]
    made = aotcompile.compile(function, example_inputs=((examples[0],), {}), backend="eager")
    for x in examples:
        torch.testing.assert_close(made(x), function(x))
    assert counts(made)[1] == 0


class Either(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, self.one, self.other, (x,)).relu()


def test_cond_of_modules() -> None:
    module, examples = Either(), [torch.ones(2, 3), -torch.ones(2, 3)]
    made = aotcompile.compile(module, example_inputs=((examples[0],), {}), backend="eager")
    for x in examples:
        torch.testing.assert_close(made(x), module(x))
    assert counts(made)[1] == 0


def known(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.shape[0] > 2, torch.sin, torch.cos, (x,)) + torch.cond(False, torch.sin, torch.cos, (x,))


def mapped(x: torch.Tensor) -> Any:
    return map(lambda t, w: (t @ w, t.sum()), x, x[0].mT.cos())


def scanned(x: torch.Tensor) -> Any:
    return scan(step, x[0], {"a": x, "b": x.cos()}, reverse=True)


def scanned_in_parallel(x: torch.Tensor) -> Any:
    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    both = associative_scan(combine, (x.sigmoid(), x), dim=1, combine_mode="generic")
    return both, associative_scan(torch.add, x, -1, reverse=True, combine_mode="generic")


@pytest.mark.parametrize("function", [known, mapped, scanned, scanned_in_parallel], ids=lambda function: function.__name__)
def test_what_does_not_depend_on_data_is_one_region(function: Callable[..., Any]) -> None:
    x = torch.randn(3, 5, 2, requires_grad=True)
    made = aotcompile.compile(function, example_inputs=((x,), {}), backend="aot_eager")
    torch.testing.assert_close(with_gradients(made, x), with_gradients(function, x))
    assert counts(made) == (1, 0, 0)


def looped(x: torch.Tensor) -> Any:
    count, y = while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(0), x + 1))
    return y + 1, count


def test_loop_on_a_tensor_has_a_compiled_condition_and_body() -> None:
    x = torch.randn(3)
    made = aotcompile.compile(looped, example_inputs=((x,), {}), backend="eager")
    torch.testing.assert_close(made(x), looped(x))
    hits, misses, _ = counts(made)
    assert hits >= 8 and misses == 0                     # before, four times the condition, three times the body, after


def test_break_inside_leaves_a_loop() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return map(lambda t: t * t.abs().sum().item(), x.sin() + 1) * 2

    x = torch.randn(3, 2)
    made = aotcompile.compile(function, example_inputs=((x,), {}), backend="eager")
    torch.testing.assert_close(made(x), torch.stack([t * t.abs().sum() for t in x.sin() + 1]) * 2)
    assert counts(made)[1] == 0


# ---- statements: the branch is where the value is tested -----------------------------------------------------------------------------------


def on_a_variable(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    if flag:
        return x.sin()
    return x.cos()


def on_a_negated_variable(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    if not flag:
        x = x.sin()
    elif (high := flag):
        x = x.cos() * high
    return x


def in_an_expression(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    return x.sin() if flag else x.cos()


def while_a_variable(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    while flag:
        x = x * 2
        flag = x.sum() < 100
    return x


@pytest.mark.parametrize("function", [on_a_variable, on_a_negated_variable, in_an_expression, while_a_variable],
                         ids=lambda function: function.__name__)
def test_branch_on_a_variable_has_compiled_sides(function: Callable[..., Any]) -> None:
    """Also where the branch is in a function that the compiled one calls."""
    def caller(x: torch.Tensor) -> torch.Tensor:
        return function(x, x.sum() > 0) + 1

    for target in (function, caller):
        made, hits = None, []
        for x in (torch.ones(3), -torch.ones(3)):
            arguments = (x, x.sum() > 0) if target is function else (x,)
            made = made or aotcompile.compile(target, example_inputs=(arguments, {}), backend="eager")
            torch.testing.assert_close(made(*arguments), target(*arguments))
            hits.append(sum(region.hits for region in aotcompile.info(made).report().regions if region.name.startswith(function.__name__)))
        assert counts(made)[1] == 0
        sides = {"while_a_variable": [6, 6], "on_a_negated_variable": [1, 2]}.get(function.__name__, [1, 2])
        assert hits == sides, hits


def test_many_pairs_of_functions() -> None:
    pairs = [((lambda a, i=i: a.sin() + i), (lambda a, i=i: a.cos() * i)) for i in range(10)]

    def function(x: torch.Tensor) -> torch.Tensor:
        for true_function, false_function in pairs:
            x = torch.cond(x.sum() > 0, true_function, false_function, (x,))
        return x

    def plain(x: torch.Tensor) -> torch.Tensor:                     # torch 2.11's own cond takes the first pair's functions for all
        for true_function, false_function in pairs:
            x = true_function(x) if x.sum() > 0 else false_function(x)
        return x

    example = torch.randn(3, 4)
    built = aotcompile.compile(function, example_inputs=((example,), {}), backend="eager")
    for x in (example, -example, example - 1):
        torch.testing.assert_close(built(x), plain(x))
    assert sum(region.misses for region in aotcompile.info(built).report().regions) == 0


REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "no condition": lambda x: torch.cond(None, torch.sin, torch.cos, (x,)),                               # type: ignore[arg-type]
    "no function": lambda x: torch.cond(x.sum() > 0, torch.sin, x, (x,)),                                 # type: ignore[arg-type]
    "no tuple": lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, x),                               # type: ignore[arg-type]
    "a number": lambda x: torch.cond(x.sum() > 0, torch.mul, torch.add, (x, 3)),
    "several conditions": lambda x: torch.cond(x > 0, torch.sin, torch.cos, (x,)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cond_refuses_is_refused(name: str) -> None:
    """Also where the side that is taken would have done without."""
    function, x = REFUSED[name], torch.ones(3)
    built = aotcompile.compile(function, example_inputs=((x,), {}), training=False)
    with pytest.raises(RuntimeError) as wanted:
        function(x)
    with pytest.raises(RuntimeError) as found:
        built(x)
    assert type(found.value) is type(wanted.value)
    assert name == "several conditions" or str(found.value) == str(wanted.value)
