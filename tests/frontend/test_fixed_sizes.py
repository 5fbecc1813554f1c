"""A dynamic size that the code makes a constant is reported with the line that does it."""
from __future__ import annotations

from typing import Any

import pytest
import torch

import aotcompile
from aotcompile.frontend.capture.symbolic import SymbolTable
from aotcompile.frontend.torch_private import new_fake_mode, symbol_expression


def counts_rows(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    for number in range(x.shape[0]):
        y = y + number
    return y


def compares(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    return y + (1 if x.shape[0] == 8 else 2)


def meets_a_constant(x: torch.Tensor) -> torch.Tensor:
    return (x.t() + torch.ones(8)).t()


def general(x: torch.Tensor) -> torch.Tensor:
    return x[:x.shape[0] // 2].sum(0) * x.shape[0] if x.shape[0] > 2 else x.sum(0)


@pytest.mark.parametrize(("function", "offset"), [(counts_rows, 2), (compares, 2), (meets_a_constant, 1), (general, None)])
def test_the_line_is_named(function: Any, offset: int | None) -> None:
    explanation = aotcompile.explain(function, example_inputs=((torch.randn(8, 3),), {}), dynamic_shapes=({0: "B"},))
    notes = [note for found in explanation.functions for note in found.notes]
    if offset is None:
        assert not notes
        return
    [note] = notes
    assert note.code == "AOT216" and "x.shape[0] is fixed to 8" in note.message
    assert note.span is not None and note.span.file.endswith("frontend/test_fixed_sizes.py") and note.span.line == function.__code__.co_firstlineno + offset
    assert "AOT216" in explanation.as_text()


def test_a_miss_says_which_size_was_fixed() -> None:
    def counts_columns(x: torch.Tensor) -> torch.Tensor:
        return counts_rows(x.t())

    built = aotcompile.compile(counts_columns, example_inputs=((torch.randn(3, 8),), {}), dynamic_shapes=({0: "B", 1: "C"},))
    built(torch.randn(2, 7))
    [region] = aotcompile.info(built).report().regions
    assert region.last_miss == "x.shape[1] == 8 (got 7)"


def multiplies_then_asks(x: torch.Tensor) -> torch.Tensor:
    y = x @ x.transpose(1, 2)                              # asks within torch whether the size is 1, which makes no difference there
    return y * 2 if x.shape[1] == 1 else y * 3


def test_what_torch_asked_before_is_asked_again_by_the_program() -> None:
    built = aotcompile.compile(multiplies_then_asks, example_inputs=((torch.randn(2, 5, 3),), {}), dynamic_shapes=({1: "T"},))
    for size in (5, 2, 1, 0):
        x = torch.randn(2, size, 3)
        torch.testing.assert_close(built(x), multiplies_then_asks(x))
    [region] = aotcompile.info(built).report().regions
    assert region.hits == 4


def fixes_before_it_reads(x: torch.Tensor) -> torch.Tensor:
    parts = [x * 2, x + 1]
    print(end="")
    first = parts[0].view(3, 2)
    return first.sum() + parts[1].sin()


def test_a_size_that_is_a_constant_before_its_second_tensor_is_read() -> None:
    built = aotcompile.compile(fixes_before_it_reads, example_inputs=((torch.randn(6),), {}), dynamic_shapes=({0: "B"},), backend="eager")
    x = torch.randn(6)
    torch.testing.assert_close(built(x), fixes_before_it_reads(x))
    regions = aotcompile.info(built).report().regions
    assert [(r.hits, r.eager) for r in regions] == [(1, False), (1, False)]
    with pytest.raises(RuntimeError, match="shape"):
        built(torch.randn(8))


def test_a_fixed_size_with_a_range_still_hits() -> None:
    """``Dim(min=1)`` speaks of a symbol that the code has fixed: no guard may speak of it then."""
    def padded(x: torch.Tensor) -> torch.Tensor:
        return x * x.shape[0].bit_length()

    compiled = aotcompile.compile(padded, example_inputs=((torch.ones(6),), {}), dynamic_shapes={"x": {0: torch.export.Dim("n", min=1)}}, backend="eager")
    assert compiled(torch.ones(6)).tolist() == [3.0] * 6
    [region] = aotcompile.info(compiled).report().regions
    assert (region.hits, region.misses) == (1, 0)


def test_a_name_for_a_number_that_becomes_a_size_is_not_made_from_an_address() -> None:
    """torch orders symbols by their names: which of two equal ones it keeps would differ from build to build."""
    def name() -> tuple[SymbolTable, str]:
        table = SymbolTable(new_fake_mode().shape_env)
        number = table.number(3, 0, "n0", True)
        return table, table.letters(symbol_expression(number + 1), 4)

    kept = [name() for _ in range(3)]                # alive at once, at different addresses
    assert len({text for _, text in kept}) == 1
