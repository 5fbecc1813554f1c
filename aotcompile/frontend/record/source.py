"""Source of functions, and the way back from a position in generated text to the user's expression."""
from __future__ import annotations

import ast
import functools
import inspect
import linecache
import re
import textwrap
import types
from dataclasses import dataclass
from typing import Iterator, Sequence

from aotcompile.base.names import enclosing_class, mangled
from aotcompile.base.span import Span
from aotcompile.frontend.interpret.opcodes.decode import Position
from aotcompile.frontend.library import file_label

_TEMPORARY = re.compile(r"_t\d+$")


@dataclass(frozen=True)
class FunctionSource:
    """``text`` is the dedented definition without decorators, whose first line is ``first_line`` of ``file`` (as the user sees it); ``indent`` was
    taken off."""

    module: str
    qualname: str
    file: str
    text: str
    first_line: int
    indent: int
    freevars: tuple[str, ...]
    digest: str
    settled: frozenset[str] = frozenset()          # free variables that are bound once and for all

    @property
    def key(self) -> tuple[str, str, str]:
        return self.module, self.qualname, self.digest


def function_source(function: types.FunctionType, digest: str) -> FunctionSource | None:
    """None for a function without retrievable source (made by ``exec``, a lambda)."""
    code = function.__code__
    if code.co_name == "<lambda>":
        return None
    try:
        lines, start = inspect.getsourcelines(code)
    except (OSError, TypeError):
        return None
    text = textwrap.dedent("".join(lines))
    indent = len(lines[0]) - len(lines[0].lstrip())
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    if len(tree.body) != 1 or not isinstance(tree.body[0], (ast.FunctionDef, ast.AsyncFunctionDef)) or tree.body[0].name != code.co_name:
        return None
    skip = tree.body[0].lineno - 1
    text = "".join(text.splitlines(keepends=True)[skip:])
    module, qualname = defined_as(function)
    return FunctionSource(module, qualname, file_label(code.co_filename, module), text, start + skip, indent, code.co_freevars, digest,
                          settled_variables(_file_text(code.co_filename), start + skip, code.co_freevars))


def _file_text(filename: str) -> str:
    return "".join(linecache.getlines(filename))


@functools.lru_cache(maxsize=64)
def _functions(text: str) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, ...]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))


def settled_variables(text: str, line: int, names: Sequence[str]) -> frozenset[str]:
    """Those free variables of the function defined at ``line`` of a file that their owner binds exactly once, outside loops: a copy of such a
    variable is as good as the variable."""
    around = [node for node in _functions(text) if node.lineno <= line <= (node.end_lineno or 0)] if names else []
    around.sort(key=lambda node: (node.lineno, node.col_offset), reverse=True)
    own = next((index for index, node in enumerate(around) if node.lineno == line and not isinstance(node, ast.Lambda)), None)
    if own is None:
        return frozenset()
    settled = set()
    for name in names:
        for owner in around[own + 1:]:
            found = list(_bindings(owner, name))
            if found:
                once = len(found) == 1 and not found[0]
                if once and not any(isinstance(node, ast.Nonlocal) and name in node.names for node in ast.walk(owner)):
                    settled.add(name)
                break
    return frozenset(settled)


def _bindings(owner: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str) -> Iterator[bool]:
    """The places where a function binds or deletes one of its variables; True for those that may run more than once."""
    given = owner.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))):
        if argument.arg == name:
            yield False

    def walk(node: ast.AST, repeated: bool) -> Iterator[bool]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if node.name == name:
                yield repeated
            return
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            yield repeated or isinstance(node.ctx, ast.Del)
        elif isinstance(node, (ast.Nonlocal, ast.Global)) and name in node.names:
            yield True
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            yield True
        elif isinstance(node, ast.alias) and (node.asname or node.name.partition(".")[0]) == name:
            yield repeated
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name == name or (
                isinstance(node, ast.MatchMapping) and node.rest == name):
            yield True
        inside = repeated or isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        for child in ast.iter_child_nodes(node):
            if not isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
                yield from walk(child, inside)
            elif any(isinstance(each, ast.NamedExpr) and each.target.id == name for each in ast.walk(child)):
                yield True

    for statement in owner.body if isinstance(owner.body, list) else []:
        yield from walk(statement, False)


def defined_as(function: types.FunctionType) -> tuple[str, str]:
    """(module, qualified name) of the definition that a function's code comes from (see `runtime.digest.defined_as`, which is the same)."""
    return str(function.__globals__.get("__name__") or function.__module__ or ""), function.__code__.co_qualname


