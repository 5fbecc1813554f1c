"""The notation of signatures: reading, printing, and the column of an error."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotcompile.base.diagnostic import UsageError
from aotcompile.base.span import Span
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Integer, Symbol
from aotcompile.ir.signature import TensorSignature, is_signature, parse_signature


def test_parts() -> None:
    found = parse_signature(" bf16 [ 8,T ] [T , 1] cuda:1 ")
    assert found == TensorSignature(DType.bf16, (Integer(8), Symbol("T")), (Symbol("T"), Integer(1)), "cuda:1")
    assert str(found) == "bf16[8, T][T, 1]cuda:1"
    assert parse_signature("f32[]").sizes == () and parse_signature("i64[2*T + 1]").letters == ("T",)
    assert parse_signature("f32[B, max(B, 4), C//2]").letters == ("B", "C")


def test_concrete_sizes() -> None:
    assert parse_signature("f32[B, 2*T + 1][1, B]").concrete({"B": 3, "T": 5}) == ((3, 11), (1, 3))
    with pytest.raises(KeyError):
        parse_signature("f32[B]").concrete({})


@pytest.mark.parametrize("value, notation", [("f32[B]", True), ("f99[2]", True), ("mean", False), ("", False), ("[1]", False), (3, False), (None, False),
                                             ("a sentence [with brackets]", False)])
def test_what_counts_as_notation(value: object, notation: bool) -> None:
    assert is_signature(value) is notation


@pytest.mark.parametrize("text, column, words", [
    ("f32[B, 3", 9, "']' expected"),
    ("f32 B, 3]", 5, "'[' expected"),
    ("float32[3]", 1, "Write f32"),
    ("f3[2]", 1, "Did you mean f32?"),
    ("f32[B; 3]", 6, "is no size"),
    ("f32[B,,3]", 7, "a size expected"),
    ("f32[3,]", 7, "a size expected"),
    ("f32[2][1, 1]", 7, "2 strides for 1 sizes"),
    ("f32[B] gpu 3", 8, "a device"),
    ("f32[-1]", 5, "negative"),
    ("f32[a.b]", 5, "is no size"),
    ("f32[1.5]", 5, "is no size"),
    ("f32[B[0]]", 6, "',' or ']' expected"),
    ("", 1, "an element type"),
])
def test_errors_have_their_column(text: str, column: int, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_signature(text, Span("mypkg/model.py", 12))
    found = str(caught.value)
    assert found.startswith("AOT110 mypkg/model.py:12:1 ") and f"at column {column}:" in found and words in found, found


SIZES = st.one_of(st.integers(0, 4096).map(Integer), st.sampled_from("BTC").map(Symbol), st.builds(lambda n, s: n * Symbol(s) + 1, st.integers(2, 9), st.sampled_from("BT")))


@given(st.sampled_from(list(DType)), st.lists(SIZES, max_size=5), st.booleans(), st.sampled_from(["cpu", "cuda", "cuda:3"]), st.data())
def test_printed_text_reads_back(dtype: DType, sizes: list, strided: bool, device: str, data: st.DataObject) -> None:
    strides = tuple(data.draw(SIZES) for _ in sizes) if strided else None
    signature = TensorSignature(dtype, tuple(sizes), strides, device)
    assert parse_signature(str(signature)) == signature
