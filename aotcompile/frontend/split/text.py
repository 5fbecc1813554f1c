"""The function as a libcst tree with positions: which node a break's span means.

Spans come from ``code.co_positions()``: lines of the user's file, columns in UTF-8 bytes; the tree counts characters of the dedented text.
"""
from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import cast

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

Position = tuple[int, int]
COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
COMPOUNDS = (cst.If, cst.For, cst.While, cst.With, cst.Try, cst.TryStar, cst.Match)


@dataclass(frozen=True)
class Text:
    """``module`` holds one function definition; ``first_line`` is the user's line of the module's line 1."""

    module: cst.Module
    function: cst.FunctionDef
    positions: Mapping[cst.CSTNode, CodeRange]
    lines: tuple[str, ...]
    first_line: int
    indent: int

    def origin(self, node: cst.CSTNode) -> tuple[int, int]:
        """First and last line of an original node, in the user's file."""
        place = self.positions[node]
        last = place.end.line - (1 if place.end.column == 0 and place.end.line > place.start.line else 0)
        return place.start.line + self.first_line - 1, last + self.first_line - 1

    def character(self, line: int, column: int) -> Position:
        """A position of the user's file (line from 1, column in bytes) as one of the tree."""
        line = line - self.first_line + 1
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return line, len(text.encode()[:max(column - self.indent, 0)].decode(errors="ignore"))

    def range(self, node: cst.CSTNode) -> tuple[Position, Position] | None:
        """Where a node starts and ends, its parentheses included."""
        place = self.positions.get(node)
        if place is None:
            return None
        start, end = (place.start.line, place.start.column), (place.end.line, place.end.column)
        if isinstance(node, cst.BaseExpression) and node.lpar:
            outer = self.positions[node.lpar[0]].start
            start = (outer.line, outer.column)
            outer = self.positions[node.rpar[-1]].end
            end = (outer.line, outer.column)
        return start, end


def parse(source: str, first_line: int, indent: int) -> Text:
    """Parses the text of one function definition. Raises ValueError if it is something else, libcst.ParserSyntaxError if libcst cannot read it."""
    module = cst.parse_module(source)
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    if len(module.body) != 1 or not isinstance(module.body[0], cst.FunctionDef):
        raise ValueError("not the text of one function definition")
    positions = cast("Mapping[cst.CSTNode, CodeRange]", wrapper.resolve(PositionProvider))
    return Text(module, module.body[0], positions, tuple(source.splitlines()), first_line, indent)


def path_to(text: Text, start: Position, end: Position) -> list[cst.CSTNode]:
    """The nodes from the function down to the smallest expression or statement that contains ``start`` to ``end``."""
    path: list[cst.CSTNode] = []
    best: list[cst.CSTNode] = []
    node: cst.CSTNode | None = text.function
    while node is not None:
        path.append(node)
        if isinstance(node, (cst.BaseExpression, cst.BaseStatement, cst.BaseSmallStatement)):
            best = list(path)
        node = next((child for child in node.children if _contains(text, child, start, end)), None)
    return best


def _contains(text: Text, node: cst.CSTNode, start: Position, end: Position) -> bool:
    place = text.range(node)
    return place is not None and place[0] <= start and end <= place[1]


def substitute(node: cst.CSTNode, replaced: Mapping[int, cst.CSTNode]) -> cst.CSTNode:
    """``node`` with the descendants whose ``id`` is a key of ``replaced`` exchanged; everything else is the same object as before."""
    if id(node) in replaced:
        return replaced[id(node)]
    changes: dict[str, object] = {}
    for each in fields(node):                                  # type: ignore[arg-type]
        old = getattr(node, each.name)
        if isinstance(old, cst.CSTNode):
            new: object = substitute(old, replaced)
            if new is not old:
                changes[each.name] = new
        elif isinstance(old, (list, tuple)):
            items = [substitute(item, replaced) if isinstance(item, cst.CSTNode) else item for item in old]
            if any(a is not b for a, b in zip(items, old, strict=True)):
                changes[each.name] = items
    return node.with_changes(**changes) if changes else node


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and all below it, in the order of the text."""
    yield node
    for child in node.children:
        yield from walk(child)


def code(node: cst.CSTNode) -> str:
    return cst.Module(body=[]).code_for_node(node)


def block_statements(suite: cst.BaseSuite) -> list[cst.BaseStatement]:
    """The statements of a block; the ``x = 1; y = 2`` after a colon becomes a line of its own."""
    if isinstance(suite, cst.IndentedBlock):
        return list(suite.body)
    suite = cst.ensure_type(suite, cst.SimpleStatementSuite)
    return [cst.SimpleStatementLine(suite.body, trailing_whitespace=suite.trailing_whitespace)]


def locate(source: str, line: int, column: int, end_line: int, end_column: int) -> ast.AST:
    """The syntax node that an instruction's position means.

    ``source`` is a text whose line 1 is line 1 of the positions; columns are UTF-8 bytes from 0 (all as in ``co_positions()``). Gives the smallest
    node that contains the range; for a range inside a lambda or a comprehension, the statement it stands in.
    """
    found: ast.AST = ast.parse(source)
    statement = found
    nested = False
    while True:
        inside = next((child for child in _positioned(found) if (child.lineno, child.col_offset) <= (line, column)
                       and (end_line, end_column) <= (child.end_lineno or 0, child.end_col_offset or 0)), None)
        if inside is None:
            return statement if nested else found
        nested |= isinstance(found, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))
        if isinstance(inside, ast.stmt):
            statement, nested = inside, False
        found = inside


def _positioned(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Nearest descendants that have a position (``arguments``, ``comprehension`` and the like have none)."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.expr, ast.stmt)):
            yield child
        else:
            yield from _positioned(child)
