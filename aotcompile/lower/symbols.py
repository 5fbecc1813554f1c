"""Sizes and Python numbers: the one place that reads sympy.

torch keeps a symbolic size as a sympy expression. Here it becomes an index `Expression`; a number that came out of ``.item()``, or went through float
arithmetic, becomes a `Value` (`ScalarValue`), computed where it is used::

    s0 // 2 + 1                    ->   Expression  (s0 // 2) + 1
    TruncToInt(ToFloat(s0)*0.5)    ->   Value, and, where it is a size: a 0-dim buffer and a ReadScalar
    u0 (u0 = x.item())*2.0         ->   Value that loads x's one element
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import ONE, Expression, Integer, Symbol, add, floor_divide, maximum, minimum, modulo, multiply
from aotcompile.ir.nodes import Apply, Cast, Comparison, Constant, IndexValue, Origin, ReadScalar, Value
from aotcompile.lower.torch_private import expression_as_traced

if TYPE_CHECKING:
    from aotcompile.lower.context import Context
    from aotcompile.lower.tensors import Tensor

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class NotAnIndex(Exception):
    """The sympy expression has no form as an index expression."""


@dataclass(frozen=True)
class ScalarValue:
    """A Python number known only at run time; ``dtype`` is i64, f64 or b8. ``value`` is independent of any loop."""

    dtype: DType
    value: Value

    @property
    def category(self) -> type:
        return {DType.i64: int, DType.f64: float, DType.b8: bool}[self.dtype]


class SymbolTable:
    """How each of the fake run's symbols is had in the program."""

    def __init__(self) -> None:
        self.sizes: dict[str, Expression] = {}  # bound: by an input's dimension, or read from a buffer
        self.items: dict[str, Tensor] = {}  # .item() results: the one-element tensor
        self._ranges: dict[str, tuple[int | None, int | None]] = {}
        self._noted: set[Any] = set()
        self._indices: dict[Any, Expression] = {}
        self.computed: dict[str, Expression] = {}  # sizes with float arithmetic in them, by text
        self._made = 0

    def ranges(self) -> dict[str, tuple[int | None, int | None]]:
        """Inclusive bounds of the symbols seen so far (of an ``.item()`` result: perhaps none below)."""
        return self._ranges

    def is_bound(self, name: str) -> bool:
        return name in self.sizes

    def is_unknown(self, number: torch.SymInt) -> bool:
        """Whether a size has a symbol that nothing defines yet."""
        return any(not self.is_bound(symbol.name) and symbol.name not in self.items
                   for expression in (self.note(number), expression_as_traced(number)) for symbol in expression.free_symbols)

    def bind(self, name: str, expression: Expression) -> None:
        self.sizes[name] = expression

    def note(self, number: Any) -> Any:
        """The sympy expression of a SymInt/SymFloat/SymBool; remembers the ranges of its symbols."""
        expression = number.node.expr
        environment = number.node.shape_env
        if expression not in self._noted:
            self._noted.add(expression)
            for symbol in sorted(expression.free_symbols, key=lambda symbol: symbol.name):
                if symbol.name not in self._ranges and environment is not None and symbol in environment.var_to_range:
                    bounds = environment.var_to_range[symbol]
                    self._ranges[symbol.name] = (_bound(bounds.lower, None), _bound(bounds.upper, None))
        return expression

    def index(self, sympy_expression: Any, context: "Context | None") -> Expression:
        """As an index expression. An ``.item()`` symbol is read (a `ReadScalar`) where this is its first use as one. Raises NotAnIndex."""

        def leaf(name: str) -> Expression:
            if name not in self.sizes and name in self.items and context is not None:
                self.read(Symbol(name), context, self.items[name])
            if name not in self.sizes:
                raise AotCompileError(Diagnostic("AOT403", "error", f"the size {name} is not known from any input"))
            return self.sizes[name]

        if sympy_expression not in self._indices:
            self._indices[sympy_expression] = _index(sympy_expression, leaf)
        return self._indices[sympy_expression]

    def read(self, symbol: Symbol, context: "Context", tensor: "Tensor") -> Symbol:
        """Emit the ReadScalar that binds ``symbol`` to the value of a one-element tensor."""
        self.sizes[symbol.name] = symbol
        context.emit(ReadScalar(symbol, context.realize(tensor)))
        return symbol

    def new_symbol(self) -> Symbol:
        """A symbol that is none of the fake run's."""
        self._made += 1
        return Symbol(f"v{self._made - 1}")

    def scalar(self, sympy_expression: Any) -> Value:
        """As a value: i64, f64 or b8."""
        return _ValueBuilder(self).build(sympy_expression)

    def item(self, sympy_expression: Any, tensor: "Tensor") -> None:
        """``sympy_expression``, a symbol (or a test of one, for a bool), is the element of ``tensor``."""
        for symbol in sympy_expression.free_symbols:
            self.items[str(symbol)] = tensor


