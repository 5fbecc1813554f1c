"""Plug-in backends in the serving process: the captured graph as an FX graph module, given to the user's function at the first call.

Only for plug-ins whose result could not be written at build time (see graph/plugin.py); a graph module that a plug-in returned is graph.py itself.
"""
from __future__ import annotations

import threading
from typing import Any, Callable, Sequence

from torch import fx
from torch.overrides import TorchFunctionMode


class _Recording(TorchFunctionMode):
    """Records calls that take no proxy too: ``torch.zeros(2)`` must stay a node, and not become a constant."""

    def __init__(self, tracer: fx.Tracer) -> None:
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None) -> Any:
        return self.tracer.create_proxy("call_function", function, arguments, keywords or {})


def graph_module_of(computation: Callable[..., Any], input_count: int) -> fx.GraphModule:
    """The straight-line function ``computation`` of a graph.py, which takes ``input_count`` inputs, as a graph module."""
    tracer = fx.Tracer()
    tracer.root = fx.GraphModule({}, fx.Graph())                 # type: ignore[assignment]
    tracer.graph = fx.Graph(tracer_cls=fx.Tracer)
    names = computation.__code__.co_varnames[:input_count]
    proxies = [tracer.create_proxy("placeholder", name, (), {}) for name in names]
    with _Recording(tracer):
        outputs = computation(*proxies)
    tracer.create_node("output", "output", (tracer.create_arg(outputs),), {})
    return fx.GraphModule(tracer.root, tracer.graph, class_name="CapturedGraph")


class PluginGraph:
    """What a plug-in makes of a graph; made at the first call, whose inputs are the plug-in's example inputs. Whatever it raises is the caller's."""

    def __init__(self, computation: Callable[..., Any], plugin: Callable[..., Any], input_count: int) -> None:
        self._computation, self._plugin, self._input_count = computation, plugin, input_count
        self._made: Any = None
        self._lock = threading.RLock()

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        with self._lock:
            if self._made is None:
                self._made = self._plugin(graph_module_of(self._computation, self._input_count), list(inputs))
        outputs: Sequence[Any] = self._made(*inputs)
        return outputs
