"""The scalar operators: every one is evaluated for every type of its domain, and gives what torch gives."""
from __future__ import annotations

import math

import pytest
import torch

from aotcompile.ir.dtypes import DType
from aotcompile.ir.operators import KERNEL_DTYPES, OPERATORS, result_dtype
from aotcompile.ir.reference.scalar_math import KernelFailure, apply_operator, convert_number, round_float, wrap_integer

TORCH = {"truediv": torch.true_divide, "floordiv": torch.floor_divide, "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "left_shift": torch.bitwise_left_shift,
         "right_shift": torch.bitwise_right_shift, "fma": lambda a, b, c: a * b + c}
FLOATS = [-2.5, -1.0, -0.5, -0.0, 0.0, 0.3, 0.5, 1.0, 1.5, 2.5, 7.0, math.inf, -math.inf, math.nan]
INTEGERS = [-7, -2, -1, 0, 1, 2, 3, 7, 70]


def samples(dtype: DType) -> list[float] | list[int] | list[bool]:
    if dtype is DType.b8:
        return [False, True]
    if dtype.is_integral:
        return [abs(value) for value in INTEGERS] if dtype is DType.u8 else INTEGERS
    return [round_float(dtype, value) for value in FLOATS]


CASES = [(name, dtype) for name, operator in OPERATORS.items() for dtype in KERNEL_DTYPES if operator.accepts(dtype)]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda part: part if isinstance(part, str) else part.value)
def test_as_torch(name: str, dtype: DType) -> None:
    operator = OPERATORS[name]
    values = samples(dtype)
    if name == "where":
        assert [apply_operator(name, dtype, (flag, values[0], values[1])) for flag in (True, False)] == [values[0], values[1]]
        return
    torch_dtype = getattr(torch, dtype.torch_name)
    tuples = [(a,) for a in values] if operator.arity == 1 else [(a, b, values[1])[:operator.arity] for a in values for b in values]
    if operator.can_fail and dtype.is_integral:
        with pytest.raises(KernelFailure, match="status 2"):
            apply_operator(name, dtype, (values[0], 0))
        tuples = [pair for pair in tuples if pair[1] != 0]
    columns = [torch.tensor(column, dtype=torch_dtype) for column in zip(*tuples)]
    function = TORCH.get(name) or getattr(torch, name)
    if name == "pow" and dtype.is_integral:
        tuples = [pair for pair in tuples if pair[1] >= 0 or abs(pair[0]) == 1]
        columns = [torch.tensor(column, dtype=torch_dtype) for column in zip(*tuples)]
    wanted = function(*(column.float() if name == "fma" and dtype.itemsize == 2 else column for column in columns)).to(torch_dtype if operator.rule == "same" else torch.bool)
    ours = torch.tensor([apply_operator(name, dtype, values) for values in tuples], dtype=wanted.dtype)
    torch.testing.assert_close(ours, wanted, equal_nan=True, rtol={2: 1e-2, 4: 1e-5}.get(dtype.itemsize, 1e-9), atol=1e-6)
    assert result_dtype(name, [dtype] * operator.arity) is (DType.b8 if operator.rule != "same" else dtype)


@pytest.mark.parametrize(("name", "operands"), [("add", [DType.f32, DType.f64]), ("add", [DType.b8, DType.b8]), ("exp", [DType.i64]), ("add", [DType.f32]), ("nothing", []),
                                                ("where", [DType.f32, DType.f32, DType.f32]), ("add", [DType.c64, DType.c64])])
def test_illegal_operands(name: str, operands: list[DType]) -> None:
    with pytest.raises(ValueError, match=name):
        result_dtype(name, operands)


def test_rounding_and_wrapping() -> None:
    values = torch.randn(500).tolist() + [1e-8, 6e-8, 65519.0, 65520.0, 3.3e38, 1e-40]
    for dtype in (DType.f32, DType.f16, DType.bf16):
        torch_dtype = getattr(torch, dtype.torch_name)
        assert [round_float(dtype, value) for value in values] == torch.tensor(values, dtype=torch.float32).to(torch_dtype).tolist()
    assert wrap_integer(DType.i8, 200) == -56 and wrap_integer(DType.u8, -1) == 255 and wrap_integer(DType.i64, 2**63) == -(2**63)
    assert convert_number(DType.i32, 2.9) == 2 and convert_number(DType.i32, -2.9) == -2 and convert_number(DType.b8, math.nan) is True