def _bound(value: Any, default: int | None) -> int | None:
    """A bound of torch's as an int; ``default`` for its infinities."""
    return int(value) if getattr(value, "is_Integer", False) and abs(int(value)) < 2**62 else default


def size_of(context: "Context", number: Any) -> Expression:
    """A size, stride or offset of the fake run (an int or SymInt) as an expression."""
    if not isinstance(number, torch.SymInt):
        return Integer(int(number))
    expression = context.symbols.note(number)
    try:
        return context.symbols.index(expression, context)
    except NotAnIndex:
        key = str(expression)
        if key not in context.symbols.computed:
            value = context.symbols.scalar(expression)
            tensor = context.temporary("size", DType.i64, (), "cpu", Origin("size"), lambda index: convert(value, DType.i64))
            context.symbols.computed[key] = context.symbols.read(context.symbols.new_symbol(), context, tensor)
        return context.symbols.computed[key]


def number_of(context: "Context", number: Any) -> "Expression | ScalarValue | int | float | bool":
    """A node's number (SymInt, SymFloat, SymBool or a plain one) as an operand: an `Expression` where it is made of sizes only."""
    if not isinstance(number, SYMBOLIC):
        return number  # type: ignore[no-any-return]
    expression = context.symbols.note(number)
    if expression.is_number and isinstance(number, (torch.SymInt, torch.SymFloat)):
        return int(expression) if isinstance(number, torch.SymInt) else float(expression)
    names = {symbol.name for symbol in expression.free_symbols}
    if isinstance(number, torch.SymInt) and all(context.symbols.is_bound(name) and name not in context.symbols.items for name in names):
        try:
            return context.symbols.index(expression, context)
        except NotAnIndex:
            pass
    value = context.symbols.scalar(expression)
    wanted = DType.i64 if isinstance(number, torch.SymInt) else DType.f64 if isinstance(number, torch.SymFloat) else DType.b8
    return ScalarValue(wanted, convert(value, wanted))


_SIGNS: dict[str, Any] = {
    "Equality": "==", "Unequality": "!=", "StrictLessThan": "<", "LessThan": "<=", "StrictGreaterThan": ">", "GreaterThan": ">="}


def conjuncts(condition: Any) -> list[list[Any]]:
    """A sympy condition as a conjunction of disjunctions of relations."""
    import sympy

    whole = sympy.to_cnf(condition) if condition.has(sympy.Or, sympy.Not) else condition
    return [list(sympy.Or.make_args(part)) for part in sympy.And.make_args(whole) if part is not sympy.true]


def comparison(context: "Context", relation: Any) -> Comparison:
    """A sympy relation of sizes, those read at run time among them. Raises AotCompileError (AOT404) for one that is none."""
    kind = type(relation).__name__
    try:
        if kind in _SIGNS:
            left, right = (context.symbols.index(side, context) for side in relation.args)
            return Comparison(left, _SIGNS[kind], right)
    except NotAnIndex:
        pass
    raise AotCompileError(Diagnostic("AOT404", "error", f"the condition {relation} cannot be checked at run time"))


def convert(value: Value, dtype: DType) -> Value:
    """``value`` cast to ``dtype`` (a constant is converted here)."""
    if value.dtype is dtype:
        return value
    if isinstance(value, Constant) and isinstance(value.value, (bool, int)):
        kind = dtype.kind
        if kind == "bool" or kind == "float":
            return Constant(dtype, bool(value.value) if kind == "bool" else float(value.value))
        if dtype is DType.i64:
            return Constant(dtype, int(value.value))
    return Cast(dtype, value)


# ---- sympy to Expression ------------------------------------------------------------------------------------------------------------------


def _index(value: Any, leaf: Callable[[str], Expression]) -> Expression:
    if value.is_Symbol:
        return leaf(value.name)
    if value.is_Integer:
        return Integer(int(value))
    kind = type(value).__name__

    def part(number: int) -> Expression:
        return _index(value.args[number], leaf)

    match kind:
        case "Add":
            return add(*(_index(term, leaf) for term in value.args))
        case "Mul" if all(not factor.is_Rational or factor.is_Integer for factor in value.args):
            return multiply(*(_index(factor, leaf) for factor in value.args))
        case "Pow" | "PowByNatural" if value.args[1].is_Integer and int(value.args[1]) >= 0:
            base = part(0)
            return multiply(ONE, *[base] * int(value.args[1]))
        case "FloorDiv" | "CleanDiv":
            return floor_divide(part(0), part(1))
        case "Mod" | "PythonMod":
            return modulo(part(0), part(1))
        case "ModularIndexing":
            return modulo(floor_divide(part(0), part(1)), part(2))
        case "Max":
            return reduce(maximum, (_index(term, leaf) for term in value.args))
        case "Min":
            return reduce(minimum, (_index(term, leaf) for term in value.args))
        case "FloorToInt" | "CeilToInt" | "TruncToInt" if type(value.args[0]).__name__ == "IntTrueDiv" and kind != "TruncToInt":
            top, bottom = (_index(argument, leaf) for argument in value.args[0].args)
            return floor_divide(top, bottom) if kind == "FloorToInt" else -floor_divide(-top, bottom)
    raise NotAnIndex(str(value))


