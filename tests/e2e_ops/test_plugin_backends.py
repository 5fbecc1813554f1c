"""Plug-in backends: a user's function gets each region's graph, and what it returns is what runs."""
from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import fx

import aotcompile
from aotcompile.base.diagnostic import AotCompileError

seen: list[tuple[list[str], list[Any]]] = []


def _names(graph_module: fx.GraphModule) -> list[str]:
    return [str(getattr(node.target, "__name__", node.target)) for node in graph_module.graph.nodes if node.op.startswith("call")]


def sine_for_cosine(graph_module: fx.GraphModule, example_inputs: list[Any]) -> fx.GraphModule:
    seen.append((_names(graph_module), example_inputs))
    for node in graph_module.graph.nodes:
        if node.target is torch.cos:
            node.target = torch.sin
    graph_module.recompile()
    return graph_module


def forward_of_module(graph_module: fx.GraphModule, example_inputs: list[Any]) -> Any:
    return graph_module.forward


def own_callable(graph_module: fx.GraphModule, example_inputs: list[Any]) -> Any:
    seen.append((_names(graph_module), example_inputs))

    def run(*inputs: Any) -> Any:
        return tuple(output * 2 for output in graph_module(*inputs))
    return run


def raises(graph_module: fx.GraphModule, example_inputs: list[Any]) -> Any:
    raise ValueError("no such graph")


def wave(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.cos(x) * scale + torch.ones(3).sum()


def compiled(backend: str, *arguments: Any, **options: Any) -> Any:
    seen.clear()
    return aotcompile.compile(wave, example_inputs=(arguments, {}), backend=f"{__name__}:{backend}", **options)


def test_a_returned_graph_module_is_what_runs() -> None:
    x = torch.linspace(-1, 1, 6, requires_grad=True)
    function = compiled("sine_for_cosine", x, 2.0)
    names, inputs = seen[0]
    assert "cos" in names and inputs[0].shape == (6,) and inputs[0].requires_grad
    seen.clear()
    result = function(x, 2.0)
    torch.testing.assert_close(result, torch.sin(x) * 2.0 + 3)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], torch.cos(x) * 2.0)
    assert not seen                                              # it was written at build time
    record, = (r for r in aotcompile.runtime.report().regions if r.name.startswith("wave") and r.module == __name__ and r.calls)
    assert record.hits == record.calls == 1


def test_the_forward_of_the_graph_module() -> None:
    x = torch.linspace(-1, 1, 6)
    torch.testing.assert_close(compiled("forward_of_module", x, 2.0)(x, 2.0), wave(x, 2.0))


def test_another_callable_is_made_at_the_first_call() -> None:
    x = torch.linspace(-1, 1, 6, requires_grad=True)
    function = compiled("own_callable", x, 2.0, dynamic=True)
    at_build = seen[0][0]
    seen.clear()
    for size in (6, 9):
        y = torch.linspace(0, 1, size, requires_grad=True)
        result = function(y, 2.0)
        torch.testing.assert_close(result, 2 * wave(y, 2.0))
        result.sum().backward()
        torch.testing.assert_close(y.grad, -4 * torch.sin(y.detach()))
    (names, inputs), = seen
    assert sorted(names) == sorted(at_build) and "ones" in names and inputs[0].shape == (6,)


def test_a_plugin_that_raises_leaves_the_region_eager() -> None:
    x = torch.linspace(-1, 1, 6)
    torch.testing.assert_close(compiled("raises", x, 2.0)(x, 2.0), wave(x, 2.0))


@pytest.mark.parametrize("backend", ["no_such_module:function", f"{__name__}:no_such_function", f"{__name__}:seen"])
def test_a_backend_that_is_not_there(backend: str) -> None:
    with pytest.raises(AotCompileError) as caught:
        aotcompile.compile(wave, example_inputs=((torch.ones(6), 2.0), {}), backend=backend)
    assert caught.value.diagnostics[0].code == "AOT126" and __name__ in sys.modules
