"""Text of a stage: loops over what is reduced, values, accumulators, stores."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import ONE, ZERO, Expression, Symbol
from aotcompile.ir.linear import coefficient, product, static
from aotcompile.ir.nodes import Compute, Loop
from aotcompile.codegen.cpp.text import STORAGE_TYPES, VALUE_TYPES, vector_type
from aotcompile.codegen.cpp.values import Emitted, Scope
from aotcompile.ir.expression import free_symbols
from aotcompile.schedule.types import Stage

if TYPE_CHECKING:
    from aotcompile.codegen.cpp.kernel import KernelWriter

COMBINE = {"sum": "Sum", "product": "Product", "maximum": "Maximum", "minimum": "Minimum", "any": "Any", "all": "All", "xor_sum": "XorSum"}
ROW_BLOCK, COLUMN_BLOCK = 8192, 128   # elements added up one by one before a sum moves on to the next partial sum


def is_scatter(compute: Compute) -> bool:
    return compute.store.mode == "add" or bool(compute.store.bindings)


def identity(kind: str, dtype: DType, width: str) -> str:
    """The value that changes nothing in a reduction."""
    if dtype is DType.b8:
        return f"splat<{width}>({'true' if kind in ('all', 'minimum', 'product') else 'false'})"
    value = VALUE_TYPES[dtype]
    if kind in ("sum", "xor_sum", "any"):
        return f"splat<{width}>(({value})0)"
    if kind in ("product",):
        return f"splat<{width}>(({value})1)"
    if kind == "all":
        return f"splat<{width}>(({value})-1)"
    lowest = kind in ("maximum", "argmax")
    if dtype.is_floating:
        return f"splat<{width}>({'-' if lowest else ''}({value})__builtin_inf())"
    bits = 8 * dtype.itemsize
    if dtype.kind == "uint":
        return f"splat<{width}>(({value}){0 if lowest else 2**bits - 1})"
    if bits == 64:
        return f"splat<{width}>({'INT64_MIN' if lowest else 'INT64_MAX'})"
    return f"splat<{width}>(({value}){f'(-{2**(bits - 1)})' if lowest else 2**(bits - 1) - 1})"


@dataclass
class Accumulator:
    compute: Compute
    name: str
    dtype: DType                       # of the accumulator; for argmax/argmin of the compared values
    kind: str
    partial: str = ""                  # name of the inner partial sum, where sums are added up in blocks

    @property
    def is_position(self) -> bool:
        return self.kind in ("argmax", "argmin")


class StageWriter:
    """Writes stages into ``scope`` (a row, or a vector of outer points if ``vector`` is set)."""

    def __init__(self, kernel: "KernelWriter", scope: Scope, vector: Symbol | None, combined: bool = False) -> None:
        self._combined = combined            # accumulators hold one finished value per point, not one per lane
        self._kernel = kernel
        self._values = kernel.values
        self._scope = scope
        self._vector = vector

    def write(self, stage: Stage) -> None:
        if not stage.inner:
            for compute in stage.computes:
                self._compute(compute, self._scope, [])
            return
        accumulators = self.open_accumulators(stage)
        if all(loop.size != ZERO for loop in stage.inner):
            self.loops(stage, accumulators, {})
        for accumulator in accumulators:
            self.finish(accumulator)

    # ---- accumulators -----------------------------------------------------------------------------------------------------------------------

    def open_accumulators(self, stage: Stage) -> list[Accumulator]:
        accumulators: list[Accumulator] = []
        blocked = self._blocked(stage)
        for compute in stage.computes:
            if compute.reduction is None:
                continue
            kind = compute.reduction.kind
            dtype = compute.body.dtype if kind in ("argmax", "argmin") else compute.reduction.accumulate
            if kind in ("any", "all") and dtype is not DType.b8:
                dtype = DType.b8
            name = self._values.name().replace("tmp", "total" if kind == "sum" else "best" if kind in ("argmax", "argmin") else "accumulated")
            accumulator = Accumulator(compute, name, dtype, kind)
            if blocked and kind == "sum" and dtype.is_floating:
                accumulator.partial = name.replace("total", "part")
            accumulators.append(accumulator)
            self._scope.lines.append(f"{self._accumulator_type(accumulator)} {name}{{{self._start(accumulator)}}};" if accumulator.is_position
                                     else f"{self._accumulator_type(accumulator)} {name} = {self._start(accumulator)};")
        return accumulators

    def _start(self, accumulator: Accumulator) -> str:
        return identity(accumulator.kind, self._compared(accumulator.dtype) if accumulator.is_position else accumulator.dtype, self._width())

    def _width(self) -> str:
        return self._scope.width if self._combined else "N"

    def storage_type(self, accumulator: Accumulator) -> str:
        """Element type of an array that holds the accumulator's values."""
        return STORAGE_TYPES[accumulator.dtype]

    @staticmethod
    def _compared(dtype: DType) -> DType:
        return DType.u8 if dtype is DType.b8 else dtype

    def _accumulator_type(self, accumulator: Accumulator) -> str:
        if accumulator.is_position:
            return f"Extreme<{VALUE_TYPES[self._compared(accumulator.dtype)]}, N, {'true' if accumulator.kind == 'argmax' else 'false'}>"
        return vector_type(accumulator.dtype, self._width())

    def _blocked(self, stage: Stage) -> bool:
        points = static(product(loop.size for loop in stage.inner))
        return points is None or points > (ROW_BLOCK if self._vector is None else COLUMN_BLOCK)

    def finish(self, accumulator: Accumulator) -> None:
        """The accumulator's value as the result of its compute, stored if it leaves the kernel."""
        scope, compute = self._scope, accumulator.compute
        result_dtype = self._kernel.result_type(compute)
        name = accumulator.name
        if accumulator.is_position:
            text = f"{name}.reduced()" if self._vector is None else f"{name}.result()"
            dtype = DType.i64
        else:
            text = f"reduce_lanes<{COMBINE[accumulator.kind]}>({name})" if self._vector is None and not self._combined else name
            dtype = accumulator.dtype
        if result_dtype is not dtype:
            text = f"cast<{STORAGE_TYPES[result_dtype]}>({text})"
        value = self._define(scope, text)
        self._store(compute, value, scope, None)
        scope.locals[compute.result] = value

    def _define(self, scope: Scope, text: str) -> Emitted:
        name = self._values.name()
        scope.lines.append(f"auto {name} = {text};")
        return Emitted(name, scope.width)

    # ---- loops ------------------------------------------------------------------------------------------------------------------------------

    def loops(self, stage: Stage, accumulators: list[Accumulator], limits: dict[Symbol, tuple[str, str]]) -> None:
        """The stage's loops; ``limits`` replaces a loop's bounds (a part of a split reduction)."""
        index = self._kernel.index
        scopes: list[tuple[Scope, Loop]] = []
        parent = self._scope
        for loop in stage.inner:
            vectorised = loop is stage.inner[-1] and self._vector is None
            width = "N" if vectorised else parent.width
            scope = Scope(width, "lanes" if vectorised else parent.lanes, {loop.variable}, parent, loop.variable if vectorised else self._vector)
            scopes.append((scope, loop))
            parent = scope
        innermost = scopes[-1][0]
        for compute in stage.computes:
            self._compute(compute, innermost, accumulators, stage)
        partials = [a for a in accumulators if a.partial]
        text: list[str] = [f"  {line}" for line in innermost.lines]
        loop = stage.inner[-1]
        first, last = limits.get(loop.variable, ("0", index(loop.size)))
        block = ROW_BLOCK if self._vector is None else COLUMN_BLOCK
        cut = bool(partials) and (static(loop.size) is None or (static(loop.size) or 0) > block)
        low, high = ("start", f"minimum_index(start + {block}, {last})") if cut else (first, last)
        if self._vector is None:
            text = [f"vector_loop<N>({low}, {high}, [&](int64_t {loop.variable}, auto lanes) AOT_LAMBDA {{", *text, "});"]
        elif cut:
            text = [f"for (int64_t {loop.variable} = {low}, stop = {high}; {loop.variable} < stop; ++{loop.variable}) {{", *text, "}"]
        else:
            text = [f"for (int64_t {loop.variable} = {low}; {loop.variable} < {high}; ++{loop.variable}) {{", *text, "}"]
        if partials:
            opening = [f"{self._accumulator_type(a)} {a.partial} = {self._start(a)};" for a in partials]
            text = [*opening, *text, *(f"{a.name} = {a.name} + {a.partial};" for a in partials)]
        if cut:
            text = [f"for (int64_t start = {first}; start < {last}; start += {block}) {{", *(f"  {line}" for line in text), "}"]
        for scope, loop in reversed(scopes[:-1]):
            first, last = limits.get(loop.variable, ("0", index(loop.size)))
            body = [f"  {line}" for line in (*scope.lines, *text)]
            text = [f"for (int64_t {loop.variable} = {first}; {loop.variable} < {last}; ++{loop.variable}) {{", *body, "}"]
        self._scope.lines.extend(text)

    # ---- one compute ------------------------------------------------------------------------------------------------------------------------

    def _compute(self, compute: Compute, scope: Scope, accumulators: list[Accumulator], stage: Stage | None = None) -> None:
        value = self._values.emit(compute.body, scope)
        if compute.reduction is None:
            self._store(compute, value, scope, None)
            scope.locals[compute.result] = value
            return
        assert stage is not None
        accumulator = next(a for a in accumulators if a.compute is compute)
        self._accumulate(accumulator, value, scope, stage)

    def _accumulate(self, accumulator: Accumulator, value: Emitted, scope: Scope, stage: Stage) -> None:
        compute = accumulator.compute
        rows = self._vector is None
        text = value.at("N")
        if accumulator.is_position:
            if compute.body.dtype is DType.b8:
                text = f"cast<uint8_t>({text})"
            position: Expression = ZERO
            for loop in stage.inner:
                position = position * loop.size + loop.variable
            place = self._kernel.index(position)
            at = f"index_sequence<int64_t, N>({place}, 1)" if rows else f"splat<N>((int64_t)({place}))"
            scope.lines.append(f"{accumulator.name}.update({text}, {at}, {'active<N>(lanes)' if rows else 'splat<N>(true)'});")
            return
        source = compute.body.dtype
        if source is not accumulator.dtype and not (source in (DType.f16, DType.bf16) and accumulator.dtype is DType.f32):
            text = f"cast<{STORAGE_TYPES[accumulator.dtype]}>({text})"
        if rows:
            text = f"where_active(lanes, {text}, {self._start(accumulator)})"
        target = accumulator.partial or accumulator.name
        scope.lines.append(f"{target} = {COMBINE[accumulator.kind]}::combine({target}, {text});")

    # ---- stores -----------------------------------------------------------------------------------------------------------------------------

    def _store(self, compute: Compute, value: Emitted, scope: Scope, mask: Emitted | None) -> None:
        pointer = self._kernel.pointers.get(compute.result)
        if pointer is None:
            return
        store, values, width = compute.store, self._values, scope.width
        text = value.at(width)
        index, arrays = values.bind(store.index, store.bindings, store.checks, scope, mask)
        wanted = values.checked(store.bindings, store.checks, scope, mask) if store.checks and (arrays or width != "1") else mask
        varying = any(symbol in arrays for symbol in free_symbols(index))
        stride: Expression | None = None if varying else ZERO if scope.vector is None or width == "1" else coefficient(index, scope.vector)
        place = pointer if index == ZERO else f"{pointer} + {values.index(index)}"
        contiguous = (stride == ONE or width == "1") and wanted is None and not varying
        if contiguous:
            function = "store_add" if store.mode == "add" else "store"
            scope.lines.append(f"{function}<{width}>({place}, {text}, {scope.lanes});")
            return
        if stride == ZERO and width == "N" and store.mode == "assign" and wanted is None:
            scope.lines.append(f"store<1>({place}, splat<1>(element({text}, count_of<N>({scope.lanes}) - 1)), AllLanes());")
            return
        at = f"[&](int lane) AOT_LAMBDA {{ return {values.lane_index(index, scope, arrays)}; }}"
        if store.mode == "add":
            active = f"active<{width}>({scope.lanes})" if wanted is None else wanted.at(width)
            scope.lines.append(f"scatter_add<{width}>({pointer}, {text}, {scope.lanes}, {active}, {at});")
        elif wanted is None:
            scope.lines.append(f"scatter<{width}>({pointer}, {text}, {scope.lanes}, {at});")
        else:
            scope.lines.append(f"scatter_masked<{width}>({pointer}, {text}, {scope.lanes}, {wanted.at(width)}, {at});")
