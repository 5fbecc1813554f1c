"""A module of the user's package -> the module of its generated twin.

rewrite: the bodies of split functions, the eager bodies of their regions, absolute imports of the package itself.

    class Net(nn.Module):
        def forward(self, x):
            h = self.first(x)
            print(h.shape)
            return self.second(h)

    ->

    from aotcompile.runtime import bind as _bind

    _region = _bind(__name__, __file__)


    def _r0_eager(self, x):
        h = self.first(x)
        return h

    (and _r1_eager)

    _r0 = _region("Net.forward:r0", _r0_eager)  # model.py:3-3, 1 variant
    _r1 = _region("Net.forward:r1", _r1_eager)  # model.py:5-5, 1 variant


    class Net(nn.Module):
        def forward(self, x):
            h = _r0(self, x)
            print(h.shape)
            return _r1(self, h)

Everything else (other lines, comments, signatures, decorators, docstrings, line endings) stays byte for byte.
"""
from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from aotcompile.base import names
from aotcompile.base.diagnostic import Diagnostic
from aotcompile.base.span import Span
from aotcompile.frontend.types import RegionSource, SplitSource
from aotcompile.package.rewrite.imports import ModuleName, header_offset, rewrite_imports
from aotcompile.package.rewrite.names import rename_variables, unwrap_calls
from aotcompile.package.rewrite.text_edits import Edit, SourceText, apply_edits, first_line, lines_inside_strings, reindent

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DIGEST_ATTRIBUTE = "__aotcompile_digest__"


@dataclass(frozen=True)
class SplitFunction:
    """A function to rewrite. ``line``: where it begins in the user's module, with its decorators or without. ``variants``: how many each region has.
    ``digest``: the runtime's digest of the original code, put on the rewritten function ("" leaves it out). ``outside``: those of the split's calls
    whose callees are split functions of other packages."""

    qualname: str
    line: int
    split: SplitSource
    variants: dict[int, int]
    digest: str = ""
    outside: frozenset[int] = frozenset()


@dataclass(frozen=True)
class RewrittenModule:
    """``text`` is the generated module; ``rewritten`` the functions that were; ``stubs``: region name -> name of its stub in the module."""

    text: str
    rewritten: tuple[str, ...]
    stubs: dict[str, str]
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class _Place:
    """A function definition of the module. ``class_name``: the innermost class around it; ``statement``: the top-level statement that holds it."""

    qualname: str
    node: FunctionNode
    class_name: str | None
    statement: ast.stmt


@dataclass(frozen=True)
class _Task:
    """A function to rewrite. ``text`` is its split source under the module's names; ``stubs``: region index -> stub; ``mark``: its decorator line."""

    function: SplitFunction
    place: _Place
    text: str
    stubs: dict[int, str]
    mark: str


def rewrite_module(text: str, functions: Sequence[SplitFunction], *, file: str, name: ModuleName) -> RewrittenModule:
    """The generated twin of a module.

    ``file``: the module's path for messages and comments ("mypkg/model.py"). A function with neither a compiled region nor a call into a split
    function of another package stays as it is; so does one whose ``def`` is not found at its line (a lambda, a file that has changed), which is
    reported as AOT612. Raises SyntaxError if ``text`` is not Python.
    """
    source, tree = SourceText(text), ast.parse(text)
    taken = _identifiers(tree)
    taken |= {name.removesuffix("_of") for name in taken}                   # `_callee` comes with a `_callee_of`
    helper, region, original, bind, callee = (names.unique(n, taken) for n in ("_import_module", "_region", "_original", "_bind", "_callee"))
    taken |= {helper, region, original, bind, callee, f"{callee}_of"}
    places, diagnostics = _find(tree, functions, file)
    tasks = [_task(function, place, taken, original, callee, alone=len(places) == 1) for function, place in places]
    edits, tasks, lost = _all_body_edits(source, tasks, file)
    if tasks:
        marks, outside = any(task.mark for task in tasks), any(task.function.outside for task in tasks)
        regions = any(task.function.split.regions for task in tasks)
        header = _header(source, tree, bind, region if regions else "", original if marks else "", callee if outside else "")
        edits = [header, *_eager_edits(source, tasks, region, file), *edits]
    rewritten = apply_edits(text, edits)
    import_edits, notes = rewrite_imports(rewritten, name, file, helper)
    rewritten = apply_edits(rewritten, import_edits)
    ast.parse(rewritten)                               # a mistake of ours must show here, not in production
    stubs = {names.region_name(t.function.qualname, index): stub for t in tasks for index, stub in t.stubs.items()}
    return RewrittenModule(rewritten, tuple(t.function.qualname for t in tasks), stubs, (*diagnostics, *lost, *notes))


