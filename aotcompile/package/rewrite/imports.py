"""Absolute imports of the package inside itself -> relative ones, so that they lead to the generated copy under whatever name its root is imported.

rewrite, in mypkg/a/b.py:

    from mypkg.sub import x        ->  from ..sub import x
    from mypkg import sub          ->  from .. import sub
    import mypkg.sub as m          ->  from .. import sub as m
    import mypkg.sub               ->  _import_module("..sub", __package__); mypkg = _import_module("..", __package__)
    import os, mypkg               ->  import os; mypkg = _import_module("..", __package__)

Relative imports and what is under ``if TYPE_CHECKING:`` stay. A package's name in a string (``import_module("mypkg.sub")``) cannot be followed safely
and is reported.
"""
from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from aotcompile.base.diagnostic import Diagnostic
from aotcompile.base.span import Span
from aotcompile.package.rewrite.text_edits import Edit, SourceText, first_line


@dataclass(frozen=True)
class ModuleName:
    """Which module of which package the text is. ``is_package``: it is an ``__init__.py`` (in the generated twin)."""

    package: str
    module: str
    is_package: bool

    def holds(self, target: str) -> bool:
        return target == self.package or target.startswith(f"{self.package}.")

    def relative(self, target: str) -> str:
        """``target`` (full name, in the package) as a relative name: "..sub", ".", "..." ."""
        here = self.module.split(".") if self.is_package else self.module.split(".")[:-1]
        there = target.split(".")
        common = 0
        while common < min(len(here), len(there)) and here[common] == there[common]:
            common += 1
        return "." * (len(here) - common + 1) + ".".join(there[common:])


def header_offset(source: SourceText, tree: ast.Module) -> tuple[int, bool]:
    """Where new lines at the top of a module go: after the docstring and the ``from __future__`` imports (then True), else before the first statement
    and the comments right above it; comments the file begins with (a licence, ``#!``, the encoding) stay first."""
    after, following = 0, None
    for number, statement in enumerate(tree.body):
        is_docstring = number == 0 and ast.get_docstring(tree, clean=False) is not None
        if is_docstring or (isinstance(statement, ast.ImportFrom) and statement.module == "__future__" and not statement.level):
            after = statement.end_lineno or statement.lineno
        elif following is None and statement.lineno > after:
            following = first_line(statement)
    if after:
        return source.line_start(after + 1), True
    if following is None:
        return len(source.text), False
    line = source.comment_block_above(following)
    return source.line_start(following if line == 1 else line), False


def rewrite_imports(text: str, name: ModuleName, file: str, helper: str) -> tuple[list[Edit], list[Diagnostic]]:
    """The edits, and notes on names in strings. ``helper`` is the name that ``importlib.import_module`` gets in the module where it is needed
    (it is imported at the top if the text uses it, before or after the edits)."""
    tree, source = ast.parse(text), SourceText(text)
    edits: list[Edit] = []
    diagnostics: list[Diagnostic] = []
    needs_helper = any(isinstance(node, ast.Name) and node.id == helper for node in ast.walk(tree))
    for node in _executed(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and name.holds(node.module or ""):
            start, end = _module_span(source, node)
            edits.append(Edit(start, end, name.relative(node.module or "")))
        elif isinstance(node, ast.Import) and any(name.holds(alias.name) for alias in node.names):
            replacement = "; ".join(_import_statements(node, name, helper))
            needs_helper = needs_helper or f"{helper}(" in replacement
            edits.append(Edit(source.start(node), source.end(node), replacement))
        elif isinstance(node, ast.Call) and (dotted := _import_by_string(node, name)):
            message = f"import of {dotted!r} by name leads to the original module, not to the generated one."
            diagnostics.append(Diagnostic("AOT613", "warning", message, Span(file, node.lineno, node.col_offset),
                                          "Use an import statement or a relative name with `__package__`."))
    if needs_helper:
        offset, _ = header_offset(source, tree)
        edits.insert(0, Edit(offset, offset, f"from importlib import import_module as {helper}{source.newline}"))
    return edits, diagnostics


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under ``if TYPE_CHECKING:``, in order."""
    yield node
    if isinstance(node, ast.If) and "TYPE_CHECKING" in (getattr(node.test, "id", ""), getattr(node.test, "attr", "")):
        for statement in node.orelse:
            yield from _executed(statement)
        return
    for child in ast.iter_child_nodes(node):
        yield from _executed(child)


def _module_span(source: SourceText, node: ast.ImportFrom) -> tuple[int, int]:
    """Offsets of the dotted name between ``from`` and ``import``."""
    start = source.start(node)
    piece = SourceText(source.text[start:source.end(node)])
    positions = []
    for token in tokenize.generate_tokens(io.StringIO(piece.text, newline="").readline):
        if token.string == "import":
            break
        if token.type in (tokenize.NAME, tokenize.OP) and token.string != "from":
            positions += [piece.line_start(token.start[0]) + token.start[1], piece.line_start(token.end[0]) + token.end[1]]
    return start + positions[0], start + positions[-1]


def _import_statements(node: ast.Import, name: ModuleName, helper: str) -> list[str]:
    statements: list[str] = []
    for alias in node.names:
        written = alias.name + (f" as {alias.asname}" if alias.asname else "")
        parent, _, leaf = alias.name.rpartition(".")
        if not name.holds(alias.name):
            if statements and statements[-1].startswith("import "):
                statements[-1] += f", {written}"
            else:
                statements.append(f"import {written}")
        elif alias.asname and parent:
            renamed = "" if alias.asname == leaf else f" as {alias.asname}"
            statements.append(f"from {name.relative(parent)} import {leaf}{renamed}")
        else:
            if parent:
                statements.append(f'{helper}("{name.relative(alias.name)}", __package__)')
            statements.append(f'{alias.asname or name.package} = {helper}("{name.relative(name.package)}", __package__)')
    return statements


def _import_by_string(node: ast.Call, name: ModuleName) -> str | None:
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
        dotted = node.args[0].value
        return dotted if isinstance(dotted, str) and name.holds(dotted) else None
    return None
