"""Operators whose decomposition asks where a position is: kept whole where the position is data.

    select_scatter(x, y, 0, n.item())        not: if index < 0: index += ...
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_POSITIONED = (torch.ops.aten.select_scatter.default,)
Decompositions = dict[Any, Callable[..., Any]]


def keep_data_positions(table: Decompositions) -> Decompositions:
    """``table``, with `_POSITIONED` operators taken apart only for positions that are sizes or plain numbers."""
    return {operator: _unless_data(function) if operator in _POSITIONED else function for operator, function in table.items()}


def _unless_data(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def decomposition(*arguments: Any, **keywords: Any) -> Any:
        if any(isinstance(value, torch.SymInt) and value.node.hint is None for value in (*arguments, *keywords.values())):
            return NotImplemented
        return function(*arguments, **keywords)
    return decomposition