# ---- which functions, under which names ---------------------------------------------------------------------------------------------------

def _find(tree: ast.Module, functions: Sequence[SplitFunction], file: str) -> tuple[list[tuple[SplitFunction, _Place]], list[Diagnostic]]:
    places = _places(tree)
    found, diagnostics = [], []
    for function in sorted(functions, key=lambda f: (f.line, f.qualname)):
        if not function.outside and not any(function.variants.get(region.index, 0) for region in function.split.regions):
            continue
        written = names.written_name(function.qualname)
        place = next((p for p in places if p.qualname == written and first_line(p.node) <= function.line <= p.node.lineno), None)
        if place is None:
            diagnostics.append(_not_found(function, file))
        else:
            found.append((function, place))
    return found, diagnostics


def _not_found(function: SplitFunction, file: str) -> Diagnostic:
    return Diagnostic("AOT612", "warning", f"{function.qualname} has no `def` of its own here and stays eager.", Span(file, function.line),
                      "Define it with `def`; if the file has just changed, build again.")


def _places(tree: ast.Module) -> list[_Place]:
    """All function definitions, outer ones before inner ones."""
    places: list[_Place] = []

    def visit(node: ast.AST, prefix: str, class_name: str | None, statement: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            places.append(_Place(prefix + node.name, node, class_name, statement))
            prefix = f"{prefix}{node.name}.<locals>."
        elif isinstance(node, ast.ClassDef):
            class_name, prefix = node.name, f"{prefix}{node.name}."
        for child in ast.iter_child_nodes(node):
            visit(child, prefix, class_name, statement)

    for statement in tree.body:
        visit(statement, "", None, statement)
    return places


def _identifiers(tree: ast.Module) -> set[str]:
    """Every name the module uses for anything, so that new ones cannot meet them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        found |= {value for field in ("id", "name", "arg", "asname", "attr") if isinstance(value := getattr(node, field, None), str)}
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            found |= set(node.names)
    return found


def _task(function: SplitFunction, place: _Place, taken: set[str], original: str, callee: str, *, alone: bool) -> _Task:
    """Chooses the function's names (adding them to ``taken``) and puts them into its split source."""
    stubs: dict[int, str] = {}
    renames: dict[str, str] = {}
    for region in function.split.regions:
        stub = names.stub_name(function.qualname, region.index, alone=alone)
        while stub in taken or names.eager_name(stub) in taken:
            stub = names.unique(f"{stub}_", taken)
        taken |= {stub, names.eager_name(stub)}
        stubs[region.index] = stub
        renames |= {f"_r{region.index}": stub, region.name: names.eager_name(stub)}
    mark = f'@{original}("{function.digest}")' if function.digest else ""
    text = unwrap_calls(function.split.text, function.split.calls, function.outside, callee)
    return _Task(function, place, rename_variables(text, renames), stubs, mark)


# ---- header and eager bodies --------------------------------------------------------------------------------------------------------------

def _header(source: SourceText, tree: ast.Module, bind: str, region: str, original: str, callee: str) -> Edit:
    """``region``, ``original`` and ``callee``: "" where the module has no use for it."""
    lines = [f"from aotcompile.runtime import bind as {bind}", "", f"{region} = {bind}(__name__, __file__)"] if region else []
    if callee:
        lines[1:1] = [f"from aotcompile.runtime import bind_callees as {callee}_of", *([] if region else [""])]
        lines.append(f"{callee} = {callee}_of(__file__)  # split functions of other packages")
    if original:
        lines += ["", "", f"def {original}(digest):", '    """Marks a rewritten function with the digest of the code it stands for."""',
                  "    def mark(function):", f"        function.{DIGEST_ATTRIBUTE} = digest", "        return function", "    return mark"]
    offset, after_docstring = header_offset(source, tree)
    missing_newline = source.newline if offset and source.text[offset - 1] not in "\r\n" else ""
    following = source.text[offset:]
    spaced = following.lstrip(" \t")[:1] in ("\r", "\n", "")
    text = _joined(source, ["", *lines] if after_docstring else lines) + ("" if spaced else _joined(source, ["", ""]))
    return Edit(offset, offset, missing_newline + text)


def _joined(source: SourceText, lines: Sequence[str]) -> str:
    return "".join(line + source.newline for line in lines)


def _eager_edits(source: SourceText, tasks: Sequence[_Task], region_function: str, file: str) -> list[Edit]:
    """Eager bodies and stubs, just before the top-level statement that holds their function (and before the comments right above it)."""
    edits = []
    for task in tasks:
        lines: list[str] = []
        stubs: list[str] = []
        for region in task.function.split.regions:
            stub, count = task.stubs[region.index], task.function.variants.get(region.index, 0)
            eager, region_name = names.eager_name(stub), names.region_name(task.function.qualname, region.index)
            body = _eager_text(task, region, eager)
            lines += [*(line.rstrip("\r\n") for line in SourceText(body).lines), "", ""]
            where = f"{file.rpartition('/')[2]}:{region.lines[0]}-{region.lines[1]}"
            stubs.append(f'{stub} = {region_function}("{region_name}", {eager})  # {where}, {count} variant{"" if count == 1 else "s"}' if count
                         else f"{stub} = {eager}  # {where}, not compiled")
        offset = source.line_start(source.comment_block_above(first_line(task.place.statement)))
        edits.append(Edit(offset, offset, _joined(source, [*lines, *stubs, "", ""])))
    return edits


def _eager_text(task: _Task, region: RegionSource, eager: str) -> str:
    """The eager body's lines out of the function's split source."""
    source = SourceText(task.text)
    node = _definition(ast.parse(task.text), eager)
    if node is None:
        raise ValueError(f"the split source of {task.function.qualname} does not define {region.name}")
    return source.text[source.line_start(first_line(node)):source.line_end(node.end_lineno or node.lineno)]


def _definition(tree: ast.Module, name: str) -> FunctionNode | None:
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name]
    return next((node for node in found if node in tree.body), found[0] if found else None)


