"""Builds the text: eager bodies of the regions, and the function that calls their stubs."""
from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from aotcompile.frontend.split.items import Item, Leaf, Piece, Plan, Region, blocks_of, with_blocks
from aotcompile.frontend.split.names import names_of
from aotcompile.frontend.split.text import Text, code
from aotcompile.frontend.types import Break, RegionSource

UNBOUND = '''class _unbound:
    """Stands for a variable without a value where one crosses the border of a region."""
'''
STATEMENT = (cst.SimpleStatementLine, cst.BaseCompoundStatement)


@dataclass
class Names:
    """Names that the rewritten function adds for its own use."""

    code: str = "_k"
    value: str = "_v"


def statement(text: str) -> cst.BaseStatement:
    return cst.parse_statement(text)


# ---- the eager body -----------------------------------------------------------------------------------------------------------------------

class _InRegion(cst.CSTTransformer):
    """Return codes for the caller, and ``super()`` spelled out; inner functions keep their own returns and loops."""

    def __init__(self, region: Region, receiver: str, *, coded: bool) -> None:
        self.region, self.receiver, self.coded = region, receiver, coded
        self.functions = 0
        self.loops = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        self.functions += 1
        return True

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self.functions -= 1
        return updated_node

    def visit_For_body(self, node: cst.For) -> None:
        self.loops += 1

    def leave_For_body(self, node: cst.For) -> None:
        self.loops -= 1

    visit_While_body = visit_For_body                          # type: ignore[assignment]
    leave_While_body = leave_For_body                          # type: ignore[assignment]

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        func = updated_node.func
        bare = isinstance(func, cst.Name) and func.value == "super" and not updated_node.args
        if bare and not self.functions and "__class__" in self.region.parameters:
            return updated_node.with_changes(args=[cst.Arg(cst.Name("__class__")), cst.Arg(cst.Name(self.receiver))])
        return updated_node

    def leave_Return(self, original_node: cst.Return, updated_node: cst.Return) -> cst.Return:
        if self.functions or not self.coded:
            return updated_node
        value = updated_node.value or cst.Name("None")
        if isinstance(value, cst.Tuple) and not value.lpar:
            value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return updated_node.with_changes(value=_pair("1", value), whitespace_after_return=cst.SimpleWhitespace(" "))

    def leave_Break(self, original_node: cst.Break, updated_node: cst.Break) -> cst.BaseSmallStatement:
        if self.functions or self.loops:
            return updated_node
        return cst.Return(_pair("2", _packed(self.region.break_outputs)), semicolon=updated_node.semicolon)

    def leave_Continue(self, original_node: cst.Continue, updated_node: cst.Continue) -> cst.BaseSmallStatement:
        if self.functions or self.loops:
            return updated_node
        return cst.Return(_pair("3", _packed(self.region.continue_outputs)), semicolon=updated_node.semicolon)


def _pair(number: str, value: cst.BaseExpression) -> cst.Tuple:
    return cst.Tuple([cst.Element(cst.Integer(number)), cst.Element(value)], lpar=[], rpar=[])


def _packed(names: Sequence[str]) -> cst.BaseExpression:
    if len(names) == 1:
        return cst.Name(names[0])
    return cst.Tuple([cst.Element(cst.Name(name)) for name in names]) if names else cst.Name("None")


def coded(region: Region) -> bool:
    """Whether the stub has to say how the region was left."""
    if not region.exits or not region.falls_through and region.exits == {"return"}:
        return False
    return not (region.exits == {"return"} and region.tail)


def region_definition(region: Region, text: Text, receiver: str) -> cst.FunctionDef:
    """The eager body as a function definition; nodes that need no change are the user's own."""
    with_codes = coded(region)
    body: list[cst.BaseStatement] = []
    if region.globals:
        body.append(statement(f"global {', '.join(region.globals)}\n"))
    for name in region.maybe_in:
        if name not in region.maybe_out:
            body.append(statement(f"if {name} is _unbound:\n    del {name}\n"))
    body += [statement(f"{name} = _unbound\n") for name in region.maybe_out if name not in region.parameters]
    needed = with_codes or "__class__" in region.parameters or region.exits & {"break", "continue"}
    for position, leaf in enumerate(region.items):
        node = leaf.node
        if needed and _concerned(node):
            node = node.visit(_InRegion(region, receiver, coded=with_codes))         # type: ignore[assignment]
        if not position:
            node = _without_blank_lines(node)
        body.append(node)
    if region.falls_through:
        outputs = region.outputs
        if with_codes:
            body.append(statement(f"return 0, {code(_packed(outputs))}\n"))
        elif outputs and not region.exits:
            body.append(statement(f"return {', '.join(outputs)}\n"))
    indent = text.function.body.indent if isinstance(text.function.body, cst.IndentedBlock) else None
    return cst.FunctionDef(cst.Name(f"_r{region.index}_eager"), cst.Parameters([cst.Param(cst.Name(name)) for name in region.parameters]),
                           cst.IndentedBlock(body, indent=indent))


