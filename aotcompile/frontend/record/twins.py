"""Split functions brought to life for recording: the rewritten function in the original's globals and closure, with recording stubs as ``_r<N>``.

Truth tests of the rewritten function are wrapped (``if t:`` -> ``if _explore(3, t):``) so that a run can look at both sides of a branch on data.
"""
from __future__ import annotations

import ast
import types
from typing import Any, Callable

from aotcompile.frontend.bytecode.twin import BytecodeTwinCode
from aotcompile.frontend.record.data_tests import DataTests, Origin
from aotcompile.frontend.types import SplitSource

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FUTURE = 0x1000000 | 0x800000 | 0x400000


class TwinCode:
    """The code objects of one split text. ``file`` names the text in positions."""

    def __init__(self, split: SplitSource, original: types.CodeType, file: str) -> None:
        self.eager_names = [region.name for region in split.regions]
        tree = ast.parse(split.text)
        definitions = [node for node in tree.body if isinstance(node, _DEFINITIONS)]
        rewritten = [node for node in definitions if node.name not in self.eager_names][-1]
        rewritten.name = "_rewritten"           # not its own: a function that calls itself means the global, or a cell of the original
        explored = _Explore(DataTests(rewritten))
        explored.visit(rewritten)
        self.origins = explored.origins         # of each truth test by number
        # What else the text defines (the marker for variables without a value) is made once and reached through cells, like the stubs.
        helpers = [node for node in tree.body if not isinstance(node, _DEFINITIONS)]
        self.helpers: dict[str, Any] = {}
        exec(compile(ast.Module(helpers, []), file, "exec", dont_inherit=True), self.helpers)
        del self.helpers["__builtins__"]
        tree.body = [node for node in tree.body if node not in helpers]
        self.extra = [f"_r{region.index}" for region in split.regions] + [f"_call_{number}" for number in split.calls] + ["_explore"]
        parameters = list(dict.fromkeys([*original.co_freevars, *self.extra, *self.helpers]))
        factory = ast.parse(f"def factory({', '.join(parameters)}):\n    pass")
        holder = factory.body[0]
        assert isinstance(holder, ast.FunctionDef)
        holder.body = tree.body
        ast.fix_missing_locations(factory)
        module = compile(factory, file, "exec", dont_inherit=True, flags=original.co_flags & _FUTURE)
        outer = next(c for c in module.co_consts if isinstance(c, types.CodeType) and c.co_name == "factory")
        inside = {c.co_name: c for c in outer.co_consts if isinstance(c, types.CodeType)}
        self.function = _named(inside[rewritten.name], original.co_qualname, original.co_name)
        self.eager = {name: _named(inside[name], original.co_qualname).replace(co_qualname=name) for name in self.eager_names}


def _named(code: types.CodeType, qualname: str, name: str | None = None) -> types.CodeType:
    """``code`` under another qualified name, and with it what is defined inside."""
    inner = tuple(_named(each, qualname + each.co_qualname.removeprefix(code.co_qualname)) if isinstance(each, types.CodeType) else each
                  for each in code.co_consts)
    return code.replace(co_qualname=qualname, co_name=name or code.co_name, co_consts=inner)


class _Explore(ast.NodeTransformer):
    """Wraps the tests of if and while statements, innermost operand of ``not`` first."""

    def __init__(self, data: DataTests) -> None:
        self._count = 0
        self._data = data
        self.origins: dict[int, frozenset[Origin]] = {}

    def _wrap(self, test: ast.expr) -> ast.expr:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test.operand = self._wrap(test.operand)
            return test
        self._count += 1
        self.origins[self._count] = self._data.origins(test)
        call = ast.Call(ast.Name("_explore", ast.Load()), [ast.Constant(self._count), test], [])
        return ast.copy_location(call, test)

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.test = self._wrap(node.test)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.test, ast.Constant):
            node.test = self._wrap(node.test)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self.generic_visit(node) if self._count == 0 and not hasattr(self, "_inside") and self._enter() else node

    visit_AsyncFunctionDef = visit_FunctionDef           # type: ignore[assignment]

    def _enter(self) -> bool:
        self._inside = True
        return True


def make_twin(code: TwinCode | BytecodeTwinCode, original: types.FunctionType, stub: Callable[[str, types.FunctionType], Any], call: Any,
              explore: Any) -> types.FunctionType:
    """``stub(eager name, eager function)`` makes what ``_r<N>`` is; ``call`` is what every ``_call_<N>`` is."""
    cells = dict(zip(original.__code__.co_freevars, original.__closure__ or ()))
    for name in code.extra:
        if name.startswith("_call_"):
            cells[name] = types.CellType(call)
    cells["_explore"] = types.CellType(explore)
    cells.update({name: types.CellType(value) for name, value in code.helpers.items()})
    for name, eager_code in code.eager.items():
        eager = types.FunctionType(eager_code, original.__globals__, name, None, _closure(eager_code, cells))
        eager.__module__ = original.__module__
        cells[name.removesuffix("_eager")] = types.CellType(stub(name, eager))
    twin = types.FunctionType(code.function, original.__globals__, original.__name__, original.__defaults__, _closure(code.function, cells))
    twin.__kwdefaults__ = original.__kwdefaults__
    twin.__module__ = original.__module__
    return twin


def _closure(code: types.CodeType, cells: dict[str, types.CellType]) -> tuple[types.CellType, ...] | None:
    return tuple(cells[name] for name in code.co_freevars) or None
