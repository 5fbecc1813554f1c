"""Control flow of a function on `ast` statements: liveness (backward) and boundness (forward).

One graph node per simple statement and per header of a compound statement; exceptions are edges of their own, taken *before* the statement has bound
anything. A ``finally`` block is there twice: once for what goes on, once for an exception that is passed on.
"""
from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from aotcompile.frontend.split.names import Names, names_of, target_names

NOT_SUPPRESSING = frozenset({"no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "device", "profile", "record_function",
                             "open", "sdpa_kernel", "use_deterministic_algorithms", "fork_rng", "stream", "set_default_device"})
"""Context managers (last part of the callee's name) that never swallow an exception."""


@dataclass(eq=False)
class Node:
    uses: set[str] = field(default_factory=set)
    must: set[str] = field(default_factory=set)
    may: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)
    captured: set[str] = field(default_factory=set)           # by a function, class or generator made here
    successors: list["Node"] = field(default_factory=list)
    handlers: list["Node"] = field(default_factory=list)
    live: set[str] = field(default_factory=set)               # before the node
    bound: set[str] | None = None                             # surely bound before the node; None: not reached
    maybe: set[str] = field(default_factory=set)              # possibly bound before the node


@dataclass(frozen=True)
class Context:
    """Where control goes from inside a block other than to the next statement."""

    returns: Node
    breaks: Node | None = None
    continues: Node | None = None
    handlers: tuple[Node, ...] = ()


@dataclass(eq=False)
class Place:
    """A statement in the graph: the nodes where it starts, and where control is once it is done (several if it lies in a ``finally``)."""

    entries: list[Node] = field(default_factory=list)
    follows: list[Node] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)

    def live_before(self) -> set[str]:
        return set().union(*(node.live for node in self.entries))

    def live_after(self) -> set[str]:
        return set().union(*(node.live for node in self.follows))

    def live_at_break(self) -> set[str]:
        return set().union(*(c.breaks.live for c in self.contexts if c.breaks))

    def live_at_continue(self) -> set[str]:
        return set().union(*(c.continues.live for c in self.contexts if c.continues))

    def live_on_exception(self) -> set[str]:
        return set().union(*(handler.live for context in self.contexts for handler in context.handlers))

    def bound_before(self) -> set[str]:
        known = [node.bound for node in self.entries if node.bound is not None]
        return set.intersection(*known) if known else set()

    def maybe_before(self) -> set[str]:
        return set().union(*(node.maybe for node in self.entries))


