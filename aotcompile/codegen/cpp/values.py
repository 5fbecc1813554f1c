"""Text for values: each distinct value becomes one ``tmpN``, in the outermost scope where it is known.

A scope is a block of the kernel's text: its lines, the loop variables and in-kernel results known there, and the width of values made in it ("1"
outside the vector loop, "N" inside). A value of width 1 used inside is spread with ``splat``.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import ONE, ZERO, Expression, Symbol, free_symbols, substitute
from aotcompile.ir.linear import coefficient
from aotcompile.ir.nodes import Apply, Cast, Constant, IndexValue, Load, Masked, Value
from aotcompile.ir.operators import OPERATORS
from aotcompile.ir.simplify import Ranges
from aotcompile.ir.traverse import value_children
from aotcompile.codegen.cpp.text import CHECKED, EXACT, INFIX, PREFIX, STORAGE_TYPES, VALUE_TYPES, index_text, literal

LANE = Symbol("lane")
_HALF = {DType.f16: "round_float16", DType.bf16: "round_bfloat16"}


@dataclass(frozen=True)
class Emitted:
    """A value's name (or literal) and width: "1", "N", or "" for a literal that is spread wherever it is used."""

    text: str
    width: str

    def at(self, width: str) -> str:
        return self.text if self.width == width else f"splat<{width}>({self.text})"


@dataclass
class Scope:
    width: str
    lanes: str                                            # "lanes" inside the vector loop, else "AllLanes()"
    known: set[Symbol]
    parent: "Scope | None" = None
    vector: Symbol | None = None
    lines: list[str] = field(default_factory=list)
    locals: dict[str, Emitted] = field(default_factory=dict)
    memo: dict[object, Emitted] = field(default_factory=dict)

    def chain(self) -> "list[Scope]":
        """From the outermost scope to this one."""
        scopes: list[Scope] = []
        scope: Scope | None = self
        while scope is not None:
            scopes.append(scope)
            scope = scope.parent
        return scopes[::-1]


@dataclass
class _Node:
    """What is known of a value: its number (equal values have equal numbers), what it depends on, whether it reads memory or can fail."""

    number: int
    symbols: frozenset[Symbol]
    buffers: frozenset[str]
    touches: bool
    fails: bool


