"""The function taken apart: a tree of leaves (statements that stay whole) and compound statements that stay Python around split blocks."""
from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Union

import libcst as cst

from aotcompile.base.diagnostic import Diagnostic
from aotcompile.frontend.split.text import code
from aotcompile.frontend.types import Break


@dataclass(eq=False)
class Leaf:
    """One statement line, or a compound statement without a break. ``eager``: never part of a region."""

    node: cst.BaseStatement
    origin: tuple[int, int]
    breaks: list[Break] = field(default_factory=list)
    eager: bool = False
    tree: list[ast.stmt] = field(default_factory=list)

    @property
    def compound(self) -> bool:
        return not isinstance(self.node, cst.SimpleStatementLine)

    @property
    def several(self) -> bool:
        """Whether it is a line of several statements (``a = 1; b = 2``)."""
        return isinstance(self.node, cst.SimpleStatementLine) and len(self.node.body) > 1


@dataclass(eq=False)
class Compound:
    """A compound statement that stays Python: ``blocks`` in the order of `blocks_of`, None for one that is not there."""

    node: cst.BaseCompoundStatement
    origin: tuple[int, int]
    blocks: list[list["Item"] | None]
    breaks: list[Break] = field(default_factory=list)
    tree: list[ast.stmt] = field(default_factory=list)


Item = Union[Leaf, Compound]


def leaves(items: Sequence[Item]) -> Iterator[Leaf]:
    for item in items:
        if isinstance(item, Leaf):
            yield item
        else:
            for block in item.blocks:
                yield from leaves(block or ())


# ---- the blocks of a compound statement ---------------------------------------------------------------------------------------------------

def blocks_of(node: cst.CSTNode) -> list[cst.BaseSuite | cst.If | None]:
    """Blocks in the order of the text; an ``elif`` stands for its whole ``if`` statement."""
    if isinstance(node, cst.If):
        return [node.body, node.orelse.body if isinstance(node.orelse, cst.Else) else node.orelse]
    if isinstance(node, (cst.For, cst.While)):
        return [node.body, node.orelse.body if node.orelse else None]
    if isinstance(node, cst.With):
        return [node.body]
    if isinstance(node, (cst.Try, cst.TryStar)):
        return [node.body, *(handler.body for handler in node.handlers), node.orelse.body if node.orelse else None,
                node.finalbody.body if node.finalbody else None]
    assert isinstance(node, cst.Match), node
    return [case.body for case in node.cases]


def with_blocks(node: cst.BaseCompoundStatement, blocks: Sequence[cst.BaseSuite | cst.If | None]) -> cst.BaseCompoundStatement:
    """The statement around new blocks; a block that is ``cst.If`` becomes an ``elif``."""
    def orelse(old: cst.Else | cst.If | None, block: cst.BaseSuite | cst.If | None) -> cst.Else | cst.If | None:
        if block is None or isinstance(block, cst.If):
            return block
        return old.with_changes(body=block) if isinstance(old, cst.Else) else cst.Else(block)

    if isinstance(node, (cst.If, cst.For, cst.While)):
        return node.with_changes(body=blocks[0], orelse=orelse(node.orelse, blocks[1]))
    if isinstance(node, cst.With):
        return node.with_changes(body=blocks[0])
    if isinstance(node, (cst.Try, cst.TryStar)):
        handlers = [handler.with_changes(body=block) for handler, block in zip(node.handlers, blocks[1:], strict=False)]
        finalbody = node.finalbody.with_changes(body=blocks[-1]) if node.finalbody else None
        return node.with_changes(body=blocks[0], handlers=handlers, orelse=orelse(node.orelse, blocks[-2]), finalbody=finalbody)
    assert isinstance(node, cst.Match), node
    return node.with_changes(cases=[case.with_changes(body=block) for case, block in zip(node.cases, blocks, strict=True)])


def placeholder() -> cst.IndentedBlock:
    return cst.IndentedBlock([cst.SimpleStatementLine([cst.Pass()])])


def syntax(items: Sequence[Item]) -> list[ast.stmt]:
    """`ast` statements of the items, remembered in their ``tree``; the same nodes stand inside the trees of the compounds around them."""
    found: list[ast.stmt] = []
    for item in items:
        if isinstance(item, Leaf):
            if not item.tree:
                item.tree = ast.parse(code(item.node)).body
        else:
            header = with_blocks(item.node, [placeholder() if block is not None else None for block in item.blocks])
            item.tree = ast.parse(code(header)).body
            _fill(item.tree[0], [syntax(block) if block is not None else None for block in item.blocks])
        found += item.tree
    return found


def _fill(tree: ast.stmt, blocks: list[list[ast.stmt] | None]) -> None:
    if isinstance(tree, (ast.If, ast.For, ast.While)):
        tree.body, tree.orelse = blocks[0] or [], blocks[1] or []
    elif isinstance(tree, ast.With):
        tree.body = blocks[0] or []
    elif isinstance(tree, (ast.Try, ast.TryStar)):
        tree.body = blocks[0] or []
        for handler, block in zip(tree.handlers, blocks[1:], strict=False):
            handler.body = block or []
        tree.orelse, tree.finalbody = blocks[-2] or [], blocks[-1] or []
    elif isinstance(tree, ast.Match):
        for case, block in zip(tree.cases, blocks, strict=True):
            case.body = block or []
    else:
        raise TypeError(type(tree).__name__)


@dataclass(eq=False)
class Region:
    """Leaves cut out of a block, with what crosses their border. ``maybe_in``/``maybe_out``: names that may be unbound there."""

    items: list[Leaf]
    index: int
    parameters: list[str]
    outputs: list[str]
    maybe_in: list[str]
    maybe_out: list[str]
    exits: set[str]                        # of "return", "break", "continue"
    falls_through: bool
    tail: bool                             # what follows is the end of the function
    globals: list[str]
    break_outputs: list[str] = field(default_factory=list)
    continue_outputs: list[str] = field(default_factory=list)

    @property
    def lines(self) -> tuple[int, int]:
        return min(item.origin[0] for item in self.items), max(item.origin[1] for item in self.items)


Piece = Union[Leaf, Compound, Region]


@dataclass(eq=False)
class Plan:
    """What `plan` decided: the pieces of each block (by the block's identity), and what had to stay eager."""

    pieces: dict[int, list[Piece]]
    regions: list[Region]
    diagnostics: list[Diagnostic]
