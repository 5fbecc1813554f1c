"""Scalar values as lines of Triton: every distinct value is one named block.

    Apply(f32, "add", (Load(f32, "x", x0), Constant(f32, 1.0)))   ->   t0 = tl.load(x + x0, x_mask, other=0)
                                                                       t1 = t0 + 1.0
"""
from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from aotcompile.codegen.triton.operators import TRITON, cast, computes_in, expression
from aotcompile.codegen.triton.shape import NOWHERE, Axes, R, Shape, X
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import (
    Add, Expression, FloorDivide, Integer, Maximum, Minimum, Modulo, Multiply, Symbol, children, free_symbols, substitute,
)
from aotcompile.ir.nodes import Apply, Cast, Constant, IndexValue, Load, Masked, Store, Value
from aotcompile.ir.simplify import Ranges, simplify

# A literal beside a block takes the block's type.
_BARE = frozenset({"add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum"})
_BARE_TYPES = (DType.f32, DType.i32, DType.i64)


@dataclass(frozen=True)
class Term:
    """A value as text (a name, a literal or parenthesised), its type, and the axes along which it varies."""

    text: str
    dtype: DType
    axes: Axes = NOWHERE
    literal: bool = False


@dataclass(frozen=True)
class Mask:
    """Where a value is needed, beyond the points of the space themselves."""

    text: str
    axes: Axes


@dataclass
class Scope:
    """Where lines go, and what has a name there. An inner scope (the body of a loop over blocks) sees the names of the outer one."""

    lines: list[str] = field(default_factory=list)
    known: dict[str, Term] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)             # loop variables and masks with a line of their own
    outer: "Scope | None" = None

    def find(self, key: str) -> Term | None:
        return self.known.get(key) or (self.outer.find(key) if self.outer else None)

    def defines(self, name: str) -> bool:
        return name in self.defined or (self.outer is not None and self.outer.defines(name))