class ValueWriter:
    """Writes values of one kernel. ``pointers``: buffer -> pointer name; ``made``: names of results made in the kernel."""

    def __init__(self, pointers: Mapping[str, str], made: frozenset[str], ranges: Ranges) -> None:
        self.pointers = pointers
        self.made = made
        self.ranges = ranges
        self._numbers: dict[tuple[object, ...], int] = {}
        self._nodes: dict[int, tuple[Value, _Node]] = {}
        self._names = 0
        self._binding_scope: dict[Symbol, tuple[Scope, str]] = {}

    def name(self) -> str:
        self._names += 1
        return f"tmp{self._names - 1}"

    # ---- analysis ---------------------------------------------------------------------------------------------------------------------------

    def _node(self, value: Value) -> _Node:
        found = self._nodes.get(id(value))
        if found is not None:
            return found[1]
        children = [self._nodes[id(child)][1] for child in value_children(value)]
        key: tuple[object, ...]
        symbols: frozenset[Symbol] = frozenset().union(*(child.symbols for child in children)) if children else frozenset()
        buffers: frozenset[str] = frozenset().union(*(child.buffers for child in children)) if children else frozenset()
        touches, fails = any(child.touches for child in children), any(child.fails for child in children)
        numbers = tuple(child.number for child in children)
        match value:
            case Constant(dtype, constant):
                key = ("constant", dtype, repr(constant))
            case IndexValue(dtype, expression):
                key = ("index", dtype, expression)
                symbols = symbols | free_symbols(expression)
            case Load(dtype, buffer, index, bindings, checks):
                key = ("load", buffer, index, tuple(symbol for symbol, _ in bindings), checks, numbers)
                own = frozenset(symbol for symbol, _ in bindings)
                symbols = symbols | (free_symbols(index).union(*(free_symbols(size) for _, size in checks)) - own)
                buffers = buffers | {buffer}
                touches, fails = True, fails or bool(checks)
            case Apply(dtype, operator, _):
                key = ("apply", dtype, operator, numbers)
                fails = fails or OPERATORS[operator].can_fail and dtype.is_integral
                touches = touches or fails
            case Cast(dtype, _):
                key = ("cast", dtype, numbers)
            case Masked(dtype, _, _, _):
                key = ("masked", dtype, numbers)
            case _:
                raise TypeError(value)
        node = _Node(self._numbers.setdefault(key, len(self._numbers)), symbols, buffers, touches, fails)
        self._nodes[id(value)] = (value, node)
        return node

    def _post_order(self, value: Value) -> Iterator[tuple[Value, bool]]:
        """Every node, children first, with whether it is reached outside the bodies of `Masked` nodes; ``(node, False)`` is for analysis only."""
        outside: set[int] = set()
        stack = [value]
        while stack:
            node = stack.pop()
            if id(node) in outside:
                continue
            outside.add(id(node))
            stack.extend(value_children(node) if not isinstance(node, Masked) else (node.mask, node.other))
        seen: set[int] = set()
        pending: list[tuple[Value, bool]] = [(value, False)]
        while pending:
            node, ready = pending.pop()
            if ready:
                yield node, id(node) in outside
            elif id(node) not in seen:
                seen.add(id(node))
                pending.append((node, True))
                pending.extend((child, False) for child in reversed(value_children(node)))

    # ---- emission ---------------------------------------------------------------------------------------------------------------------------

    def emit(self, value: Value, scope: Scope, mask: Emitted | None = None) -> Emitted:
        """The value at ``scope``'s point; under ``mask`` memory is touched only where it holds."""
        result: Emitted | None = None
        for node, outside in self._post_order(value):
            self._node(node)
            if outside:
                result = self._emit_one(node, scope, mask)
        assert result is not None
        return result

    def _emit_one(self, value: Value, scope: Scope, mask: Emitted | None) -> Emitted:
        node = self._node(value)
        if isinstance(value, Constant):
            return Emitted(literal(value.dtype, value.value), "")
        if isinstance(value, Load) and value.buffer in self.made:
            for candidate in reversed(scope.chain()):
                if value.buffer in candidate.locals:
                    return candidate.locals[value.buffer]
        key = (node.number, mask if node.touches else None)
        chain = scope.chain()
        for candidate in chain:
            if key in candidate.memo:
                return candidate.memo[key]
            if (node.number, None) in candidate.memo:
                return candidate.memo[node.number, None]
        home = self._home(node, chain, mask)
        home.memo[key] = result = self._write(value, home, mask if node.touches else None)
        return result

    def _home(self, node: _Node, chain: list[Scope], mask: Emitted | None) -> Scope:
        """The outermost scope where everything the value depends on is known. What can fail or is masked stays where it is."""
        if node.fails or (mask is not None and node.touches):
            return self._failing_home(node, chain) if mask is None else chain[-1]
        loops = frozenset().union(*(scope.known for scope in chain))
        needed = node.symbols & loops
        local = {name for name in node.buffers if name in self.made}
        known: set[Symbol] = set()
        available: set[str] = set()
        for scope in chain:
            known |= scope.known
            available |= set(scope.locals)
            if needed <= known and (local <= available or not local & self._local_names(chain)):
                return scope if not local or local <= available else chain[-1]
        return chain[-1]

    def _failing_home(self, node: _Node, chain: list[Scope]) -> Scope:
        """Checked loads of scalars per row (an embedding's index) are made once per row, not per element."""
        loops = frozenset().union(*(scope.known for scope in chain))
        needed = node.symbols & loops
        if any(name in self.made for name in node.buffers):
            return chain[-1]
        known: set[Symbol] = set()
        for scope in chain:
            known |= scope.known
            if needed <= known:
                return scope
        return chain[-1]

    def _local_names(self, chain: list[Scope]) -> set[str]:
        return set().union(*(set(scope.locals) for scope in chain))

    def _define(self, scope: Scope, text: str) -> Emitted:
        name = self.name()
        scope.lines.append(f"auto {name} = {text};")
        return Emitted(name, scope.width)

    def _argument(self, value: Value, scope: Scope, mask: Emitted | None) -> str:
        return self._emit_one(value, scope, mask).at(scope.width)

    def _write(self, value: Value, scope: Scope, mask: Emitted | None) -> Emitted:
        width = scope.width
        match value:
            case IndexValue(dtype, expression):
                return self._define(scope, self._index_value(dtype, expression, scope))
            case Load():
                return self._load(value, scope, mask)
            case Apply(dtype, operator, arguments):
                texts = [self._argument(argument, scope, mask) for argument in arguments]
                return self._define(scope, self._apply(dtype, operator, texts, scope, mask))
            case Cast(dtype, argument):
                source = self._source_dtype(argument)
                inner = self._emit_one(argument, scope, mask)
                if dtype is source or dtype is DType.f32 and source in _HALF:
                    return inner
                return self._define(scope, f"cast<{STORAGE_TYPES[dtype]}>({inner.at(width)})")
            case Masked(_, condition, body, other):
                return self._masked(condition, body, other, scope, mask)
        raise TypeError(value)

    def _source_dtype(self, value: Value) -> DType:
        return value.dtype

    def _apply(self, dtype: DType, operator: str, texts: list[str], scope: Scope, mask: Emitted | None) -> str:
        if operator in INFIX:
            text = f"{texts[0]} {INFIX[operator]} {texts[1]}"
        elif operator in PREFIX:
            text = f"{PREFIX[operator]}{texts[0]}"
        elif operator in CHECKED:
            text = f"{operator}({', '.join(texts)}, {self._wanted(scope, mask)}, status)"
        else:
            text = f"{operator}({', '.join(texts)})"
        return f"{_HALF[dtype]}({text})" if dtype in _HALF and operator not in EXACT else text

    def _wanted(self, scope: Scope, mask: Emitted | None) -> str:
        active = f"active<{scope.width}>({scope.lanes})"
        return active if mask is None else f"({active} & {mask.at(scope.width)})"

    def index(self, expression: Expression) -> str:
        return index_text(expression, self.ranges)

    def lane_index(self, expression: Expression, scope: Scope, arrays: Mapping[Symbol, str]) -> str:
        """The index of element ``lane`` of the vector, for gather and scatter."""
        if scope.vector is not None:
            expression = substitute(expression, {scope.vector: scope.vector + LANE})
        text = {symbol: Symbol(f"{name}[lane]") for symbol, name in arrays.items()}
        return self.index(substitute(expression, text))

    def _index_value(self, dtype: DType, expression: Expression, scope: Scope) -> str:
        kind = "int64_t" if dtype is DType.b8 else VALUE_TYPES[dtype]
        stride = ZERO if scope.vector is None or scope.width == "1" else coefficient(expression, scope.vector)
        if stride == ZERO:
            text = f"splat<{scope.width}>(({kind})({self.index(expression)}))"
        elif stride is not None:
            text = f"index_sequence<{kind}, {scope.width}>({self.index(expression)}, {self.index(stride)})"
        else:
            text = f"index_values<{kind}, {scope.width}>([=](int lane) AOT_LAMBDA {{ return {self.lane_index(expression, scope, {})}; }})"
        if dtype in _HALF:
            return f"{_HALF[dtype]}({text})"
        return f"cast<bool>({text})" if dtype is DType.b8 else text

    def _masked(self, condition: Value, body: Value, other: Value, scope: Scope, mask: Emitted | None) -> Emitted:
        chosen = self._emit_one(condition, scope, mask)
        inner = chosen
        if mask is not None:
            inner = self._define(scope, f"{mask.at(scope.width)} & {chosen.at(scope.width)}")
        value = self.emit(body, scope, inner)
        otherwise = self._argument(other, scope, mask)
        return self._define(scope, f"where({chosen.at(scope.width)}, {value.at(scope.width)}, {otherwise})")

    def _load(self, load: Load, scope: Scope, mask: Emitted | None) -> Emitted:
        pointer, width, lanes = self.pointers[load.buffer], scope.width, scope.lanes
        wanted = mask
        index, arrays = self.bind(load.index, load.bindings, load.checks, scope, mask)
        if load.checks and (arrays or mask is not None or scope.width != "1"):
            wanted = self.checked(load.bindings, load.checks, scope, mask)
        stride = self._stride(index, scope, arrays)
        if stride == ZERO and width != "1":
            if wanted is None:
                return self._define(scope, f"splat<{width}>(load<1>({pointer} + {self.index(index)}, AllLanes()))")
            stride = None
        if stride in (ZERO, ONE):
            place = pointer if index == ZERO else f"{pointer} + {self.index(index)}"
            if wanted is None:
                return self._define(scope, f"load<{width}>({place}, {lanes})")
            return self._define(scope, f"load_masked<{width}>({place}, {lanes}, {wanted.at(width)})")
        function = f"[&](int lane) AOT_LAMBDA {{ return {self.lane_index(index, scope, arrays)}; }}"
        if wanted is None:
            return self._define(scope, f"gather<{width}>({pointer}, {lanes}, {function})")
        return self._define(scope, f"gather_masked<{width}>({pointer}, {lanes}, {wanted.at(width)}, {function})")

    def _stride(self, index: Expression, scope: Scope, arrays: Mapping[Symbol, str]) -> Expression | None:
        if any(symbol in arrays for symbol in free_symbols(index)):
            return None
        return ZERO if scope.vector is None or scope.width == "1" else coefficient(index, scope.vector)

    def bind(self, index: Expression, bindings: tuple[tuple[Symbol, Value], ...], checks: tuple[tuple[Symbol, Expression], ...], scope: Scope,
             mask: Emitted | None) -> tuple[Expression, dict[Symbol, str]]:
        """Computes the data in an index: a scalar variable where it is the same for the whole vector, else an array of one index per lane."""
        arrays: dict[Symbol, str] = {}
        scalars: dict[Symbol, Expression] = {}
        for symbol, value in bindings:
            emitted = self.emit(value, scope, mask)
            if emitted.width == "N":
                key = ("array", emitted.text)
                if key not in scope.memo:
                    name = self.name()
                    scope.lines.append(f"auto {name} = lane_array({emitted.text});")
                    scope.memo[key] = Emitted(name, "N")
                arrays[symbol] = scope.memo[key].text
            else:
                scalars[symbol] = self._scalar(symbol, emitted, checks, scope, mask)
        return substitute(index, scalars), arrays

    def _scalar(self, symbol: Symbol, emitted: Emitted, checks: tuple[tuple[Symbol, Expression], ...], scope: Scope,
                mask: Emitted | None) -> Expression:
        """An index that is one number here: checked at once, in the outermost scope that knows it."""
        limits = tuple(size for checked, size in checks if checked == symbol)
        home = next((s for s in scope.chain() if emitted in s.memo.values()), scope)
        key = ("scalar", emitted.text, limits if mask is None else None)
        if key not in home.memo:
            name = self.name()
            home.lines.append(f"const int64_t {name} = {emitted.text if emitted.width == '' else f'element({emitted.text}, 0)'};")
            if mask is None and home.width == "1":
                for size in limits:
                    home.lines.append(f"if ({name} < 0 || {name} >= {self.index(size)}) return 1;")
            home.memo[key] = Emitted(name, "1")
        return Symbol(home.memo[key].text)

    def checked(self, bindings: tuple[tuple[Symbol, Value], ...], checks: tuple[tuple[Symbol, Expression], ...], scope: Scope,
                mask: Emitted | None) -> Emitted | None:
        """The lanes whose indices are inside; None if all were checked as scalars."""
        wanted = mask
        values = dict(bindings)
        for symbol, size in checks:
            emitted = self.emit(values[symbol], scope, mask)
            home = next((s for s in scope.chain() if emitted in s.memo.values()), scope)
            if emitted.width == "1" and mask is None and home.width == "1":
                continue
            current = f"splat<{scope.width}>(true)" if wanted is None else wanted.at(scope.width)
            wanted = self._define(scope, f"in_range<{scope.width}>({emitted.at(scope.width)}, {self.index(size)}, {scope.lanes}, {current}, status)")
        return wanted
