"""Constructs whose effect lies outside the values of a function: grad mode left switched, variables of enclosing functions, local classes."""
from __future__ import annotations

import dataclasses
import enum
from typing import Any

import pytest
import torch

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


class Kind(enum.Enum):
    FIRST = 1
    SECOND = 2


BY_KIND = {Kind.FIRST: 2, Kind.SECOND: 3}
BY_TYPE = {int: lambda x, v: x * v, str: lambda x, v: x + len(v)}
BY_OTHER = {torch.float32: 2, (1, "a"): 3, b"x": 5, None: 7}
TYPES = {int, str}


calls = 0
last: Any = None


def compiled(function: Any, *arguments: Any) -> Any:
    return aotcompile.compile(function, example_inputs=(arguments, {}), backend="eager")


def hits(function: Any) -> int:
    return sum(region.hits for region in aotcompile.info(function).report().regions)


def test_grad_mode_that_is_left_changed_stays_changed() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        return x * 2

    made = compiled(function, torch.ones(2, requires_grad=True))
    try:
        assert not made(torch.ones(2, requires_grad=True)).requires_grad
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    assert hits(made) == 1


def test_a_counter_in_an_enclosing_function() -> None:
    count = 0

    def function(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return x * 2 + count

    made = compiled(function, torch.ones(2))
    assert [made(torch.ones(2)).tolist() for _ in range(3)] == [[3.0, 3.0], [4.0, 4.0], [5.0, 5.0]]
    assert count == 3 and hits(made) == 3


def test_instances_of_a_local_class_leave() -> None:
    @dataclasses.dataclass
    class Output:
        value: torch.Tensor
        size: int = 0

    def function(x: torch.Tensor) -> Any:
        return Output(x + 1, x.shape[0])

    made = compiled(function, torch.ones(2))
    result = made(torch.ones(2))
    assert type(result) is Output and result.size == 2 and hits(made) == 1


def test_a_seed_set_inside_is_set_at_every_call() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch.manual_seed(5)
        return y + torch.rand(3)

    state = torch.get_rng_state()
    made = compiled(function, torch.zeros(3))
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close([made(torch.zeros(3)) for _ in range(2)], [function(torch.zeros(3)) for _ in range(2)])


def test_a_generator_given_is_advanced_at_run_time_only() -> None:
    def function(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        y = x * 2
        generator.manual_seed(3)
        return y + torch.rand(3, generator=generator)

    generator = torch.Generator()
    state = generator.get_state()
    made = compiled(function, torch.zeros(3), generator)
    assert torch.equal(generator.get_state(), state)
    torch.testing.assert_close(made(torch.zeros(3), generator), function(torch.zeros(3), generator))


def test_transforms_of_torch_func_are_not_lost() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x + 1
        return torch.func.grad(lambda t: (t ** 3).sum())(y), torch.vmap(lambda row: row.sum())(y[None])

    made = compiled(function, torch.ones(3))
    torch.testing.assert_close(made(torch.ones(3)), function(torch.ones(3)))


def test_a_part_assigned_by_the_dispatchers_own_operators() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x[1, :] = 5
        return x * 1

    made = aotcompile.compile(function, example_inputs=((torch.zeros(3, 4),), {}), backend="aot_eager")
    torch.testing.assert_close(made(torch.arange(12.0).view(3, 4)), function(torch.arange(12.0).view(3, 4)))


@pytest.mark.parametrize("owner, name, put", [
    (torch.nn.Linear, "forward", lambda self, x: x * 100),
    (torch.nn.Module, "__call__", lambda self, x: x * 100),
    (torch, "relu", torch.sin),
    (torch.nn.functional, "gelu", lambda x, approximate: x.cos()),
    (torch.nn.functional, "softmax", lambda x, dim: x * 3),
], ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_replaced_function_of_a_library_is_noticed(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, put: Any) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU()).requires_grad_(False)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(layers(x)) + torch.nn.functional.softmax(x, -1)

    made = compiled(function, torch.ones(2, 3))
    torch.testing.assert_close(made(torch.ones(2, 3)), function(torch.ones(2, 3)))
    monkeypatch.setattr(owner, name, put)
    torch.testing.assert_close(made(torch.ones(2, 3)), function(torch.ones(2, 3)))
    monkeypatch.undo()
    torch.testing.assert_close(made(torch.ones(2, 3)), function(torch.ones(2, 3)))
    assert [(region.hits, region.misses) for region in aotcompile.info(made).report().regions] == [(2, 1)]


def test_tables_with_keys_that_go_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: torch.Tensor, kind: Kind) -> Any:
        y = BY_TYPE[type(x.shape[0])](x, BY_KIND[kind]) + BY_TYPE[str](x, "abc")
        return y * BY_OTHER[x.dtype] * BY_OTHER[(1, "a")] + BY_OTHER[b"x"] + BY_OTHER[None] + (int in TYPES), sum(BY_KIND.values())

    made = compiled(function, torch.ones(2), Kind.SECOND)
    torch.testing.assert_close(made(torch.ones(2), Kind.SECOND), function(torch.ones(2), Kind.SECOND))
    monkeypatch.setitem(BY_KIND, Kind.SECOND, 10)
    torch.testing.assert_close(made(torch.ones(2), Kind.SECOND), function(torch.ones(2), Kind.SECOND))
    torch.testing.assert_close(made(torch.ones(2), Kind.FIRST), function(torch.ones(2), Kind.FIRST))
    assert [(region.hits, region.misses) for region in aotcompile.info(made).report().regions] == [(1, 2)]


def test_checkpoint_is_a_call_of_its_function() -> None:
    layer = torch.nn.Linear(3, 3)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(lambda t: torch.sin(layer(t)), x, use_reentrant=False) * 2

    x = torch.ones(2, 3, requires_grad=True)
    made = aotcompile.compile(function, example_inputs=((x,), {}), backend="aot_eager")
    made(x).sum().backward()
    gradients = x.grad, layer.weight.grad
    x.grad = layer.weight.grad = None
    function(x).sum().backward()
    torch.testing.assert_close(gradients, (x.grad, layer.weight.grad))
    assert hits(made) == 1 and not aotcompile.info(made).breaks


def test_a_global_counter() -> None:
    global calls, last

    def function(x: torch.Tensor) -> torch.Tensor:
        global calls, last
        calls += 1
        last = x * calls
        return last + 1

    calls, last = 0, None
    made = compiled(function, torch.ones(2))
    assert calls == 0 and last is None
    assert [made(torch.ones(2)).tolist() for _ in range(3)] == [[2.0, 2.0], [3.0, 3.0], [4.0, 4.0]]
    assert calls == 3 and last.tolist() == [3.0, 3.0] and hits(made) == 3


def test_one_list_given_twice_is_not_two_lists() -> None:
    def function(x: torch.Tensor, first: list[Any], second: list[Any]) -> torch.Tensor:
        first.append(x)
        return x * len(second)

    made = compiled(function, torch.ones(2), [], [])
    shared: list[Any] = []
    assert made(torch.ones(2), shared, shared).tolist() == [1.0, 1.0] and len(shared) == 1
    assert made(torch.ones(2), [], []).tolist() == [0.0, 0.0]
    assert hits(made) == 1
