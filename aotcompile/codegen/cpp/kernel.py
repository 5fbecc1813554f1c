"""Text of one kernel: the loops, spread over threads, and the stages inside them.

One loop is the vector loop. Where rows are reduced along contiguous memory it is each stage's innermost loop; everywhere else (pointwise kernels,
sums over columns) it is the last outer loop, and accumulators are whole vectors::

    parallel over rows                                parallel over rows and blocks of columns
      stage: vector loop over the row                   vector loop over the block
      stage: ...                                          stage: plain loops over what is reduced
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aotcompile.ir.cost import cost
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import ONE, ZERO, Expression, Integer, Symbol
from aotcompile.ir.linear import coefficient, exact_quotient, product, static
from aotcompile.ir.nodes import Buffer, Compute, IndexValue, Load, Loop
from aotcompile.ir.simplify import Ranges
from aotcompile.ir.traverse import compute_values, walk
from aotcompile.codegen.cpp.text import STORAGE_TYPES, VALUE_TYPES, index_text
from aotcompile.codegen.cpp.stages import StageWriter, is_scatter
from aotcompile.codegen.cpp.values import Scope, ValueWriter
from aotcompile.schedule.types import FusedKernel, parameters

BLOCK_WORK = 16384                    # work of one block of a loop that is cut for the threads
LONGEST_BLOCK = 4096
LONG_REDUCTION = 65536                # elements from which a reduction to few results is itself spread over the threads
REDUCTION_PARTS = 64                  # parts of such a reduction: fixed, so that the result does not depend on the number of threads
FEW_ROWS = 16
TILE = 16                             # rows of a transposing kernel that are done together: what one cache line holds
WIDE = 4                              # registers per vector in light sums over columns: more of each row that is touched
MOST_SPLIT_RESULTS = 512              # results of such a reduction: its parts are kept on the stack


@dataclass
class Layout:
    """How the loops become text: ``rows`` over threads, ``serial`` inside them (scatters), then the vector loop."""

    rows: tuple[Loop, ...]
    serial: tuple[Loop, ...]
    vector: Loop | None                # the last outer loop as vector loop; None: each stage's innermost loop
    parallel: bool = True


class KernelWriter:
    def __init__(self, kernel: FusedKernel, buffers: Mapping[str, Buffer], ranges: Mapping[str, tuple[int | None, int | None]]) -> None:
        self.kernel = kernel
        self.buffers = buffers
        loops = [*kernel.outer, *(loop for stage in kernel.stages for loop in stage.inner)]
        self.ranges = Ranges.of(loops, {**{symbol.name: (0, None) for symbol in kernel.symbols}, **ranges})
        made = frozenset(compute.result for stage in kernel.stages for compute in stage.computes)
        self.pointers: dict[str, str] = {}
        inputs = outputs = 0
        for name in parameters(kernel):
            if name in kernel.outputs:
                self.pointers[name], outputs = f"out{outputs}", outputs + 1
            else:
                self.pointers[name], inputs = f"in{inputs}", inputs + 1
        self.values = ValueWriter(self.pointers, made, self.ranges)
        self.lines: list[str] = []
        self.depth = 1

    # ---- text helpers -----------------------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def index(self, expression: Expression) -> str:
        return index_text(expression, self.ranges)

    # ---- the kernel -------------------------------------------------------------------------------------------------------------------------

    def body(self) -> list[str]:
        """The lines of the function's body."""
        if any(loop.size == ZERO for loop in self.kernel.outer):
            self.line("return 0;")     # nothing to compute; what does not vary would be loaded outside of the loop, from memory that is not there
            return self.lines
        self._declare_sizes()
        layout = self._layout()
        wide = f" * {WIDE}" if self._is_wide(layout) else ""
        self.line(f"constexpr int N = lanes_of({self._element_bytes()}){wide};")
        if self._splits_reduction(layout):
            from aotcompile.codegen.cpp.split import SplitReduction
            SplitReduction(self, layout).write()
        else:
            self._write_parallel(layout)
        return self.lines

    def _declare_sizes(self) -> None:
        for k, symbol in enumerate(self.kernel.symbols):
            self.line(f"const int64_t {symbol.name} = sizes[{k}];")

    def declare_buffers(self) -> None:
        for k, name in enumerate(parameters(self.kernel)):
            kind = STORAGE_TYPES[self.buffers[name].dtype]
            qualifier = "" if name in self.kernel.outputs else "const "
            self.line(f"{qualifier}{kind} *const {self.pointers[name]} = ({qualifier}{kind} *)buffers[{k}];")

    def _element_bytes(self) -> int:
        """The element size for which a vector fills a register: 8 only where everything computed has 8 bytes."""
        sizes: set[int] = set()
        for stage in self.kernel.stages:
            for compute in stage.computes:
                for value in compute_values(compute):
                    for node in walk(value):
                        if not isinstance(node, IndexValue) and node.dtype is not DType.b8:
                            sizes.add(8 if node.dtype in (DType.f64, DType.i64) else 4)
        return 8 if sizes == {8} else 4

    # ---- choice of loops --------------------------------------------------------------------------------------------------------------------

    def _layout(self) -> Layout:
        outer = self.kernel.outer
        if any(is_scatter(compute) for stage in self.kernel.stages for compute in stage.computes):
            return self._scatter_layout()
        inner = next((stage.inner for stage in self.kernel.stages if stage.inner), ())
        if outer and (not inner or self._contiguous(outer[-1]) > self._contiguous(inner[-1])):
            return Layout(outer[:-1], (), outer[-1])
        if not outer and not inner:
            return Layout((), (), None)
        return Layout(outer, (), None)

    def _contiguous(self, loop: Loop) -> int:
        """How many accesses are contiguous along ``loop``."""
        count = 0
        for stage in self.kernel.stages:
            for compute in stage.computes:
                if compute.result in self.pointers:
                    count += coefficient(compute.store.index, loop.variable) == ONE
                for value in compute_values(compute):
                    loads = [node for node in walk(value) if isinstance(node, Load) and node.buffer in self.pointers]
                    count += sum(coefficient(load.index, loop.variable) == ONE for load in loads)
        return count

    def _scatter_layout(self) -> Layout:
        """Threads share out the loops along which no two points can meet in one element; the others run in order in each thread."""
        outer = self.kernel.outer
        stores = [compute.store.index for stage in self.kernel.stages for compute in stage.computes if is_scatter(compute)]
        owned = [loop for loop in outer if all(_apart(index, loop) for index in stores)]
        if not outer:
            return Layout((), (), None, parallel=False)
        vector = outer[-1]
        rows = tuple(loop for loop in outer[:-1] if loop in owned)
        serial = tuple(loop for loop in outer[:-1] if loop not in owned)
        return Layout(rows, serial, vector, parallel=bool(rows) or vector in owned)

    def _splits_reduction(self, layout: Layout) -> bool:
        """A long reduction to few results, with nothing but per-result work after it."""
        stages = self.kernel.stages
        if layout.serial or stages[0].kind != "reduce" or not stages[0].inner or any(stage.inner for stage in stages[1:]):
            return False
        rows, points = static(product(loop.size for loop in self.kernel.outer)), static(product(loop.size for loop in stages[0].inner))
        if rows is None or rows == 0 or (rows >= FEW_ROWS and layout.vector is None) or rows >= MOST_SPLIT_RESULTS:
            return False
        if layout.vector is not None and points is not None and rows * points < LONG_REDUCTION * 8 and rows >= 128:
            return False
        if any(compute.reduction is not None and compute.reduction.kind in ("argmax", "argmin") for compute in stages[0].computes):
            return False
        return points is None or points * max(rows, 1) >= LONG_REDUCTION

    def _is_wide(self, layout: Layout) -> bool:
        if layout.vector is None or layout.serial or all(stage.kind != "reduce" for stage in self.kernel.stages):
            return False
        computes = [compute for stage in self.kernel.stages for compute in stage.computes]
        length = static(layout.vector.size)
        return (length is None or length >= 256) and len(computes) <= 4 and cost([value for c in computes for value in compute_values(c)]) <= 12

    def _tile_loop(self, layout: Layout) -> Loop | None:
        """The row loop along which something is contiguous that is not along the vector loop: the two are walked in tiles."""
        if layout.vector is None or not layout.rows or layout.serial or not layout.parallel:
            return None
        if len(self.kernel.stages) != 1 or self.kernel.stages[0].inner:
            return None
        vector = layout.vector.variable
        indices = [compute.store.index for compute in self.kernel.stages[0].computes if compute.result in self.pointers]
        for compute in self.kernel.stages[0].computes:
            for value in compute_values(compute):
                indices += [node.index for node in walk(value) if isinstance(node, Load) and node.buffer in self.pointers]
        across = [index for index in indices if coefficient(index, vector) not in (ZERO, ONE)]
        return next((loop for loop in reversed(layout.rows) if any(coefficient(index, loop.variable) == ONE for index in across)), None)

    # ---- ordinary kernels -------------------------------------------------------------------------------------------------------------------

    def point_cost(self) -> Expression:
        """Work at one row (or one element of the vector loop)."""
        total: Expression = ZERO
        for stage in self.kernel.stages:
            work = max(1, cost([value for compute in stage.computes for value in compute_values(compute)]))
            total = total + product(loop.size for loop in stage.inner) * work
        return total

    def _write_parallel(self, layout: Layout) -> None:
        rows = product(loop.size for loop in layout.rows)
        per_point = self.point_cost()
        inside = product(loop.size for loop in layout.serial)
        if layout.vector is None:
            self._open(self.index(rows), self.index(per_point) if layout.parallel else "0")
            self._rows(layout, lambda: self._contents(layout, "0", ""))
            self._close()
            return
        tile = self._tile_loop(layout)
        if tile is not None:
            self._write_tiles(layout, layout.vector, tile)
            return
        length, block = layout.vector.size, self._block(layout.vector.size, per_point * inside)
        serial_vector = layout.serial and layout.vector not in self._owned(layout)
        if block is None or serial_vector or not layout.parallel:
            work = self.index(per_point * inside * length) if layout.parallel else "0"
            self._open(self.index(rows), work)
            self._rows(layout, lambda: self._contents(layout, "0", self.index(length)))
            self._close()
            return
        blocks = (length + (block - 1)) // block
        work = self.index(per_point * inside * block)
        if not layout.rows:
            self._open(self.index(blocks), work)
            self.line(f"const int64_t first = begin * {block}, last = minimum_index(end * {block}, {self.index(length)});")
            self._serial_loops(layout, lambda: self._contents(layout, "first", "last"))
            self._close()
            return
        self._open(self.index(rows * blocks), work)
        split = Loop(Symbol("block"), blocks)

        def inside_block() -> None:
            self.line(f"const int64_t first = block * {block}, last = minimum_index(first + {block}, {self.index(length)});")
            self._contents(layout, "first", "last")
        self._rows(Layout((*layout.rows, split), layout.serial, layout.vector), inside_block)
        self._close()

    def _write_tiles(self, layout: Layout, vector: Loop, tile: Loop) -> None:
        """Tiles of a transposing kernel: a vector of columns, and inside it a few rows, so that a cache line that is read across is used up."""
        tiles = Loop(Symbol("tile"), (tile.size + (TILE - 1)) // TILE)
        rows = (*(loop for loop in layout.rows if loop is not tile), tiles)
        self._open(self.index(product(loop.size for loop in rows)), self.index(self.point_cost() * vector.size * TILE))

        def contents() -> None:
            self.line(f"const int64_t first = tile * {TILE}, last = minimum_index(first + {TILE}, {self.index(tile.size)});")
            row = Scope("1", "AllLanes()", {loop.variable for loop in rows})
            column = Scope("N", "lanes", {vector.variable}, row, vector.variable)
            point = Scope("N", "lanes", {tile.variable}, column, vector.variable)
            StageWriter(self, point, vector.variable).write(self.kernel.stages[0])
            self.emit_lines(row.lines)
            self.line(f"vector_loop<N>(0, {self.index(vector.size)}, [&](int64_t {vector.variable}, auto lanes) AOT_LAMBDA {{")
            self.depth += 1
            self.emit_lines(column.lines)
            self.line(f"for (int64_t {tile.variable} = first; {tile.variable} < last; ++{tile.variable}) {{")
            self.depth += 1
            self.emit_lines(point.lines)
            self.depth -= 1
            self.line("}")
            self.depth -= 1
            self.line("});")
        self._rows(Layout(rows, (), vector), contents)
        self._close()

    def _owned(self, layout: Layout) -> list[Loop]:
        stores = [compute.store.index for stage in self.kernel.stages for compute in stage.computes if is_scatter(compute)]
        return [loop for loop in self.kernel.outer if all(_apart(index, loop) for index in stores)]

    def _block(self, length: Expression, work: Expression) -> int | None:
        """Elements per block of the vector loop; None where it is not cut."""
        one, whole = static(work), static(length)
        size = 64 if one is None else max(64, min(LONGEST_BLOCK, BLOCK_WORK // max(one, 1) // 64 * 64))
        return None if whole is not None and whole <= size * 2 else size

    def _open(self, count: str, work: str) -> None:
        self.line(f"return parallel_for({count}, {work}, [=](int64_t begin, int64_t end) {{")
        self.depth += 1
        self.declare_buffers()
        self.line("int32_t status = 0;")

    def _close(self) -> None:
        self.line("return status;")
        self.depth -= 1
        self.line("});")

    def _rows(self, layout: Layout, contents: Callable[[], None]) -> None:
        """The loop over this thread's rows, with the row's loop variables counted along."""
        loops = list(layout.rows)
        if not loops:
            self._serial_loops(layout, contents)
            return
        self.start_rows(loops, "begin")
        self.line("for (int64_t row = begin; row < end; ++row) {")
        self.depth += 1
        self._serial_loops(layout, contents)
        self.advance(loops)
        self.depth -= 1
        self.line("}")

    def start_rows(self, loops: list[Loop], begin: str) -> None:
        inside: Expression = ONE
        parts: list[str] = []
        for k, loop in reversed(list(enumerate(loops))):
            text = begin if inside == ONE else f"{begin} / ({self.index(inside)})"
            parts.append(f"{loop.variable} = {text}" if k == 0 else f"{loop.variable} = {text} % ({self.index(loop.size)})")
            inside = inside * loop.size
        self.line(f"int64_t {', '.join(reversed(parts))};")

    def advance(self, loops: list[Loop]) -> None:
        """Counts the row's variables on by one."""
        text = f"++{loops[0].variable};"
        for k in range(1, len(loops)):
            loop = loops[k]
            text = f"if (++{loop.variable} == {self.index(loop.size)}) {{ {loop.variable} = 0; {text} }}"
        self.line(text)

    def _serial_loops(self, layout: Layout, contents: Callable[[], None]) -> None:
        for loop in layout.serial:
            self.line(f"for (int64_t {loop.variable} = 0; {loop.variable} < {self.index(loop.size)}; ++{loop.variable}) {{")
            self.depth += 1
        contents()
        for _ in layout.serial:
            self.depth -= 1
            self.line("}")

    def _contents(self, layout: Layout, first: str, last: str) -> None:
        """The stages at one row."""
        row = Scope("1", "AllLanes()", {loop.variable for loop in (*layout.rows, *layout.serial)})
        if layout.vector is None:
            writer = StageWriter(self, row, None)
            for stage in self.kernel.stages:
                writer.write(stage)
            self.emit_lines(row.lines)
            return
        vector = Scope("N", "lanes", {layout.vector.variable}, row, layout.vector.variable)
        writer = StageWriter(self, vector, layout.vector.variable)
        for stage in self.kernel.stages:
            writer.write(stage)
        self.emit_lines(row.lines)
        self.line(f"vector_loop<N>({first}, {last}, [&](int64_t {layout.vector.variable}, auto lanes) AOT_LAMBDA {{")
        self.depth += 1
        self.emit_lines(vector.lines)
        self.depth -= 1
        self.line("});")

    def emit_lines(self, lines: list[str]) -> None:
        for text in lines:
            self.line(text)

    def result_type(self, compute: Compute) -> DType:
        return self.buffers[compute.result].dtype


def _apart(index: Expression, loop: Loop) -> bool:
    """Whether two points with different values of ``loop`` always have different ``index``: its stride times its size divides all other strides, or
    it lies above all of them as a multiple of what they span is not known here."""
    stride = coefficient(index, loop.variable)
    if stride is None or stride == ZERO:
        return False
    rest = index - stride * loop.variable
    span = stride * loop.size
    terms = rest.terms if hasattr(rest, "terms") else (rest,)
    return all(term == ZERO or isinstance(term, Integer) or exact_quotient(term, span) is not None for term in terms)


__all__ = ["KernelWriter", "Layout", "VALUE_TYPES"]
