"""A long reduction to few results, spread over the threads in fixed parts.

Each part accumulates into a place of its own; the parts are then combined in order, so the result is the same for any number of threads.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from aotcompile.ir.expression import Symbol
from aotcompile.ir.linear import product, static
from aotcompile.codegen.cpp.stages import COMBINE, StageWriter
from aotcompile.codegen.cpp.values import Scope

if TYPE_CHECKING:
    from aotcompile.codegen.cpp.kernel import KernelWriter, Layout

PARTS = 64


class SplitReduction:
    def __init__(self, kernel: "KernelWriter", layout: "Layout") -> None:
        self._kernel = kernel
        self._layout = layout
        self._stage = kernel.kernel.stages[0]

    def write(self) -> None:
        kernel, layout, stage = self._kernel, self._layout, self._stage
        cut = max(stage.inner, key=lambda loop: (static(loop.size) is None, static(loop.size) or 0))
        rows = product(loop.size for loop in layout.rows)
        line = kernel.line
        size = kernel.index(cut.size)
        line(f"constexpr int PARTS = {PARTS};")
        line(f"const int64_t step = ({size} + PARTS * 64 - 1) / (PARTS * 64) * 64;       // elements of one part")
        count = static(rows) or 1
        vectors = 1
        if layout.vector is not None:
            vectors = static(layout.vector.size) or 1
        # a scope to learn the accumulators from; its text is written below
        probe = StageWriter(kernel, Scope("N", "lanes", set()), layout.vector.variable if layout.vector else None)
        accumulators = probe.open_accumulators(stage)
        types = [probe.storage_type(a) for a in accumulators]
        for k, kind in enumerate(types):
            line(f"{kind} parts{k}[{count * vectors} * PARTS];")
        pointers = ", ".join(f"&parts{k}" for k in range(len(types)))
        inside = kernel.point_cost() * vectors
        line(f"int32_t failed = parallel_for({count} * PARTS, ({kernel.index(inside)}) / PARTS + 1, [=, {pointers}](int64_t begin, int64_t end) {{")
        self._parts(cut.variable, size, count, vectors)
        line("});")
        line("if (failed != 0) return failed;")
        self._combine(count, vectors)

    def _parts(self, cut: Symbol, size: str, count: int, vectors: int) -> None:
        kernel, layout, stage = self._kernel, self._layout, self._stage
        kernel.depth += 1
        kernel.declare_buffers()
        kernel.line("int32_t status = 0;")
        kernel.line("for (int64_t item = begin; item < end; ++item) {")
        kernel.depth += 1
        kernel.line("const int64_t row = item / PARTS, part = item % PARTS;")
        kernel.line(f"const int64_t part_first = minimum_index(part * step, {size}), part_last = minimum_index(part_first + step, {size});")
        if layout.rows:
            kernel.start_rows(list(layout.rows), "row")
        row = Scope("1", "AllLanes()", {loop.variable for loop in layout.rows})
        limits = {cut: ("part_first", "part_last")}
        if layout.vector is None:
            writer = StageWriter(kernel, row, None)
            accumulators = writer.open_accumulators(stage)
            writer.loops(stage, accumulators, limits)
            for k, a in enumerate(accumulators):
                row.lines.append(f"store<1>(parts{k} + item, reduce_lanes<{COMBINE[a.kind]}>({a.name}), AllLanes());")
            kernel.emit_lines(row.lines)
        else:
            variable = layout.vector.variable
            vector = Scope("N", "lanes", {variable}, row, variable)
            writer = StageWriter(kernel, vector, variable)
            accumulators = writer.open_accumulators(stage)
            writer.loops(stage, accumulators, limits)
            for k, a in enumerate(accumulators):
                vector.lines.append(f"store<N>(parts{k} + item * {vectors} + {variable}, {a.name}, lanes);")
            kernel.emit_lines(row.lines)
            kernel.line(f"vector_loop<N>(0, {vectors}, [&](int64_t {variable}, auto lanes) AOT_LAMBDA {{")
            kernel.depth += 1
            kernel.emit_lines(vector.lines)
            kernel.depth -= 1
            kernel.line("});")
        kernel.depth -= 1
        kernel.line("}")
        kernel.line("return status;")
        kernel.depth -= 1

    def _combine(self, count: int, vectors: int) -> None:
        """One thread adds the parts up and does the stages after the reduction."""
        kernel, layout, stage = self._kernel, self._layout, self._stage
        kernel.declare_buffers()
        kernel.line("int32_t status = 0;")
        kernel.line(f"for (int64_t row = 0; row < {count}; ++row) {{")
        kernel.depth += 1
        if layout.rows:
            kernel.start_rows(list(layout.rows), "row")
        row = Scope("1", "AllLanes()", {loop.variable for loop in layout.rows})
        variable = layout.vector.variable if layout.vector else None
        scope = row if variable is None else Scope("N", "lanes", {variable}, row, variable)
        writer = StageWriter(kernel, scope, variable, combined=True)
        place = "row * PARTS + part" if variable is None else f"(row * PARTS + part) * {vectors} + {variable}"
        width, lanes = scope.width, scope.lanes
        for k, a in enumerate(writer.open_accumulators(stage)):
            part = f"load<{width}>(parts{k} + {place}, {lanes})"
            scope.lines.append(f"for (int64_t part = 0; part < PARTS; ++part) {a.name} = {COMBINE[a.kind]}::combine({a.name}, {part});")
            writer.finish(a)
        for later in kernel.kernel.stages[1:]:
            writer.write(later)
        kernel.emit_lines(row.lines)
        if layout.vector is not None:
            kernel.line(f"vector_loop<N>(0, {vectors}, [&](int64_t {variable}, auto lanes) AOT_LAMBDA {{")
            kernel.depth += 1
            kernel.emit_lines(scope.lines)
            kernel.depth -= 1
            kernel.line("});")
        kernel.depth -= 1
        kernel.line("}")
        kernel.line("return status;")