def _concerned(node: cst.CSTNode) -> bool:
    source = code(node)
    return any(word in source for word in ("return", "break", "continue", "super"))


def _without_blank_lines(node: cst.BaseStatement) -> cst.BaseStatement:
    lines = list(node.leading_lines)                           # type: ignore[attr-defined]
    kept = list(lines)
    while kept and kept[0].comment is None:
        kept.pop(0)
    return node.with_changes(leading_lines=kept) if len(kept) != len(lines) else node


def region_source(region: Region, text: Text, receiver: str, mangle: cst.CSTTransformer | None) -> RegionSource:
    definition: cst.CSTNode = region_definition(region, text, receiver)
    if mangle is not None:
        definition = definition.visit(mangle)                  # type: ignore[assignment]
    body = text.module.with_changes(body=[definition], header=[], footer=[]).code
    anonymous = body.replace(f"def _r{region.index}_eager(", "def _region(", 1)
    return RegionSource(f"_r{region.index}_eager", region.index, tuple(region.parameters), body, region.lines,
                        hashlib.sha256(anonymous.encode()).hexdigest()[:32])


# ---- the function that calls the stubs ------------------------------------------------------------------------------------------------------

class Rewriter:
    """Turns a plan's pieces back into statements. ``origins``: the user's lines of each statement it makes."""

    def __init__(self, plan: Plan, names: Names) -> None:
        self.plan, self.names = plan, names
        self.origins: dict[int, tuple[int, int]] = {}
        self.alive: list[cst.CSTNode] = []

    def made(self, node: cst.BaseStatement, origin: tuple[int, int]) -> cst.BaseStatement:
        self.origins[id(node)] = origin
        self.alive.append(node)
        return node

    def block(self, items: list[Item]) -> list[cst.BaseStatement]:
        found: list[cst.BaseStatement] = []
        for piece in self.plan.pieces.get(id(items), items):
            found += self.piece(piece)
        return found or [cst.SimpleStatementLine([cst.Pass()])]

    def piece(self, piece: Piece) -> list[cst.BaseStatement]:
        if isinstance(piece, Region):
            return self.stub(piece)
        if isinstance(piece, Leaf):
            node = _commented(piece.node, _break_comment(piece.breaks)) if piece.breaks else piece.node
            return [self.made(node, piece.origin)]
        blocks: list[cst.BaseSuite | cst.If | None] = []
        for position, block in enumerate(piece.blocks):
            body = self.block(block) if block is not None else None
            if body is None:
                blocks.append(None)
            elif _was_elif(piece.node, position) and len(body) == 1 and isinstance(body[0], cst.If):
                blocks.append(body[0])
            else:
                blocks.append(cst.IndentedBlock(body))
        node = with_blocks(piece.node, _like(piece.node, blocks))
        if piece.breaks:
            node = _commented(node, _break_comment(piece.breaks))    # type: ignore[assignment]
        return [self.made(node, piece.origin)]

    def stub(self, region: Region) -> list[cst.BaseStatement]:
        """``h, score = _r0(self, x)``, and what its way out asks for."""
        arguments = ", ".join(f'locals().get("{name}", _unbound)' if name in region.maybe_in else name for name in region.parameters)
        call = f"_r{region.index}({arguments})"
        first, last = region.lines
        comment = f"# region {region.index}: " + (f"line {first}" if first == last else f"lines {first}-{last}")
        lines: list[str] = []
        if coded(region):
            code_name, value = self.names.code, self.names.value
            lines.append(f"{code_name}, {value} = {call}  {comment}\n")
            if "return" in region.exits:
                lines.append(f"if {code_name} == 1:\n    return {value}\n")
            for number, way, outputs in ((2, "break", region.break_outputs), (3, "continue", region.continue_outputs)):
                if way in region.exits:
                    unpack = f"    {', '.join(outputs)} = {value}\n" if outputs else ""
                    lines.append(f"if {code_name} == {number}:\n{unpack}    {way}\n")
            if region.falls_through and region.outputs:
                lines.append(f"{', '.join(region.outputs)} = {value}\n")
        elif "return" in region.exits:
            lines.append(f"return {call}  {comment}\n")
        elif region.outputs and region.falls_through:
            lines.append(f"{', '.join(region.outputs)} = {call}  {comment}\n")
        else:
            lines.append(f"{call}  {comment}\n")
        lines += [f"if {name} is _unbound:\n    del {name}\n" for name in region.maybe_out]
        blank = [line for line in region.items[0].node.leading_lines if line.comment is None][:1]  # type: ignore[attr-defined]
        made = [statement(line) for line in lines]
        made[0] = made[0].with_changes(leading_lines=blank)
        return [self.made(each, region.lines) for each in made]