class Locator:
    """Finds the user's expression for a position in a function's own code, or in text that the splitter made from it."""

    def __init__(self, source: FunctionSource) -> None:
        self._source = source
        self._tree = ast.parse(source.text)
        _mangle(self._tree, enclosing_class(source.qualname))

    def span(self, node: ast.AST) -> Span:
        shift = self._source.first_line - 1
        return Span(self._source.file, node.lineno + shift, node.col_offset, node.end_lineno + shift, node.end_col_offset, self._source.qualname)  # type: ignore[attr-defined]

    def own(self, position: Position) -> ast.expr | ast.stmt | None:
        """The node at a position of the user's own code object."""
        shift, indent = self._source.first_line - 1, self._source.indent
        wanted = (position.line - shift, position.column - indent, position.end_line - shift, position.end_column - indent)
        return _at(self._tree, wanted)

    def own_statement(self, line: int) -> ast.stmt | None:
        return _statement_on(self._tree, line - self._source.first_line + 1)

    def generated(self, text: str, position: Position, line_map: dict[int, int], taken: Sequence[Span]) -> ast.expr | ast.stmt | None:
        """The user's node that the node at ``position`` in generated ``text`` was made from: the first equal one (temporaries match anything) on the
        mapped line that is not among ``taken``."""
        made = _at(ast.parse(text), (position.line, position.column, position.end_line, position.end_column))
        line = line_map.get(position.line, 0) - self._source.first_line + 1
        if made is None:
            return _statement_on(self._tree, line)
        candidates = [node for node in ast.walk(self._tree) if isinstance(node, (ast.expr, ast.stmt)) and _matches(made, node)]
        candidates.sort(key=lambda node: (not node.lineno <= line <= (node.end_lineno or 0), abs(node.lineno - line), node.col_offset))
        for node in candidates:
            if self.span(node) not in taken:
                return node
        return _statement_on(self._tree, line)

    def generated_statement(self, line: int) -> ast.stmt | None:
        return _statement_on(self._tree, line - self._source.first_line + 1)


def _mangle(tree: ast.AST, class_name: str) -> None:
    """The names as they stand in split text (see `split.split`)."""
    for node in ast.walk(tree) if class_name else ():
        for field_name in ("id", "attr", "name", "asname", "arg") if not isinstance(node, ast.keyword) else ():
            name = getattr(node, field_name, None)
            if isinstance(name, str):
                setattr(node, field_name, mangled(name, class_name))


def _at(tree: ast.AST, wanted: tuple[int, int, int, int]) -> ast.expr | ast.stmt | None:
    """The outermost node with exactly this position."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.stmt)) and (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset) == wanted:
            return node.value if isinstance(node, ast.Expr) else node
    return None


def _statement_on(tree: ast.AST, line: int) -> ast.stmt | None:
    """The innermost statement that covers a line."""
    best: ast.stmt | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) \
                and node.lineno <= line <= (node.end_lineno or node.lineno):
            if best is None or (node.lineno, -(node.end_lineno or 0)) >= (best.lineno, -(best.end_lineno or 0)):
                best = node
    return best


def _matches(made: ast.AST, user: ast.AST) -> bool:
    """Structural equality; a temporary of the splitter stands for any expression."""
    if isinstance(made, ast.Name) and _TEMPORARY.match(made.id) and isinstance(user, ast.expr):
        return True
    if type(made) is not type(user):
        return False
    if _is_spelled_out_super(made) and isinstance(user, ast.Call) and not user.args:
        return isinstance(user.func, ast.Name) and user.func.id == "super"
    for (name, left), (_, right) in zip(_fields(made), _fields(user)):
        if isinstance(left, list):
            if not isinstance(right, list) or len(left) != len(right) or not all(_value_matches(a, b) for a, b in zip(left, right)):
                return False
        elif name != "ctx" and not _value_matches(left, right):
            return False
    return True


def _is_spelled_out_super(node: ast.AST) -> bool:
    """``super(__class__, self)``, what the splitter makes of ``super()``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and len(node.args) == 2 \
        and isinstance(node.args[0], ast.Name) and node.args[0].id == "__class__"


def _value_matches(left: object, right: object) -> bool:
    if isinstance(left, ast.AST) and isinstance(right, ast.AST):
        return _matches(left, right)
    return left == right and type(left) is type(right)


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    for name in node._fields:
        yield name, getattr(node, name, None)
