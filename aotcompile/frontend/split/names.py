"""Which of a function's names a piece of its code reads, binds and captures (on `ast` nodes, without running anything)."""
from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Comprehension = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
CONSUMERS = frozenset({"sum", "any", "all", "tuple", "list", "set", "frozenset", "dict", "max", "min", "sorted"})
"""Builtins that run a generator expression to its end before they return: it captures nothing for later."""


@dataclass
class Names:
    """``reads``: read before the piece itself has surely bound them; ``must``/``may``: surely/possibly bound; ``deletes``: removed by ``del``;
    ``captured``: free in a function, class or generator made here; ``rebound``: bound by such a function through ``nonlocal``."""

    reads: set[str] = field(default_factory=set)
    must: set[str] = field(default_factory=set)
    may: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)
    captured: set[str] = field(default_factory=set)
    rebound: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    mentions_class: bool = False

    @property
    def mentioned(self) -> set[str]:
        return self.reads | self.may | self.deletes | self.captured | self.rebound


def target_names(target: ast.AST) -> Iterator[str]:
    """The plain names that an assignment to ``target`` binds."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node.id


def parameter_names(arguments: ast.arguments) -> list[str]:
    """Parameter names in the order of the function's local variables."""
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg:
        names.append(arguments.vararg.arg)
    names += [a.arg for a in arguments.kwonlyargs]
    if arguments.kwarg:
        names.append(arguments.kwarg.arg)
    return names


