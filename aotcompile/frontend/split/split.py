"""The entry of the folder: `split_function`."""
from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Sequence

import libcst as cst

from aotcompile.base.diagnostic import Diagnostic
from aotcompile.base.names import mangled
from aotcompile.base.span import Span
from aotcompile.frontend.split.expressions import Expressions, Scope
from aotcompile.frontend.split.flow import Flow, local_names
from aotcompile.frontend.split.items import Region
from aotcompile.frontend.split.marks import mark
from aotcompile.frontend.split.names import has_own, parameter_names
from aotcompile.frontend.split.plan import Function, Planner
from aotcompile.frontend.split.rewrite import UNBOUND, Names, Rewriter, line_map, region_source, rewritten
from aotcompile.frontend.split.statements import Statements
from aotcompile.frontend.split.text import Text, block_statements, parse
from aotcompile.frontend.types import Break, RegionSource, SplitSource

FRAME_READERS = frozenset({"locals", "exec", "eval", "vars", "dir"})
"""Builtins that see the variables of the function that calls them."""


def split_function(source: str, breaks: Sequence[Break], *, first_line: int = 1, freevars: Sequence[str] = (),
                   settled: Collection[str] = (),
                   region_filter: Callable[[RegionSource], bool] | None = None, indent: int = 0, class_name: str = "", file: str = "",
                   fixed_callee: Callable[[str], bool] | None = None) -> SplitSource:
    """Cuts a function into regions around its breaks.

    ``source``: the dedented text of one function definition (decorators, if there are any, stay on the rewritten function); its first line is line
    ``first_line`` of the user's ``file``, and its text stood ``indent`` columns to the right there. Spans of ``breaks`` are places of that file.
    ``freevars``: ``co_freevars``; ``settled``: those that are bound once and for all. ``region_filter`` may refuse a region: its statements stay in
    place. ``class_name``: the class whose body the function stands in, for private names (``__x``). ``fixed_callee``: whether a call's function
    ("self.norm") is surely the same object before and after its arguments are evaluated (default: globals, attributes of the first parameter,
    methods of tensors and containers are).

    A function that cannot be split comes back unchanged, without regions, and with a diagnostic in ``eager``.
    """
    name = ""
    try:
        tree = ast.parse(source).body[0]
        assert isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)), "not a function definition"
        name = tree.name
        text = parse(source, first_line, indent)
    except (SyntaxError, ValueError, AssertionError, cst.ParserSyntaxError) as error:
        return _unsplit(source, name, first_line, file, "AOT255",
                        f"the source cannot be read ({str(error).splitlines()[0]}); the function is not split.")
    assert isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef))
    why = _unsplittable(tree)
    if why:
        return _unsplit(source, name, first_line, file, "AOT250", f"{why}; the function is not split.")
    return _split(text, tree, breaks, set(freevars), region_filter, class_name, file, fixed_callee, frozenset(settled))


def function_text(split: SplitSource) -> str:
    """The rewritten function alone, without the eager bodies before it."""
    text = split.text
    for region in split.regions:
        text = text.replace(region.text, "", 1)
    return text.replace(UNBOUND, "", 1).lstrip("\n")


def _unsplit(source: str, name: str, first_line: int, file: str, code: str, message: str) -> SplitSource:
    count = len(source.splitlines())
    place = Span(file, first_line, 0, first_line + max(count - 1, 0), 0, name)
    lines = {line: line + first_line - 1 for line in range(1, count + 1)}
    return SplitSource(name, source, (), {}, lines, (Diagnostic(code, "note", message, place),))


