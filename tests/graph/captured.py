"""Captured variants made by hand for tests: a small function traced with torch.fx, its facts from example inputs."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from aotcompile.frontend.types import CapturedVariant, GraphInput, SymbolFacts
from aotcompile.graph.record import nodes_of
from aotcompile.graph.types import AtenGraphs
from aotcompile.ir.dtypes import BY_TORCH_NAME
from aotcompile.ir.guards import Guard, TensorFacts
from aotcompile.ir.paths import Path


class _Recorder(TorchFunctionMode):
    """Records torch functions that are called without proxies too (``torch.ones``, entering autocast)."""

    def __init__(self, tracer: fx.Tracer) -> None:
        super().__init__()
        self._tracer = tracer

    def __torch_function__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None) -> Any:
        return self._tracer.create_proxy("call_function", function, arguments, keywords or {})


class _Tracer(fx.Tracer):
    def create_arg(self, value: Any) -> Any:
        return value if isinstance(value, (torch.memory_format, torch.layout)) else super().create_arg(value)


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)`` as one node of the captured graph."""
    proxies = [argument for argument in arguments if isinstance(argument, fx.Proxy)]
    return proxies[0].tracer.create_proxy("call_function", function, arguments, {}) if proxies else function(*arguments)


def capture(function: Callable[..., Any], example: Sequence[Any], dynamic: dict[int, dict[int, str]] | None = None, *, device: str = "cpu",
            guards: Sequence[Guard] = (), ranges: dict[str, tuple[int, int | None]] | None = None) -> CapturedVariant:
    """``dynamic``: input number -> dimension -> symbol name."""
    tracer = _Tracer()
    with _Recorder(tracer):
        graph = tracer.trace(function)
    for line, node in enumerate(graph.nodes):
        if node.op in ("call_function", "call_method"):
            node.meta["place"], node.meta["source"] = f"model.py:{line + 1}", f"{node.name} = ..."
    names = [node.name for node in graph.nodes if node.op == "placeholder"]
    [output] = graph.find_nodes(op="output")
    if not isinstance(output.args[0], (tuple, list)):
        output.args = ((output.args[0],),)
    inputs: list[GraphInput] = []
    symbols: dict[str, SymbolFacts] = {}
    for number, (name, value) in enumerate(zip(names, example, strict=True)):
        path = Path(("argument", name))
        if isinstance(value, torch.Tensor):
            inputs.append(GraphInput(name, "tensor", path, _facts(number, value, (dynamic or {}).get(number, {}), symbols, device, ranges or {})))
        else:
            inputs.append(GraphInput(name, "number", path, None, "int" if isinstance(value, int) else "float", value))
    return CapturedVariant("test:r0", nodes_of(graph), tuple(inputs), tuple(symbols.values()), tuple(guards), (), "", {}, 0, True, (), len(names))


def _facts(number: int, value: torch.Tensor, dynamic: dict[int, str], symbols: dict[str, SymbolFacts], device: str,
           ranges: dict[str, tuple[int, int | None]]) -> TensorFacts:
    sizes: list[int | str] = list(value.shape)
    for dimension, name in dynamic.items():
        sizes[dimension] = name
        if name not in symbols:
            symbols[name] = SymbolFacts(name, number, dimension, value.shape[dimension], *ranges.get(name, (0, None)))
    strides: list[int | str] = list(value.stride())
    if dynamic and value.is_contiguous():
        for position in range(len(sizes)):
            rest = sizes[position + 1:]
            strides[position] = "*".join(map(str, rest)) if any(isinstance(s, str) for s in rest) else strides[position]
    return TensorFacts(BY_TORCH_NAME[str(value.dtype).removeprefix("torch.")].value, tuple(sizes), tuple(strides), device, value.requires_grad)


def run_inference(graphs: AtenGraphs, inputs: Sequence[Any]) -> list[Any]:
    with torch.no_grad():
        return list(fx.Interpreter(graphs.forward).run(*map(_as_input, inputs)))


def run_training(graphs: AtenGraphs, inputs: Sequence[Any], tangents: Sequence[torch.Tensor]) -> tuple[list[Any], list[Any]]:
    """(outputs, gradients) by the calling convention of `AtenGraphs`."""
    assert graphs.backward is not None
    with torch.no_grad():
        results = list(fx.Interpreter(graphs.forward).run(*map(_as_input, inputs)))
        saved = [(given.kind, results[given.index]) for given in graphs.saved]
        arguments = [value for kind, value in saved if kind == "size"] + [value for kind, value in saved if kind == "tensor"]
        gradients = list(fx.Interpreter(graphs.backward).run(*arguments, *tangents))
    return results[:graphs.output_count], gradients


def _as_input(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    return torch.tensor(value, dtype=torch.int64 if isinstance(value, int) else torch.float64)
