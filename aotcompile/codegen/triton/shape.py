"""How a kernel's points are laid over programs and blocks: one axis ``x`` for the parallel loops, one axis ``r`` for the inner loops of the stages.

    pointwise     x is [XBLOCK]                      a program computes XBLOCK points
    reduction     x is [XBLOCK, 1], r is [1, RBLOCK] a program computes XBLOCK rows; ``persistent``: a row is one block, else a loop over blocks
    sequential    x is a scalar                      one program in a loop (scatter-add of types that have no atomic addition)
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import ONE, Add, Expression, Integer, Multiply, Symbol, children, multiply, substitute
from aotcompile.ir.nodes import Buffer, Compute, IndexValue, Load, Loop
from aotcompile.ir.simplify import Ranges, simplify
from aotcompile.ir.traverse import compute_values, walk
from aotcompile.schedule.types import FusedKernel, Stage

LARGEST_ROW = 16384                    # elements of a row that one block may hold: at most 32 a thread
LOOP_BLOCK = 2048                      # elements of a row at a time where a row is longer
WORTH_OF_PROGRAMS = 264                # programs that keep a large GPU busy: twice its multiprocessors
X, R = "x", "r"
Axes = frozenset[str]
NOWHERE: Axes = frozenset()
ATOMIC = (DType.f32, DType.f64, DType.f16, DType.bf16, DType.i32, DType.i64)
_LIMIT = 1 << 31


def all_computes(kernel: FusedKernel) -> Iterator[tuple[Stage, Compute]]:
    return ((stage, compute) for stage in kernel.stages for compute in stage.computes)


def numel(loops: tuple[Loop, ...]) -> Expression:
    return multiply(ONE, *(loop.size for loop in loops))


def number(value: Expression) -> int | None:
    return value.value if isinstance(value, Integer) else None


def power_of_two(value: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(value - 1, 0).bit_length()


@dataclass(frozen=True)
class Shape:
    """The layout of one kernel. ``index`` is the type of index arithmetic: "i32" only where every index surely fits."""

    kind: str                                     # "pointwise", "reduction", "sequential"
    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    x_count: Expression
    r_count: Expression
    x_block: int
    r_block: int
    persistent: bool
    num_warps: int
    index: str
    bounds: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)

    @property
    def x_masked(self) -> bool:
        count = number(self.x_count)
        return self.kind != "sequential" and self.x_block > 1 and (count is None or count % self.x_block != 0)

    @property
    def r_masked(self) -> bool:
        count = number(self.r_count)
        return count is None or count == 0 or count % self.r_block != 0

    @property
    def index_type(self) -> str:
        return "tl.int64" if self.index == "i64" else "tl.int32"

    def block(self, axes: Axes) -> str:
        """The shape of a block over ``axes``."""
        if self.kind == "pointwise":
            return "[XBLOCK]"
        return f"[{'XBLOCK' if X in axes else '1'}, {'RBLOCK' if R in axes else '1'}]"

    @property
    def everywhere(self) -> Axes:
        return NOWHERE if self.kind == "sequential" else frozenset((X, R)) if self.kind == "reduction" else frozenset((X,))

    def ranges(self, inner: bool) -> Ranges:
        """What is known of loop variables, of the counters x and r, and of the sizes."""
        known = Ranges.of((*self.outer, *(self.inner if inner else ())), self.bounds)
        loops = {**known.loops, Symbol("x"): self.x_count, **({Symbol("r"): self.r_count} if inner else {})}
        return Ranges(known.symbols, loops)

    @property
    def grid(self) -> tuple[int | str, int | str, int | str]:
        if self.kind == "sequential":
            return (1, 1, 1)
        count = number(self.x_count)
        if count is not None:
            return (-(-count // self.x_block), 1, 1)
        return (f"({self.x_count} + {self.x_block - 1}) // {self.x_block}" if self.x_block > 1 else str(self.x_count), 1, 1)

    def positions(self, loops: tuple[Loop, ...], counter: str) -> dict[Symbol, Expression]:
        """Each loop's variable as a function of the flat counter over ``loops`` (row-major)."""
        found: dict[Symbol, Expression] = {}
        stride: Expression = ONE
        for position, loop in enumerate(reversed(loops)):
            quotient = Symbol(counter) // stride
            found[loop.variable] = quotient if position == len(loops) - 1 else quotient % loop.size
            stride = stride * loop.size
        return found