def _unsplittable(tree: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if isinstance(tree, ast.AsyncFunctionDef):
        return "it is a coroutine"
    if has_own(tree.body, (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)):
        return "it is a generator or coroutine"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FRAME_READERS:
            if node.func.id in ("exec", "eval", "locals") or not node.args:
                return f"{node.func.id}() sees its variables"
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    taken = sorted(each for each in used if re.fullmatch(r"_r\d+|_call_\d+|_unbound", each))
    return f"it uses the name {taken[0]!r}, which the rewritten function needs" if taken else ""


def _free_prefix(wanted: str, used: set[str]) -> str:
    while any(re.fullmatch(re.escape(wanted) + r"(\d+|else\d+)?", each) for each in used):
        wanted += "_"
    return wanted


def _split(text: Text, tree: ast.FunctionDef | ast.AsyncFunctionDef, breaks: Sequence[Break], freevars: set[str],
           region_filter: Callable[[RegionSource], bool] | None, class_name: str, file: str,
           fixed_callee: Callable[[str], bool] | None, settled: frozenset[str]) -> SplitSource:
    parameters = parameter_names(tree.args)
    own, names = local_names(tree)
    used = names.mentioned | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    variables = own | freevars | names.nonlocals
    unstable = (names.rebound & variables) | names.nonlocals | names.globals | (freevars - {"__class__"})
    marks = mark(text, breaks)
    bound = {line + text.first_line - 1: names for line, names in Flow(tree.body, {*parameters, *freevars}).bound_by_line().items()}
    scope = Scope(variables, unstable, parameters[0] if parameters else "", bound, _free_prefix("_t", used), fixed_callee)
    expressions = Expressions(marks, scope)
    statements = Statements(text, expressions)
    items = statements.block(block_statements(text.function.body))
    function = Function(tree.name, file, parameters, variables, freevars, names.globals, names.nonlocals, settled)
    mangle = _Mangle(class_name) if class_name.strip("_") else None
    receiver = parameters[0] if parameters else ""
    sources: dict[int, RegionSource] = {}

    def accept(region: Region) -> bool:
        made = region_source(region, text, receiver, mangle)
        if region_filter is not None and not region_filter(made):
            return False
        sources[region.index] = made
        return True

    plan = Planner(function, items, statements, not breaks, accept).plan()
    rewriter = Rewriter(plan, Names(_free_prefix("_k", used), _free_prefix("_v", used)))
    definition = rewritten(text, items, rewriter, own - set(parameters))
    regions = tuple(sources[region.index] for region in plan.regions)
    unbound = any(region.maybe_in or region.maybe_out for region in plan.regions)
    calls = {number: marks.callees[number] for number in sorted(marks.callees)}
    return _assembled(text, definition, rewriter, regions, plan.regions, unbound, mangle, calls, tuple(plan.diagnostics))


def _assembled(text: Text, definition: cst.FunctionDef, rewriter: Rewriter, regions: tuple[RegionSource, ...], planned: Sequence[Region],
               unbound: bool, mangle: cst.CSTTransformer | None, calls: dict[int, str], diagnostics: tuple[Diagnostic, ...]) -> SplitSource:
    parts = [UNBOUND] if unbound else []
    lines: dict[int, int] = {}
    for region, planned_region in zip(regions, planned, strict=True):
        offset = sum(part.count("\n") + 2 for part in parts)
        lines |= _region_lines(region, planned_region, offset)
        parts.append(region.text)
    module = text.module.with_changes(body=[definition], header=[], footer=[])
    lines |= line_map(module, rewriter.origins, text, sum(part.count("\n") + 2 for part in parts))
    body = module.visit(mangle).code if mangle is not None else module.code
    offset = sum(part.count("\n") + 2 for part in parts)
    lines.setdefault(offset + 1, text.origin(text.function)[0])
    parts.append(body)
    return SplitSource(definition.name.value, "\n\n".join(parts), regions, calls, lines, diagnostics)


def _region_lines(region: RegionSource, planned: Region, offset: int) -> dict[int, int]:
    """The statements of an eager body stand in it as in the user's file, after a few lines of our own."""
    lines = {offset + 1: planned.lines[0]}
    body = ast.parse(region.text).body[0]
    assert isinstance(body, ast.FunctionDef)
    statements = list(body.body)
    own = len(planned.maybe_in) - len(set(planned.maybe_in) & set(planned.maybe_out)) + bool(planned.globals) + len(
        set(planned.maybe_out) - set(planned.parameters))
    statements = statements[own:]
    for leaf in planned.items:
        for statement in statements[:len(leaf.tree)]:
            for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                lines.setdefault(offset + line, min(leaf.origin[0] + line - statements[0].lineno, leaf.origin[1]))
        statements = statements[len(leaf.tree):]
    for line in range(1, region.text.count("\n") + 1):
        lines.setdefault(offset + line, lines.get(offset + line - 1, planned.lines[0]))
    return lines


class _Mangle(cst.CSTTransformer):
    """Private names of a class (``__x`` -> ``_Net__x``), which Python changes only inside the class body; not the keywords of calls, and not what
    stands in a class of its own."""

    def __init__(self, class_name: str) -> None:
        self.class_name = class_name

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return False

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return updated_node.with_changes(value=mangled(updated_node.value, self.class_name))

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)
