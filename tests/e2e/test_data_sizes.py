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