class Flow:
    """The solved graph of ``body``. ``bound``: names bound at its start. ``at_end``: names that are read after it has run through."""

    def __init__(self, body: Sequence[ast.stmt], bound: Iterable[str], *, maybe: Iterable[str] = (), at_end: Iterable[str] = (),
                 at_break: Iterable[str] = (), at_continue: Iterable[str] = ()) -> None:
        self.nodes: list[Node] = []
        self.places: dict[int, Place] = {}
        self.lines: list[tuple[Node, int]] = []
        self.end = self._node(uses=set(at_end))
        self.leave = self._node()
        self.leave_break = self._node(uses=set(at_break))
        self.leave_continue = self._node(uses=set(at_continue))
        self.start = self._block(body, self.end, Context(self.leave, self.leave_break, self.leave_continue))
        self._solve_live()
        self._solve_bound(set(bound), set(bound) | set(maybe))

    def place(self, statement: ast.stmt) -> Place:
        return self.places[id(statement)]

    def bound_by_line(self) -> dict[int, set[str]]:
        """Line -> names surely bound wherever a statement starts on it."""
        found: dict[int, set[str]] = {}
        for node, line in self.lines:
            bound = node.bound if node.bound is not None else set()
            found[line] = found[line] & bound if line in found else set(bound)
        return found

    # -- building ----------------------------------------------------------------------------------------------------------------------
    def _node(self, successors: Iterable[Node] = (), context: Context | None = None, *, names: Names | None = None, uses: set[str] | None = None,
              deletes: set[str] | None = None, may: Iterable[str] = ()) -> Node:
        names = names or Names()
        node = Node(set(names.reads) | (uses or set()), set(names.must), set(names.may) | set(may), set(names.deletes) | (deletes or set()),
                    set(names.captured), list(successors), list(context.handlers) if context else [])
        self.nodes.append(node)
        return node

    def _block(self, body: Sequence[ast.stmt], follow: Node, context: Context) -> Node:
        for statement in reversed(body):
            entry = self._statement(statement, follow, context)
            place = self.places.setdefault(id(statement), Place())
            place.entries.append(entry)
            self.lines.append((entry, statement.lineno))
            place.follows.append(follow)
            place.contexts.append(context)
            follow = entry
        return follow

    def _statement(self, statement: ast.stmt, follow: Node, context: Context) -> Node:
        if isinstance(statement, ast.If):
            branches = [self._block(statement.body, follow, context), self._block(statement.orelse, follow, context)]
            return self._node(branches, context, names=names_of(statement.test))
        if isinstance(statement, ast.While):
            return self._while(statement, follow, context)
        if isinstance(statement, (ast.For, ast.AsyncFor)):
            return self._for(statement, follow, context)
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            return self._with(statement, follow, context)
        if isinstance(statement, (ast.Try, ast.TryStar)):
            return self._try(statement, follow, context)
        if isinstance(statement, ast.Match):
            return self._match(statement, follow, context)
        successors = [follow]
        if isinstance(statement, ast.Return):
            successors = [context.returns]
        elif isinstance(statement, ast.Raise):
            successors = []
        elif isinstance(statement, ast.Break) and context.breaks:
            successors = [context.breaks]
        elif isinstance(statement, ast.Continue) and context.continues:
            successors = [context.continues]
        return self._node(successors, context, names=names_of(statement))

    def _while(self, statement: ast.While, follow: Node, context: Context) -> Node:
        test = self._node((), context, names=names_of(statement.test))
        endless = isinstance(statement.test, ast.Constant) and bool(statement.test.value)
        body = self._block(statement.body, test, replace(context, breaks=follow, continues=test))
        otherwise = self._block(statement.orelse, follow, context)
        test.successors = [body] if endless else [body, otherwise]
        return test

    def _for(self, statement: ast.For | ast.AsyncFor, follow: Node, context: Context) -> Node:
        step = self._node((), context)
        body = self._block(statement.body, step, replace(context, breaks=follow, continues=step))
        step.successors = [self._node([body], context, names=names_of(statement.target)), self._block(statement.orelse, follow, context)]
        return self._node([step], context, names=names_of(statement.iter))

    def _with(self, statement: ast.With | ast.AsyncWith, follow: Node, context: Context) -> Node:
        suppressing = [_callee(item.context_expr) not in NOT_SUPPRESSING for item in statement.items]

        def inside(count: int) -> Context:                     # under the first ``count`` items
            return replace(context, handlers=(*context.handlers, follow)) if any(suppressing[:count]) else context

        entry = self._block(statement.body, follow, inside(len(suppressing)))
        for position, item in reversed(list(enumerate(statement.items))):
            target = item.optional_vars
            if target is not None:
                entry = self._node([entry], None if isinstance(target, ast.Name) else inside(position + 1), names=names_of(target))
            entry = self._node([entry], inside(position), names=names_of(item.context_expr))
        return entry

    def _try(self, statement: ast.Try | ast.TryStar, follow: Node, context: Context) -> Node:
        passed_on: tuple[Node, ...] = context.handlers
        outer = context
        if statement.finalbody:
            # On an exception the block runs and then passes it on; otherwise it goes on to wherever control was on its way to.
            passed_on = (self._block(statement.finalbody, self._node(context.handlers), context),)
            onward = [node for node in (follow, context.returns, context.breaks, context.continues) if node is not None]
            follow = self._block(statement.finalbody, self._node(onward), context)
            outer = Context(follow, follow if context.breaks else None, follow if context.continues else None, passed_on)
        dispatch = self._node(passed_on)
        for handler in statement.handlers:
            gone = {handler.name} if handler.name else set()
            inside = outer
            after = follow
            if gone:                                           # ``except E as e`` unbinds ``e`` on every way out
                after = self._node([follow], deletes=gone)
                inside = Context(self._node([outer.returns], deletes=gone), self._node([outer.breaks], deletes=gone) if outer.breaks else None,
                                 self._node([outer.continues], deletes=gone) if outer.continues else None, outer.handlers)
            entry = self._block(handler.body, after, inside)
            names = names_of(handler.type)
            names.must |= gone
            names.may |= gone
            dispatch.successors.append(self._node([entry], outer, names=names))
        tail = self._block(statement.orelse, follow, outer)
        return self._block(statement.body, tail, replace(outer, handlers=(dispatch,)))

    def _match(self, statement: ast.Match, follow: Node, context: Context) -> Node:
        entry = follow
        for case in reversed(statement.cases):
            pattern = names_of(case.pattern, case.guard)
            pattern.must = set()                               # a pattern may bind some of its names and still fail
            entry = self._node([self._block(case.body, follow, context), entry], context, names=pattern)
        return self._node([entry], context, names=names_of(statement.subject))

    def rebound_after_capture(self, name: str) -> bool:
        """Whether ``name`` can be bound again after a function that captures it was made."""
        pending = [node for node in self.nodes if name in node.captured]
        if any(name in node.may | node.deletes for node in pending):
            return True
        seen: set[Node] = set()
        while pending:
            for following in (node := pending.pop()).successors + node.handlers:
                if following not in seen:
                    if name in following.may | following.deletes:
                        return True
                    seen.add(following)
                    pending.append(following)
        return False

    # -- solving -----------------------------------------------------------------------------------------------------------------------
    def _solve_live(self) -> None:
        changed = True
        while changed:
            changed = False
            for node in self.nodes:
                after = set().union(*(successor.live for successor in node.successors)) if node.successors else set()
                live = node.uses | (after - node.must - node.deletes)
                for handler in node.handlers:
                    live |= handler.live
                if live != node.live:
                    node.live = live
                    changed = True

    def _solve_bound(self, bound: set[str], maybe: set[str]) -> None:
        self.start.bound = set(bound)
        self.start.maybe = set(maybe)
        changed = True
        while changed:
            changed = False
            for node in reversed(self.nodes):
                if node.bound is None:
                    continue
                done = (node.bound | node.must) - (node.deletes - node.must)
                possible = node.maybe | node.may
                for successor in node.successors:
                    changed |= _merge(successor, done, (possible - (node.deletes - node.must)))
                for handler in node.handlers:
                    changed |= _merge(handler, node.bound - node.deletes, possible)


def _merge(node: Node, bound: set[str], maybe: set[str]) -> bool:
    merged = bound if node.bound is None else node.bound & bound
    changed = node.bound is None or merged != node.bound or not maybe <= node.maybe
    node.bound = set(merged)
    node.maybe |= maybe
    return changed


def _callee(expression: ast.expr) -> str:
    if isinstance(expression, ast.Call):
        expression = expression.func
    return expression.attr if isinstance(expression, ast.Attribute) else expression.id if isinstance(expression, ast.Name) else ""


def local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[set[str], Names]:
    """The function's local variables, and the names of its whole body."""
    names = names_of(*function.body)
    stored = set(names.may) | set(names.deletes)
    for node in ast.walk(ast.Module(body=list(function.body), type_ignores=[])):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            stored |= set(target_names(node.target))           # over-counts annotated names of nested scopes: they are then merely watched
    own = stored - names.globals - names.nonlocals
    return own | {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)} | {
        a.arg for a in (function.args.vararg, function.args.kwarg) if a}, names
