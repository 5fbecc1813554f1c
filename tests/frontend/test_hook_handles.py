"""Hooks registered and removed inside a region: later calls see them, the handle and torch's count of hooks are as eager leaves them."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.randn(2, 3)


def doubled(module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
    return result * 2


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.seen: list[torch.Tensor] = []


class RemovesItsOwn(Holder):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        handle = self.layer.register_forward_hook(lambda module, args, result: result * 2)
        hooked = self.layer(x)
        handle.remove()
        return hooked + self.layer(x)


class WithBlock(Holder):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        def keep(module: nn.Module, args: Any, result: torch.Tensor) -> None:
            self.seen.append(result)

        with self.layer.register_forward_hook(keep):
            y = self.layer(x.sin())
        return y.cos() + self.layer(x), len(self.seen)


class RemovesAnother(Holder):
    def __init__(self) -> None:
        super().__init__()
        self.handle = self.layer.register_forward_hook(doubled)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = self.layer(x)
        self.handle.remove()
        return y + self.layer(x), len(self.layer._forward_hooks)


class Registers(Holder):
    def emptied(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        return (args[0] + 1,), {}

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, RemovableHandle]:
        first = self.layer.register_forward_hook(doubled, prepend=True)
        self.other = self.layer.register_forward_pre_hook(self.emptied, with_kwargs=True)
        return self.layer(x.sin()), first


class HasHooks(Holder):
    def __init__(self) -> None:
        super().__init__()
        self.layer.register_forward_hook(lambda module, args, kwargs, result: result * 2, with_kwargs=True)
        self.layer.register_forward_hook(lambda module, args, result: result + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).sin()


def made(kind: type[Holder]) -> Holder:
    torch.manual_seed(0)
    return kind()


@pytest.mark.parametrize("kind", [RemovesItsOwn, WithBlock, RemovesAnother, Registers, HasHooks])
def test_one_region_and_eagers_results(kind: type[Holder]) -> None:
    module, plain = made(kind), made(kind)
    compiled = aotcompile.compile(module, example_inputs=((X,), {}), backend="eager")
    counts = []
    for each in (compiled, plain):
        before = RemovableHandle.next_id
        result = each(X)
        counts.append((RemovableHandle.next_id - before, len(each.layer._forward_hooks), len(each.layer._forward_pre_hooks),
                       len(each.layer._forward_pre_hooks_with_kwargs), len(each.seen)))
        if isinstance(result, tuple) and isinstance(result[1], RemovableHandle):
            result[1].remove()                                  # the handle is a real one
            counts[-1] = (*counts[-1], len(each.layer._forward_hooks), result[1].id >= before)
            result = result[:1]
        counts[-1] = (*counts[-1], result if isinstance(result, torch.Tensor) else result[0].sum().item())
    assert all(bool(torch.as_tensor(a == b).all()) for a, b in zip(*counts, strict=True)), counts
    report = aotcompile.info(compiled)
    assert not report.breaks
    assert [(region.hits, region.misses) for region in report.report().regions] == [(1, 0)]


def test_the_numbers_of_hooks_are_no_part_of_what_is_compiled() -> None:
    compiled = aotcompile.compile(made(HasHooks), example_inputs=((X,), {}), backend="eager")
    hooks = compiled.layer._forward_hooks
    plain = made(HasHooks)
    numbers = list(hooks)
    for number, key in enumerate(numbers):                       # as in a process that has registered others before
        hooks[number + 10**6] = hooks.pop(key)
    compiled.layer._forward_hooks_with_kwargs[10**6] = compiled.layer._forward_hooks_with_kwargs.pop(numbers[0])
    torch.testing.assert_close(compiled(X), plain(X))
    region, = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (1, 0)
    compiled.layer._forward_hooks_with_kwargs[10**6 + 1] = compiled.layer._forward_hooks_with_kwargs.pop(10**6)
    with pytest.raises(TypeError):
        compiled(X)                                              # each hook is given another number of arguments now


def test_the_build_does_not_remove_a_hook() -> None:
    module = made(RemovesAnother)
    aotcompile.compile(module, example_inputs=((X,), {}), backend="eager")
    assert len(module.layer._forward_hooks) == 1


def returns_a_closure(x: torch.Tensor) -> Any:
    y = x.sin()

    def later(z: torch.Tensor) -> torch.Tensor:
        return z + y

    return y.cos(), later


def loop_over_made_values(x: torch.Tensor) -> list[torch.Tensor]:
    found = []
    for number, (a, b) in enumerate(zip([x, x + 1], x.unbind())):
        print(end="")
        found.append(a.sin() + b + number)
    return found


def test_a_function_that_leaves_is_made_between_regions() -> None:
    compiled = aotcompile.compile(returns_a_closure, example_inputs=((X,), {}), backend="eager")
    (cos, later), (wanted, theirs) = compiled(X), returns_a_closure(X)
    torch.testing.assert_close((cos, later(X)), (wanted, theirs(X)))
    assert later.__qualname__ == theirs.__qualname__
    assert all(region.hits for region in aotcompile.info(compiled).report().regions)


def test_an_iterator_of_a_loop_with_a_break_is_no_break_of_its_own() -> None:
    compiled = aotcompile.compile(loop_over_made_values, example_inputs=((X,), {}), backend="eager")
    torch.testing.assert_close(compiled(X), loop_over_made_values(X))
    assert [each.code for each in aotcompile.info(compiled).breaks] == ["AOT201"]
    assert all(region.hits for region in aotcompile.info(compiled).report().regions)
