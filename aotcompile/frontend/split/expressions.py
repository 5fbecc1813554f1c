"""Pulls expressions apart around breaks, keeping Python's order of evaluation.

    return note("a", torch.relu(x)) + float(note("b", x.sum()).item())
  ->
    _t0 = note("a", torch.relu(x))                what stands left of the break
    _t1 = note("b", x.sum())
    _t2 = _t1.item()                              the break
    return _t0 + float(_t2)                       the rest

What need not be kept in a temporary: literals and local variables that nothing rebinds within the statement. The callee of a call is taken to be the
same before and after its arguments are evaluated where it is a global name (with dots), an attribute path of the function's first parameter, or a
method of tensors or containers; ``fixed_callee`` can say otherwise.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import libcst as cst

from aotcompile.frontend.split.items import Compound, Item, Leaf, placeholder
from aotcompile.frontend.split.marks import Marks
from aotcompile.frontend.split.operations import as_call, written
from aotcompile.frontend.split.text import COMPREHENSIONS, code, substitute, walk
from aotcompile.frontend.split.work import Operand, deferred_methods, dotted, has_work, is_literal, operands, walrus_targets
from aotcompile.frontend.types import Break


@dataclass
class Scope:
    """``names``: the function's variables (locals and free ones); ``unstable``: those that a call can rebind; ``first``: its first parameter;
    ``bound``: line of the user's file -> variables surely bound where a statement starts on it."""

    names: set[str]
    unstable: set[str]
    first: str
    bound: dict[int, set[str]]
    temporary: str = "_t"
    fixed_callee: Callable[[str], bool] | None = None


