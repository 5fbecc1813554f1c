"""Iteration spaces: when two operations run over "the same points", and index expressions as linear forms.

Example: an addition over (4, 8, 16) reads what a matrix epilogue made over (32, 16). Both are refined to the loops (4, 8, 16)::

    align([32, 16], [4, 8, 16])   ->   refined sizes [4, 8, 16];  first space: v0 = w0*8 + w1, v1 = w2;  second space: unchanged
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from aotcompile.ir.expression import ONE, ZERO, Expression, Symbol
from aotcompile.ir.linear import coefficient, exact_quotient, product
from aotcompile.ir.nodes import Loop


def numel(loops: Iterable[Loop]) -> Expression:
    return product(loop.size for loop in loops)


def align(first: Sequence[Expression], second: Sequence[Expression]) -> tuple[list[Expression], list[list[int]], list[list[int]]] | None:
    """The coarsest common refinement of two spaces with equal row-major order.

    Returns the refined sizes and, for each loop of either space, the refined loops it is made of (outermost first); None if there is none."""
    sizes: list[Expression] = []
    groups: tuple[list[list[int]], list[list[int]]] = ([], [])
    a, b = [s for s in first], [s for s in second]
    i, j = len(a) - 1, len(b) - 1
    left_a: Expression | None = None
    left_b: Expression | None = None
    while i >= 0 or j >= 0 or left_a is not None or left_b is not None:
        for side, sequence in ((0, a), (1, b)):
            index = i if side == 0 else j
            if (left_a if side == 0 else left_b) is None:
                if index < 0:
                    return None
                groups[side].append([])
                if side == 0:
                    left_a, i = sequence[index], i - 1
                else:
                    left_b, j = sequence[index], j - 1
        assert left_a is not None and left_b is not None
        if left_a == left_b:
            part, left_a, left_b = left_a, None, None
        elif (quotient := exact_quotient(left_b, left_a)) is not None:
            part, left_a, left_b = left_a, None, quotient
        elif (quotient := exact_quotient(left_a, left_b)) is not None:
            part, left_a, left_b = left_b, quotient, None
        else:
            return None
        position = len(sizes)
        sizes.append(part)
        groups[0][-1].append(position)
        groups[1][-1].append(position)
    count = len(sizes)
    flip = [[[count - 1 - p for p in reversed(group)] for group in reversed(side)] for side in groups]
    return list(reversed(sizes)), flip[0], flip[1]


def combine(variables: Sequence[Symbol], sizes: Sequence[Expression], members: Sequence[int]) -> Expression:
    """The value of a loop that is made of the refined loops ``members``."""
    value: Expression = ZERO
    for member in members:
        value = value * sizes[member] + variables[member]
    return value


def match_strides(wanted: Expression, loops: Sequence[Loop], offered: Expression, kernel_loops: Sequence[Loop]) -> dict[Symbol, Expression] | None:
    """The renaming of ``loops`` to ``kernel_loops`` under which the index ``wanted`` becomes ``offered``: loops with equal size and stride pair up.
    None unless every loop finds exactly one partner (an order of loops other than the kernel's: transposes, reductions over leading dimensions)."""
    if len(loops) != len(kernel_loops):
        return None
    strides: dict[tuple[Expression, Expression], Symbol] = {}
    for loop in kernel_loops:
        stride = coefficient(offered, loop.variable)
        if stride is None or stride == ZERO or (stride, loop.size) in strides:
            return None
        strides[stride, loop.size] = loop.variable
    renaming: dict[Symbol, Expression] = {}
    for loop in loops:
        stride = coefficient(wanted, loop.variable)
        partner = None if stride is None else strides.pop((stride, loop.size), None)
        if partner is None:
            return None
        renaming[loop.variable] = partner
    return renaming


def delinearize(index: Expression, loops: Sequence[Loop], store: Expression) -> dict[Symbol, Expression] | None:
    """The point at which a dense store ``store`` over ``loops`` writes element ``index``: ``variable = (index // stride) % size``, not simplified.
    None if the store is not dense (some loop's stride is not the product of the sizes inside it)."""
    strides: list[tuple[Loop, Expression]] = []
    rest = store
    for loop in loops:
        stride = coefficient(store, loop.variable)
        if stride is None or stride == ZERO:
            return None
        strides.append((loop, stride))
        rest = rest - stride * loop.variable
    if rest != ZERO:
        return None
    point: dict[Symbol, Expression] = {}
    expected: Expression = ONE
    pending = strides
    while pending:
        found = next((item for item in pending if item[1] == expected), None)
        if found is None:
            return None
        pending = [item for item in pending if item is not found]
        value = index // expected
        point[found[0].variable] = value % found[0].size if pending else value
        expected = expected * found[0].size
    return point

