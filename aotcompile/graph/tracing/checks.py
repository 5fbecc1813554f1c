"""Checks of values that an operator makes at run time (``torch.linalg.inv`` of a singular matrix raises), kept through tracing.

    linalg_inv(x)      inv, info = aten.linalg_inv_ex(x);  aten._linalg_check_errors(info, "linalg.inv", is_matrix=True);  return inv

The check has no result: tracing drops it, or (torch 2.13 on) threads a token through the graph's inputs and outputs. Here the checked tensor becomes
an extra result of the traced function, and when the graphs are done the result is replaced by the check's call next to the tensor.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from aotcompile.graph.errors import UnsupportedGraph

CHECKS = frozenset({torch.ops.aten._linalg_check_errors.default})
# Their derivatives raise where the loss depends on the phase of an eigenvector or singular vector; traced, they do not look. That of `linalg_eig`
# always, the others where the argument is complex.
_PHASES = frozenset({torch.ops.aten.linalg_eig.default, torch.ops.aten._linalg_eigh.default, torch.ops.aten._linalg_svd.default})


@dataclass(frozen=True)
class Check:
    """``operator(tensor, *arguments, **keywords)``."""

    operator: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]


class KeepChecks(TorchDispatchMode):
    """Inside, checks are noted instead of made. ``found[k]`` checks ``tensors[k]``.

    Raises UnsupportedGraph (AOT302) at an operator whose derivative makes checks that tracing loses, in ``training``."""

    def __init__(self, training: bool) -> None:
        super().__init__()
        self.training = training
        self.found: list[Check] = []
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None) -> Any:
        if function in CHECKS:
            self.tensors.append(arguments[0])
            self.found.append(Check(function, tuple(arguments[1:]), tuple((keywords or {}).items())))
            return None
        if self.training and function in _PHASES and (function is torch.ops.aten.linalg_eig.default or arguments[0].is_complex()):
            raise UnsupportedGraph("AOT302", f"the derivative of {function} raises where a loss depends on the phase of a vector.")
        return function(*arguments, **(keywords or {}))


def insert_checks(forward: fx.GraphModule, checks: list[Check], output_count: int) -> None:
    """Takes the checked tensors, which are the outputs from ``output_count`` on, out of the graph's outputs and calls the checks on them."""
    if not checks:
        return
    [output] = forward.graph.find_nodes(op="output")
    outputs = list(output.args[0])                                                            # type: ignore[arg-type]
    for node, check in zip(outputs[output_count:], checks):
        with forward.graph.inserting_after(node):
            made = forward.graph.call_function(check.operator, (node, *check.arguments), dict(check.keywords))
        made.meta["val"] = None
        made.meta.update({key: node.meta[key] for key in ("stack_trace", "place", "source") if key in node.meta})
    output.args = (tuple(outputs[:output_count] + outputs[output_count + len(checks):]),)
    forward.graph.lint()
    forward.recompile()
