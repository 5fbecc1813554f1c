"""Decides which leaves become regions, and what crosses the border of each.

A region is a run of leaves of one block. It is cut or kept out of a region, rather than be wrong, where
  * a name bound inside could be seen by an exception handler before the region has handed its results over,
  * a variable is shared with an inner function that can see it change,
  * a ``nonlocal`` is bound.
"""
from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import libcst as cst

from aotcompile.base.diagnostic import Diagnostic
from aotcompile.base.span import Span
from aotcompile.frontend.split.flow import Flow
from aotcompile.frontend.split.items import Compound, Item, Leaf, Piece, Plan, Region, leaves, syntax
from aotcompile.frontend.split.names import Names, names_of
from aotcompile.frontend.split.statements import Statements
from aotcompile.frontend.split.text import walk
from aotcompile.frontend.split.work import has_work

HINTS = {"AOT251": "Pass the value as an argument or a default of the inner function.", "AOT252": "Assign the variable on every path."}


@dataclass
class Function:
    """``parameters`` in order; ``variables``: locals, free variables and names declared ``nonlocal``."""

    name: str
    file: str
    parameters: list[str]
    variables: set[str]
    freevars: set[str]
    declared_global: set[str]
    declared_nonlocal: set[str]
    settled: frozenset[str] = frozenset()                      # free variables that never change again


class Unfit(Exception):
    """Leaves that cannot be part of a region as they are."""

    def __init__(self, found: Sequence[Leaf], code: str, reason: str) -> None:
        super().__init__(reason)
        self.found, self.code, self.reason = list(found), code, reason