class _Collector(ast.NodeVisitor):
    """Walks in the order of evaluation. One instance per scope: a nested scope gets its own, whose free names the outer one then captures."""

    def __init__(self) -> None:
        self.names = Names()
        self.consumed: set[int] = set()

    # -- names -------------------------------------------------------------------------------------------------------------------------
    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(node.id)
        elif isinstance(node.ctx, ast.Del):
            self._read(node.id)
            self.names.deletes.add(node.id)
            self.names.must.discard(node.id)
        else:
            self._bind(node.id)

    def _read(self, name: str) -> None:
        if name in ("super", "__class__"):
            self.names.mentions_class = True
        if name not in self.names.must:
            self.names.reads.add(name)

    def _bind(self, name: str) -> None:
        self.names.must.add(name)
        self.names.may.add(name)

    def _maybe(self, *nodes: ast.AST | None) -> None:
        """Visits code that may not be run: what it binds is not surely bound afterwards."""
        saved = set(self.names.must)
        for node in nodes:
            if node is not None:
                self.visit(node)
        self.names.must = saved & self.names.must

    def _each(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    # -- expressions -------------------------------------------------------------------------------------------------------------------
    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._each((node.value, node.target))

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        self._maybe(*node.values[1:])

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self._maybe(node.body)
        self._maybe(node.orelse)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._each((node.left, node.comparators[0]))
        self._maybe(*node.comparators[1:])

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            self._each((key, value))

    def visit_Call(self, node: ast.Call) -> None:
        consumer = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if consumer in CONSUMERS or consumer == "join":
            self.consumed |= {id(argument) for argument in node.args if isinstance(argument, ast.GeneratorExp)}
        self._each((node.func, *node.args, *node.keywords))

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.visit(node.generators[0].iter)
        inner = _Collector()
        for position, generator in enumerate(node.generators):
            if position:
                inner.visit(generator.iter)
            inner.visit(generator.target)
            inner._each(generator.ifs)
        inner._each([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        targets = {name for generator in node.generators for name in target_names(generator.target)}
        found = inner.names
        free = found.reads - targets
        deferred = isinstance(node, ast.GeneratorExp) and id(node) not in self.consumed
        self.names.captured |= (found.captured - targets) | (free if deferred else set())
        self.names.rebound |= found.rebound - targets
        self.names.mentions_class |= found.mentions_class
        for name in sorted(free):
            self._read(name)
        self.names.may |= found.may - targets                  # := binds in the enclosing function, if it is reached
        if deferred:
            self.names.rebound |= found.may - targets

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    # -- nested scopes -----------------------------------------------------------------------------------------------------------------
    def _nested(self, body: list[ast.AST], parameters: Iterable[str], *, is_class: bool = False) -> None:
        inner = _Collector()
        inner._each(body)
        found = inner.names
        outer = found.nonlocals
        bound = (set(parameters) | found.may | found.deletes) - outer - found.globals
        loaded = _loads(body) | found.captured
        free = {name for name in loaded | outer if name not in found.globals and (is_class or name not in bound)}
        if is_class:
            free -= {name for name in bound if name not in found.captured and name not in found.reads}
        self.names.captured |= free
        self.names.rebound |= outer | (found.rebound - (set() if is_class else bound))
        self.names.mentions_class |= found.mentions_class and not is_class
        for name in sorted(free):
            self._read(name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._each((*node.args.defaults, *node.args.kw_defaults))
        self._nested([node.body], parameter_names(node.args))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = node.args
        self._each((*node.decorator_list, *arguments.defaults, *arguments.kw_defaults))
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *(a for a in (arguments.vararg, arguments.kwarg) if a))
        self._each([*(argument.annotation for argument in every), node.returns])
        self._nested(list(node.body), parameter_names(arguments))
        self._bind(node.name)

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._each((*node.decorator_list, *node.bases, *node.keywords))
        self._nested(list(node.body), (), is_class=True)
        self._bind(node.name)

    # -- statements (also used for whole bodies of nested scopes, where the order of branches does not matter) ---------------------------
    def visit_Global(self, node: ast.Global) -> None:
        self.names.globals |= set(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.names.nonlocals |= set(node.names)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._each((node.value, *node.targets))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._each((node.value,))
        if node.value is not None or not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._read(node.target.id)
        self._each((node.value, node.target))

    def visit_Assert(self, node: ast.Assert) -> None:
        self.visit(node.test)
        self._maybe(node.msg)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._maybe(node.target, *node.body)
        self._maybe(*node.orelse)

    visit_AsyncFor = visit_For                                 # type: ignore[assignment]

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._maybe(*node.body)
        self._maybe(*node.orelse)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._maybe(*node.body)
        self._maybe(*node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        self._maybe(*node.body, *node.orelse)
        for handler in node.handlers:
            self._maybe(handler)
        self._each(node.finalbody)

    visit_TryStar = visit_Try

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._each((node.type,))
        if node.name:
            self._bind(node.name)
        self._each(node.body)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            self._maybe(case.pattern, case.guard, *case.body)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._each((node.pattern,))
        if node.name:
            self._bind(node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self._bind(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._each((*node.keys, *node.patterns))
        if node.rest:
            self._bind(node.rest)

    def visit_alias(self, node: ast.alias) -> None:
        if node.name != "*":
            self._bind(node.asname or node.name.split(".")[0])


def _loads(body: Iterable[ast.AST]) -> set[str]:
    """Every name that this scope itself loads (also after it was bound), comprehensions included, nested functions not."""
    found: set[str] = set()
    pending = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Load, ast.Del)):
            found.add(node.id)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        if isinstance(node, Comprehension):
            collector = _Collector()
            collector.visit(node)
            found |= collector.names.reads
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            collector = _Collector()
            collector.visit(node)
            found |= collector.names.reads
        else:
            pending += ast.iter_child_nodes(node)
    return found


def names_of(*nodes: ast.AST | None) -> Names:
    """Names of the nodes, evaluated one after another in the function's own scope."""
    collector = _Collector()
    collector._each(nodes)
    return collector.names


def has_own(body: Iterable[ast.AST], kinds: type[ast.AST] | tuple[type[ast.AST], ...]) -> bool:
    """Whether a node of these kinds belongs to the function itself (nested functions and classes not searched)."""
    pending = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, kinds):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            pending += ast.iter_child_nodes(node)
    return False
