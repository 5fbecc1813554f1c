"""Breaks as marks on the nodes of the tree."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from aotcompile.frontend.split.operations import iterates, written
from aotcompile.frontend.split.text import COMPOUNDS, COMPREHENSIONS, Text, path_to
from aotcompile.frontend.types import Break


@dataclass
class Marks:
    """``values``: expressions evaluated outside; ``tests``: expressions whose truth is taken outside; ``whole``: statements that stay outside as they
    are; ``open``: compound statements whose header is Python; ``stores``: statements whose assignment itself is outside; ``calls``: number of each
    call, or other operation, into a split callee; ``iterated``: those of them that are loops over the expression; ``targets``: numbers of assignments
    into one, by what is assigned to. Keys are ``id`` of nodes. ``touched``: all of these and the nodes around them."""

    values: dict[int, Break] = field(default_factory=dict)
    tests: dict[int, Break] = field(default_factory=dict)
    whole: dict[int, Break] = field(default_factory=dict)
    open: dict[int, Break] = field(default_factory=dict)
    stores: dict[int, Break] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    iterated: set[int] = field(default_factory=set)
    targets: dict[int, int] = field(default_factory=dict)
    callees: dict[int, str] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)

    def number(self, table: dict[int, int], node: cst.CSTNode, callee: str) -> None:
        """Gives a node its number in ``calls`` or ``targets``."""
        if id(node) not in table:
            table[id(node)] = len(self.callees)
            self.callees[table[id(node)]] = callee


def mark(text: Text, breaks: Sequence[Break]) -> Marks:
    marks = Marks()
    ordered = sorted(breaks, key=lambda b: (b.span.line, b.span.column, -b.span.end_line, -b.span.end_column, b.kind))
    for each in ordered:
        _mark(text, marks, each)
    return marks


def _mark(text: Text, marks: Marks, each: Break) -> None:
    span = each.span
    start = text.character(span.line, span.column)
    end = text.character(span.end_line, span.end_column) if span.end_line else start
    path = path_to(text, start, end)
    statements = [i for i, node in enumerate(path) if i and isinstance(node, (cst.BaseStatement, cst.BaseSmallStatement))]
    if not statements:
        return                                                 # decorators, defaults, annotations of the function itself: not part of its body
    scope = next((i for i in statements if isinstance(path[i], (cst.FunctionDef, cst.ClassDef))), None)
    at = scope if scope is not None else statements[-1]
    if isinstance(path[at], cst.SimpleStatementLine) and cst.ensure_type(path[at], cst.SimpleStatementLine).body:
        path.append(cst.ensure_type(path[at], cst.SimpleStatementLine).body[0])
        at += 1
    marks.touched.update(id(node) for node in path[:at + 1])
    statement = path[at]
    exact = text.range(statement) == (start, end)
    inner = path[at + 1:]
    if scope is not None or each.kind == "statement" and (exact or not isinstance(statement, COMPOUNDS)):
        marks.whole.setdefault(id(statement), each)
    elif any(isinstance(node, cst.Lambda) for node in inner):
        marks.whole.setdefault(id(statement), each)
    elif isinstance(statement, COMPOUNDS) and (not inner or each.kind in ("statement", "loop")):
        marks.open.setdefault(id(statement), each)
    elif isinstance(statement, cst.While) and each.kind == "loop":
        marks.open.setdefault(id(statement), each)
    elif not inner:
        (marks.stores if _has_target(statement) and not exact else marks.whole).setdefault(id(statement), each)
        if each.kind == "call_split" and each.callee is not None and isinstance(statement, cst.AugAssign) and written(statement) is not None:
            marks.number(marks.calls, statement, each.callee)
    elif _in_target(path, at):
        marks.stores.setdefault(id(statement), each)
        if each.kind == "call_split" and each.callee is not None and isinstance(statement, cst.Assign) and written(path[-1]) is not None:
            marks.number(marks.targets, path[-1], each.callee)
    else:
        _mark_expression(marks, each, inner, statement)


def _mark_expression(marks: Marks, each: Break, inner: list[cst.CSTNode], statement: cst.CSTNode) -> None:
    node = inner[-1]
    chosen = next((i for i, outer in enumerate(inner) if isinstance(outer, COMPREHENSIONS) and not _in_first_iterable(inner, i)), len(inner) - 1)
    if each.kind == "call_split" and each.callee is not None:
        if iterates(each.callee) and isinstance(statement, cst.For) and node is statement.iter and not isinstance(node, cst.Call):
            marks.iterated.add(id(node))
            marks.number(marks.calls, node, each.callee)
        elif isinstance(node, cst.Call) or written(node) is not None:
            marks.number(marks.calls, node, each.callee)
    marks.touched.update(id(outer) for outer in inner)
    target = inner[chosen]
    tested = each.kind == "branch" and chosen == len(inner) - 1 or isinstance(target, cst.BooleanOperation)
    (marks.tests if tested else marks.values).setdefault(id(target), each)


def _in_first_iterable(inner: list[cst.CSTNode], position: int) -> bool:
    outermost = inner[position].for_in                         # type: ignore[attr-defined]
    return any(node is outermost.iter for node in inner[position + 1:])


def _has_target(statement: cst.CSTNode) -> bool:
    return isinstance(statement, (cst.Assign, cst.AugAssign, cst.AnnAssign))


def _in_target(path: list[cst.CSTNode], at: int) -> bool:
    """Whether the innermost node *is* what the statement assigns to (a node inside of a target is an ordinary expression)."""
    statement, node = path[at], path[-1]
    if isinstance(statement, cst.Assign):
        return any(target.target is node for target in statement.targets)
    return isinstance(statement, (cst.AugAssign, cst.AnnAssign)) and statement.target is node