@dataclass
class Planner:
    function: Function
    items: list[Item]
    statements: Statements
    whole: bool                                                # no breaks: the body is one region
    accept: Callable[[Region], bool]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    names: dict[int, Names] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    pieces: dict[int, list[Piece]] = field(default_factory=dict)

    def plan(self) -> Plan:
        while True:
            self.names.clear()
            self.regions.clear()
            self.pieces.clear()
            tree = syntax(self.items)
            self.function.variables |= names_of(*tree).may - self.function.declared_global     # the temporaries
            self.flow = Flow(tree, {*self.function.parameters, *self.function.freevars})
            try:
                self._captures(tree)
                self._block(self.items, tail=True, in_function=True)
                self._shared()
            except Unfit as unfit:
                self._keep_out(unfit)
                continue
            self._accept()
            return Plan(self.pieces, self.regions, self.diagnostics)

    def _accept(self) -> None:
        """Numbers the regions that are wanted; the others' statements go back to their place."""
        wanted: list[Region] = []
        for region in self.regions:
            region.index = len(wanted)
            if self.accept(region):
                wanted.append(region)
            else:
                for pieces in self.pieces.values():
                    if region in pieces:
                        at = pieces.index(region)
                        pieces[at:at + 1] = region.items
        self.regions = wanted

    def of(self, leaf: Leaf) -> Names:
        if id(leaf) not in self.names:
            self.names[id(leaf)] = names_of(*leaf.tree)
        return self.names[id(leaf)]

    def _keep_out(self, unfit: Unfit) -> None:
        """Opens compound leaves and lines of several statements, makes simple ones eager."""
        opened = {id(leaf) for leaf in unfit.found if leaf.several or leaf.compound and not isinstance(leaf.node, (cst.FunctionDef, cst.ClassDef))}
        for leaf in unfit.found:
            if id(leaf) not in opened:
                leaf.eager = True
                span = Span(self.function.file, leaf.origin[0], 0, leaf.origin[1], 0, self.function.name)
                self.diagnostics.append(Diagnostic(unfit.code, "note", unfit.reason, span, HINTS.get(unfit.code, "")))

        def replaced(items: list[Item]) -> list[Item]:
            found: list[Item] = []
            for item in items:
                if id(item) in opened and isinstance(item, Leaf):
                    found += self.statements.opened(item)
                    continue
                if isinstance(item, Compound):
                    item.blocks = [replaced(block) if block is not None else None for block in item.blocks]
                found.append(item)
            return found

        self.items[:] = replaced(self.items)

    # -- shared variables --------------------------------------------------------------------------------------------------------------
    def _captures(self, tree: list[ast.stmt]) -> None:
        """Finds the variables that an inner function or ``nonlocal`` shares; what touches them outside any possible region is kept out at once."""
        every = names_of(*tree)
        function = self.function
        self.shared: dict[str, bool] = {}                      # name -> every mention must be eager
        for name in sorted((every.captured | every.rebound) & function.variables - {"__class__"}):
            if name in every.rebound or name in function.freevars - function.settled or self.flow.rebound_after_capture(name):
                self.shared[name] = name in every.rebound
        for name in sorted(function.declared_nonlocal):
            self.shared[name] = name in every.rebound

    def _shared(self) -> None:
        """Every mention of a shared variable lies in one region, or its bindings and captures are eager."""
        inside = {id(leaf): region for region in self.regions for leaf in region.items}
        headers = self._headers(self.items)
        for name, always in self.shared.items():
            mentions = [leaf for leaf in leaves(self.items) if name in self.of(leaf).mentioned]
            homes = {id(inside[id(leaf)]) if id(leaf) in inside else 0 for leaf in mentions}
            outer = name in self.function.freevars or name in self.function.declared_nonlocal
            if len(homes) == 1 and 0 not in homes and not outer and name not in headers:
                continue
            unfit = [leaf for leaf in mentions if id(leaf) in inside and not leaf.eager and (
                always or name in self.of(leaf).may | self.of(leaf).deletes | self.of(leaf).captured)]
            if unfit:
                raise Unfit(unfit, "AOT251", f"variable {name!r} is shared with an inner function and can change; this statement is not compiled.")

    def _headers(self, items: Sequence[Item]) -> set[str]:
        """Names mentioned in headers of compound statements that stay Python."""
        found: set[str] = set()
        for item in items:
            if isinstance(item, Compound):
                found |= names_of(*item.tree).mentioned - set().union(*(self.of(leaf).mentioned for leaf in leaves([item])), set())
                for node in ast.iter_child_nodes(item.tree[0]):
                    if not isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                        found |= names_of(node).mentioned
                for block in item.blocks:
                    found |= self._headers(block or [])
        return found

    # -- spans -------------------------------------------------------------------------------------------------------------------------
    def _block(self, items: list[Item], *, tail: bool, in_function: bool = False) -> None:
        pieces: list[Piece] = []
        span: list[Leaf] = []

        def close(last: bool) -> None:
            pieces.extend(self._span(span, tail and last, first=in_function and not pieces))
            span.clear()

        for position, item in enumerate(items):
            if isinstance(item, Leaf) and not item.eager and not _declares(item):
                span.append(item)
                if self._must_cut(item):
                    close(position == len(items) - 1)
                continue
            close(False)
            pieces.append(item)
            if isinstance(item, Compound):
                inner_tail = tail and position == len(items) - 1 and isinstance(item.node, cst.If)
                for block in item.blocks:
                    if block is not None:
                        self._block(block, tail=inner_tail)
        close(True)
        self.pieces[id(items)] = pieces

    def _must_cut(self, leaf: Leaf) -> bool:
        """Whether the names that ``leaf`` binds may be seen by an exception handler: then the region ends with it (if it binds last)."""
        names = self.of(leaf)
        seen = self.flow.place(leaf.tree[0]).live_on_exception() & self.function.variables
        if not seen & (names.may | names.deletes):
            return False
        if leaf.compound and not isinstance(leaf.node, (cst.FunctionDef, cst.ClassDef)) or not _binds_last(leaf.tree, seen):
            raise Unfit([leaf], "AOT253", "an exception handler can see what this statement has bound so far; it is not compiled.")
        return True

    def _span(self, span: list[Leaf], tail: bool, *, first: bool) -> list[Piece]:
        before: list[Leaf] = []
        after: list[Leaf] = []
        inner = list(span)
        while inner and (_is_docstring(inner[0]) and first and not before or not self.whole and self._trim_first(inner)):
            before.append(inner.pop(0))
        while inner and not self.whole and self._trim_last(inner):
            after.insert(0, inner.pop())
        if not any(has_work(leaf.node) for leaf in inner):
            return list(span)
        region = self._region(inner, tail and not after)
        self.regions.append(region)
        return [*before, region, *after]

    def _trim_first(self, span: list[Leaf]) -> bool:
        leaf = span[0]
        if has_work(leaf.node) or any(isinstance(each, (ast.Return, ast.Raise, ast.Assert)) for each in leaf.tree):
            return False
        names = self.of(leaf)
        rest: set[str] = set().union(*(self.of(each).mentioned for each in span[1:]))
        return not names.may & rest

    def _trim_last(self, span: list[Leaf]) -> bool:
        leaf = span[-1]
        names = self.of(leaf)
        rest: set[str] = set().union(*(self.of(each).may for each in span[:-1]))
        if len(leaf.tree) == 1 and isinstance(leaf.tree[0], ast.AugAssign) and isinstance(leaf.tree[0].value, ast.Constant):
            return len(span) > 1 and not names.mentioned & set().union(*(self.of(each).mentioned for each in span[:-1]))
        return not has_work(leaf.node) and not names.reads & rest

    # -- one region --------------------------------------------------------------------------------------------------------------------
    def _region(self, span: list[Leaf], tail: bool) -> Region:
        variables = self.function.variables
        tree = [statement for leaf in span for statement in leaf.tree]
        names = names_of(*tree)
        first, last = self.flow.place(tree[0]), self.flow.place(tree[-1])
        after = last.live_after() & variables
        exits = _exits(tree)
        at_break = (last.live_at_break() if "break" in exits else set()) & variables & names.may
        at_continue = (last.live_at_continue() if "continue" in exits else set()) & variables & names.may
        bound, maybe = first.bound_before() & variables, first.maybe_before() & variables
        may = names.may & variables
        flow = Flow(tree, bound, maybe=maybe, at_end=after & may, at_break=at_break, at_continue=at_continue)
        falls_through = flow.end.bound is not None
        outputs = after & may if falls_through else set()
        if names.deletes & (after | at_break | at_continue):
            raise Unfit([leaf for leaf in span if self.of(leaf).deletes & (after | at_break | at_continue)], "AOT252",
                        "a variable that is deleted here may be read later; this statement is not compiled.")
        parameters = (flow.start.live | ((names.captured | names.rebound) - names.may)) & variables
        parameters -= may - maybe                              # unbound before, bound inside
        maybe_in = parameters - bound
        maybe_out = outputs - (flow.end.bound or set())
        unsure = {name for node in flow.nodes if node not in (flow.end, flow.leave_break, flow.leave_continue) and node.bound is not None
                  for name in node.uses & variables - node.bound}
        for name in sorted(maybe_out & unsure):
            raise Unfit([leaf for leaf in span if name in self.of(leaf).mentioned], "AOT252",
                        f"variable {name!r} may be unbound here; this statement is not compiled.")
        leaving = (at_break - (flow.leave_break.bound or at_break)) | (at_continue - (flow.leave_continue.bound or at_continue))
        if leaving or exits & {"break", "continue"} and _rebinds_in_finally(tree, at_break | at_continue):
            raise Unfit([leaf for leaf in span if _exits(leaf.tree) & {"break", "continue"}], "AOT252",
                        "leaves a loop; this statement is not compiled.")
        mentioned = _first_mentions(tree)
        def order(found: set[str]) -> list[str]:
            ranked = {name: position for position, name in enumerate(dict.fromkeys([*self.function.parameters, *mentioned]))}
            return sorted(found, key=lambda name: (ranked.get(name, len(ranked)), name))
        if self.function.freevars >= {"__class__"} and any(needs_class(leaf.node) for leaf in span):
            receiver = self.function.parameters[:1]
            parameters = {*parameters, "__class__", *receiver}
        return Region(list(span), 0, order(parameters), order_by_text(outputs, mentioned), order(maybe_in - {"__class__"}), order(maybe_out), exits,
                      falls_through, tail, sorted((names.may | names.deletes) & self.function.declared_global),
                      order_by_text(at_break, mentioned), order_by_text(at_continue, mentioned))


