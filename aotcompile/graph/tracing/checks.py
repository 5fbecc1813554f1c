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

CHECKS = frozenset({torch.ops.aten._linalg_check_errors.default})


@dataclass(frozen=True)
class Check:
    """``operator(tensor, *arguments, **keywords)``."""

    operator: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]


class KeepChecks(TorchDispatchMode):
    """Inside, checks are noted instead of made. ``found[k]`` checks ``tensors[k]``."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Check] = []
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None) -> Any:
        if function in CHECKS:
            self.tensors.append(arguments[0])
            self.found.append(Check(function, tuple(arguments[1:]), tuple((keywords or {}).items())))
            return None
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
