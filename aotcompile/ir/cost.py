"""A rough measure of the work that evaluating values takes, for decisions on fusion and on threads."""
from __future__ import annotations

from collections.abc import Sequence

from aotcompile.ir.nodes import Apply, Load, Value
from aotcompile.ir.operators import OPERATORS
from aotcompile.ir.traverse import walk

TRANSCENDENTAL = 10


def cost(values: Sequence[Value]) -> int:
    """Work of evaluating ``values`` once: 1 for an operator, 10 for a transcendental function, 1 for a load; shared parts count once."""
    total = 0
    seen: set[int] = set()
    for value in values:
        for node in walk(value):
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Apply):
                total += TRANSCENDENTAL if OPERATORS[node.operator].costly else 1
            elif isinstance(node, Load):
                total += 1
    return total
