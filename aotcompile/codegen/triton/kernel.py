"""One `FusedKernel` as a ``@triton.jit`` function.

    # aten.softmax  model.py:12
    @triton.jit
    def triton_red_fused_softmax_0(x_ptr, out_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
        x = ...                                            rows of this program
        # stage 0: maximum                                 a block of a row, or a loop over blocks with a running value per lane
        # stage 1: sum
        # stage 2                                          pointwise, stores
"""
from __future__ import annotations

from collections.abc import Mapping

from aotcompile.base.writer import Writer
from aotcompile.codegen.triton.operators import TRITON, cast
from aotcompile.codegen.triton.shape import NOWHERE, Axes, R, Shape, X, all_computes, shape_of
from aotcompile.codegen.triton.values import Scope, Term, Values
from aotcompile.ir.dtypes import DType
from aotcompile.ir.nodes import Buffer, Compute, Load
from aotcompile.ir.traverse import compute_values, walk
from aotcompile.schedule.types import FusedKernel, Stage, parameters

_COMBINE = {"product": "combine_product", "maximum": "combine_maximum", "minimum": "combine_minimum", "xor_sum": "combine_exclusive_or",
            "argmax": "combine_first_maximum", "argmin": "combine_first_minimum"}
_LAST = (1 << 63) - 1


