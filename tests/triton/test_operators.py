"""Every scalar operator, for every type it takes, in Triton's interpreter against torch (the functions of libdevice are torch's there: what is
tested is what we write around them; tests/gpu runs the same on a GPU)."""
from __future__ import annotations

import pytest
import torch
from triton_references import reference
from triton_running import Interpreter, execute
from triton_samples import one_kernel, operator_inputs, operator_schedule, values

from aotcompile.codegen.triton.operators import HELPERS, cast, expression, helpers_of
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Symbol
from aotcompile.ir.nodes import Cast, Load
from aotcompile.ir.operators import KERNEL_DTYPES, OPERATORS

COUNT = 120


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(interpreter: Interpreter, name: str) -> None:
    dtypes = [dtype for dtype in KERNEL_DTYPES if OPERATORS[name].accepts(dtype)]
    inputs = {dtype: operator_inputs(name, dtype, COUNT) for dtype in dtypes}
    results = execute(operator_schedule(name, dtypes, COUNT), [tensor for group in inputs.values() for tensor in group], interpreter.launch)
    assert len(results) == len(dtypes)
    for dtype, found in zip(dtypes, results):
        expected = reference(name)(*inputs[dtype])
        assert found.dtype == expected.dtype
        tolerance = 1e-12 if dtype is DType.f64 else None
        torch.testing.assert_close(found, expected, equal_nan=True, rtol=tolerance, atol=tolerance)
        if found.is_floating_point() and name in ("neg", "copysign", "mul", "round", "trunc", "floordiv", "ceil"):
            assert torch.equal(torch.signbit(found)[~found.isnan()], torch.signbit(expected)[~found.isnan()])


@pytest.mark.parametrize("source", KERNEL_DTYPES, ids=lambda dtype: dtype.value)
def test_cast(interpreter: Interpreter, source: DType) -> None:
    value = values(getattr(torch, source.torch_name), COUNT, 3)
    inputs, bodies, tensors = {}, {}, []
    for target in KERNEL_DTYPES:
        if target is source:
            continue
        given = value
        if source.is_floating and target.is_integral:      # beyond this range torch's result is undefined
            given = torch.nan_to_num(value, nan=1.0, posinf=2.0, neginf=0.0).clamp(0 if target is DType.u8 else -100, 100)
        name = f"input_{target.value}"
        inputs[name], bodies[f"result_{target.value}"] = source, Cast(target, Load(source, name, Symbol("x0")))
        tensors.append(given)
    results = execute(one_kernel(bodies, inputs, COUNT), tensors, interpreter.launch)
    for found, given in zip(results, tensors, strict=True):
        torch.testing.assert_close(found, given.to(found.dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("exponent", [-3, -2, -1, 0, 1, 5, 63])
def test_integer_power_with_any_exponent(interpreter: Interpreter, exponent: int) -> None:
    base = torch.tensor([-3, -2, -1, 0, 1, 2, 7, (1 << 63) - 1])
    power = torch.full_like(base, exponent)
    found, = execute(operator_schedule("pow", (DType.i64,), len(base)), [base, power], interpreter.launch)

    def expected(a: int) -> int:
        if exponent >= 0:
            return ((a ** exponent) + (1 << 63)) % (1 << 64) - (1 << 63)
        return 1 if a == 1 else (-1 if exponent % 2 else 1) if a == -1 else 0
    assert found.tolist() == [expected(a) for a in base.tolist()]


def test_smallest_integer_divided_by_minus_one_wraps(interpreter: Interpreter) -> None:
    a, b = torch.tensor([-(1 << 31)], dtype=torch.int32), torch.tensor([-1], dtype=torch.int32)
    for name, expected in (("floordiv", -(1 << 31)), ("truncdiv", -(1 << 31)), ("fmod", 0), ("remainder", 0)):
        found, = execute(operator_schedule(name, (DType.i32,), 1), [a, b], interpreter.launch)
        assert found.item() == expected, name


def test_shift_by_the_width_or_more(interpreter: Interpreter) -> None:
    a = torch.tensor([5, -5, 5, -5, 5, -5], dtype=torch.int32)
    b = torch.tensor([32, 32, -1, -1, 40, 31], dtype=torch.int32)
    left, = execute(operator_schedule("left_shift", (DType.i32,), 6), [a, b], interpreter.launch)
    right, = execute(operator_schedule("right_shift", (DType.i32,), 6), [a, b], interpreter.launch)
    assert left.tolist() == [0, 0, 0, 0, 0, -(1 << 31)]
    assert right.tolist() == [0, -1, 0, -1, 0, -1]


def test_helpers_are_found_with_those_they_call() -> None:
    assert helpers_of("t0 = floor_divide(a, b)") == ("safe_divisor", "truncated_divide", "floor_divide")
    assert helpers_of("t0 = tl.reduce((a, b), 1, combine_first_maximum)[1]") == ("combine_first_maximum",)
    assert helpers_of("t0 = a + b") == ()
    assert all(f"def {name}(" in text for name, text in HELPERS.items())


def test_texts() -> None:
    assert expression("truediv", DType.f32, ["a", "b"]) == "tl.div_rn(a, b)"
    assert expression("truediv", DType.f64, ["a", "b"]) == "a / b"
    assert cast("a", DType.bf16, DType.i64) == "a.to(tl.float32).to(tl.int64)"
    assert cast("a", DType.f64, DType.bf16) == "a.to(tl.float32).to(tl.bfloat16)"


