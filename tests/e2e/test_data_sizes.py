"""Sizes and numbers that are data stay inside a region: no break, no miss for other data, eager's exception where eager raises."""
from __future__ import annotations

from typing import Any, Callable

import pytest
import torch

import aotcompile

X, N = torch.arange(30.0).reshape(6, 5) - 12, torch.tensor(3)


def scaled(x: torch.Tensor, n: torch.Tensor) -> Any:
    total = x.mean().item()
    return x * total, x + n.item() * 2, torch.tensor(total), x.clamp(max=total)


def cut(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = int(n)
    return x[:k] * 2, x[k:] + 1, x[:, n] * 3, x[..., k:k + 2].sum(0), x.narrow(1, 0, 2) - 1


def written(x: torch.Tensor, n: torch.Tensor) -> Any:
    y, k = x.clone(), n.item()
    y[k] = 7
    y[:, k:k + 1] += 1
    y[k, 0] = -1
    return y


def counted(x: torch.Tensor, n: torch.Tensor) -> Any:
    rows = torch.nonzero(x[:, 0] > n)
    kept = x[x > 0]
    return rows, len(rows), kept.mean() / kept.numel(), torch.cat([kept, x[x <= 0] * 2]), (kept.shape[0] + 1) * 2


def made(x: torch.Tensor, n: torch.Tensor) -> Any:
    k = n.item()
    torch._check(k >= 0)
    return torch.zeros(k, 2) + x.sum(), torch.arange(k) * 2, torch.ones(k, k).triu(1)


def lengths(x: torch.Tensor, n: torch.Tensor) -> Any:
    first, second = torch.stack([n, 6 - n]).tolist()
    return [part * 2 for part in torch.split(x, [first, second])]


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:      # noqa: BLE001 - the kind of exception is compared
        return type(error)


@pytest.mark.parametrize("function", [scaled, cut, written, counted, made, lengths], ids=lambda f: f.__name__)
def test_no_break_and_no_miss(function: Callable[..., Any]) -> None:
    if function is written and torch.__version__.startswith("2.11."):
        pytest.skip("every slice has a size of its own in torch 2.11, and += of one is a break")
    built = aotcompile.compile(function, example_inputs=((X, N), {}), fullgraph=True)
    for number in (3, 0, 1, 4, -2):
        wanted = run(function, X, torch.tensor(number))
        found = run(built, X, torch.tensor(number))
        if isinstance(wanted, type):
            assert found is wanted
        else:
            torch.testing.assert_close(found, wanted)
    [region] = aotcompile.info(built).report().regions
    assert region.hits >= 4 and region.misses == 5 - region.hits


def test_gradients_flow_through_what_data_selects() -> None:
    def function(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        k = n.item()
        return (x[x > 0] * k).sum() + x[k].sum() + x[:k].exp().sum()

    built = aotcompile.compile(function, example_inputs=((X.clone().requires_grad_(), N), {}), fullgraph=True)
    for number in (3, 0, -1):
        a, b = X.clone().requires_grad_(), X.clone().requires_grad_()
        wanted, found = function(a, torch.tensor(number)), built(b, torch.tensor(number))
        wanted.backward()
        found.backward()
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(b.grad, a.grad)
    assert sum(region.misses for region in aotcompile.info(built).report().regions) == 0


def test_both_sides_of_a_branch_on_such_a_number_are_compiled() -> None:
    def function(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        y = x[x > n.item()]
        if y.shape[0] == 0:
            return x * 0
        return y.exp().sum() + x

    built = aotcompile.compile(function, example_inputs=((X, N), {}))
    for number in (3, 100, -5):
        torch.testing.assert_close(built(X, torch.tensor(number)), function(X, torch.tensor(number)))
    report = aotcompile.info(built).report()
    assert sum(region.misses for region in report.regions) == 0 and sum(bool(region.hits) for region in report.regions) >= 3


def test_a_number_that_leaves_is_read_outside() -> None:
    def function(x: torch.Tensor, n: torch.Tensor) -> Any:
        total = x.sum().item()
        return x * total, total

    built = aotcompile.compile(function, example_inputs=((X, N), {}))
    assert [found.code for found in aotcompile.info(built).breaks] == ["AOT203"]
    torch.testing.assert_close(built(X + 1, N), function(X + 1, N))


def tells(x: torch.Tensor, n: torch.Tensor) -> Any:
    positive = bool(x.sum() > 0)
    return x * 2, positive, [(x > n).any().item()], {"equal": bool(n)}


def chooses(x: torch.Tensor, n: torch.Tensor) -> Any:
    flag = (x.sum() > 0).item()
    y = x * 2
    return y + 1 if flag and x.shape[0] > 1 else y.exp() if not bool(n) else y - 1


def repeats(x: torch.Tensor, n: torch.Tensor) -> Any:
    rounds = 0
    while (x.sum() < 200).item() and rounds < 40:
        x = x + 3
        rounds += 1
    return x, rounds


def test_a_truth_may_leave_a_region() -> None:
    built = aotcompile.compile(tells, example_inputs=((X, N), {}), fullgraph=True)
    for x, number in ((X, 3), (X + 30, 0), (X - 30, 1)):
        wanted, found = tells(x, torch.tensor(number)), built(x, torch.tensor(number))
        torch.testing.assert_close(found[0], wanted[0])
        assert found[1:] == wanted[1:] and type(found[1]) is bool
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 3


@pytest.mark.parametrize("function", [chooses, repeats], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [None, ({0: "B"}, None)])
def test_both_sides_of_a_branch_on_a_truth_are_compiled(function: Callable[..., Any], dynamic: Any) -> None:
    built = aotcompile.compile(function, example_inputs=((X, N), {}), dynamic_shapes=dynamic)
    for x, number in ((X, 3), (X + 30, 3), (X - 30, 0), (X - 30, 1), *([(X[:2] - 3, 0), (X[:4], 2)] if dynamic else [])):
        torch.testing.assert_close(built(x, torch.tensor(number)), function(x, torch.tensor(number)))
    report = aotcompile.info(built).report()
    assert sum(region.misses for region in report.regions) == 0 and sum(bool(region.hits) for region in report.regions) >= 2


def pieces(x: torch.Tensor, n: torch.Tensor) -> Any:
    first, second = torch.stack([n, n + 2]).tolist()
    y = x.exp()
    return [x[first:second], x[second:], y[first:second] + 1]


def test_a_number_read_outside_is_data_for_what_follows() -> None:
    built = aotcompile.compile(pieces, example_inputs=((X, N), {}))
    for number in (3, 2, 0, 1):
        found = built(X, torch.tensor(number))
        torch.testing.assert_close(found, pieces(X, torch.tensor(number)))
        assert found[0].untyped_storage().data_ptr() == X.untyped_storage().data_ptr()
    report = aotcompile.info(built).report()
    assert sum(region.misses for region in report.regions) == 0 and all(region.hits for region in report.regions)


def rows(x: torch.Tensor) -> Any:
    chosen = x[x > 0]
    return len(chosen), chosen.reshape(-1, 1), chosen.shape                    # the tensor that has the size leaves as a view only


def first(x: torch.Tensor) -> Any:
    return (x == x.max()).nonzero()[0], (x > 0).nonzero()[:1]


@pytest.mark.parametrize("function", [rows, first], ids=lambda f: f.__name__)
def test_sizes_and_strides_that_are_data_leave_a_region(function: Callable[..., Any]) -> None:
    built = aotcompile.compile(function, example_inputs=((X,), {}), fullgraph=True, training=False)
    for x in (X, -X, X.abs()):
        found, wanted = built(x), function(x)
        torch.testing.assert_close(found, wanted)
        assert all(a.stride() == b.stride() for a, b in zip(found, wanted) if isinstance(a, torch.Tensor))
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 3, region.last_miss
