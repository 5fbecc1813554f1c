"""Symbols of one capture: sizes of dynamic dimensions, and Python numbers taken as scalar inputs."""
from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping

import sympy
import torch
import torch.fx

from aotcompile.frontend.capture.signals import GraphBreak, branch_on_value, number_needed, value_needed
from aotcompile.frontend.torch_private import (
    VALUE_NEEDED,
    FloorDiv,
    IntTrueDiv,
    Known,
    Mod,
    WatchedShapeEnv,
    always_holds,
    forget_guards,
    known,
    new_float,
    new_int,
    new_size,
    own_symbol,
    symbol_expression,
)

if TYPE_CHECKING:
    from aotcompile.frontend.capture.graph import GraphRecorder

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
# Operations whose result's shape or meaning really changes at size 0 or 1: what they ask about sizes is kept as a guard.
_ASKS_FOR_ONE = {"squeeze", "squeeze_", "unbind", "chunk", "split", "tensor_split", "__len__", "view_as_real"}
# Operations that raise for a size of 0.
_ASKS_FOR_ZERO = {"max", "min", "argmax", "argmin", "amax", "amin", "aminmax", "median", "mode", "kthvalue", "cummax"}
# Operations that take positions: whether those are below a size is kept, whether a size *is* 0 or 1 is a question about layouts.
_TAKES_POSITIONS = {"__getitem__", "__setitem__", "getitem", "setitem", "select", "narrow"}
# Operations whose numbers are sizes, whatever their value: 0 and 1 are no special cases.
_TAKES_SIZES = {"zeros", "ones", "empty", "full", "rand", "randn", "new_zeros", "new_ones", "new_empty", "new_full", "view", "reshape", "unflatten",
                "expand", "broadcast_to"}