# ---- sympy to Value -----------------------------------------------------------------------------------------------------------------------

_RELATIONS = {"Equality": "eq", "Unequality": "ne", "StrictLessThan": "lt", "LessThan": "le", "StrictGreaterThan": "gt", "GreaterThan": "ge"}
_OPAQUE = frozenset({"sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "exp", "log", "asinh", "log2"})


class _ValueBuilder:
    def __init__(self, table: SymbolTable) -> None:
        self.table = table

    def build(self, value: Any) -> Value:
        if value.is_Symbol:
            name = value.name
            if name in self.table.items:
                loaded = self.table.items[name].load(tuple(Integer(0) for _ in self.table.items[name].sizes))
                return convert(loaded, DType.f64 if loaded.dtype.is_floating else DType.i64)
            return IndexValue(DType.i64, self.table.index(value, None))
        if value.is_Integer:
            return Constant(DType.i64, int(value))
        if value.is_Boolean and not value.args:
            return Constant(DType.b8, bool(value))
        if value.is_number:
            return Constant(DType.f64, float(value))
        if type(value).__name__ == "Piecewise":
            result = self.build(value.args[-1].args[0])
            for part, condition in reversed([pair.args for pair in value.args[:-1]]):
                chosen = self.build(part)
                wanted = DType.f64 if DType.f64 in (chosen.dtype, result.dtype) else DType.i64
                result = Apply(wanted, "where", (self.build(condition), convert(chosen, wanted), convert(result, wanted)))
            return result
        return self._function(type(value).__name__, value.args)

    def _function(self, kind: str, arguments: tuple[Any, ...]) -> Value:
        parts = [self.build(argument) for argument in arguments]
        if kind in ("Add", "Mul", "Max", "Min"):
            return reduce(lambda a, b: self._apply({"Add": "add", "Mul": "mul", "Max": "maximum", "Min": "minimum"}[kind], a, b), parts)
        if kind in _RELATIONS:
            return self._apply(_RELATIONS[kind], *parts)
        if kind.startswith("OpaqueUnaryFn_") and kind.removeprefix("OpaqueUnaryFn_") in _OPAQUE:
            return self._float(kind.removeprefix("OpaqueUnaryFn_"), *parts)
        match kind:
            case "FloorDiv" | "CleanDiv":
                return self._apply("floordiv", *parts)
            case "Mod" | "PythonMod":
                return self._apply("remainder", *parts)
            case "IntTrueDiv" | "FloatTrueDiv":
                return self._float("truediv", *parts)
            case "Pow" | "PowByNatural":
                return (
                    self._apply("pow", *parts)
                    if all(part.dtype is DType.i64 for part in parts) and kind == "PowByNatural"
                    else self._float("pow", *parts)
                )
            case "FloatPow":
                return self._float("pow", *parts)
            case "ToFloat":
                return convert(parts[0], DType.f64)
            case "TruncToInt" | "FloorToInt" | "CeilToInt" | "RoundToInt":
                return convert(
                    self._float({"TruncToInt": "trunc", "FloorToInt": "floor", "CeilToInt": "ceil", "RoundToInt": "round"}[kind], *parts), DType.i64
                )
            case "TruncToFloat":
                return self._float("trunc", *parts)
            case "Abs":
                return self._apply("abs", *parts)
            case "And":
                return reduce(lambda a, b: Apply(DType.b8, "logical_and", (a, b)), parts)
            case "Or":
                return reduce(lambda a, b: Apply(DType.b8, "logical_or", (a, b)), parts)
            case "Not":
                return Apply(DType.b8, "logical_not", (parts[0],))
        raise AotCompileError(
            Diagnostic(
                "AOT404",
                "error",
                f"the number {kind}({', '.join(map(str, arguments))}) cannot be computed in a compiled graph",
                hint="Compute it with tensor operations, or outside of the compiled function.",
            )
        )

    def _apply(self, operator: str, *parts: Value) -> Value:
        dtype = DType.f64 if any(part.dtype is DType.f64 for part in parts) else DType.i64
        result = DType.b8 if operator in _RELATIONS.values() else dtype
        return Apply(result, operator, tuple(convert(part, dtype) for part in parts))

    def _float(self, operator: str, *parts: Value) -> Value:
        return Apply(DType.f64, operator, tuple(convert(part, DType.f64) for part in parts))
