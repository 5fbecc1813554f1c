"""What may be tensor work, and what an expression consists of in its order of evaluation (on libcst nodes)."""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Literal

import libcst as cst

from aotcompile.frontend.split.text import COMPREHENSIONS, walk

PLAIN_BUILTINS = frozenset({
    "len", "isinstance", "issubclass", "range", "enumerate", "zip", "hasattr", "getattr", "type", "callable", "id", "str", "repr", "int", "float",
    "bool", "super", "reversed", "print", "iter", "next", "list", "tuple", "dict", "set", "format", "locals"})
"""Builtins that compute no tensor by themselves (their arguments may)."""
PLAIN_METHODS = frozenset({
    "items", "keys", "values", "children", "named_children", "modules", "named_modules", "parameters", "named_parameters", "buffers", "named_buffers",
    "append", "format", "join", "get", "setdefault"})
LITERALS = (cst.Integer, cst.Float, cst.Imaginary, cst.SimpleString, cst.Ellipsis)


def is_literal(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.UnaryOperation):
        return is_literal(node.expression)
    if isinstance(node, cst.ConcatenatedString):
        return is_literal(node.left) and is_literal(node.right)
    return isinstance(node, LITERALS) or isinstance(node, cst.Name) and node.value in ("True", "False", "None")


def dotted(node: cst.CSTNode) -> str:
    """``a.b.c`` as text if the node is just names and dots, else ""."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""


def is_work(node: cst.CSTNode) -> bool:
    """Whether the operation of this node itself may be one on tensors."""
    if isinstance(node, cst.Call):
        func = node.func
        if isinstance(func, cst.Name):
            return func.value not in PLAIN_BUILTINS
        return not (isinstance(func, cst.Attribute) and func.attr.value in PLAIN_METHODS)
    if isinstance(node, cst.BinaryOperation):
        return not (is_literal(node.left) and is_literal(node.right)) and not isinstance(node.left, (cst.SimpleString, cst.FormattedString))
    if isinstance(node, cst.UnaryOperation):
        return not isinstance(node.operator, cst.Not) and not is_literal(node.expression)
    if isinstance(node, cst.Comparison):
        return any(not isinstance(each.operator, (cst.Is, cst.IsNot, cst.In, cst.NotIn)) for each in node.comparisons)
    return isinstance(node, (cst.Subscript, cst.AugAssign))


def has_work(node: cst.CSTNode, outside: Collection[int] = ()) -> bool:
    """Whether anything in the node may be tensor work; ``outside``: ids of nodes whose own operation does not count (breaks)."""
    if isinstance(node, (cst.Lambda, cst.FunctionDef, cst.ClassDef, cst.Raise, cst.Annotation, cst.Del)):
        return False
    if isinstance(node, cst.AssignTarget) and isinstance(node.target, cst.Subscript):
        return True
    if id(node) in outside and isinstance(node, COMPREHENSIONS):
        return has_work(node.for_in.iter, outside)
    if id(node) not in outside and is_work(node):
        return True
    return any(has_work(child, outside) for child in node.children)


@dataclass(frozen=True)
class Operand:
    """One evaluated part of an expression. ``unpack``: it is iterated ("*") or merged ("**") at once, so a value kept is kept unpacked."""

    node: cst.BaseExpression
    unpack: Literal["", "*", "**"] = ""


def operands(node: cst.CSTNode) -> list[Operand]:
    """The parts of an expression that are always evaluated, in order (a call's function first; of and/or and conditional expressions the first)."""
    if isinstance(node, cst.Attribute):
        return [Operand(node.value)]
    if isinstance(node, cst.Subscript):
        return [Operand(node.value), *subscript_operands(node)]
    if isinstance(node, cst.Call):
        return [Operand(node.func), *_arguments(node)]
    if isinstance(node, cst.BinaryOperation):
        return [Operand(node.left), Operand(node.right)]
    if isinstance(node, cst.BooleanOperation):
        left = node.left
        while isinstance(left, cst.BooleanOperation) and type(left.operator) is type(node.operator):
            left = left.left                                   # a value on its way through the chain is tested once
        return [Operand(left)]
    if isinstance(node, cst.UnaryOperation):
        return [Operand(node.expression)]
    if isinstance(node, cst.Comparison):
        return [Operand(node.left), Operand(node.comparisons[0].comparator)]
    if isinstance(node, cst.IfExp):
        return [Operand(node.test)]
    if isinstance(node, cst.NamedExpr):
        return [Operand(node.value)]
    if isinstance(node, (cst.Tuple, cst.List, cst.Set)):
        return [Operand(element.value, "*" if isinstance(element, cst.StarredElement) else "") for element in node.elements]
    if isinstance(node, cst.Dict):
        found: list[Operand] = []
        for element in node.elements:
            found += [Operand(element.key), Operand(element.value)] if isinstance(element, cst.DictElement) else [Operand(element.value, "**")]
        return found
    if isinstance(node, COMPREHENSIONS):
        return [Operand(node.for_in.iter)]
    if isinstance(node, cst.FormattedString):
        first = next((part for part in node.parts if isinstance(part, cst.FormattedStringExpression)), None)
        return [Operand(first.expression)] if first else []
    return []


def subscript_operands(node: cst.Subscript) -> list[Operand]:
    found: list[Operand] = []
    for element in node.slice:
        part = element.slice
        if isinstance(part, cst.Index):
            found.append(Operand(part.value, "*" if part.star else ""))
        else:
            bounds = cst.ensure_type(part, cst.Slice)
            found += [Operand(each) for each in (bounds.lower, bounds.upper, bounds.step) if each is not None]
    return found


def _arguments(call: cst.Call) -> list[Operand]:
    """CPython evaluates positional arguments before keywords, wherever they stand; a lone ``*x`` is unpacked only by the call itself."""
    positional = [each for each in call.args if each.keyword is None and each.star != "**"]
    keywords = [each for each in call.args if each.keyword is not None or each.star == "**"]
    lone = len(positional) == 1
    found = [Operand(each.value, "*" if each.star == "*" and not lone else "") for each in positional]
    return found + [Operand(each.value, "**" if each.star == "**" else "") for each in keywords]


@cache
def deferred_methods() -> frozenset[str]:
    """Names of methods of tensors and of Python's containers: looking one up has no effect, and nobody replaces one in the middle of a call."""
    from torch import Tensor
    names: set[str] = set()
    for each in (Tensor, list, dict, set, str, tuple):
        names |= {name for name in dir(each) if not name.startswith("_") and callable(getattr(each, name, None))}
    return frozenset(names)


def walrus_targets(node: cst.CSTNode) -> set[str]:
    return {each.target.value for each in walk(node) if isinstance(each, cst.NamedExpr) and isinstance(each.target, cst.Name)}
