"""The registry of lowerings: ATen overload name -> function.

A lowering has the signature ``lowering(context, node, *arguments, **keywords)``: ``arguments`` are the node's with every tensor node replaced by
its `tensors.Tensor` and every size node by its `Expression` (or a `symbols.ScalarValue`). It returns a `Tensor`, a tuple of them (None for one
that it does not make), or `NotImplemented`: then, as for every operator without a lowering, the operator becomes a library call. So a lowering
may decline whatever it does not do exactly; it must decline before it emits anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Lowering = Callable[..., Any]

LOWERINGS: dict[str, Lowering] = {}


def lowering(*operators: str) -> Callable[[Lowering], Lowering]:
    """Register the decorated function for overloads such as ``aten.add.Tensor``."""

    def register(function: Lowering) -> Lowering:
        for operator in operators:
            if operator in LOWERINGS:
                raise ValueError(f"{operator} has two lowerings")
            LOWERINGS[operator] = function
        return function

    return register