def order_by_text(found: set[str], mentioned: list[str]) -> list[str]:
    return sorted(found, key=lambda name: (mentioned.index(name) if name in mentioned else len(mentioned), name))


def needs_class(node: cst.CSTNode) -> bool:
    """``super()`` without arguments or ``__class__`` stands in it."""
    return any(isinstance(each, cst.Name) and each.value == "__class__" or isinstance(each, cst.Call) and not each.args
               and isinstance(each.func, cst.Name) and each.func.value == "super" for each in walk(node))


def _first_mentions(tree: Sequence[ast.stmt]) -> list[str]:
    found = [(node.lineno, node.col_offset, position, node.id) for position, statement in enumerate(tree) for node in ast.walk(statement)
             if isinstance(node, ast.Name)]
    return list(dict.fromkeys(name for _, _, _, name in sorted(found, key=lambda each: (each[2], each[0], each[1]))))


def _is_docstring(leaf: Leaf) -> bool:
    first = leaf.tree[0]
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def _declares(leaf: Leaf) -> bool:
    return isinstance(leaf.tree[0], (ast.Global, ast.Nonlocal))


def _binds_last(tree: Sequence[ast.stmt], seen: set[str]) -> bool:
    """Whether binding the names in ``seen`` is the last thing that a statement line does: what could raise comes before."""
    for statement in tree[:-1]:
        if names_of(statement).may & seen:
            return False
    last = tree[-1]
    if isinstance(last, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(last, ast.Assign):
        plain = all(isinstance(each, (ast.Name, ast.Tuple, ast.List, ast.Starred, ast.Load, ast.Store)) for t in last.targets for each in ast.walk(t))
        return plain and not names_of(last.value).may & seen
    if isinstance(last, (ast.AugAssign, ast.AnnAssign)):
        return isinstance(last.target, ast.Name) and (last.value is None or not names_of(last.value).may & seen)
    return False


def _exits(tree: Sequence[ast.AST], in_loop: bool = False) -> set[str]:
    """How control can leave the statements other than by going on or by an exception."""
    found: set[str] = set()
    for node in tree:
        if isinstance(node, ast.Return):
            found.add("return")
        elif isinstance(node, (ast.Break, ast.Continue)):
            found |= set() if in_loop else {"break" if isinstance(node, ast.Break) else "continue"}
        elif isinstance(node, (ast.For, ast.While)):
            found |= _exits(node.body, True) | _exits(node.orelse, in_loop)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        elif isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            found |= _exits([child for child in ast.iter_child_nodes(node)], in_loop)
    return found


def _rebinds_in_finally(tree: Sequence[ast.AST], outputs: set[str]) -> bool:
    return any(names_of(*node.finalbody).may & outputs for statement in tree for node in ast.walk(statement)
               if isinstance(node, (ast.Try, ast.TryStar)) and node.finalbody)
