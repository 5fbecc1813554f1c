"""Index simplification against brute force over all values of the symbols."""
from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotcompile.ir.reference.evaluate import evaluate_index
from aotcompile.ir.expression import Expression, Integer, Symbol, floor_divide, maximum, minimum, modulo, parse, substitute
from aotcompile.ir.nodes import Loop
from aotcompile.ir.simplify import Ranges, simplify

I0, I1, S0 = Symbol("i0"), Symbol("i1"), Symbol("s0")
RANGES = Ranges.of([Loop(I0, Integer(3)), Loop(I1, S0)], {"s0": (0, 4)})


def points() -> list[dict[Symbol, int]]:
    return [{I0: a, I1: b, S0: s} for s in range(1, 5) for a, b in itertools.product(range(3), range(s))]


def expressions() -> st.SearchStrategy[Expression]:
    leaves = st.sampled_from([I0, I1, S0]) | st.integers(-6, 12).map(Integer)

    def extend(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        divisors = st.integers(1, 8).map(Integer) | st.just(S0)
        pair = st.tuples(inner, inner)
        return st.one_of(pair.map(lambda p: p[0] + p[1]), pair.map(lambda p: p[0] - p[1]), st.tuples(inner, st.integers(-3, 8)).map(lambda p: p[0] * p[1]),
                         st.tuples(inner, st.sampled_from([I0, S0])).map(lambda p: p[0] * p[1]), st.tuples(inner, divisors).map(lambda p: floor_divide(*p)),
                         st.tuples(inner, divisors).map(lambda p: modulo(*p)), pair.map(lambda p: minimum(*p)), pair.map(lambda p: maximum(*p)))
    return st.recursive(leaves, extend, max_leaves=8)


@settings(max_examples=300, deadline=None)
@given(expressions())
def test_simplified_is_equal(expression: Expression) -> None:
    simple = simplify(expression, RANGES)
    low, high = RANGES.bounds(expression)
    for point in points():
        value = evaluate_index(expression, point)
        assert evaluate_index(simple, point) == value, (str(expression), str(simple), point)
        assert (low is None or low <= value) and (high is None or value <= high), (str(expression), low, high, value)


@settings(max_examples=200, deadline=None)
@given(expressions())
def test_text_reads_back(expression: Expression) -> None:
    assert parse(str(expression)) == expression


@settings(max_examples=150, deadline=None)
@given(expressions(), st.integers(0, 2), st.integers(1, 4))
def test_substitution_is_evaluation(expression: Expression, first: int, size: int) -> None:
    put = substitute(expression, {I0: first, I1: 0, S0: size})
    assert put == Integer(evaluate_index(expression, {I0: first, I1: 0, S0: size}))


@pytest.mark.parametrize(("before", "after"), [
    ("(i0*8 + i2) // 8", "i0"), ("(i0*8 + i2) % 8", "i2"), ("8*((i0*8 + i2) // 8) + (i0*8 + i2) % 8", "8*i0 + i2"), ("i2 // 8", "0"), ("(4*i0 + 2) // 8", "(i0 // 2)"),
    ("(i0*s0 + i1) // s0", "i0"), ("(i0*s0 + i1) % s0", "i1"), ("(i2 // 2) // 2", "(i2 // 4)"), ("(i2 % 4) % 2", "(i2 % 2)"), ("min(i2, 7)", "i2"), ("max(i1, 0)", "i1"),
    ("(i0*32 + i2*4 + i3) // 4 % 8", "i2"),
])
def test_views_of_views_cancel(before: str, after: str) -> None:
    ranges = Ranges.of([Loop(I0, Integer(4)), Loop(I1, S0), Loop(Symbol("i2"), Integer(8)), Loop(Symbol("i3"), Integer(4))], {"s0": (0, None)})
    assert str(simplify(parse(before), ranges)) == after