def shape_of(kernel: FusedKernel, buffers: Mapping[str, Buffer], bounds: Mapping[str, tuple[int | None, int | None]]) -> Shape:
    """Chooses the layout of a kernel."""
    inners = {stage.inner for stage in kernel.stages if stage.inner}
    if len(inners) > 1:
        raise ValueError(f"{kernel.name}: stages with different inner loops")
    inner = next(iter(inners), ())
    x_count, r_count = numel(kernel.outer), numel(inner)
    index = _index_type(kernel, inner, x_count, r_count, bounds)
    if any(compute.store.mode == "add" and buffers[compute.result].dtype not in ATOMIC for _, compute in all_computes(kernel)):
        return Shape("sequential", kernel.outer + inner, (), x_count * r_count, ONE, 1, 1, False, 1, index, bounds)
    if inner or any(compute.reduction for _, compute in all_computes(kernel)):
        x_block, r_block, persistent, warps = _rows(kernel, number(x_count), number(r_count))
        return Shape("reduction", kernel.outer, inner, x_count, r_count, x_block, r_block, persistent, warps, index, bounds)
    x_block, warps = _points(number(x_count))
    return Shape("pointwise", kernel.outer, (), x_count, ONE, x_block, 1, False, warps, index, bounds)


def _points(count: int | None) -> tuple[int, int]:
    if count is None or count >= 1024 * WORTH_OF_PROGRAMS:
        return 1024, 4
    block = min(max(power_of_two(count // WORTH_OF_PROGRAMS + 1), 128), 512)
    return block, 4 if block >= 256 else 2


def _rows(kernel: FusedKernel, rows: int | None, row: int | None) -> tuple[int, int, bool, int]:
    """(XBLOCK, RBLOCK, persistent, warps)."""
    if row == 0:
        return 1, 1, False, 1                  # a loop without a turn: nothing may be loaded
    if row is not None and row <= LARGEST_ROW and not _strided_rows(kernel):
        r_block = power_of_two(row)
        x_block = max(1, 1024 // r_block) if r_block < 1024 else 1
        x_block = _enough_programs(x_block, rows)
        return x_block, r_block, True, _warps(x_block * r_block // 256)
    if _strided_rows(kernel):
        x_block = _enough_programs(64, rows, least=16)
        r_block = 32 if row is None else min(power_of_two(row), 32)
        return x_block, r_block, row is not None and row <= r_block, 8
    return 1, LOOP_BLOCK, False, 8 if row is not None and row <= 1 << 16 else 16


def _enough_programs(x_block: int, rows: int | None, least: int = 1) -> int:
    while rows is not None and x_block > least and (x_block >= 2 * rows or -(-rows // x_block) < WORTH_OF_PROGRAMS):
        x_block //= 2
    return x_block


def _warps(wanted: int) -> int:
    return min(max(power_of_two(wanted), 1), 16)


def _strided_rows(kernel: FusedKernel) -> bool:
    """Whether neighbours in memory are neighbouring rows (a sum over the first dimension), by most loads."""
    if not kernel.outer:
        return False
    votes = 0
    for stage, compute in all_computes(kernel):
        if stage.inner:
            for load in (node for value in compute_values(compute) for node in walk(value) if isinstance(node, Load)):
                votes += _has_unit_stride(load.index, kernel.outer[-1].variable) - _has_unit_stride(load.index, stage.inner[-1].variable)
    return votes > 0


def _has_unit_stride(index: Expression, variable: Symbol) -> bool:
    return any(term == variable for term in (index.terms if isinstance(index, Add) else (index,)))


# ---- 32 or 64 bits ------------------------------------------------------------------------------------------------------------------------

def _index_type(kernel: FusedKernel, inner: tuple[Loop, ...], x_count: Expression, r_count: Expression,
                bounds: Mapping[str, tuple[int | None, int | None]]) -> str:
    ranges = Ranges.of(kernel.outer + inner, bounds)
    sizes = [x_count + 1024, x_count * 1, r_count + 4096]
    expressions = [*sizes, *_expressions(kernel)]
    return "i32" if all(_fits(simplify(value, ranges), ranges) and _fits(value, ranges) for value in expressions) else "i64"


def _expressions(kernel: FusedKernel) -> Iterator[Expression]:
    """Every index expression, without what is data in it: that part is computed in 64 bits."""
    for _, compute in all_computes(kernel):
        yield substitute(compute.store.index, {symbol: 0 for symbol, _ in compute.store.bindings})
        for value in compute_values(compute):
            for node in walk(value):
                if isinstance(node, Load):
                    yield substitute(node.index, {symbol: 0 for symbol, _ in node.bindings})
                elif isinstance(node, IndexValue):
                    yield node.expression


def _fits(value: Expression, ranges: Ranges) -> bool:
    """Whether ``value`` and all its parts are surely within 32 bits."""
    low, high = ranges.bounds(value)
    if low is None or high is None or low <= -_LIMIT or high >= _LIMIT:
        return False
    if isinstance(value, Multiply) and abs(value.coefficient) >= _LIMIT:
        return False
    return all(_fits(part, ranges) for part in children(value))
