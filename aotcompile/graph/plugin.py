"""Plug-in backends: a function of the user that takes an FX graph module and example inputs, as `torch.compile(backend=...)` has them.

The function is called once for each captured variant, at build time::

    def without_dropout(graph_module, example_inputs):          # --backend mypkg.passes:without_dropout
        for node in graph_module.graph.nodes: ...
        graph_module.recompile()
        return graph_module                                     # or graph_module.forward, or any other callable

A graph module that comes back is written as graph.py, and the plug-in is not needed in production. Any other callable cannot be written: the
serving process then calls the plug-in again, with the captured graph and the real inputs, at the variant's first call.
"""
from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from aotcompile.base.diagnostic import Diagnostic, UsageError
from aotcompile.frontend.types import CapturedVariant, GraphInput
from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.record import graph_module, nodes_of
from aotcompile.graph.tracing.inputs import geometry
from aotcompile.ir.dtypes import DType

Plugin = Callable[[fx.GraphModule, list[Any]], Any]


def plugin_named(backend: str) -> Plugin:
    """The function called ``module:function``. Raises UsageError AOT126 where there is none."""
    module, _, qualname = backend.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in qualname.split("."):
            found = getattr(found, name)
    except Exception as error:  # noqa: BLE001  importing runs the user's code, which may raise anything; it is reported
        raise UsageError(Diagnostic("AOT126", "error", f"the backend {backend} cannot be imported: {type(error).__name__}: {error}", None,
                                    "Give package.module:function, importable where the build runs.")) from error
    if not callable(found):
        raise UsageError(Diagnostic("AOT126", "error", f"the backend {backend} is a {type(found).__name__}, not a function.", None,
                                    "Give package.module:function, which takes an FX graph module and example inputs."))
    return found                                                                                    # type: ignore[no-any-return]


def require_plugin(backend: str) -> None:
    """Raises UsageError AOT126 where ``backend`` names a plug-in that is not there, before the work begins."""
    if ":" in backend:
        plugin_named(backend)


def apply_plugin(variant: CapturedVariant, backend: str) -> tuple[CapturedVariant, bool]:
    """The variant with the plug-in's graph, and whether production needs no plug-in.

    Raises UnsupportedGraph (AOT316) where the plug-in raises, returns nothing callable, or a graph with other inputs."""
    plugin = plugin_named(backend)
    try:
        made = plugin(graph_module(variant.nodes), example_inputs(variant))
    except Exception as error:  # noqa: BLE001  the user's function; the region stays eager and the error is shown
        raise UnsupportedGraph("AOT316", f"the backend {backend} raised {type(error).__name__}: {error}", "The region runs eagerly.") from error
    if not callable(made):
        raise UnsupportedGraph("AOT316", f"the backend {backend} returned a {type(made).__name__}, not a callable.", "The region runs eagerly.")
    owner = getattr(made, "__self__", made)
    if not isinstance(owner, fx.GraphModule) or made is not owner and getattr(made, "__func__", None) is not type(owner).forward:
        return variant, False
    try:
        nodes = nodes_of(owner.graph)
    except UnsupportedGraph:
        return variant, False                                    # its modules and attributes exist in that module only
    expected, found = (sum(node.operation == "placeholder" for node in records) for records in (variant.nodes, nodes))
    if expected != found:
        raise UnsupportedGraph("AOT316", f"the backend {backend} returned a graph of {found} inputs; the region has {expected}.",
                               "The region runs eagerly.")
    return replace(variant, nodes=nodes, operator_count=sum(node.operation.startswith("call") for node in nodes)), True


def example_inputs(variant: CapturedVariant) -> list[Any]:
    """Inputs with the variant's shapes (symbols at their example's size), dtypes and strides; tensors are zeros. Numbers are the example's."""
    sizes = {facts.name: facts.hint for facts in variant.symbols}
    return [_example(given, sizes) for given in variant.inputs]


def _example(given: GraphInput, sizes: dict[str, int]) -> Any:
    facts = given.facts
    if facts is None:
        return given.hint
    shape, strides = geometry(facts, sizes)
    device = facts.device if facts.device == "cpu" or torch.cuda.is_available() else "cpu"
    tensor = torch.empty_strided(shape, strides, dtype=getattr(torch, DType(facts.dtype).torch_name), device=device).zero_()
    return tensor.requires_grad_(bool(facts.requires_grad))