def _was_elif(node: cst.CSTNode, position: int) -> bool:
    return position == 1 and isinstance(node, cst.If) and isinstance(node.orelse, cst.If)


def _like(node: cst.CSTNode, blocks: list[cst.BaseSuite | cst.If | None]) -> list[cst.BaseSuite | cst.If | None]:
    """New blocks with the headers (comments after the colon), footers and indentation of the old ones."""
    kept: list[cst.BaseSuite | cst.If | None] = []
    for old, new in zip(blocks_of(node), blocks, strict=True):
        if isinstance(old, cst.IndentedBlock) and isinstance(new, cst.IndentedBlock):
            new = old.with_changes(body=new.body)
        kept.append(new)
    return kept


def _break_comment(breaks: Sequence[Break]) -> str:
    seen = dict.fromkeys(f"graph break {each.code}: {' '.join(each.reason.split())} (line {each.span.line})" for each in breaks)
    return "# " + "; ".join(seen)


def _commented(node: cst.BaseStatement, comment: str) -> cst.BaseStatement:
    """The statement with a comment at the end of its (first) line, after the user's own."""
    if isinstance(node, cst.SimpleStatementLine):
        return node.with_changes(trailing_whitespace=_trailing(node.trailing_whitespace, comment))
    body = getattr(node, "body", None)
    if isinstance(body, cst.IndentedBlock):
        return node.with_changes(body=body.with_changes(header=_trailing(body.header, comment)))
    if isinstance(node, cst.Match):
        return node.with_changes(whitespace_after_colon=_trailing(node.whitespace_after_colon, comment))
    return node


def _trailing(old: cst.TrailingWhitespace, comment: str) -> cst.TrailingWhitespace:
    if old.comment is not None:
        comment = f"{old.comment.value}  {comment}"
    return old.with_changes(whitespace=cst.SimpleWhitespace("  "), comment=cst.Comment(comment))


def rewritten(text: Text, items: list[Item], rewriter: Rewriter, variables: set[str]) -> cst.FunctionDef:
    """The user's definition around the new body."""
    body = rewriter.block(items)
    declared = _undeclared(body, variables)
    function = text.function
    old = function.body
    block = old.with_changes(body=[*declared, *body]) if isinstance(old, cst.IndentedBlock) else cst.IndentedBlock([*declared, *body])
    return function.with_changes(body=block, leading_lines=[])


def _undeclared(body: Sequence[cst.BaseStatement], variables: set[str]) -> list[cst.BaseStatement]:
    """Locals that are still read but bound only inside regions: without a declaration Python would look for a global."""
    names = names_of(*ast.parse(cst.Module(body=list(body)).code).body)
    return [statement(f"{name}: object\n") for name in sorted((names.reads & variables) - names.may - names.deletes - {"__class__"})]


def line_map(module: cst.Module, origins: Mapping[int, tuple[int, int]], text: Text, offset: int) -> dict[int, int]:
    """Line of the output -> line of the user's file; ``offset``: lines of output before ``module``."""
    positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    found: dict[int, int] = {}
    for node, place in positions.items():
        if not isinstance(node, STATEMENT):
            continue
        origin = origins.get(id(node)) or (text.origin(node) if node in text.positions else None)
        if origin is None:
            continue
        for line in range(place.start.line, place.end.line + 1 if isinstance(node, cst.SimpleStatementLine) else place.start.line + 1):
            found[line + offset] = min(origin[0] + line - place.start.line, origin[1])
    return found
