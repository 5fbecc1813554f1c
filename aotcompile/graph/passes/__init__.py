"""Passes over ATen graphs. Each is exact: the graph computes the same bits before and after. `run` is the list, in order."""
from __future__ import annotations

from torch import fx

from aotcompile.graph.passes.constants import fold_constants, inline_tensor_constants
from aotcompile.graph.passes.dead_code import remove_dead_code
from aotcompile.graph.passes.names import rename_nodes
from aotcompile.graph.passes.no_operations import remove_no_operations
from aotcompile.graph.passes.output_strides import accept_tangents, restore_output_strides
from aotcompile.graph.passes.required_sizes import required_sizes
from aotcompile.graph.passes.size_checks import insert_size_checks

PASSES = (inline_tensor_constants, remove_no_operations, fold_constants, remove_dead_code)

__all__ = ["PASSES", "accept_tangents", "insert_size_checks", "rename_nodes", "required_sizes", "restore_output_strides", "run"]


def run(module: fx.GraphModule) -> None:
    for step in PASSES:
        step(module)
    module.graph.lint()
    module.recompile()