class KernelWriter:
    """Writes one kernel. ``names``: its parameters' names, by buffer."""

    def __init__(self, kernel: FusedKernel, buffers: Mapping[str, Buffer], shape: Shape, names: Mapping[str, str]) -> None:
        self._kernel = kernel
        self._buffers = buffers
        self._shape = shape
        self._names = names
        self._values = Values(shape, names, {name: buffer.dtype for name, buffer in buffers.items()})
        self._top = self._values.scope
        self._barrier: set[str] = set()                    # stored by an earlier stage, not yet visible to all threads
        self._accumulators = 0

    def write(self, out: Writer) -> None:
        kernel, shape = self._kernel, self._shape
        for line in _comments(kernel):
            out.line(f"# {line}")
        blocks = {"pointwise": ["XBLOCK: tl.constexpr"], "reduction": ["XBLOCK: tl.constexpr", "RBLOCK: tl.constexpr"], "sequential": []}[shape.kind]
        arguments = [*(self._names[name] for name in parameters(kernel)), *(symbol.name for symbol in kernel.symbols), *blocks]
        out.line("@triton.jit")
        text = f"def {kernel.name}({', '.join(arguments)}):"
        if len(text) <= 140:
            out.line(text)
        else:
            out.line(f"def {kernel.name}(")
            with out.indented():
                _filled(out, arguments)
            out.line("):")
        self._prologue()
        for number, stage in enumerate(kernel.stages):
            self._stage(number, stage)
        with out.indented():
            out.lines(self._top.lines)

    def _prologue(self) -> None:
        shape, lines = self._shape, self._top.lines
        values = self._values
        if shape.kind == "sequential":
            return
        program = "tl.program_id(0)" + (".to(tl.int64)" if shape.index == "i64" else "")
        lanes = "tl.arange(0, XBLOCK)" + ("[:, None]" if shape.kind == "reduction" else "")
        lines.append(f"x = {program} * XBLOCK + {lanes}")
        if shape.x_masked:
            lines.append(f"x_mask = x < {values.index(shape.x_count)}")
        if shape.kind == "reduction":
            lanes = "tl.arange(0, RBLOCK)[None, :]" + (".to(tl.int64)" if shape.index == "i64" else "")
            lines.append(f"{'r' if shape.persistent else 'r_lanes'} = {lanes}")
            if shape.persistent and shape.r_masked:
                lines.append(f"r_mask = r < {values.index(shape.r_count)}")

    # ---- stages ---------------------------------------------------------------------------------------------------------------------------

    def _stage(self, number: int, stage: Stage) -> None:
        lines = self._top.lines
        if len(self._kernel.stages) > 1:
            kinds = dict.fromkeys(compute.reduction.kind if compute.reduction else "pointwise" for compute in stage.computes)
            lines.append(f"# stage {number}: {', '.join(kinds)}")
        if self._reads_stored(stage):
            lines.append("tl.debug_barrier()                # what other threads of this program stored is read now")
            self._barrier.clear()
        if self._shape.kind == "sequential":
            self._sequential(stage)
        elif not stage.inner and not any(compute.reduction for compute in stage.computes):
            self._block_of_points(stage, frozenset((X,)), False)
        elif self._shape.persistent:
            self._block_of_points(stage, frozenset((X, R)), True)
        else:
            self._looped(stage)

    def _reads_stored(self, stage: Stage) -> bool:
        return any(isinstance(node, Load) and node.buffer in self._barrier and node.buffer not in self._values.made
                   for compute in stage.computes for value in compute_values(compute) for node in walk(value))

    def _block_of_points(self, stage: Stage, axes: Axes, inside: bool) -> None:
        values = self._values
        values.inside = inside
        for compute in stage.computes:
            if compute.result in values.made:
                continue                                   # evaluated by an earlier stage; the block still has it
            if compute.reduction is None:
                self._pointwise(compute, axes)
            else:
                self._whole_row(compute)
        values.inside = False

    def _pointwise(self, compute: Compute, axes: Axes) -> None:
        term = self._values.value(compute.body)
        if compute.result in self._names and compute.result in self._kernel.outputs:
            self._store(compute, term, axes)
        if compute.store.mode == "assign" and not compute.store.bindings:
            self._values.made[compute.result] = term

    def _store(self, compute: Compute, term: Term, axes: Axes) -> None:
        values = self._values
        dtype = self._buffers[compute.result].dtype
        pointer, mask, place = values.store_place(compute.store, compute.result, axes)
        text = term.text if not term.literal else f"tl.full([], {term.text}, {TRITON[term.dtype]})"
        text = cast(text, term.dtype, dtype)
        lines = values.scope.lines
        if compute.store.mode == "assign":
            if place and term.axes < place and len(place) == 2 and term.axes:
                text = f"tl.broadcast_to({text}, {self._shape.block(place)})"
            lines.append(f"tl.store({pointer}, {text}{f', {mask}' if mask else ''})")
        elif self._shape.kind == "sequential":
            old = f"tl.load({pointer}{f', {mask}, other=0' if mask else ''})"
            total = f"{old} | {text}" if dtype is DType.b8 else f"{old} + {text}"
            lines.append(f"tl.store({pointer}, ({total}).to({TRITON[dtype]}){f', {mask}' if mask else ''})")
        else:
            if place and term.axes != place:
                text = f"tl.broadcast_to({text}, {self._shape.block(place)})"
            lines.append(f'tl.atomic_add({pointer}, {text}{f", {mask}" if mask else ""}, sem="relaxed")')
        self._barrier.add(compute.result)

    # ---- reductions -----------------------------------------------------------------------------------------------------------------------

    def _accumulated(self, compute: Compute) -> tuple[Term, DType]:
        """The value of one point in the accumulator's type, and that type (for argmax: the type of the values compared)."""
        assert compute.reduction is not None
        term = self._values.value(compute.body)
        dtype: DType = compute.reduction.accumulate
        if compute.reduction.kind in ("argmax", "argmin"):
            dtype = DType.i32 if term.dtype is DType.b8 else DType.f32 if term.dtype in (DType.f16, DType.bf16) else term.dtype
        elif compute.reduction.kind in ("any", "all"):
            term = Term(cast(self._typed(term), term.dtype, DType.b8), DType.b8, term.axes)
            dtype = DType.i32
        elif dtype is DType.b8:
            dtype = DType.i32
        text = cast(self._typed(term), term.dtype, dtype)
        return (self._values.name(text, dtype, term.axes) if text != term.text else term), dtype

    @staticmethod
    def _typed(term: Term) -> str:
        return f"tl.full([], {term.text}, {TRITON[term.dtype]})" if term.literal else term.text

    def _whole_row(self, compute: Compute) -> None:
        """The row is one block: combine its lanes at once."""
        assert compute.reduction is not None
        shape, kind = self._shape, compute.reduction.kind
        term, dtype = self._accumulated(compute)
        text = term.text
        if term.axes != shape.everywhere:
            text = f"tl.broadcast_to({text}, {shape.block(shape.everywhere)})"
        if shape.r_masked:
            text = f"tl.where(r_mask, {text}, {_identity(kind, dtype)})"
        if kind in ("argmax", "argmin"):
            position = "r.to(tl.int64)"
            if shape.r_masked:
                position = f"tl.where(r_mask, {position}, {_LAST})"
            text = f"tl.reduce(({text}, tl.broadcast_to({position}, {shape.block(shape.everywhere)})), 1, {_COMBINE[kind]})[1]"
            dtype = DType.i64
        else:
            text = _reduced(kind, text)
        self._finish(compute, f"{text}[:, None]", dtype)

    def _finish(self, compute: Compute, text: str, dtype: DType) -> None:
        values = self._values
        inside, values.inside = values.inside, False
        target = self._buffers[compute.result].dtype
        term = values.name(text, dtype, frozenset((X,)))
        if target is not dtype:
            term = values.name(cast(term.text, dtype, target), target, frozenset((X,)))
        if compute.result in self._kernel.outputs:
            self._store(compute, term, frozenset((X,)))
        values.made[compute.result] = term
        values.inside = inside

    def _looped(self, stage: Stage) -> None:
        """A loop over blocks of the row; each lane of a block has a running value, combined after the loop."""
        values, shape = self._values, self._shape
        before = dict(values.made)
        body = Scope(outer=self._top)
        lines = body.lines
        lines.append("r = r_offset + r_lanes")
        if shape.r_masked:
            lines.append(f"r_mask = r < {values.index(shape.r_count)}")
        finishing: list[tuple[Compute, str, DType]] = []
        opening: list[str] = []
        values.scope, values.inside = body, True
        for compute in stage.computes:
            if compute.reduction is None:
                self._pointwise(compute, shape.everywhere)
            else:
                finishing.append(self._running(compute, opening))
        values.scope, values.inside = self._top, False
        values.made = before
        top = self._top.lines
        top.extend(opening)
        top.append(f"for r_offset in range(0, {values.index(shape.r_count)}, RBLOCK):")
        top.extend(f"    {line}" for line in lines)
        for compute, text, dtype in finishing:
            self._finish(compute, text, dtype)

    def _running(self, compute: Compute, opening: list[str]) -> tuple[Compute, str, DType]:
        assert compute.reduction is not None
        values, shape, kind = self._values, self._shape, compute.reduction.kind
        term, dtype = self._accumulated(compute)
        name = f"running{self._accumulators}"
        self._accumulators += 1
        block, lines = shape.block(shape.everywhere), values.scope.lines
        opening.append(f"{name} = tl.full({block}, {_identity(kind, dtype)}, {TRITON[dtype]})")
        if kind in ("argmax", "argmin"):
            opening.append(f"{name}_at = tl.full({block}, {_LAST}, tl.int64)")
            there = f"tl.broadcast_to({term.text}, {block}), tl.broadcast_to(r.to(tl.int64), {block})"
            lines.append(f"{name}_next, {name}_next_at = {_COMBINE[kind]}({name}, {name}_at, {there})")
            condition = f"tl.broadcast_to(r_mask, {block})"
            pairs = [(f"{name}_next", name), (f"{name}_next_at", f"{name}_at")]
            lines.extend(f"{old} = tl.where({condition}, {new}, {old})" if shape.r_masked else f"{old} = {new}" for new, old in pairs)
            return compute, f"tl.reduce(({name}, {name}_at), 1, {_COMBINE[kind]})[1][:, None]", DType.i64
        new = _combined(kind, name, term.text, dtype)
        lines.append(f"{name} = tl.where(r_mask, {new}, {name})" if shape.r_masked else f"{name} = {new}")
        return compute, f"{_reduced(kind, name)}[:, None]", dtype

    def _sequential(self, stage: Stage) -> None:
        values, shape = self._values, self._shape
        body = Scope(outer=self._top)
        values.scope = body
        for compute in stage.computes:
            self._pointwise(compute, NOWHERE)
        values.scope = self._top
        self._top.lines.append(f"for x in range(0, {values.index(shape.x_count)}):")
        self._top.lines.extend(f"    {line}" for line in body.lines)