@dataclass
class Expressions:
    """Appends what it pulls out to ``out``; ``origin`` and ``walrus`` belong to the statement at hand."""

    marks: Marks
    scope: Scope
    out: list[Item] = field(default_factory=list)
    origin: tuple[int, int] = (0, 0)
    walrus: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    count: int = 0
    made: set[str] = field(default_factory=set)
    copies: list[cst.CSTNode] = field(default_factory=list)

    def begin(self, origin: tuple[int, int], node: cst.CSTNode) -> None:
        """A new statement: temporaries are numbered from 0 again, so that an unchanged statement keeps its text."""
        self.origin, self.count, self.made = origin, 0, set()
        self.walrus = walrus_targets(node)
        self.bound = self.scope.bound.get(origin[0], set())

    # -- emitting ----------------------------------------------------------------------------------------------------------------------
    def temporary(self) -> str:
        name = f"{self.scope.temporary}{self.count}"
        self.count += 1
        self.made.add(name)
        return name

    def emit(self, *smalls: cst.BaseSmallStatement, breaks: Sequence[Break] = ()) -> None:
        line = cst.SimpleStatementLine(list(smalls))
        self.out.append(Leaf(self.wrap_calls(line), self.origin, list(breaks), eager=bool(breaks)))   # type: ignore[arg-type]

    def assign(self, name: str, value: cst.BaseExpression, *breaks: Break) -> cst.Name:
        self.emit(cst.Assign([cst.AssignTarget(cst.Name(name))], parenthesized(value)), breaks=breaks)
        return cst.Name(name)

    @contextmanager
    def block(self) -> Iterator[list[Item]]:
        """What is emitted inside goes to the list given."""
        outer, self.out = self.out, []
        try:
            yield self.out
        finally:
            self.out = outer

    def emit_if(self, test: cst.BaseExpression, body: list[Item], orelse: list[Item] | None = None, *breaks: Break) -> None:
        node = cst.If(self.wrap_calls(test), placeholder(), orelse=cst.Else(placeholder()) if orelse is not None else None)  # type: ignore[arg-type]
        self.out.append(Compound(node, self.origin, [body, orelse], list(breaks)))

    def wrap_calls(self, node: cst.CSTNode) -> cst.CSTNode:
        """``f(x)`` -> ``_call_0(f)(x)`` for the calls and other operations into split callees that stand in ``node``."""
        if not self.marks.calls:
            return node
        while True:                                            # outermost first: its parts stay the same objects
            found = next((each for each in walk(node) if isinstance(each, cst.BaseExpression) and id(each) in self.marks.calls), None)
            if found is None:
                return node
            node = substitute(node, {id(found): self.wrapped(found)})

    def wrapped(self, node: cst.BaseExpression, func: cst.BaseExpression | None = None) -> cst.Call:
        """A call or another operation that leads to a split function; ``func``: what is called, where it is at hand already."""
        number = self.marks.calls[id(node)]
        if id(node) in self.marks.iterated:
            return as_call(number, ("iter", [self.unmarked(node)]))
        if isinstance(node, cst.Call):
            return node.with_changes(func=cst.Call(cst.Name(f"_call_{number}"), [cst.Arg(func or node.func)]))
        operation = written(node)
        assert operation is not None
        return as_call(number, operation)

    # -- questions ---------------------------------------------------------------------------------------------------------------------
    def touched(self, node: cst.CSTNode | None) -> bool:
        if isinstance(node, cst.SimpleStatementLine) and any(id(small) in self.marks.touched for small in node.body):
            return True                                        # also a line made of what stood after the colon (`block_statements`)
        return node is not None and id(node) in self.marks.touched

    def breaks_in(self, node: cst.CSTNode) -> list[Break]:
        """All breaks in the node, in the order of the text."""
        if not self.touched(node):
            return []
        marks = self.marks
        tables = (marks.values, marks.tests, marks.whole, marks.stores, marks.open)
        found = [table[id(each)] for each in walk(node) for table in tables if id(each) in table]
        return list(dict.fromkeys(found))

    def left_in(self, own: Break, node: cst.CSTNode) -> list[Break]:
        """The break ``own`` and those that are still inside its expression once that is pulled apart."""
        tables = (self.marks.values, self.marks.tests)
        return list(dict.fromkeys([own, *(table[id(each)] for each in walk(node) for table in tables if id(each) in table)]))

    def unmarked(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """A copy without a mark of its own (its parts are the same objects and keep theirs)."""
        copy = node.with_changes()
        self.copies.append(copy)                               # alive, so that its ``id`` is not given to another node
        if any(map(self.touched, node.children)):
            self.marks.touched.add(id(copy))
        return copy

    def work(self, node: cst.CSTNode) -> bool:
        return has_work(node, self.marks.values)

    def stable(self, node: cst.CSTNode) -> bool:
        """Whether evaluating the node later gives the same."""
        if isinstance(node, cst.Name):
            name = node.value
            return is_literal(node) or name in self.made or (
                name in self.bound and name in self.scope.names and name not in self.scope.unstable and name not in self.walrus)
        if isinstance(node, cst.Tuple):
            return all(isinstance(each, cst.Element) and self.stable(each.value) for each in node.elements)
        return is_literal(node) or isinstance(node, cst.Lambda) or dotted(node).startswith("torch.") and "torch" not in self.scope.names

    def fixed(self, func: cst.CSTNode) -> bool:
        """Whether the callee is the same before and after its arguments are evaluated."""
        path = dotted(func)
        if not path or path.split(".")[0] in self.walrus | (self.scope.unstable if isinstance(func, cst.Name) else set()):
            return False
        if self.scope.fixed_callee is not None and "." in path:
            return self.scope.fixed_callee(path)
        root = path.split(".")[0]
        return root not in self.scope.names or "." not in path or root == self.scope.first or self.deferrable(func)

    def deferrable(self, func: cst.CSTNode) -> bool:
        return isinstance(func, cst.Attribute) and func.attr.value in deferred_methods() and (
            not isinstance(func.value, cst.Attribute) or self.stable(func.value))

    # -- values ------------------------------------------------------------------------------------------------------------------------
    def keep(self, operand: Operand) -> cst.BaseExpression:
        """Evaluates an operand now; gives what to write in its place."""
        node = operand.node
        if not operand.unpack and self.stable(node):
            return node
        value = self.flatten(node)
        if operand.unpack == "*":
            value = cst.Tuple([cst.StarredElement(value)])
        elif operand.unpack == "**":
            value = cst.Dict([cst.StarredDictElement(value)])
        elif isinstance(value, cst.Name) and value.value in self.made:
            return value
        return self.assign(self.temporary(), value)

    def keep_callee(self, func: cst.BaseExpression, *, more: bool) -> cst.BaseExpression:
        """Evaluates a callee now; ``more``: something of the arguments is evaluated before the call."""
        if self.fixed(func) and not self.touched(func):
            return func
        if isinstance(func, cst.Attribute) and id(func) not in self.marks.values:
            value = self.keep(Operand(func.value)) if more or self.work(func.value) or self.touched(func.value) else func.value
            func = func.with_changes(value=value)
            return func if not more or self.deferrable(func) else self.assign(self.temporary(), func)
        return self.keep(Operand(func))

    def flatten(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Emits everything up to the last break in ``node``; gives the expression that stands for the rest."""
        if not self.touched(node):
            return node
        if id(node) in self.marks.values:
            return self.kept_break(node, self.marks.values[id(node)])
        if isinstance(node, cst.BooleanOperation):
            return self.boolean(node)
        if isinstance(node, cst.IfExp):
            return self.conditional(node)
        if isinstance(node, cst.Comparison) and len(node.comparisons) > 1 and (
                id(node) in self.marks.tests or any(map(self.touched, node.comparisons[1:]))):
            return self.chain(node, test=False)
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            return node.with_changes(expression=self.test(node.expression))
        if id(node) in self.marks.tests:
            return self.kept_break(node, self.marks.tests[id(node)])
        if isinstance(node, cst.FormattedString):
            return self.formatted(node)
        if isinstance(node, cst.NamedExpr) and isinstance(node.target, cst.Name):
            self.value_into(node.target.value, node.value)
            return cst.Name(node.target.value)
        parts = operands(node)
        last = max((i for i, part in enumerate(parts) if self.touched(part.node)), default=-1)
        if last < 0:                                           # somewhere that cannot be pulled apart
            return self.assign(self.temporary(), node, *self.breaks_in(node))
        return self.rebuild(node, parts, last)

    def kept_break(self, node: cst.BaseExpression, own: Break) -> cst.Name:
        value = self.broken(node)
        return self.assign(self.temporary(), value, *self.left_in(own, value))

    def rebuild(self, node: cst.BaseExpression, parts: list[Operand], last: int) -> cst.BaseExpression:
        """Keeps the operands before number ``last`` and evaluates that one as far as its own last break."""
        replaced: dict[int, cst.CSTNode] = {}
        for position, part in enumerate(parts[:last + 1]):
            if position == 0 and isinstance(node, cst.Call):
                replaced[id(part.node)] = self.keep_callee(node.func, more=last > 0)
            elif position < last:
                replaced[id(part.node)] = self.keep(part)
            else:
                replaced[id(part.node)] = self.flatten(part.node)
        return substitute(node, replaced)                      # type: ignore[return-value]

    def broken(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """The expression of a break with the tensor work among its operands pulled out before it."""
        parts = operands(node)
        last = max((i for i, part in enumerate(parts) if self.work(part.node)), default=-1)
        if isinstance(node, COMPREHENSIONS) and last == 0:
            return substitute(node, {id(parts[0].node): self.keep(parts[0])})        # type: ignore[return-value]
        replaced: dict[int, cst.CSTNode] = {}
        for position, part in enumerate(parts[:last + 1]):
            if position == 0 and isinstance(node, cst.Call):
                split = id(node) in self.marks.calls and dotted(node.func)
                replaced[id(part.node)] = node.func if split else self.keep_callee(node.func, more=last > 0)
            elif position == last and not part.unpack and id(part.node) in self.marks.values:
                value = self.broken(part.node)                 # one eager statement can hold several breaks, one inside the other
                self.copies.append(value)
                self.marks.values[id(value)] = self.marks.values[id(part.node)]
                replaced[id(part.node)] = value
            else:
                replaced[id(part.node)] = self.keep(part)
        if id(node) in self.marks.calls and isinstance(node, cst.Call):
            func = replaced.pop(id(node.func), node.func)
            wrapped = self.wrapped(node, func)                 # type: ignore[arg-type]
            return substitute(wrapped, replaced)               # type: ignore[return-value]
        if id(node) in self.marks.calls and id(node) not in self.marks.iterated:
            return substitute(self.wrapped(node), replaced)    # type: ignore[return-value]
        if id(node) in self.marks.calls:
            value: cst.BaseExpression = substitute(node, replaced)       # type: ignore[assignment]
            return as_call(self.marks.calls[id(node)], ("iter", [self.unmarked(value) if value is node else value]))
        return substitute(node, replaced)                      # type: ignore[return-value]

    def root(self, node: cst.BaseExpression) -> tuple[cst.BaseExpression, list[Break]]:
        """As `flatten`, for a whole statement's expression: a break at the very root makes the statement itself the eager one."""
        if id(node) in self.marks.values:
            value = self.broken(node)
            return value, self.left_in(self.marks.values[id(node)], value)
        if self.touched(node) and not self.work(node) and not self.tests_in(node):
            return node, self.breaks_in(node)
        return self.flatten(node), []

    def tests_in(self, node: cst.CSTNode) -> bool:
        return any(id(each) in self.marks.tests for each in walk(node))

    def value_into(self, name: str, node: cst.BaseExpression) -> None:
        value, breaks = self.root(node)
        self.assign(name, value, *breaks)

    # -- what is evaluated only sometimes ------------------------------------------------------------------------------------------------
    def test(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Evaluates what is tested; gives an expression to be tested exactly once, in an ``if`` or the like that stays Python."""
        if not self.touched(node):
            return node
        if id(node) in self.marks.values:
            return self.flatten(node) if self.work(node) else node
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            return node.with_changes(expression=self.test(node.expression))
        if isinstance(node, cst.BooleanOperation):
            return self.boolean_test(node)
        if isinstance(node, cst.IfExp) and (self.tests_in(node) or self.touched(node.body) or self.touched(node.orelse)):
            name = self.temporary()
            self._conditional_test(name, node)
            return cst.Name(name)
        if isinstance(node, cst.Comparison) and len(node.comparisons) > 1 and (
                id(node) in self.marks.tests or any(map(self.touched, node.comparisons[1:]))):
            return self.chain(node, test=True)
        if id(node) in self.marks.tests:
            if not self.work(node):
                return node
            value = self.flatten(self.unmarked(node))
            return self.assign(self.temporary(), value) if has_work(value) else value
        return self.flatten(node)

    def tested(self, node: cst.BaseExpression) -> tuple[cst.BaseExpression, list[Break]]:
        """As `test`, with the breaks that remain at the test itself."""
        own = [self.marks.tests[id(each)] for each in walk(node) if id(each) in self.marks.tests] if self.touched(node) else []
        result = self.test(node)
        return result, list(dict.fromkeys([*own, *self.breaks_in(result)]))

    def _operands_of_chain(self, node: cst.BooleanOperation) -> list[cst.BaseExpression]:
        left = node.left
        same = isinstance(left, cst.BooleanOperation) and type(left.operator) is type(node.operator)
        return [*(self._operands_of_chain(left) if same else [left]), node.right]    # type: ignore[arg-type]

    def _branchy(self, node: cst.BooleanOperation, parts: Sequence[cst.BaseExpression]) -> bool:
        inner = [each for each in walk(node) if isinstance(each, cst.BooleanOperation)]
        return any(id(each) in self.marks.tests for each in inner) or any(map(self.tests_in, parts)) or any(map(self.touched, parts[1:]))

    def boolean(self, node: cst.BooleanOperation) -> cst.BaseExpression:
        """``a and b`` -> ``_t0 = a`` / ``if _t0: _t0 = b``: each operand is tested once, as by Python."""
        parts = self._operands_of_chain(node)
        if not self._branchy(node, parts):
            return substitute(node, {id(parts[0]): self.flatten(parts[0])})          # type: ignore[return-value]
        name = self.temporary()
        self._boolean_into(name, parts, isinstance(node.operator, cst.And), self.breaks_in(node))
        return cst.Name(name)

    def _boolean_into(self, name: str, parts: Sequence[cst.BaseExpression], conjunction: bool, breaks: list[Break], flag: str = "") -> None:
        """``flag``: a variable that holds the default truth of the whole (False for ``and``) and is changed once the last operand says otherwise."""
        test = self._value_and_truth(name, parts[0], breaks)
        if len(parts) == 1 and not flag:
            return
        with self.block() as body:
            if len(parts) > 1:
                self._boolean_into(name, parts[1:], conjunction, breaks, flag)
            else:
                self.assign(flag, cst.Name("True" if conjunction else "False"))
        self.emit_if(test if conjunction else cst.UnaryOperation(cst.Not(), operand(test)), body, None, *breaks)

    def _value_and_truth(self, name: str, node: cst.BaseExpression, breaks: list[Break]) -> cst.Name:
        """``name = node``; gives what to test for its truth. ``(a or b) and c`` tests neither ``a`` nor ``b`` twice, as on CPython 3.11 (later ones
        test what the first half gave once more)."""
        if not isinstance(node, cst.BooleanOperation):
            self.value_into(name, self.unmarked(node) if self.leaf_test(node) else node)
            return cst.Name(name)
        conjunction = isinstance(node.operator, cst.And)
        flag = self.assign(self.temporary(), cst.Name("False" if conjunction else "True"))
        self._boolean_into(name, self._operands_of_chain(node), conjunction, breaks, flag.value)
        return flag

    def boolean_test(self, node: cst.BooleanOperation) -> cst.BaseExpression:
        """``if a and b:`` -> ``_t0 = False`` / ``if a: _t0 = b`` / ``if _t0:``."""
        parts = self._operands_of_chain(node)
        if not self._branchy(node, parts):
            return substitute(node, {id(parts[0]): self.test(parts[0])})             # type: ignore[return-value]
        conjunction = isinstance(node.operator, cst.And)
        name = self.temporary()
        self.assign(name, cst.Name("False" if conjunction else "True"))
        self._test_into(name, parts, conjunction, self.breaks_in(node))
        return cst.Name(name)

    def _test_into(self, name: str, parts: Sequence[cst.BaseExpression], conjunction: bool, breaks: list[Break]) -> None:
        if len(parts) == 1:
            self._last_into(name, parts[0])
            return
        first = self.test(parts[0])
        with self.block() as body:
            self._test_into(name, parts[1:], conjunction, breaks)
        self.emit_if(first if conjunction else cst.UnaryOperation(cst.Not(), operand(first)), body, None, *breaks)

    def _last_into(self, name: str, node: cst.BaseExpression) -> None:
        if id(node) in self.marks.values:
            self.value_into(name, node)
        elif self.leaf_test(node):
            self.value_into(name, self.unmarked(node))
        elif isinstance(node, cst.BooleanOperation):
            conjunction = isinstance(node.operator, cst.And)
            self.assign(name, cst.Name("False" if conjunction else "True"))
            self._test_into(name, self._operands_of_chain(node), conjunction, self.breaks_in(node))
        elif isinstance(node, cst.Comparison) and len(node.comparisons) > 1:
            self.assign(name, self.chain(node, test=True))
        elif isinstance(node, cst.IfExp):
            self._conditional_test(name, node)
        else:
            self.assign(name, self.test(node))

    def _conditional_test(self, name: str, node: cst.IfExp) -> None:
        test, breaks = self.tested(node.test)
        with self.block() as body:
            self._last_into(name, node.body)
        with self.block() as orelse:
            self._last_into(name, node.orelse)
        self.emit_if(test, body, orelse, *breaks)

    def leaf_test(self, node: cst.BaseExpression) -> bool:
        """A marked test that is not made of tests itself."""
        return id(node) in self.marks.tests and not isinstance(node, cst.BooleanOperation) and not (
            isinstance(node, cst.Comparison) and len(node.comparisons) > 1)

    def chain(self, node: cst.Comparison, *, test: bool) -> cst.BaseExpression:
        """``a < b < c`` with a break in ``c`` or in the truth of ``a < b``: ``b`` is kept, ``c`` evaluated under an ``if``."""
        name = self.temporary()
        breaks = self.breaks_in(node)
        left = self.keep(Operand(node.left))
        if test:
            self.assign(name, cst.Name("False"))
        self._chain_into(name, left, list(node.comparisons), test, breaks)
        return cst.Name(name)

    def _chain_into(self, name: str, left: cst.BaseExpression, rest: list[cst.ComparisonTarget], test: bool, breaks: list[Break]) -> None:
        right = self.keep(Operand(rest[0].comparator)) if len(rest) > 1 else self.flatten(rest[0].comparator)
        pair = cst.Comparison(operand(left), [rest[0].with_changes(comparator=operand(right))])
        if len(rest) == 1:
            self.assign(name, pair)
            return
        tested = self.assign(self.temporary() if test else name, pair)
        with self.block() as body:
            self._chain_into(name, right, rest[1:], test, breaks)
        self.emit_if(tested, body, None, *breaks)

    def conditional(self, node: cst.IfExp) -> cst.BaseExpression:
        """``a if t else b`` -> ``if t: _t0 = a`` / ``else: _t0 = b``; stays an expression where only ``t`` has a break and nothing is to compile."""
        branchy = self.tests_in(node.test)
        test, breaks = self.tested(node.test)
        if not self.touched(node.body) and not self.touched(node.orelse) and not (branchy and (self.work(node.body) or self.work(node.orelse))):
            changed: cst.BaseExpression = substitute(node, {id(node.test): test})    # type: ignore[assignment]
            return self.assign(self.temporary(), changed, *breaks) if branchy else changed
        name = self.temporary()
        with self.block() as body:
            self.value_into(name, node.body)
        with self.block() as orelse:
            self.value_into(name, node.orelse)
        self.emit_if(test, body, orelse, *breaks)
        return cst.Name(name)

    def formatted(self, node: cst.FormattedString) -> cst.BaseExpression:
        """f-strings format each value before they evaluate the next: what stands left of the break becomes a string of its own."""
        last = max(i for i, part in enumerate(node.parts) if self.touched(part))
        part = node.parts[last]
        if not isinstance(part, cst.FormattedStringExpression) or not self.touched(part.expression) or any(map(self.touched, part.format_spec or ())):
            return self.assign(self.temporary(), node, *self.breaks_in(node))
        before: list[cst.BaseFormattedStringContent] = list(node.parts[:last])
        if any(isinstance(each, cst.FormattedStringExpression) for each in before):
            prefix = node.with_changes(parts=before, lpar=[], rpar=[])
            value = self.formatted(prefix) if any(map(self.touched, before)) else prefix
            kept = value if isinstance(value, cst.Name) else self.assign(self.temporary(), value)
            before = [cst.FormattedStringExpression(kept)]
        return node.with_changes(parts=[*before, part.with_changes(expression=self.flatten(part.expression)), *node.parts[last + 1:]])


def operand(node: cst.BaseExpression) -> cst.BaseExpression:
    """Parenthesized unless it binds tighter than any operator."""
    if isinstance(node, (cst.Name, cst.Call, cst.Attribute, cst.Subscript)) or node.lpar or is_literal(node):
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def parenthesized(node: cst.BaseExpression) -> cst.BaseExpression:
    """Parentheses for an expression that goes over several lines or needs them on the right of ``=``."""
    if not node.lpar and (isinstance(node, (cst.NamedExpr, cst.Tuple, cst.GeneratorExp)) or "\n" in code(node)):
        return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return node
