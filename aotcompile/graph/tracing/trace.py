"""Runs a captured graph under AOTAutograd: node by node, with the user's place attached, numbers read out of 0-dim tensors.

A number input ``n`` of the region becomes ``aten._local_scalar_dense(n)``: the graph computes with a symbol for its value, which has a Python
scalar's type promotion and on whose value nothing is decided. Where it is used as a size it is a symbol like those of sizes.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Sequence

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from aotcompile.frontend.types import GraphInput
from aotcompile.graph.autograd.cut import Cut, Edge, cut
from aotcompile.graph.autograd.stages import Source
from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.tracing.attention import fused_attention, in_fused_layout
from aotcompile.graph.tracing.checks import Check, KeepChecks
from aotcompile.graph.torch_private import ShapeEnv, fx_traceback
from aotcompile.graph.tracing.inputs import STAND_IN


class CapturedFunction(torch.nn.Module):
    """``forward(*inputs, *anchors)`` is the captured graph; ``running`` is the base name of the operator being run ("squeeze"); ``checks``: what is
    to be checked of the last results, which are added to those of the graph. Where the graph is cut (``cuts``), there is an anchor for each cut, and
    the edges are results too, before what is checked. ``observer`` sees every node and its value."""

    def __init__(self, graph: fx.GraphModule, inputs: Sequence[GraphInput]) -> None:
        super().__init__()
        self._graph = [graph]                                     # in a list: its (empty) module tree is not ours
        self._is_number = [given.kind == "number" for given in inputs]
        self.uses_cuda = any(given.facts is not None and given.facts.device != "cpu" for given in inputs)
        self.running = ""
        self.place = ""
        self.environment: ShapeEnv | None = None
        self.first_symbols: list[int] = []                        # per run: how many symbols for data had been made before it
        self.checks: list[Check] = []
        self.cuts: Sequence[Source] = ()
        self.observer: Callable[[fx.Node, Any], None] | None = None

    @property
    def graph(self) -> fx.Graph:
        return self._graph[0].graph

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        count = len(self._is_number)
        values = [value.item() if number and isinstance(value, torch.Tensor) else value
                  for value, number in zip(inputs[:count], self._is_number, strict=True)]
        if self.environment is not None:
            self.first_symbols.append(self.environment.unbacked_symint_counter)
        interpreter = _Interpreter(self._graph[0], self, inputs[count:])
        device = StandInDevice() if self.uses_cuda else nullcontext()
        kept = KeepChecks(torch.is_grad_enabled())
        with fx_traceback.preserve_node_meta(), torch.autograd.detect_anomaly(check_nan=False), device, kept:
            try:
                result = interpreter.run(*values)
            finally:
                self.running = ""
                interpreter.leave_open_blocks()
        self.checks = kept.found
        return (*(result if isinstance(result, (tuple, list)) else (result,)), *interpreter.edges.values(), *kept.tensors)

    @contextmanager
    def around(self, node: fx.Node) -> Iterator[None]:
        """The context in which one operator of the graph runs, when it runs alone."""
        self.note(node)
        with StandInDevice() if self.uses_cuda else nullcontext():
            yield
        self.running = ""

    def note(self, node: fx.Node) -> str:
        """Remember that ``node`` is running; its target's name."""
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        self.running = name.partition(".")[0]
        self.place = node.meta.get("place", "")
        if name == "_enter_autocast" and self.uses_cuda and "cuda" in (*node.args[:1], node.kwargs.get("device_type")):
            # The stand-in device has no autocast rules: the casts would silently be missing.
            raise UnsupportedGraph("AOT302", "autocast on CUDA cannot be traced without a GPU.", place=self.place)
        return name


class _Interpreter(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, owner: CapturedFunction, anchors: Sequence[torch.Tensor]) -> None:
        super().__init__(module, garbage_collect_values=True)
        self._owner, self._anchors = owner, anchors
        self._open_blocks: list[Any] = []
        self.edges: dict[int, torch.Tensor] = {}

    def call_function(self, target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if target is not cut:
            return super().call_function(target, arguments, keywords)
        value, number = arguments
        kind, place = self._owner.cuts[number]
        if kind == "edge" and place not in self.edges:
            self.edges[place] = Edge.apply(value)
        return Cut.apply(value, self._anchors[number])

    def run_node(self, node: fx.Node) -> Any:
        name = self._owner.note(node)
        result = super().run_node(node)
        if self._owner.observer is not None:
            self._owner.observer(node, result)
        if node.op == "call_function" and name == "_enter_autocast":
            self._open_blocks.append(result)
        elif node.op == "call_function" and name == "_exit_autocast":
            self._open_blocks.pop()
        return result

    def leave_open_blocks(self) -> None:
        """Leaves autocast blocks that an exception has cut short."""
        while self._open_blocks:
            self._open_blocks.pop().__exit__(None, None, None)


class StandInDevice(TorchFunctionMode):
    """Device arguments "cuda" become the stand-in's; ``torch.tensor(data, device="cuda")`` is made on the CPU and moved."""

    def __torch_function__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None) -> Any:
        arguments, keywords = _stand_in(arguments), _stand_in(dict(keywords or {}))
        if getattr(function, "__name__", "") == "cuda" and arguments and isinstance(arguments[0], torch.Tensor):
            return arguments[0].to(STAND_IN)
        if function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and isinstance(arguments[0], torch.Tensor) \
                and arguments[0].device.type == STAND_IN:
            arguments = (arguments[0], _tensor_indices(arguments[1]), *arguments[2:])
        if function is torch.nn.functional.scaled_dot_product_attention and arguments and arguments[0].device.type == STAND_IN:
            fused = fused_attention(*arguments, **keywords)
            return in_fused_layout(function(*arguments, **keywords)) if fused is NotImplemented else fused
        if function is torch.tensor and keywords.get("device") is not None:
            device = keywords.pop("device")
            return function(*arguments, **keywords).to(device)
        return function(*arguments, **keywords)


def _tensor_indices(index: Any) -> Any:
    """List indices as tensors that keep their data: torch would make them on the stand-in device, which has none."""
    if isinstance(index, list):
        return torch.tensor(index).to(STAND_IN)
    return tuple(map(_tensor_indices, index)) if type(index) is tuple else index


def _stand_in(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda" or isinstance(value, str) and value.partition(":")[0] == "cuda":
        return torch.device(STAND_IN)
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size) and not hasattr(value, "_fields"):
        return type(value)(_stand_in(item) for item in value)
    if isinstance(value, dict):
        return {name: _stand_in(item) for name, item in value.items()}
    return value