def _identity(kind: str, dtype: DType) -> str:
    if kind in ("maximum", "argmax", "minimum", "argmin"):
        low = kind in ("maximum", "argmax")
        if dtype.is_floating:
            return 'float("-inf")' if low else 'float("inf")'
        bits = 8 * dtype.itemsize
        if dtype.kind == "uint":
            return "0" if low else str((1 << bits) - 1)
        return str(-(1 << (bits - 1))) if low else str((1 << (bits - 1)) - 1)
    return {"product": "1", "all": "1"}.get(kind, "0") + (".0" if dtype.is_floating else "")


def _reduced(kind: str, text: str) -> str:
    """The lanes of axis 1 combined."""
    match kind:
        case "sum":
            return f"tl.sum({text}, 1)"
        case "any":
            return f"tl.max({text}, 1)"
        case "all":
            return f"tl.min({text}, 1)"
    return f"tl.reduce({text}, 1, {_COMBINE[kind]})"


def _combined(kind: str, running: str, new: str, dtype: DType) -> str:
    match kind:
        case "sum":
            return f"{running} + {new}"
        case "any":
            return f"tl.maximum({running}, {new})"
        case "all":
            return f"tl.minimum({running}, {new})"
    return f"{_COMBINE[kind]}({running}, {new})"


def _comments(kernel: FusedKernel) -> list[str]:
    """One line per place in the user's source: the operators that come from it."""
    places: dict[str, dict[str, None]] = {}
    for _, compute in all_computes(kernel):
        for origin in compute.origins:
            places.setdefault(origin.place, {})[origin.operator] = None
    return [f"{place}: {', '.join(operators)}" if place else ", ".join(operators) for place, operators in places.items()]


def _filled(out: Writer, items: list[str]) -> None:
    line = ""
    for item in items:
        if line and len(line) + len(item) > 120:
            out.line(line)
            line = ""
        line = f"{line} {item},".strip()
    out.line(line)


__all__ = ["KernelWriter", "shape_of"]
