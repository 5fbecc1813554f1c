"""Forward hooks with a graph break: the hook runs between regions, whatever it changes, and the module's forward is compiled."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


class Hooked(nn.Module):
    """``log`` gets what the hooks see."""

    def __init__(self, log: list[Any]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        self.log = log
        self.first.register_forward_pre_hook(self.shown)
        self.first.register_forward_hook(self.scaled)
        self.last.register_forward_pre_hook(self.shifted, with_kwargs=True)
        self.last.register_forward_hook(self.kept, with_kwargs=True)

    def shown(self, module: nn.Module, args: Any) -> Any:
        self.log.append(f"{args[0].sum().item():.3f}")
        return args[0] * 2

    def scaled(self, module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
        largest = result.abs().max().item()
        self.log.append(f"{largest:.3f}")
        return result / largest

    def shifted(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        print(end="")
        return (), {"input": args[0] + 1}

    def kept(self, module: nn.Module, args: Any, kwargs: Any, result: torch.Tensor) -> None:
        self.log.append((len(args), f"{result.mean().item():.3f}"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x).relu()).sin()


def test_hooks_run_in_order_around_compiled_forwards() -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    module = Hooked(ours)
    plain = Hooked(theirs)
    plain.load_state_dict(module.state_dict())
    x = torch.randn(2, 3)
    made = aotcompile.compile(module, example_inputs=((x,), {}), backend="aot_eager")
    assert not ours, "the build leaves no trace"
    for _ in range(2):
        results = [each(x) for each in (made, plain)]
        torch.testing.assert_close(*results)
    assert ours == theirs and len(ours) == 6
    gradients = [torch.autograd.grad(result.sum(), list(each.parameters())) for result, each in zip(results, (module, plain))]
    torch.testing.assert_close(*gradients)
    regions = aotcompile.info(made).report().regions
    assert sum(region.misses for region in regions) == 0
    assert {region.name.partition(":")[0] for region in regions if region.hits} >= {"call_with_hooks", "Hooked.scaled", "Hooked.forward"}


def test_another_hook_is_called_and_noticed() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    seen: list[str] = []
    module[0].register_forward_hook(lambda module, args, result: seen.append(f"{result.sum().item():.2f}"))
    x = torch.randn(2, 3)
    made = aotcompile.compile(module, example_inputs=((x,), {}), backend="eager")
    torch.testing.assert_close(made(x), module(x))
    assert len(seen) == 2
    handle = module[0].register_forward_hook(lambda module, args, result: result * 0)
    assert not made(x).any()
    handle.remove()
    backward = module[0].register_full_backward_hook(lambda module, given, found: (found[0] * 2,))
    ours = torch.autograd.grad(made(x.requires_grad_()).sum(), x)
    torch.testing.assert_close(ours, torch.autograd.grad(module(x).sum(), x))
    backward.remove()
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        module[0].register_forward_pre_hook(lambda module, args, kwargs: 3, with_kwargs=True)
        made(x)