class Values:
    """Writes values. ``names``: buffer -> pointer argument; ``made``: buffers that the kernel has at hand as values (it grows as the kernel is
    written)."""

    def __init__(self, shape: Shape, names: Mapping[str, str], dtypes: Mapping[str, DType]) -> None:
        self.shape = shape
        self.names = names
        self.dtypes = dtypes
        self.scope = Scope()
        self.inside = False                                    # within a stage over the inner loops
        self.made: dict[str, Term] = {}
        self._count = 0
        self._bound: list[dict[str, Term]] = []
        self._variables = {**shape.positions(shape.outer, X), **shape.positions(shape.inner, R)}
        self._axis = {loop.variable: X for loop in shape.outer} | {loop.variable: R for loop in shape.inner} | {Symbol(X): X, Symbol(R): R}
        self._ranges = {False: shape.ranges(False), True: shape.ranges(True)}

    # ---- names ----------------------------------------------------------------------------------------------------------------------------

    def fresh(self) -> str:
        self._count += 1
        return f"t{self._count - 1}"

    def name(self, text: str, dtype: DType, axes: Axes, key: str | None = None) -> Term:
        """A name for ``text``: the one it has, or a fresh one with a line."""
        key = key or f"{dtype.value} {text}"
        found = self.scope.find(key)
        if found is not None:
            return found
        scope = self._home(axes)
        name = self.fresh()
        scope.lines.append(f"{name} = {text}")
        term = Term(name, dtype, axes)
        scope.known[key] = term
        return term

    def _home(self, axes: Axes) -> Scope:
        """Where a value along ``axes`` is computed: before the loop over a row's blocks, if it is the same for all of them and the row is surely
        not empty."""
        count = self.shape.r_count
        hoisted = self.scope.outer is not None and self.shape.kind == "reduction" and R not in axes and isinstance(count, Integer) and count.value > 0
        return self.scope.outer if hoisted and self.scope.outer is not None else self.scope

    # ---- index expressions ------------------------------------------------------------------------------------------------------------------

    @property
    def ranges(self) -> Ranges:
        return self._ranges[self.inside]

    def axes_of(self, value: Expression) -> Axes:
        found: set[str] = set()
        for symbol in free_symbols(value):
            bound = self._bound_term(symbol)
            if bound is not None:
                found |= bound.axes
            elif symbol in self._axis and self.shape.kind != "sequential":
                found.add(self._axis[symbol])
        return frozenset(found)

    def _bound_term(self, symbol: Symbol) -> Term | None:
        return next((names[symbol.name] for names in reversed(self._bound) if symbol.name in names), None)

    def index(self, value: Expression) -> str:
        return self.position(value)[0]

    def position(self, value: Expression) -> tuple[str, Axes]:
        """``value`` as text, with the axes along which the text varies. By the flat counters x and r where that needs no division (``x`` for a
        contiguous access), else by the loops' variables."""
        flat = simplify(substitute(value, self._variables), self.ranges)
        if not _divides(flat):
            return self._text(flat), self.axes_of(flat)
        value = simplify(value, self.ranges)
        for symbol in sorted(free_symbols(value), key=str):
            if symbol in self._variables and self._bound_term(symbol) is None:
                self._define(symbol)
        return self._text(value), self.axes_of(value)

    def _define(self, symbol: Symbol) -> None:
        if not self.scope.defines(symbol.name):
            scope = self._home(frozenset((self._axis[symbol],)))
            scope.lines.append(f"{symbol.name} = {self._text(simplify(self._variables[symbol], self.ranges))}")
            scope.defined.add(symbol.name)

    def _text(self, value: Expression) -> str:
        match value:
            case Integer(number):
                return str(number)
            case Symbol(name):
                bound = self._bound_term(value)
                return bound.text if bound is not None else name
            case Add(terms):
                text = self._text(terms[0])
                for term in terms[1:]:
                    part = self._text(term)
                    text += f" - {part[1:]}" if part.startswith("-") else f" + {part}"
                return text
            case Multiply(coefficient, factors):
                body = " * ".join(self._operand(factor) for factor in factors)
                return body if coefficient == 1 else f"-{body}" if coefficient == -1 else f"{coefficient} * {body}"
            case FloorDivide(a, b):
                return f"{self._operand(a)} // {self._operand(b)}" if self._plain(a, b) else f"floor_divide({self._text(a)}, {self._text(b)})"
            case Modulo(a, b):
                return f"{self._operand(a)} % {self._operand(b)}" if self._plain(a, b) else f"floor_remainder({self._text(a)}, {self._text(b)})"
            case Minimum(a, b):
                return f"tl.minimum({self._text(a)}, {self._text(b)})"
            case Maximum(a, b):
                return f"tl.maximum({self._text(a)}, {self._text(b)})"
        raise TypeError(value)

    def _plain(self, a: Expression, b: Expression) -> bool:
        """Whether Triton's division, which rounds to 0, is the floor."""
        return self.ranges.non_negative(a) and self.ranges.positive(b)

    def _operand(self, value: Expression) -> str:
        text = self._text(value)
        return text if isinstance(value, Symbol) or text.isdigit() else f"({text})"

    # ---- values -----------------------------------------------------------------------------------------------------------------------------

    def value(self, value: Value, masks: tuple[Mask, ...] = ()) -> Term:
        """The value at each point of the current space. Where ``masks`` do not hold it is unspecified, but nothing is loaded."""
        match value:
            case Constant(dtype, number):
                return Term(_literal(dtype, number), dtype, literal=True)
            case IndexValue(dtype, position):
                text, axes = self.position(position)
                start = text if axes else f"tl.full([], {text}, tl.int64)" if text.lstrip("-").isdigit() else f"({text})"
                return self.name(cast(start if start.isidentifier() or not axes else f"({start})", DType.i64, dtype) if dtype is not DType.i64
                                 else f"({start}).to(tl.int64)", dtype, axes, f"index {dtype.value} {text}")
            case Cast(dtype, argument):
                term = self.value(argument, masks)
                return self.name(cast(self._typed(term), term.dtype, dtype), dtype, term.axes) if dtype is not term.dtype else term
            case Apply():
                return self._apply(value, masks)
            case Masked():
                return self._masked(value, masks)
            case Load():
                return self._load(value, masks)
        raise TypeError(value)

    def _typed(self, term: Term) -> str:
        """A literal with its type; other terms as they are."""
        return f"tl.full([], {term.text}, {TRITON[term.dtype]})" if term.literal else term.text

    def _apply(self, value: Apply, masks: tuple[Mask, ...]) -> Term:
        terms = [self.value(argument, masks) for argument in value.arguments]
        operands = terms[-1].dtype
        work = computes_in(value.operator, operands)
        bare = value.operator in _BARE and work in _BARE_TYPES and not all(term.literal for term in terms)
        texts = []
        for term in terms:
            if term.literal:
                half = work is DType.f32 and term.dtype is not DType.f32
                texts.append(term.text if bare else self._typed(Term(term.text, DType.f32, literal=True) if half else term))
            elif work is not operands:
                texts.append(self.name(f"{term.text}.to(tl.float32)", DType.f32, term.axes).text)
            else:
                texts.append(term.text)
        axes = frozenset().union(*(term.axes for term in terms))
        text = expression(value.operator, work, texts)
        if value.dtype is operands and work is not operands:
            exact = self.name(text, DType.f32, axes)
            return self.name(f"{exact.text}.to({TRITON[value.dtype]})", value.dtype, axes)
        return self.name(text, value.dtype, axes)

    def _masked(self, value: Masked, masks: tuple[Mask, ...]) -> Term:
        mask = self.value(value.mask, masks)
        body = self.value(value.body, (*masks, Mask(self._typed(mask), mask.axes)))
        other = self.value(value.other, masks)
        return self.name(f"tl.where({self._typed(mask)}, {self._typed(body)}, {self._typed(other)})", value.dtype, mask.axes | body.axes | other.axes)

    # ---- memory -----------------------------------------------------------------------------------------------------------------------------

    def _load(self, load: Load, masks: tuple[Mask, ...]) -> Term:
        at_hand = self.made.get(load.buffer)
        if at_hand is not None:
            return at_hand
        with_checks, text, axes = self.address(load.index, load.bindings, load.checks, masks)
        return self.load_text(load.buffer, text, axes, with_checks)

    def load_text(self, buffer: str, text: str, axes: Axes, masks: tuple[Mask, ...]) -> Term:
        pointer, mask = self.pointer(buffer, text, axes, masks)
        where = f", {mask}, other=0" if mask else ""
        return self.name(f"tl.load({pointer}{where})", self.dtypes[buffer], axes | _axes(masks))

    def address(self, index: Expression, bindings: tuple[tuple[Symbol, Value], ...], checks: tuple[tuple[Symbol, Expression], ...],
                masks: tuple[Mask, ...]) -> tuple[tuple[Mask, ...], str, Axes]:
        """(masks with the checks, the index as text, its axes). An index out of range stops the program as eager's kernels do: a device-side
        assertion."""
        bound: dict[str, Term] = {}
        for symbol, value in bindings:
            term = self.value(value, masks)
            wide = self.name(f"{self._typed(term)}.to(tl.int64)", DType.i64, term.axes) if term.dtype is not DType.i64 or term.literal else term
            bound[symbol.name] = wide
        self._bound.append(bound)
        for symbol, size in checks:
            position = bound[symbol.name]
            length, along = self.position(size)
            inside = self.name(f"({position.text} >= 0) & ({position.text} < {length})", DType.b8, position.axes | along)
            needed = self.mask_text(inside.axes | _axes(masks), masks)
            condition = f"{inside.text} | ~({needed})" if needed else inside.text
            line = f'tl.device_assert({condition}, "index out of range")'
            if self.scope.find(line) is None:
                scope = self._home(inside.axes | _axes(masks))
                scope.lines.append(line)
                scope.known[line] = inside
            masks = (*masks, Mask(inside.text, inside.axes))
        text, axes = self.position(index)
        self._bound.pop()
        return masks, text, axes

    def pointer(self, buffer: str, text: str, axes: Axes, masks: tuple[Mask, ...], at_least: Axes = NOWHERE) -> tuple[str, str]:
        """(the pointers, their mask or ""): both of the shape that index and masks together have."""
        wanted = axes | _axes(masks) | at_least
        if wanted != axes:
            block = self.shape.block(wanted)
            text = f"tl.broadcast_to({text}, {block})" if axes else f"tl.full({block}, {text}, {self.shape.index_type})"
        mask = self.mask_text(wanted, masks)
        if mask and masks and len(_axes(masks)) < len(wanted) and not self._space_masks(wanted):
            mask = f"tl.broadcast_to({mask}, {self.shape.block(wanted)})"
        if text == "0":
            return self.names[buffer], mask
        return f"{self.names[buffer]} + " + (f"({text})" if " " in text and "-" in text else text), mask

    def _space_masks(self, axes: Axes) -> list[str]:
        return [name for name, axis, needed in (("x_mask", X, self.shape.x_masked), ("r_mask", R, self.shape.r_masked)) if needed and axis in axes]

    def mask_text(self, axes: Axes, masks: tuple[Mask, ...] = ()) -> str:
        parts = [*self._space_masks(axes), *dict.fromkeys(mask.text for mask in masks)]
        return " & ".join(parts)

    def store_place(self, store: Store, buffer: str, axes: Axes) -> tuple[str, str, Axes]:
        """(the pointers, the mask, the axes) of a store."""
        masks, text, own = self.address(store.index, store.bindings, store.checks, ())
        pointer, mask = self.pointer(buffer, text, own, masks, axes)
        return pointer, mask, own | _axes(masks) | axes


def _axes(masks: tuple[Mask, ...]) -> Axes:
    return frozenset().union(*(mask.axes for mask in masks))


def _divides(value: Expression) -> bool:
    return isinstance(value, (FloorDivide, Modulo)) or any(map(_divides, children(value)))


def _literal(dtype: DType, number: bool | int | float) -> str:
    """The literal, rounded to the type."""
    if dtype is DType.b8:
        return "1" if number else "0"
    if not dtype.is_floating:
        return str(int(number))
    number = rounded(float(number), dtype)
    return repr(number) if math.isfinite(number) else f'float("{number}")'


def rounded(number: float, dtype: DType) -> float:
    """``number`` as the nearest value of a floating type (ties to even), infinite beyond its range."""
    if dtype is DType.f64 or not math.isfinite(number):
        return number
    try:
        single = struct.unpack("<f", struct.pack("<f", number))[0]
        if dtype is DType.f32:
            return float(single)
        if dtype is DType.f16:
            return float(struct.unpack("<e", struct.pack("<e", single))[0])
    except OverflowError:
        return math.copysign(math.inf, number)
    bits = struct.unpack("<I", struct.pack("<f", single))[0]
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])
