"""Renaming inside pieces of source, exact in whitespace (libcst), f-strings included.

rewrite: `_r0(self, x)` -> `_Net_forward_r0(self, x)`. Private names (`self.__cache`) are `self._Net__cache` in the split text already.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping

import libcst


class _Renamer(libcst.CSTTransformer):
    """``renames``: variable name -> expression text. Attributes and keywords of calls keep their names."""

    def __init__(self, renames: Mapping[str, str]) -> None:
        super().__init__()
        self._expressions = {name: libcst.parse_expression(text) for name, text in renames.items()}
        self._kept: set[libcst.CSTNode] = set()

    def visit_Attribute(self, node: libcst.Attribute) -> None:
        self._kept.add(node.attr)

    def visit_Arg(self, node: libcst.Arg) -> None:
        if node.keyword is not None:
            self._kept.add(node.keyword)

    def leave_Name(self, original_node: libcst.Name, updated_node: libcst.Name) -> libcst.BaseExpression:
        expression = self._expressions.get(original_node.value)
        if expression is None or original_node in self._kept:
            return updated_node
        if isinstance(expression, libcst.Name):            # keeps the parentheses around the name
            return updated_node.with_changes(value=expression.value)
        return expression


class _Unwrapper(libcst.CSTTransformer):
    """``_call_0(self.block)(x)`` -> ``self.block(x)``, or ``_callee(self.block)(x)`` for a wrapper that ``kept`` gives a name."""

    def __init__(self, wrappers: Collection[str], kept: Mapping[str, str]) -> None:
        super().__init__()
        self._wrappers, self._kept = wrappers, kept

    def leave_Call(self, original_node: libcst.Call, updated_node: libcst.Call) -> libcst.BaseExpression:
        function = updated_node.func
        if not isinstance(function, libcst.Name) or function.value not in self._wrappers:
            return updated_node
        if function.value in self._kept:
            return updated_node.with_changes(func=function.with_changes(value=self._kept[function.value]))
        callee = updated_node.args[0].value
        atomic = isinstance(callee, (libcst.Name, libcst.Attribute, libcst.Call, libcst.Subscript)) or callee.lpar
        return callee if atomic else callee.with_changes(lpar=[libcst.LeftParen()], rpar=[libcst.RightParen()])


def rename_variables(text: str, renames: Mapping[str, str]) -> str:
    """``text`` with every use of the variables in ``renames`` replaced by the expression given."""
    if not any(name in text for name in renames):
        return text
    return libcst.parse_module(text).visit(_Renamer(renames)).code


def unwrap_calls(text: str, calls: Collection[int], kept: Collection[int] = (), helper: str = "") -> str:
    """``text`` with the splitter's ``_call_<N>(callee)`` taken off: in a generated package a callee's own name leads to its rewritten form. Those of
    ``kept``, whose callees are of other packages, become ``helper(callee)``."""
    if not calls:
        return text
    return libcst.parse_module(text).visit(_Unwrapper({f"_call_{number}" for number in calls}, {f"_call_{number}": helper for number in kept})).code
