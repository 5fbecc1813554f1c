"""Operations that run a split function, written as calls that lead to its twin (`runtime/twins/operations.py`).

    left + right        ->   _call_0("+")(left, right)            left.__add__ has a break of its own
    self.scale          ->   _call_1(".")(self, "scale")          a property
    for x in loader     ->   for x in _call_2("iter")(loader)     loader.__iter__ or __next__
"""
from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

_BINARY: dict[type[cst.CSTNode], str] = {
    cst.Add: "+", cst.Subtract: "-", cst.Multiply: "*", cst.Divide: "/", cst.FloorDivide: "//", cst.Modulo: "%", cst.Power: "**",
    cst.MatrixMultiply: "@", cst.BitAnd: "&", cst.BitOr: "|", cst.BitXor: "^", cst.LeftShift: "<<", cst.RightShift: ">>",
    cst.AddAssign: "+=", cst.SubtractAssign: "-=", cst.MultiplyAssign: "*=", cst.DivideAssign: "/=", cst.FloorDivideAssign: "//=",
    cst.ModuloAssign: "%=", cst.PowerAssign: "**=", cst.MatrixMultiplyAssign: "@=", cst.BitAndAssign: "&=", cst.BitOrAssign: "|=",
    cst.BitXorAssign: "^=", cst.LeftShiftAssign: "<<=", cst.RightShiftAssign: ">>="}
_COMPARISONS: dict[type[cst.CSTNode], str] = {
    cst.LessThan: "<", cst.LessThanEqual: "<=", cst.Equal: "==", cst.NotEqual: "!=", cst.GreaterThan: ">", cst.GreaterThanEqual: ">=",
    cst.In: "in", cst.NotIn: "not in"}
_UNARY: dict[type[cst.CSTNode], str] = {cst.Minus: "-x", cst.Plus: "+x", cst.BitInvert: "~x"}
_ITERATES = (".__iter__", ".__next__")

Written = tuple[str, list[cst.BaseExpression]]
"""An operation's symbol, and its operands in the order in which they are evaluated."""


def iterates(callee: str) -> bool:
    """Whether a callee is run by a loop over the expression at hand."""
    return callee.endswith(_ITERATES)


def written(node: cst.CSTNode) -> Written | None:
    """The operation of a node that is no call; None for one that cannot be written as a call."""
    if isinstance(node, cst.BinaryOperation):
        return _BINARY[type(node.operator)], [node.left, node.right]
    if isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Name):
        return _BINARY[type(node.operator)], [node.target, node.value]
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1 and type(node.comparisons[0].operator) in _COMPARISONS:
        return _COMPARISONS[type(node.comparisons[0].operator)], [node.left, node.comparisons[0].comparator]
    if isinstance(node, cst.UnaryOperation) and type(node.operator) in _UNARY:
        return _UNARY[type(node.operator)], [node.expression]
    return _of_place(node)


def _of_place(node: cst.CSTNode) -> Written | None:
    if isinstance(node, cst.Attribute):
        name = node.attr.value
        is_private = name.startswith("__") and not name.endswith("__")          # Python changes it, and would not change a text
        return None if is_private else (".", [node.value, cst.SimpleString(f'"{name}"')])
    if isinstance(node, cst.Subscript):
        key = _key(node.slice)
        return None if key is None else ("[]", [node.value, key])
    return None


def _key(elements: Sequence[cst.SubscriptElement]) -> cst.BaseExpression | None:
    parts = [element.slice for element in elements]
    if not all(isinstance(part, cst.Index) and not part.star for part in parts):
        return None
    values = [cst.ensure_type(part, cst.Index).value for part in parts]
    if len(values) == 1 and not isinstance(elements[0].comma, cst.Comma):
        return values[0]
    return cst.Tuple([cst.Element(value) for value in values])


def as_call(number: int, operation: Written, *more: cst.BaseExpression) -> cst.Call:
    """``_call_<number>("+")(left, right)``."""
    symbol, operands = operation
    made = cst.Call(cst.Name(f"_call_{number}"), [cst.Arg(cst.SimpleString(f'"{symbol}"'))])
    return cst.Call(made, [cst.Arg(operand) for operand in (*operands, *more)])


__all__ = ["Written", "as_call", "iterates", "written"]