# ---- function bodies ----------------------------------------------------------------------------------------------------------------------

def _all_body_edits(source: SourceText, tasks: Sequence[_Task], file: str) -> tuple[list[Edit], list[_Task], list[Diagnostic]]:
    """Edits of the module for all tasks. A function nested in another split function is edited in that function's split source instead, where its
    definition now is; the tasks come back with these texts. Inner functions first."""
    done: dict[str, _Task] = {}
    edits: list[Edit] = []
    diagnostics = []
    for task in sorted(tasks, key=lambda t: -t.function.qualname.count(".<locals>.")):
        inner = [t for t in done.values() if _owner(t, tasks) is task]
        text, lost = _with_inner(task, inner)
        for child in lost:
            diagnostics.append(_not_found(child.function, file))
            del done[child.function.qualname]
        task_done = _Task(task.function, task.place, text, task.stubs, task.mark)
        done[task.function.qualname] = task_done
        if _owner(task, tasks) is None:
            edits += _body_edits(source, task.place.node, task_done)
    return edits, [done[t.function.qualname] for t in tasks if t.function.qualname in done], diagnostics


def _owner(task: _Task, tasks: Sequence[_Task]) -> _Task | None:
    """The innermost other task this one is nested in."""
    def lines(t: _Task) -> tuple[int, int]:
        return t.place.node.lineno, t.place.node.end_lineno or t.place.node.lineno

    first, last = lines(task)
    around = [t for t in tasks if t.function is not task.function and lines(t)[0] <= first and last <= lines(t)[1]]
    return max(around, key=lambda t: t.place.node.lineno, default=None)


