"""Takes the function's statements apart into `items` around its breaks."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from aotcompile.frontend.split.expressions import Expressions, operand
from aotcompile.frontend.split.items import Compound, Item, Leaf, blocks_of, placeholder
from aotcompile.frontend.split.operations import as_call, written
from aotcompile.frontend.split.text import COMPOUNDS, Text, block_statements, walk
from aotcompile.frontend.split.work import Operand, has_work, subscript_operands
from aotcompile.frontend.types import Break


class Statements:
    """One pass over a function; `block` and `opened` give items."""

    def __init__(self, text: Text, expressions: Expressions) -> None:
        self.text = text
        self.expressions = expressions
        self.flags = 0

    def block(self, statements: Sequence[cst.BaseStatement]) -> list[Item]:
        with self.expressions.block() as items:
            for statement in statements:
                self.statement(statement)
        return items

    def origin(self, node: cst.CSTNode) -> tuple[int, int]:
        if node not in self.text.positions and isinstance(node, cst.SimpleStatementLine) and node.body and node.body[0] in self.text.positions:
            return self.text.origin(node.body[0])              # what stood after the colon of a one-line block
        return self.text.origin(node) if node in self.text.positions else self.expressions.origin

    def statement(self, node: cst.BaseStatement) -> None:
        expressions = self.expressions
        marks = expressions.marks
        origin = self.origin(node)
        if not expressions.touched(node):
            expressions.out.append(Leaf(node, origin))
        elif isinstance(node, cst.SimpleStatementLine):
            self._line(node, origin)
        elif id(node) in marks.whole or not isinstance(node, COMPOUNDS):
            breaks = expressions.breaks_in(node)
            expressions.out.append(Leaf(expressions.wrap_calls(node), origin, breaks, eager=True))    # type: ignore[arg-type]
        else:
            self._compound(node, origin)

    def _line(self, node: cst.SimpleStatementLine, origin: tuple[int, int]) -> None:
        expressions = self.expressions
        expressions.begin(origin, node)
        with expressions.block() as items:
            for small in node.body:
                small = small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT) if len(node.body) > 1 and not expressions.touched(small) else small
                self._small(small)
        first, last = items[0], items[-1]
        first.node = first.node.with_changes(leading_lines=node.leading_lines)
        if isinstance(last, Leaf) and isinstance(last.node, cst.SimpleStatementLine):
            last.node = last.node.with_changes(trailing_whitespace=node.trailing_whitespace)
        expressions.out += items

    # -- simple statements -------------------------------------------------------------------------------------------------------------
    def _small(self, node: cst.BaseSmallStatement) -> None:
        expressions = self.expressions
        clean = {"semicolon": cst.MaybeSentinel.DEFAULT} if hasattr(node, "semicolon") else {}
        marks = expressions.marks
        if isinstance(node, cst.AugAssign) and id(node) in marks.calls and expressions.stable(node.target):
            self._augmented_by_call(node)
        elif id(node) in marks.whole:
            expressions.emit(node.with_changes(**clean), breaks=expressions.breaks_in(node))
        elif not expressions.touched(node):
            expressions.emit(node.with_changes(**clean) if clean else node)
        elif isinstance(node, (cst.Expr, cst.Return)) and node.value is not None:
            value, breaks = expressions.root(node.value)
            expressions.emit(node.with_changes(value=value, **clean), breaks=breaks)
        elif isinstance(node, cst.Assign):
            self._assign(node, [target.target for target in node.targets], clean)
        elif isinstance(node, cst.AnnAssign) and node.value is not None:
            self._assign(node, [node.target], clean)
        elif isinstance(node, cst.AugAssign):
            self._augmented(node, clean)
        elif isinstance(node, cst.Assert):
            self._assert(node, clean)
        elif isinstance(node, cst.Raise) and node.exc is not None:
            self._raise(node, clean)
        elif isinstance(node, cst.Del):
            self._delete(node)
        else:
            expressions.emit(node.with_changes(**clean), breaks=expressions.breaks_in(node))

    def _assign(self, node: cst.Assign | cst.AnnAssign, targets: list[cst.BaseExpression], clean: Mapping[str, object]) -> None:
        expressions = self.expressions
        assert node.value is not None
        store = expressions.marks.stores.get(id(node))
        value, breaks = expressions.root(node.value)
        if store is not None and len(targets) == 1 and id(targets[0]) in expressions.marks.targets:
            self._store_by_call(targets[0], value, breaks, store)
            return
        if store is None and not any(map(expressions.touched, targets)):
            simple = not any(has_work(target) or isinstance(target, cst.Subscript) for target in targets)
            if breaks and not simple:
                value = expressions.assign(expressions.temporary(), value, *breaks)
                breaks = []
            expressions.emit(node.with_changes(value=value, **clean), breaks=breaks)
            return
        if store is not None and not any(map(expressions.touched, targets)):
            if expressions.work(value) and not breaks:
                value = expressions.assign(expressions.temporary(), value)
            expressions.emit(node.with_changes(value=value, **clean), breaks=[*breaks, store])
            return
        if breaks or not expressions.stable(value):
            value = expressions.assign(expressions.temporary(), value, *breaks)
        for target in targets:
            self._store(target, value, store)

    def _store_by_call(self, target: cst.BaseExpression, value: cst.BaseExpression, breaks: list[Break], store: Break) -> None:
        """``owner.name = value`` -> ``_call_0(".=")(owner, "name", value)``, with the value at hand already: Python evaluates it first."""
        expressions = self.expressions
        if breaks or not expressions.stable(value):
            value = expressions.assign(expressions.temporary(), value, *breaks)
        operation = written(target)
        assert operation is not None
        symbol, operands = operation
        expressions.emit(cst.Expr(as_call(expressions.marks.targets[id(target)], (f"{symbol}=", operands), value)), breaks=[store])

    def _augmented_by_call(self, node: cst.AugAssign) -> None:
        """``x += value`` -> ``x = _call_0("+=")(x, value)``."""
        expressions = self.expressions
        own = expressions.marks.whole[id(node)]
        operation = written(node)
        assert operation is not None
        symbol, (target, value) = operation
        if expressions.work(value):
            value = expressions.assign(expressions.temporary(), value)
        result = as_call(expressions.marks.calls[id(node)], (symbol, [target, value]))
        expressions.emit(cst.Assign([cst.AssignTarget(target)], result), breaks=[own, *expressions.breaks_in(value)])

    def _store(self, target: cst.BaseExpression, value: cst.BaseExpression, store: Break | None) -> None:
        """Emits ``target = value`` for a value already at hand; the parts of the target are evaluated now, in their order."""
        expressions = self.expressions
        if isinstance(target, (cst.Tuple, cst.List)) and expressions.touched(target):
            names = [expressions.temporary() for _ in target.elements]
            elements = [element.with_changes(value=cst.Name(name), **({"lpar": (), "rpar": ()} if isinstance(element, cst.StarredElement) else {}))
                        for element, name in zip(target.elements, names, strict=True)]
            expressions.emit(cst.Assign([cst.AssignTarget(cst.Tuple(elements))], value))
            for element, name in zip(target.elements, names, strict=True):
                self._store(element.value, cst.Name(name), store)
            return
        expressions.emit(cst.Assign([cst.AssignTarget(self._opened_target(target))], value), breaks=[store] if store else [])

    def _opened_target(self, target: cst.BaseExpression) -> cst.BaseExpression:
        """A target whose parts are evaluated as far as its last break."""
        expressions = self.expressions
        if not expressions.touched(target):
            return target
        if isinstance(target, cst.Attribute):
            return target.with_changes(value=expressions.flatten(target.value))
        parts = [Operand(target.value), *subscript_operands(target)] if isinstance(target, cst.Subscript) else []
        last = max((i for i, part in enumerate(parts) if expressions.touched(part.node)), default=-1)
        return expressions.rebuild(target, parts, last)

    def _augmented(self, node: cst.AugAssign, clean: Mapping[str, object]) -> None:
        """``x.a[i] += <break>``: Python reads the target first, then evaluates the value, then stores."""
        expressions = self.expressions
        own = expressions.marks.stores.get(id(node))
        target = node.target
        if not expressions.touched(node.value) and own is None:
            expressions.emit(node.with_changes(target=self._opened_target(target), **clean))
            return
        if isinstance(target, cst.Name):
            if expressions.stable(target):
                value, breaks = expressions.root(node.value)
                if own is None and breaks:
                    value, breaks = expressions.assign(expressions.temporary(), value, *breaks), []
                elif own is not None and expressions.work(value):
                    value = expressions.assign(expressions.temporary(), value)
                expressions.emit(node.with_changes(value=value, **clean), breaks=[own, *breaks] if own else breaks)
                return
            place: cst.BaseExpression = target
        elif isinstance(target, cst.Attribute):
            place = target.with_changes(value=expressions.keep(Operand(target.value)))
        else:
            subscript = cst.ensure_type(target, cst.Subscript)
            parts = [Operand(subscript.value), *subscript_operands(subscript)]
            place = expressions.rebuild(subscript, [*parts, Operand(cst.Name("None"))], len(parts))
        if not isinstance(target, cst.Name) and own is not None and not expressions.touched(node.value) and not expressions.work(node.value):
            expressions.emit(node.with_changes(target=place, **clean), breaks=[own])
            return
        old = expressions.assign(expressions.temporary(), _reading(place))
        value, breaks = expressions.root(node.value)
        if breaks or own is not None and expressions.work(value):
            value = expressions.assign(expressions.temporary(), value, *breaks)
        expressions.emit(node.with_changes(target=old, value=value, **clean), breaks=[own] if own else [])
        expressions.emit(cst.Assign([cst.AssignTarget(_reading(place))], cst.Name(old.value)))

    def _assert(self, node: cst.Assert, clean: Mapping[str, object]) -> None:
        """The test is pulled out under ``if __debug__``: with -O it is not evaluated at all."""
        expressions = self.expressions
        with expressions.block() as items:
            breaks = expressions.breaks_in(node)
            if not expressions.work(node.test) and not expressions.tests_in(node.test):
                expressions.emit(node.with_changes(**clean), breaks=breaks)
            else:
                message = expressions.breaks_in(node.msg) if node.msg is not None else []
                eager = expressions.tests_in(node.test) or bool(message) or id(node.test) in expressions.marks.values
                test, breaks = expressions.tested(node.test)
                expressions.emit(node.with_changes(test=test, **clean), breaks=[*breaks, *message] if eager else [])
        if len(items) == 1:
            expressions.out += items
        else:
            expressions.emit_if(cst.Name("__debug__"), items)

    def _raise(self, node: cst.Raise, clean: Mapping[str, object]) -> None:
        expressions = self.expressions
        assert node.exc is not None
        if node.cause is None or not expressions.touched(node.cause.item):
            value, breaks = expressions.root(node.exc)
            if breaks and node.cause is not None:
                value, breaks = expressions.assign(expressions.temporary(), value, *breaks), []
            expressions.emit(node.with_changes(exc=value, **clean), breaks=breaks)
            return
        value = expressions.keep(Operand(node.exc))
        cause, breaks = expressions.root(node.cause.item)
        expressions.emit(node.with_changes(exc=value, cause=node.cause.with_changes(item=cause), **clean), breaks=breaks)

    def _delete(self, node: cst.Del) -> None:
        target = node.target
        for each in [element.value for element in target.elements] if isinstance(target, cst.Tuple) else [target]:
            mark = self.expressions.marks.values.get(id(each))
            opened = self._opened_target(each)
            self.expressions.emit(cst.Del(opened), breaks=[mark] if mark else [])

    # -- compound statements -----------------------------------------------------------------------------------------------------------
    def opened(self, leaf: Leaf) -> list[Item]:
        """A compound statement without a break, as Python around items; the statements of a line, one by one."""
        if isinstance(leaf.node, cst.SimpleStatementLine):
            return [Leaf(leaf.node.with_changes(body=[small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]), leaf.origin, tree=[tree])
                    for small, tree in zip(leaf.node.body, leaf.tree, strict=True)]
        assert isinstance(leaf.node, COMPOUNDS)
        self.expressions.begin(leaf.origin, cst.Pass())
        with self.expressions.block() as items:
            self._compound(leaf.node, leaf.origin)
        return items

    def _compound(self, node: cst.BaseCompoundStatement, origin: tuple[int, int]) -> None:
        expressions = self.expressions
        header = node.items[-1] if isinstance(node, cst.With) else _header(node)
        origin = (origin[0], max(origin[0], self.text.origin(header)[1]) if header in self.text.positions else origin[0])
        expressions.begin(origin, _header(node))
        lines = node.leading_lines                             # type: ignore[attr-defined]
        start = len(expressions.out)
        own = expressions.marks.open.get(id(node))
        breaks = [own] if own else []
        if isinstance(node, cst.If):
            test, more = expressions.tested(node.test)
            breaks += more
            header = node.with_changes(test=test)
            self._add(header, origin, breaks)
        elif isinstance(node, cst.While):
            self._while(node, origin, breaks)
        elif isinstance(node, cst.For):
            self._for(node, origin, breaks)
        elif isinstance(node, cst.With):
            self._with(node, origin, breaks)
        elif isinstance(node, cst.Match):
            breaks += [found for case in node.cases if case.guard is not None for found in expressions.breaks_in(case.guard)]
            subject, more = expressions.root(node.subject)
            self._add(node.with_changes(subject=subject), origin, breaks + more)
        else:
            handlers = node.handlers                           # type: ignore[attr-defined]
            breaks += [found for handler in handlers if handler.type is not None for found in expressions.breaks_in(handler.type)]
            self._add(node, origin, breaks)
        first = expressions.out[start]
        if first.node.leading_lines is not lines:              # type: ignore[union-attr]
            for item in expressions.out[start:]:
                if item is not first and isinstance(item, Compound):
                    item.node = item.node.with_changes(leading_lines=[])
            first.node = first.node.with_changes(leading_lines=lines)

    def _add(self, header: cst.CSTNode, origin: tuple[int, int], breaks: list[Break]) -> None:
        """Emits a compound statement with its blocks split."""
        expressions = self.expressions
        blocks: list[list[Item] | None] = []
        for block in blocks_of(header):
            if block is None:
                blocks.append(None)
            else:
                blocks.append(self.block([block] if isinstance(block, cst.If) else block_statements(block)))
        header = expressions.wrap_calls(header)
        expressions.out.append(Compound(header, origin, blocks, breaks))             # type: ignore[arg-type]

    def _while(self, node: cst.While, origin: tuple[int, int], breaks: list[Break]) -> None:
        """``while test: body`` -> ``while True: _t0 = test`` / ``if not _t0: break`` / ``body`` (a flag for ``else``, which ``break`` skips)."""
        expressions = self.expressions
        if not expressions.touched(node.test) or not expressions.work(node.test) and not expressions.tests_in(node.test):
            self._add(node, origin, breaks + expressions.breaks_in(node.test))
            return
        flag = ""
        if node.orelse is not None:
            flag = f"{expressions.scope.temporary}else{self.flags}"
            self.flags += 1
            expressions.assign(flag, cst.Name("False"))
        with expressions.block() as body:
            test, more = expressions.tested(node.test)
            breaks += more
            with expressions.block() as leave:
                if flag:
                    expressions.assign(flag, cst.Name("True"))
                expressions.emit(cst.Break())
            inverse = test.expression if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not) else cst.UnaryOperation(
                cst.Not(), test if isinstance(test, cst.Comparison) else operand(test))
            expressions.emit_if(inverse, leave, None, *breaks)
        body += self.block(block_statements(node.body))
        header = node.with_changes(test=cst.Name("True"), body=placeholder(), orelse=None)
        expressions.out.append(Compound(header, origin, [body, None]))
        if node.orelse is not None:
            expressions.emit_if(cst.Name(flag), self.block(block_statements(node.orelse.body)))

    def _for(self, node: cst.For, origin: tuple[int, int], breaks: list[Break]) -> None:
        expressions = self.expressions
        header: cst.For = node
        if expressions.touched(node.iter):
            value, more = expressions.root(node.iter)
            breaks += more
            header = header.with_changes(iter=value)
        elif has_work(node.iter, _subscripts(node.iter)):
            header = header.with_changes(iter=self._iterated(node.iter))
        self._targeted(header, node.target, origin, breaks)

    def _iterated(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """A loop's iterable with its work pulled out: an iterator over values is made by the loop, as none can leave a region."""
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in _ITERATORS and all(
                not argument.star and (isinstance(argument.value, cst.Name) or has_work(argument.value)) for argument in node.args):
            return node.with_changes(args=[argument if isinstance(argument.value, cst.Name) else
                                           argument.with_changes(value=self._iterated(argument.value)) for argument in node.args])
        return self.expressions.assign(self.expressions.temporary(), node)

    def _targeted(self, header: cst.For, target: cst.BaseExpression, origin: tuple[int, int], breaks: list[Break]) -> None:
        expressions = self.expressions
        if not expressions.touched(target):
            self._add(header, origin, breaks)
            return
        name = expressions.temporary()
        with expressions.block() as body:
            self._store(target, cst.Name(name), None)
        self._add(header.with_changes(target=cst.Name(name)), origin, breaks)
        item = expressions.out[-1]
        assert isinstance(item, Compound)
        item.blocks[0] = body + (item.blocks[0] or [])

    def _with(self, node: cst.With, origin: tuple[int, int], breaks: list[Break]) -> None:
        """A break in a later item is inside the earlier ones: ``with a, b`` -> ``with a:`` / ``with b:``."""
        expressions = self.expressions
        if len(node.items) > 1 and any(expressions.touched(item) for item in node.items[1:]):
            head = node.with_changes(items=[node.items[0].with_changes(comma=cst.MaybeSentinel.DEFAULT)], body=placeholder(),
                                     lpar=cst.MaybeSentinel.DEFAULT, rpar=cst.MaybeSentinel.DEFAULT)
            rest = node.with_changes(items=node.items[1:], leading_lines=[], lpar=cst.MaybeSentinel.DEFAULT, rpar=cst.MaybeSentinel.DEFAULT)
            self._with(head, origin, breaks)
            item = expressions.out[-1]
            assert isinstance(item, Compound)
            with expressions.block() as body:
                self._with(rest, origin, [])
            item.blocks[0] = body
            return
        first = node.items[0]
        header = node
        stored: list[Item] = []
        if expressions.touched(first.item):
            value, more = expressions.root(first.item)
            breaks += more
            header = header.with_changes(items=[first.with_changes(item=value), *node.items[1:]])
        if first.asname is not None and expressions.touched(first.asname.name):
            name = expressions.temporary()
            with expressions.block() as stored:
                self._store(first.asname.name, cst.Name(name), None)
            first = header.items[0]
            assert first.asname is not None
            header = header.with_changes(items=[first.with_changes(asname=first.asname.with_changes(name=cst.Name(name))), *node.items[1:]])
        self._add(header, origin, breaks)
        item = expressions.out[-1]
        assert isinstance(item, Compound)
        item.blocks[0] = stored + (item.blocks[0] or [])


_ITERATORS = frozenset({"enumerate", "zip", "reversed", "iter"})


def _header(node: cst.CSTNode) -> cst.CSTNode:
    """The expression of a compound statement that is evaluated first, once."""
    if isinstance(node, (cst.If, cst.While)):
        return node.test
    return node.iter if isinstance(node, cst.For) else node.subject if isinstance(node, cst.Match) else cst.Pass()


def _subscripts(node: cst.CSTNode) -> set[int]:
    """Subscripts alone do not make a loop's iterable worth pulling out (``self.layers[1:]``)."""
    return {id(each) for each in walk(node) if isinstance(each, cst.Subscript)}


def _reading(place: cst.BaseExpression) -> cst.BaseExpression:
    """A copy of a target made of names, to be evaluated once more."""
    return place.deep_clone()


