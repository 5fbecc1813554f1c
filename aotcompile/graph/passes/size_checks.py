"""What must hold for sizes that are data, as nodes of the graph: eager checks it as it goes.

    narrow(x, 0, n, 2)       le = n <= 4; _assert_scalar(le, "n <= 4")          behind the node that reads n

torch keeps such facts as deferred runtime asserts beside the graph. Those about symbols that the graph does not define speak of values that nothing
uses.
"""
from __future__ import annotations

import operator
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy import functions as torch_sympy

from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.torch_private import ShapeEnv, expression_as_traced, hints_of

aten = torch.ops.aten
_RELATIONS = {sympy.Eq: operator.eq, sympy.Ne: operator.ne, sympy.StrictLessThan: operator.lt, sympy.LessThan: operator.le,
              sympy.StrictGreaterThan: operator.gt, sympy.GreaterThan: operator.ge}
_CONDITIONS = (sympy.core.relational.Relational, sympy.logic.boolalg.BooleanFunction)
_FUNCTIONS = {torch_sympy.FloorDiv: operator.floordiv, torch_sympy.CleanDiv: operator.floordiv, torch_sympy.Mod: operator.mod,
              torch_sympy.PythonMod: operator.mod, torch_sympy.Max: torch.sym_max, torch_sympy.Min: torch.sym_min}


def insert_size_checks(module: fx.GraphModule, environment: ShapeEnv) -> None:
    """``aten._assert_scalar`` nodes for the deferred runtime asserts of ``environment`` about symbols that the graph defines.

    Raises UnsupportedGraph (AOT303) for one that has no form in nodes."""
    asserts = [entry.expr for entries in environment.deferred_runtime_asserts.values() for entry in entries]
    known = set(hints_of(environment))
    asserts = [condition for condition in asserts if not condition.free_symbols <= known]
    if not asserts:
        return
    writer = _Writer(module.graph, environment)
    for condition in dict.fromkeys(part for whole in asserts for part in _conjuncts(whole)):
        if condition.free_symbols <= set(writer.definitions):
            writer.check(condition)
    module.graph.lint()
    module.recompile()


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, sympy.Or):
        condition = sympy.to_cnf(condition)
    return [part for part in sympy.And.make_args(condition) if part is not sympy.true]


class _Writer:
    """``definitions``: symbol -> (node, None) where the node is that number, (node, dimension) where it is a size of the node's tensor."""

    def __init__(self, graph: fx.Graph, environment: ShapeEnv) -> None:
        self.graph, self.environment = graph, environment
        self.order = {node: position for position, node in enumerate(graph.nodes)}
        self.last_placeholder = [node for node in graph.nodes if node.op == "placeholder"][-1:]
        self.definitions: dict[Any, tuple[fx.Node, int | None]] = {}
        for node in graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                self._define(value, node, None)
            elif isinstance(value, torch.Tensor):
                for dimension, size in enumerate(value.shape):
                    self._define(size, node, dimension)

    def _define(self, size: Any, node: fx.Node, dimension: int | None) -> None:
        if isinstance(size, torch.SymInt) and (symbol := expression_as_traced(size)).is_Symbol:
            self.definitions.setdefault(symbol, (node, dimension))

    def check(self, condition: Any) -> None:
        places = [self.definitions[symbol][0] for symbol in condition.free_symbols] + self.last_placeholder
        after = max(places, key=lambda node: self.order[node])
        with self.graph.inserting_before(after.next):
            made = self._node(condition)
            check = self.graph.call_function(aten._assert_scalar.default, (made, str(condition)))
        check.meta.update({key: after.meta[key] for key in ("stack_trace", "place", "source") if key in after.meta})

    def _node(self, value: Any) -> Any:
        if value.is_Integer:
            return int(value)
        if value.is_Symbol:
            node, dimension = self.definitions[value]
            return node if dimension is None else self._call(aten.sym_size.int, (node, dimension), value)
        if type(value) in _RELATIONS:
            return self._call(_RELATIONS[type(value)], tuple(map(self._node, value.args)), value)
        if isinstance(value, sympy.Or):
            return self._chain(operator.or_, sorted(value.args, key=str), value)
        if isinstance(value, (sympy.Add, sympy.Mul)):
            return self._chain(operator.add if isinstance(value, sympy.Add) else operator.mul, sorted(value.args, key=str), value)
        if type(value) in _FUNCTIONS:
            return self._chain(_FUNCTIONS[type(value)], value.args, value)
        raise UnsupportedGraph("AOT303", f"a number or a tensor's value is used as a size, which eager checks at run time ({value}).")

    def _chain(self, function: Any, parts: Any, value: Any) -> Any:
        made = self._node(parts[0])
        for count, part in enumerate(parts[1:], 2):
            made = self._call(function, (made, self._node(part)), value if count == len(parts) else value.func(*parts[:count]))
        return made

    def _call(self, function: Any, arguments: tuple[Any, ...], value: Any) -> fx.Node:
        node = self.graph.call_function(function, arguments)
        if isinstance(value, _CONDITIONS):
            node.meta["val"] = self.environment.create_symboolnode(value)
        else:
            node.meta["val"] = self.environment.create_symintnode(value, hint=None)
        return node