def _with_inner(task: _Task, inner: Sequence[_Task]) -> tuple[str, list[_Task]]:
    source, tree = SourceText(task.text), ast.parse(task.text)
    line_map = task.function.split.line_map
    edits: list[Edit] = []
    lost = []
    for child in inner:
        node = next((n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name == child.place.node.name
                     and line_map.get(n.lineno) == child.place.node.lineno), None)
        if node is None:
            lost.append(child)
        else:
            edits += _body_edits(source, node, child)
    return apply_edits(task.text, edits), lost


def _body_edits(source: SourceText, node: FunctionNode, task: _Task) -> list[Edit]:
    """The edits that give ``node`` the body of ``task``'s rewritten function, and the mark."""
    new = SourceText(task.text)
    new_node = _definition(ast.parse(task.text), node.name)
    if new_node is None:
        raise ValueError(f"the split source of {task.function.qualname} does not define it")
    indent = source.indent_of(node.lineno)
    colon = _signature_end(source, node)
    docstring, statements = _docstring_and_statements(node)
    first, last = node.body[0], node.body[-1]
    end = source.line_end(last.end_lineno or last.lineno)
    if first_line(first) == colon[0]:                  # def f(x): "docstring"; return x  # comment
        comment = source.text[source.end(last):end].strip("; \t")
        lines = [f"{indent}    {source.text[source.start(docstring):source.end(docstring)]}"] if docstring else []
        lines += _body_lines(new, new_node, f"{indent}    ")
        start, opening = colon[1], f"  {comment}" if comment else ""
    else:
        line, start = colon if docstring is None else (docstring.end_lineno or 0, source.end(docstring))
        shares_line = bool(statements) and first_line(statements[0]) == line
        lines = _body_lines(new, new_node, source.indent_of(first_line(first)))
        start, opening = (start if shares_line else source.line_end(line)), ""
    edits = [Edit(start, max(start, end), opening + "".join(source.newline + line for line in lines))]
    if task.mark:
        offset = source.line_start(node.lineno)
        edits.insert(0, Edit(offset, offset, f"{indent}{task.mark}{source.newline}"))
    return edits


def _body_lines(new: SourceText, node: FunctionNode, indent: str) -> list[str]:
    """The lines of a function's body (docstring left out) under another indentation; comments before the first statement belong to it."""
    docstring, statements = _docstring_and_statements(node)
    if not statements:
        return []
    anchor = (docstring.end_lineno or 0) if docstring else _signature_end(new, node)[0]
    last = statements[-1].end_lineno or statements[-1].lineno
    if first_line(statements[0]) == anchor:            # def f(x): return _r0(x)
        return [indent + new.text[new.start(statements[0]):new.line_end(anchor)], *(line.rstrip("\r\n") for line in new.lines[anchor:last])]
    lines = [line.rstrip("\r\n") for line in new.lines[anchor:last]]
    return reindent(lines, anchor + 1, lines_inside_strings(new.text), new.indent_of(first_line(statements[0])), indent)


def _docstring_and_statements(node: FunctionNode) -> tuple[ast.stmt | None, list[ast.stmt]]:
    if ast.get_docstring(node, clean=False) is not None:
        return node.body[0], node.body[1:]
    return None, node.body


def _signature_end(source: SourceText, node: FunctionNode) -> tuple[int, int]:
    """(line, offset just after it) of the colon that ends the signature: the last colon before the body's first statement."""
    body_start = source.line_start(first_line(node.body[0])) if first_line(node.body[0]) < node.body[0].lineno else source.start(node.body[0])
    text = source.text[source.line_start(node.lineno):]
    colon = (node.lineno, 0)
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        line = token.start[0] + node.lineno - 1
        offset = source.line_start(line) + token.start[1]
        if offset >= body_start:
            break
        if token.string == ":" and token.type == tokenize.OP:
            colon = (line, offset + 1)
    return colon
