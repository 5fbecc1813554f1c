"""Relations between sizes that tracing relied on, as guard records over the variant's symbols."""
from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Iterable, Mapping

import sympy
from torch.utils._sympy import functions as torch_sympy

from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.ir.guards import Guard

_RELATIONS = {sympy.Eq: "==", sympy.Ne: "!=", sympy.StrictLessThan: "<", sympy.LessThan: "<=", sympy.StrictGreaterThan: ">", sympy.GreaterThan: ">="}


def expression_guards(relations: Iterable[Any], known: Iterable[str], hints: Mapping[Any, Any]) -> tuple[Guard, ...]:
    """Guards of kind "expression" for sympy relations, each once, without those whose text is in ``known``. One that has no text form
    (``s0**0.145 < 9``) fixes its symbols to their example values, the ``hints``.

    Raises UnsupportedGraph (AOT315) where those are no integers."""
    texts: dict[str, None] = {}
    for relation in relations:
        for part in sympy.And.make_args(relation):
            part = _reduced(part)
            if part is not sympy.true:
                texts.update(dict.fromkeys(_texts(part, hints)))
    already = set(known)
    return tuple(Guard("expression", None, text) for text in texts if text not in already)


def _texts(relation: Any, hints: Mapping[Any, Any]) -> list[str]:
    try:
        return [relation_text(relation)]
    except UnsupportedGraph:
        values = {symbol: hints.get(symbol) for symbol in sorted(relation.free_symbols, key=str)}
        if not values or not all(isinstance(value, (int, sympy.Integer)) for value in values.values()):
            raise
        return [f"{symbol} == {value}" for symbol, value in values.items()]


def _reduced(relation: Any) -> Any:
    """``4*s0 != 0`` -> ``s0 != 0``, ``9*s0 != 1`` -> true: sizes are integers."""
    if type(relation) not in _RELATIONS or not relation.rhs.is_Integer:
        return relation
    factor, rest = relation.lhs.as_coeff_Mul()
    if not factor.is_Integer or factor <= 1:
        return relation
    quotient, remainder = divmod(int(relation.rhs), int(factor))
    if isinstance(relation, (sympy.Eq, sympy.Ne)):
        return type(relation)(rest, quotient) if remainder == 0 else sympy.sympify(isinstance(relation, sympy.Ne))
    if remainder and isinstance(relation, (sympy.StrictLessThan, sympy.GreaterThan)):
        quotient += 1                                            # 4*s0 < 9 is s0 < 3, 4*s0 >= 9 is s0 >= 3
    return type(relation)(rest, quotient)


def relation_text(relation: Any) -> str:
    """"s0 == 2*s1", Python over integer symbols; with ``and``, ``or``, ``not`` where the relation is compound."""
    sign = _RELATIONS.get(type(relation))
    if sign:
        return f"{size_text(relation.lhs)} {sign} {size_text(relation.rhs)}"
    if isinstance(relation, (sympy.Or, sympy.And)):
        word = " or " if isinstance(relation, sympy.Or) else " and "
        return word.join(sorted(f"({relation_text(part)})" for part in relation.args))
    if isinstance(relation, sympy.Not):
        return f"not ({relation_text(relation.args[0])})"
    raise UnsupportedGraph("AOT315", f"tracing depends on the size relation {relation}, which has no text form.")


def size_text(value: Any) -> str:
    """A sympy size expression as text of `ir.expression`. Raises UnsupportedGraph (AOT315) for a function that the grammar does not have."""
    if isinstance(value, (sympy.Integer, int)):
        return str(int(value))
    if isinstance(value, sympy.Symbol):
        return str(value.name)
    if isinstance(value, sympy.Add):
        terms = sorted((size_text(term) for term in value.args), key=lambda text: (text.lstrip("-").isdigit(), text))
        return " + ".join(terms).replace("+ -", "- ")
    if isinstance(value, sympy.Mul):
        factors = sorted(value.args, key=lambda factor: (not factor.is_Integer, str(factor)))
        return "*".join(_operand(factor) for factor in factors)
    if isinstance(value, sympy.Pow) and value.exp.is_Integer and value.exp > 0:
        return "*".join([_operand(value.base)] * int(value.exp))
    if isinstance(value, (torch_sympy.FloorDiv, torch_sympy.CleanDiv)):
        return f"({_operand(value.args[0])} // {_operand(value.args[1])})"
    if isinstance(value, (torch_sympy.Mod, torch_sympy.PythonMod, sympy.Mod)):
        return f"({_operand(value.args[0])} % {_operand(value.args[1])})"
    if isinstance(value, (sympy.Max, sympy.Min, torch_sympy.Max, torch_sympy.Min)):
        name = "max" if isinstance(value, (sympy.Max, torch_sympy.Max)) else "min"
        text, *rest = sorted(size_text(item) for item in value.args)
        for item in rest:
            text = f"{name}({text}, {item})"
        return text
    if isinstance(value, (torch_sympy.TruncToInt, torch_sympy.FloorToInt)) and (scaled := _scaled(value.args[0])) is not None:
        numerator, denominator, size = scaled
        return f"({_operand(size) if numerator == 1 else f'{numerator}*{_operand(size)}'} // {denominator})"
    if isinstance(value, torch_sympy.ModularIndexing):
        base, divisor, modulus = map(_operand, value.args)
        return f"(({base} // {divisor}) % {modulus})"
    raise UnsupportedGraph("AOT315", f"tracing depends on the size expression {value}, which has no text form.")


def _scaled(value: Any) -> tuple[int, int, Any] | None:
    """(p, q, size) of ``0.5*ToFloat(size)`` where the factor p/q is a multiple of a small power of 2: then the product in floats is exact."""
    factors = sympy.Mul.make_args(value)
    sizes = [factor.args[0] for factor in factors if isinstance(factor, torch_sympy.ToFloat)]
    scale = Fraction(math.prod(float(factor) for factor in factors if factor.is_number))
    if len(sizes) != 1 or len([factor for factor in factors if not factor.is_number]) != 1 or scale < 0:
        return None
    return (scale.numerator, scale.denominator, sizes[0]) if scale.denominator <= 1024 and scale.numerator <= 1024 else None


def _operand(value: Any) -> str:
    text = size_text(value)
    return f"({text})" if isinstance(value, (sympy.Add, sympy.Mul)) or text.startswith("-") and not getattr(value, "is_Integer", False) else text