# Library calls that choose an algorithm by size ("is the batch below 16?"), and with it at most the strides of a result.
_CHOOSES_ALGORITHM = {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution"}


_ORDER = (sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)


@dataclass
class Symbol:
    """Where the graph gets it from. Kind "size": dimension ``dimension`` of input ``input``; "number": graph input ``input`` itself; "item":
    ``node``, an ``.item()`` (``chain``: the calls at that instruction; ``what``: its text; of ``tensor`` for a bool, which may leave the region);
    "data": dimension ``dimension`` of ``tensor``, which ``node`` gives. A ``general`` number may stand where its value matters (as a size, a
    position, a step); ``as_size``: it has stood there."""

    name: str
    kind: str
    hint: int | float
    input: int = -1
    dimension: int = -1
    minimum: int = 0
    maximum: int | None = None
    node: torch.fx.Node | None = None
    tensor: torch.Tensor | None = None
    chain: Any = None
    what: str = ""
    general: bool = False
    as_size: bool = False


class SymbolTable:
    def __init__(self, environment: WatchedShapeEnv) -> None:
        self.environment = environment
        self.symbols: dict[sympy.Symbol, Symbol] = {}
        self._by_name: dict[tuple[str, int], torch.SymInt] = {}
        self._numbers: list[torch.SymInt | torch.SymFloat] = []

    def size(self, name: str, hint: int, minimum: int, maximum: int | None) -> torch.SymInt:
        """The symbol of dimension letter ``name``; equal letters are one symbol, unless the sizes differ (a letter that was computed for something
        that no longer is there may be met again)."""
        if (name, hint) not in self._by_name:
            value = new_size(self.environment, name, hint, minimum, maximum)
            self._by_name[name, hint] = value
            self.symbols[own_symbol(value)] = Symbol(f"s{len(self.symbols)}", "size", hint, minimum=minimum, maximum=maximum)
        return self._by_name[name, hint]

    def named_sizes(self) -> list[tuple[str, sympy.Symbol]]:
        """(dimension letter, symbol)."""
        return [(name, own_symbol(value)) for (name, _), value in self._by_name.items()]

    def define(self, value: torch.SymInt, input_number: int, dimension: int) -> None:
        symbol = self.symbols[own_symbol(value)]
        if symbol.input < 0:
            symbol.input, symbol.dimension = input_number, dimension

    def number(self, value: int | float, input_number: int, name: str, general: bool) -> torch.SymInt | torch.SymFloat:
        made = new_int(self.environment, name, value) if isinstance(value, int) else new_float(self.environment, name, value)
        self.symbols[own_symbol(made)] = Symbol(name, "number", value, input=input_number, general=general)
        self._numbers.append(made)
        return made

    # ---- numbers that are data --------------------------------------------------------------------------------------------------------------

    def item(self, value: Any, node: torch.fx.Node, tensor: torch.Tensor, chain: Any, what: str) -> None:
        """``value`` is what ``node``, an ``.item()`` of ``tensor``, gives: a symbol, or for a bool a test of one, which stands for it."""
        expression = value.node.expr
        if expression not in self.symbols and (expression.is_Symbol or isinstance(value, torch.SymBool)):
            truth = tensor if isinstance(value, torch.SymBool) else None
            symbol = Symbol(f"d{len(self.symbols)}", "item", 0, node=node, tensor=truth, chain=chain, what=what)
            self.symbols.update(dict.fromkeys((expression, *expression.free_symbols), symbol))

    def data_sizes(self, tensor: torch.Tensor, node: torch.fx.Node) -> None:
        """Sizes of a result that are data and first seen in it."""
        for dimension, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and size.node.hint is None and (expression := symbol_expression(size)) not in self.symbols \
                    and not expression.free_symbols <= set(self.symbols):
                self.symbols[expression] = Symbol(f"d{len(self.symbols)}", "data", 0, dimension=dimension, node=node, tensor=tensor)

    def fix_inexact(self, tensor: torch.Tensor) -> None:
        """Fix sizes that were computed in floats (roots, logarithms, a factor that is no multiple of a small power of 2): no guard can say them
        exactly."""
        for size in tensor.shape:
            if isinstance(size, torch.SymInt) and size.node.hint is not None:
                expression = symbol_expression(size)
                inexact = any(not (float(scale) * 1024).is_integer() or not 0 <= scale <= 1024 for scale in expression.atoms(sympy.Float))
                if inexact or any(type(part).__name__.startswith("OpaqueUnaryFn") for part in sympy.preorder_traversal(expression)):
                    self.fix_symbols(expression)

    def fix_symbols(self, expression: sympy.Basic) -> None:
        """Make the sizes and the Python numbers in an expression constants."""
        for value in (*self._by_name.values(), *self._numbers):
            if value.node.expr in expression.free_symbols:
                self.fix(value)

    def fix_inexact_conditions(self) -> None:
        """Fix what is in conditions that guards cannot say: they compute with integers, and compare floats."""
        for entry in list(self.environment.guards):
            expression = self.environment.replace(entry.expr)
            kinds = {self.symbols[symbol].kind if symbol in self.symbols else "" for symbol in expression.free_symbols}
            if kinds and kinds <= {"size", "number"} and not self.is_exact(expression):
                self.fix_symbols(expression)

    def is_exact(self, value: Any) -> bool:
        """Whether a number is computed with integers only, as far as its text shows."""
        try:
            text = self.text(value)
        except NotImplementedError:
            return False
        return not any(function in text for function in ("float(", "round(", "int(", " / "))

    def whole_quotient(self, value: torch.SymFloat, upwards: bool) -> torch.SymInt | None:
        """The quotient of two whole numbers as the whole number below (or above) it, computed without floats, which gives the same for all sizes
        below 2**53. None for other numbers."""
        expression = symbol_expression(value)
        if not isinstance(expression, IntTrueDiv) or value.node.hint is None:
            return None
        dividend, divisor = expression.args
        if not divisor.is_Integer or divisor <= 0 or not all(self.symbols[s].kind == "size" for s in dividend.free_symbols if s in self.symbols):
            return None
        quotient = -FloorDiv(-dividend, divisor) if upwards else FloorDiv(dividend, divisor)
        return self.environment.create_symintnode(quotient, hint=math.ceil(value.node.hint) if upwards else math.floor(value.node.hint))

    def is_data(self, value: Any) -> bool:
        """Whether a number is known at run time only, also inside tuples, lists, dicts and slices."""
        if isinstance(value, SYMBOLIC):
            return value.node.hint is None
        if type(value) in (tuple, list):
            return any(map(self.is_data, value))
        if type(value) is slice:
            return any(map(self.is_data, (value.start, value.stop, value.step)))
        return type(value) is dict and any(map(self.is_data, value.values()))

    def refuse_items(self, value: Any) -> None:
        """Raises the break of the ``.item()`` that a number, or one in tuples, lists and dicts, is made from."""
        if isinstance(value, (tuple, list, dict)):
            for part in value.values() if isinstance(value, dict) else value:
                self.refuse_items(part)
        if isinstance(value, SYMBOLIC):
            self.refuse_item_symbols(symbol_expression(value).free_symbols)

    def refuse_item_symbols(self, symbols: Iterable[sympy.Symbol]) -> None:
        """The same for symbols: a number read from a tensor does not leave a region, reading it is a graph break."""
        for key in sorted(symbols, key=str):
            symbol = self.symbols.get(key)
            if symbol is not None and symbol.kind == "item" and symbol.tensor is None:
                raise value_needed(symbol.what, symbol.chain)

    def refuse_last_item(self) -> None:
        """Raises the break of the last ``.item()``, if there is one: a size that leaves the region may be made from it."""
        items = [key for key, symbol in self.symbols.items() if symbol.kind == "item" and key.is_Symbol]
        self.refuse_item_symbols(items[-1:])

    def truth(self, value: Any) -> bool:
        """``bool(value)``. Raises a `branch` break where that is data."""
        try:
            return bool(value if isinstance(value, torch.SymBool) else value != 0)
        except VALUE_NEEDED:
            raise branch_on_value("a number that depends on data") from None

    def check(self, condition: Any, recorder: "GraphRecorder") -> bool:
        """Note that a condition on numbers that are data holds, to be checked at run time. False: that is not possible."""
        try:
            encoded = self._encode(symbol_expression(condition), recorder)
            torch._check(condition)
        except (NotImplementedError, *VALUE_NEEDED):
            return False
        recorder.graph.call_function(torch.ops.aten._assert_scalar.default, (encoded, "torch._check"))
        return True

    # ---- fixing -----------------------------------------------------------------------------------------------------------------------------

    def numbers_in(self, value: Any) -> list[Symbol]:
        """The Python numbers that come in and that a symbolic number, or one in tuples, lists, dicts and slices, is made from."""
        if isinstance(value, SYMBOLIC):
            known = [self.symbols.get(symbol) for symbol in sorted(symbol_expression(value).free_symbols, key=str)]
            return [symbol for symbol in known if symbol is not None and symbol.kind == "number"]
        parts = (value if type(value) in (tuple, list, torch.Size) else value.values() if type(value) is dict
                 else (value.start, value.stop, value.step) if type(value) is slice else ())
        return [symbol for part in parts for symbol in self.numbers_in(part)]

    def is_number(self, value: Any) -> bool:
        """Whether its value is to be fixed where it matters: it is made from a Python number that no one has said to be dynamic."""
        return isinstance(value, SYMBOLIC) and any(not symbol.general for symbol in self.numbers_in(value))

    def varies(self, value: Any) -> bool:
        """Whether it is made from numbers that come in and that were different in another situation, or are said to be dynamic."""
        return bool(numbers := self.numbers_in(value)) and all(symbol.general for symbol in numbers)

    def is_known(self, value: Any) -> bool:
        """Whether a symbolic number is one of sizes and numbers that come in, without a tensor's value in it."""
        return not isinstance(value, SYMBOLIC) or all(symbol in self.symbols for symbol in symbol_expression(value).free_symbols)

    def fix(self, value: Any) -> Any:
        """The Python value of a symbolic number; its symbols are fixed from here on (a guard). Raises a break where they are data."""
        try:
            return self._fix(value)
        except VALUE_NEEDED:
            raise number_needed("this") from None

    @staticmethod
    def _fix(value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return int(value)
        if isinstance(value, torch.SymFloat):
            return float(value)
        return bool(value) if isinstance(value, torch.SymBool) else value

    def decide(self, value: Any) -> Any:
        """A condition on sizes and numbers as True or False (a guard), which is all that torch's functions take, also in lists and tuples. Other
        values, and data, as they are."""
        if isinstance(value, torch.SymBool):
            return value if self.is_data(value) else bool(value)
        if type(value) in (tuple, list) and any(isinstance(item, torch.SymBool) for item in value):
            return type(value)(map(self.decide, value))
        return value

    def fix_numbers(self, value: Any) -> Any:
        """``value`` with the symbols that are plain Python numbers (not sizes, not dynamic) fixed, inside tuples, lists, dicts and slices."""
        if isinstance(value, SYMBOLIC):
            if isinstance(value, torch.SymInt) and any(type(symbol.hint) is float for symbol in self.numbers_in(value)):
                self.fix_symbols(symbol_expression(value))               # a size that is computed from a float
            if self.is_number(value):
                return self.fix(value)
            for symbol in self.numbers_in(value):
                symbol.as_size = True
            return value
        if type(value) in (tuple, list):
            return type(value)(self.fix_numbers(item) for item in value)
        if type(value) is dict:
            return {key: self.fix_numbers(item) for key, item in value.items()}
        if type(value) is slice:
            return slice(*(self.fix_numbers(v) for v in (value.start, value.stop, value.step)))
        return value

    # ---- questions asked by torch itself ------------------------------------------------------------------------------------------------------

    def begin_operation(self, name: str = "") -> Known:
        self.environment.running, self.environment.layout_guards = name, ()
        return known(self.environment)

    def end_operation(self, mark: Known, name: str, given: Iterable[Symbol] = (), copied: bool = False) -> None:
        """Forget what a torch operation asked about sizes being 0 or 1, where the answer does not change its result: a contiguity or broadcast
        test inside torch, not a fact the user's code relies on. The same for thresholds by which a library call chooses its algorithm.
        ``given``: the Python numbers among its arguments; what it asks about those may matter (a step must not be 0), unless they are sizes.
        ``copied``: a view was asked for and a copy given, which is a question of sizes."""
        asked = self.environment.guards[mark.guard_count:]
        if not asked or copied or name in _ASKS_FOR_ONE:
            return
        limits = (0, 1, 2, 16) if name in _CHOOSES_ALGORITHM else (0, 1, 2)
        raises = name in _ASKS_FOR_ZERO
        matters = set() if name in _TAKES_SIZES else {symbol.name for symbol in given}
        sizes = {key: symbol.name in matters for key, symbol in self.symbols.items()
                 if symbol.kind == "size" or symbol.kind == "number" and isinstance(symbol.hint, int) and symbol.hint >= 0}
        kept = [guard for guard in asked if self._may_matter(guard, sizes)
                or raises and not always_holds(guard.expr, 0) and always_holds(guard.expr, 1)
                or not self._compares_with(guard.expr, limits) and not self._holds_from_two(guard.expr)
                or name in _TAKES_POSITIONS and isinstance(guard.expr, _ORDER) and not self._is_of_layout(guard)]
        if len(kept) == len(asked):
            return
        forget_guards(self.environment, mark, kept)
        asked_about = {symbol for guard in asked for symbol in guard.expr.free_symbols}
        for symbol in sorted(asked_about & sizes.keys(), key=str):
            if self.symbols[symbol].kind == "number" and symbol in self.environment.var_to_range:
                bool(self.environment.create_symintnode(symbol, hint=int(self.symbols[symbol].hint)) >= 0)

    def exclude_empty(self, tensors: Iterable[torch.Tensor], raises: Callable[[Mapping[sympy.Symbol, int]], bool]) -> None:
        """Guard against a size of 0 where eager raises for one: a fake run does not always, and a kernel without iterations never does.
        ``raises``: whether the call does, on ``tensors`` with these sizes for symbols."""
        sizes = [size for tensor in tensors for size in tensor.shape if isinstance(size, torch.SymInt)]
        found = {symbol for size in sizes for symbol in symbol_expression(size).free_symbols}
        for symbol in sorted(found & self.symbols.keys(), key=str):
            known_range = self.environment.var_to_range.get(symbol)
            if self.symbols[symbol].kind == "size" and known_range is not None and known_range.lower <= 0 and raises({symbol: 0}):
                bool(self.environment.create_symintnode(symbol, hint=int(self.symbols[symbol].hint)) != 0)

    def _may_matter(self, guard: Any, given: Mapping[sympy.Symbol, bool]) -> bool:
        """Whether a question is about more than sizes and layouts. ``given``: the sizes, true for numbers that the operation was given as such."""
        symbols = guard.expr.free_symbols
        if not symbols <= given.keys():
            return True
        return any(given[symbol] for symbol in symbols) and not self._is_of_layout(guard)

    def _is_of_layout(self, guard: Any) -> bool:
        return any(asked is guard for asked in self.environment.layout_guards)

    @staticmethod
    def _compares_with(expression: sympy.Basic, limits: tuple[int, ...]) -> bool:
        """Whether the question compares a product of sizes with one of the numbers: ``size != 0``, ``size > 1``, ..."""
        if not isinstance(expression, (sympy.Ne, sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt)):
            return False
        numbers = [side for side in expression.args if side.is_number]
        return len(numbers) == 1 and int(numbers[0]) in limits

    @staticmethod
    def _holds_from_two(expression: sympy.Basic) -> bool:
        """Whether it holds for all sizes but 0 and 1, as ``64*size > 64`` does."""
        if expression.is_Relational and expression.has(Mod):
            expression = expression.replace(lambda e: isinstance(e, Mod) and e.args[0] in (0, 1), lambda e: e.args[0])
        return always_holds(expression, 2)

    # ---- into the graph and into text -----------------------------------------------------------------------------------------------------------

    def encode(self, value: Any, recorder: "GraphRecorder") -> Any:
        """A symbolic number as FX nodes. Forms without nodes fix the value."""
        expression = symbol_expression(value)
        if isinstance(decided := self.decide(value), bool):
            return decided
        try:
            return self._encode(expression, recorder)
        except NotImplementedError:
            return self.fix(value)

    def _encode(self, expression: sympy.Basic, recorder: "GraphRecorder") -> Any:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Float or expression.is_Rational:
            return float(expression)
        if expression in self.symbols:
            return self._symbol_node(self.symbols[expression], recorder)
        if not expression.args:
            raise NotImplementedError(str(expression))
        arguments = [self._encode(argument, recorder) for argument in expression.args]
        if isinstance(expression, tuple(_CHAINS)):
            function = next(function for kind, function in _CHAINS.items() if isinstance(expression, kind))
            result = arguments[0]
            for argument in arguments[1:]:
                result = recorder.graph.call_function(function, (result, argument))
            return result
        functions = {
            "FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv, "Mod": operator.mod, "PythonMod": operator.mod, "Max": torch.sym_max,
            "Min": torch.sym_min, "FloatTrueDiv": operator.truediv, "IntTrueDiv": operator.truediv, "ToFloat": torch.sym_float,
            "PowByNatural": operator.pow, "FloatPow": operator.pow, "Pow": operator.pow, "TruncToInt": torch.sym_int, "FloorToInt": torch.sym_int,
            "OpaqueUnaryFn_sqrt": getattr(torch, "sym_sqrt", None), **_COMPARISONS,
        }
        name = type(expression).__name__
        if functions.get(name) is None:
            raise NotImplementedError(name)
        return recorder.graph.call_function(functions[name], tuple(arguments))

    def _symbol_node(self, symbol: Symbol, recorder: "GraphRecorder") -> torch.fx.Node:
        placeholders = [node for node in recorder.graph.nodes if node.op == "placeholder"]
        if symbol.kind == "item":
            return symbol.node
        if symbol.kind == "data":
            return recorder.graph.call_function(torch.ops.aten.sym_size.int, (symbol.node, symbol.dimension))
        if symbol.input < 0:
            raise GraphBreak("AOT205", f"size {symbol.name} belongs to no graph input")
        if symbol.kind == "number":
            return placeholders[symbol.input]
        return recorder.graph.call_function(torch.ops.aten.sym_size.int, (placeholders[symbol.input], symbol.dimension))

    def letters(self, expression: Any, arrival: int) -> str:
        """A name for a size in later regions: in dimension letters, which mean the same everywhere. What is data, or a number, has a name of its
        own, by the ``arrival`` at which it was met."""
        names = {own_symbol(value): sympy.Symbol(name, integer=True) for (name, _), value in self._by_name.items()}
        for key, letter in list(names.items()):
            if (other := self.environment.replace(key)).is_Symbol:             # which stands for it by now
                names.setdefault(other, letter)
        for symbol in expression.free_symbols:
            names.setdefault(symbol, sympy.Symbol(f"{symbol}_{arrival}", integer=True))
        return str(expression.xreplace(names))

    def text(self, expression: Any) -> str:
        """A sympy expression over our symbols as Python source."""
        if isinstance(expression, SYMBOLIC):
            expression = symbol_expression(expression)
        return _print(sympy.sympify(expression), self.symbols)


_CHAINS = {sympy.Add: operator.add, sympy.Mul: operator.mul, sympy.And: operator.and_, sympy.Or: operator.or_}
_COMPARISONS = {"Equality": operator.eq, "Unequality": operator.ne, "StrictLessThan": operator.lt, "LessThan": operator.le,
                "StrictGreaterThan": operator.gt, "GreaterThan": operator.ge}
_RELATIONS = {sympy.Eq: "==", sympy.Ne: "!=", sympy.Lt: "<", sympy.Le: "<=", sympy.Gt: ">", sympy.Ge: ">="}


def _print(e: sympy.Basic, symbols: dict[sympy.Symbol, Symbol]) -> str:
    def sub(x: sympy.Basic) -> str:
        return _print(x, symbols)

    if e in symbols:
        return symbols[e].name
    for kind, sign in _RELATIONS.items():
        if isinstance(e, kind):
            return f"{sub(e.args[0])} {sign} {sub(e.args[1])}"
    if e is sympy.true or e is sympy.false:
        return str(bool(e))
    if e.is_Integer:
        return str(int(e))
    if e.is_Float:
        return repr(float(e))
    if e.is_Rational:
        return f"({e.p} / {e.q})"
    name = type(e).__name__
    if isinstance(e, sympy.Add):
        return "(" + " + ".join(map(sub, e.args)) + ")"
    if isinstance(e, sympy.Mul):
        return "*".join(f"({sub(a)})" if isinstance(a, sympy.Add) or str(sub(a)).startswith("-") else sub(a) for a in e.args)
    if isinstance(e, sympy.Pow) or name in ("PowByNatural", "FloatPow"):
        if e.args[1].is_Integer and 1 < int(e.args[1]) < 5:
            return "*".join([f"({sub(e.args[0])})"] * int(e.args[1]))
        return f"({sub(e.args[0])}) ** ({sub(e.args[1])})"
    binary = {"FloorDiv": "//", "CleanDiv": "//", "Mod": "%", "PythonMod": "%", "FloatTrueDiv": "/", "IntTrueDiv": "/"}
    if name in binary:
        return f"(({sub(e.args[0])}) {binary[name]} ({sub(e.args[1])}))"
    if name in ("Max", "Min"):
        text = sub(e.args[0])
        for argument in e.args[1:]:
            text = f"{name.lower()}({text}, {sub(argument)})"
        return text
    if isinstance(e, (sympy.And, sympy.Or)):
        return "(" + f" {name.lower()} ".join(f"({sub(a)})" for a in e.args) + ")"
    if isinstance(e, sympy.Not):
        return f"not ({sub(e.args[0])})"
    if name == "RoundDecimal":
        return f"round({sub(e.args[0])}, {sub(e.args[1])})"
    if name == "ToFloat":
        return f"float({sub(e.args[0])})"
    if name in ("TruncToInt", "FloorToInt"):
        scaled = e.args[0].as_coeff_Mul()                    # 0.5*ToFloat(s0): exact in integers, which is what guards can say
        if type(scaled[1]).__name__ == "ToFloat" and 0 <= scaled[0] <= 1024 and (float(scaled[0]) * 1024).is_integer():
            numerator, denominator = float(scaled[0]).as_integer_ratio()
            size = sub(scaled[1].args[0])
            return f"(({size if numerator == 1 else f'{numerator}*({size})'}) // ({denominator}))"
        return f"int({sub(e.args[0])})"
    raise NotImplementedError(f"{name} in a size expression")
