"""Which tests of a rewritten function can depend on data.

    n = _r0(x)                      # region 0 gives a number: data where its capture says that the number depends on a tensor
    m = y.tolist()                  # read from a tensor outside of regions
    if m[0] > 3:                    # data
    if self.training:               # not data
    if options.get("debug"):        # not data: what else a call gives may be a setting, and its other side something that nobody wants run
    if mask is not None:            # not data, wherever the mask comes from
"""
from __future__ import annotations

import ast
from collections.abc import Iterator

Origin = tuple[int, int]
"""(number of a region, position in what it gives; 0 too for the only value)."""
OUTSIDE: Origin = (-1, -1)
"""Read from a tensor outside of regions, by a call."""
ARGUMENTS = -1
"""The position of what a region without tensor operations (it will not be one) makes of arguments with an origin."""

_READING = frozenset({"item", "tolist", "numpy", "equal", "allclose", "is_nonzero"})
"""Methods and functions that give plain numbers of a tensor."""
_KINDS = frozenset({"isinstance", "issubclass", "hasattr", "callable"})


class DataTests:
    """``origins(test)``: where the values come from that a test depends on; empty for a test of facts alone (parameters, attributes, globals)."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self._names: dict[str, frozenset[Origin]] = {}
        bindings = [binding for node in ast.walk(function) for binding in _bindings(node)]
        changed = True
        while changed:
            changed = False
            for name, value, position in bindings:
                known = self._names.get(name, frozenset())
                found = known | self._of_value(value, position)
                changed |= found != known
                self._names[name] = found

    def _of_value(self, value: ast.expr, position: int) -> frozenset[Origin]:
        region = _called_region(value)
        if region is not None:
            arguments = self.origins(ast.Tuple(value.args, ast.Load())) if isinstance(value, ast.Call) else None
            return frozenset({(region, position), (region, ARGUMENTS)} if arguments else {(region, position)})
        return self.origins(value)

    def origins(self, test: ast.expr) -> frozenset[Origin]:
        found: set[Origin] = set()
        for node in _valued(test):
            if isinstance(node, ast.Name):
                found |= self._names.get(node.id, frozenset())
            elif isinstance(node, ast.Attribute) and node.attr in _READING:
                found.add(OUTSIDE)
        return frozenset(found)


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr, int]]:
    """(local, the value it is given, its position in a tuple of targets)."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            for position, part in enumerate(parts):
                yield from ((name, node.value, position) for name in _stored(part))
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield from ((name, node.value, 0) for name in _stored(node.target))
    elif isinstance(node, ast.For):
        yield from ((name, node.iter, 0) for name in _stored(node.target))


def _stored(target: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


def _valued(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression whose values its own value depends on: not what is asked for its identity or kind."""
    if isinstance(node, ast.Compare) and all(isinstance(operator, (ast.Is, ast.IsNot)) for operator in node.ops) or _asks_kind(node):
        return
    yield node
    for part in ast.iter_child_nodes(node):
        yield from _valued(part)


def _asks_kind(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _KINDS


def _called_region(value: ast.expr) -> int | None:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id.startswith("_r") and value.func.id[2:].isdigit():
        return int(value.func.id[2:])
    return None
