"""Compiled kernels against the reference evaluator."""
from __future__ import annotations

import random

import pytest
import torch

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Symbol
from aotcompile.ir.operators import KERNEL_DTYPES, OPERATORS, result_dtype
from codegen_running import Builder, check, torch_dtype


def tensor(sizes: tuple[int, ...], dtype: DType = DType.f32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating:
        value = torch.randn(sizes, generator=generator, dtype=torch.float64).to(torch_dtype(dtype))
        flat = value.view(-1)
        for k, special in enumerate((float("nan"), float("inf"), float("-inf"), -0.0, 0.0)):
            if flat.numel() > 20 + k:
                flat[7 + k] = special
        return value
    if dtype is DType.b8:
        return torch.rand(sizes, generator=generator) > 0.5
    low = 0 if dtype is DType.u8 else -100
    return torch.randint(low, 100, sizes, generator=generator).to(torch_dtype(dtype))


def softmax(b: Builder, x: str) -> str:
    return b.apply("truediv", (p := b.apply("exp", b.apply("sub", x, b.reduce("maximum", x, [1])))), b.reduce("sum", p, [1]))


@pytest.mark.parametrize("sizes", [(3, 37), (1, 1), (5, 16), (2, 0), (0, 4), (40, 33)])
def test_softmax(sizes: tuple[int, int]) -> None:
    b = Builder()
    x = b.input("x", sizes)
    check(b.program(softmax(b, x)), [torch.randn(sizes)])


@pytest.mark.parametrize("rows, columns", [(3, 37), (1, 1), (0, 5), (4, 0), (20, 100)])
def test_softmax_of_symbolic_sizes(rows: int, columns: int) -> None:
    b = Builder()
    x = b.input("x", [Symbol("s0"), Symbol("s1")])
    check(b.program(softmax(b, x)), [torch.randn(rows, columns)])


# ---- every operator for every dtype it takes ---------------------------------------------------------------------------------------------------

SIZE = 37                             # two whole vectors and a tail on every level


def operand(dtype: DType, operator: str, position: int) -> torch.Tensor:
    value = tensor((SIZE,), dtype, seed=position)
    if dtype.is_integral and position == 1 and operator in ("floordiv", "truncdiv", "fmod", "remainder"):
        value = torch.where(value == 0, torch.ones_like(value), value)
        if dtype is not DType.u8:
            value[3] = -1
    if dtype.is_integral and dtype is not DType.u8 and position == 0:
        value[3] = torch.iinfo(value.dtype).min
    if dtype.is_integral and position == 1 and operator in ("pow", "left_shift", "right_shift"):
        value = value % 70 if dtype is DType.u8 else value % 70 - 3
        if operator == "pow":
            value = value % 5
    return value


@pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.value)
def test_every_operator(dtype: DType) -> None:
    b = Builder()
    outputs: list[str] = []
    inputs: list[torch.Tensor] = []
    for operator in OPERATORS.values():
        if not operator.accepts(dtype):
            continue
        names = []
        for position in range(operator.arity):
            kind = DType.b8 if operator.rule == "select" and position == 0 else dtype
            names.append(b.input(f"x{len(inputs)}", [SIZE], kind))
            inputs.append(operand(kind, operator.name, position))
        outputs.append(b.apply(operator.name, *names, dtype=result_dtype(operator.name, [b.buffers[n].dtype for n in names])))
    check(b.program(*outputs), inputs, tolerance=None if dtype is not DType.bf16 else 8e-3)


@pytest.mark.parametrize("source", KERNEL_DTYPES, ids=lambda d: d.value)
def test_every_cast(source: DType) -> None:
    b = Builder()
    x = b.input("x", [SIZE], source)
    value = tensor((SIZE,), source)
    if source.is_floating:
        value = torch.nan_to_num(value, 0.0, 100.0, -100.0) * 20
    outputs = [b.cast(x, dtype) for dtype in KERNEL_DTYPES if not (source.is_floating and dtype is DType.u8)]
    check(b.program(*outputs), [value])


REDUCTIONS = (((5, 37), (1,)), ((37, 5), (0,)), ((3, 4, 19), (0, 2)), ((70, 3), (0, 1)), ((3, 1), (1,)))


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", KERNEL_DTYPES, ids=lambda d: d.value)
def test_every_reduction(dtype: DType, special: bool) -> None:
    """``special``: with nan and inf, for the kinds whose result does not depend on the order then."""
    if special and not dtype.is_floating:
        pytest.skip("integers have no nan")
    b = Builder()
    if dtype is DType.b8:
        kinds = ["any", "all"]
    else:
        kinds = ["maximum", "minimum", "argmax", "argmin"] + ([] if special else ["sum", "product"]) + (["xor_sum"] if dtype.is_integral else [])
    inputs, outputs = [], []
    for k, (sizes, dimensions) in enumerate(REDUCTIONS):
        x = b.input(f"x{k}", sizes, dtype)
        value = tensor(sizes, dtype)
        inputs.append(value if special or not dtype.is_floating else torch.nan_to_num(value, 0.5, 1.5, -1.5))
        outputs += [b.reduce(kind, x, dimensions) for kind in kinds]
    check(b.program(*outputs), inputs, tolerance={DType.f32: 1e-5, DType.bf16: 2e-2, DType.f16: 5e-3}.get(dtype))


# ---- random programs -----------------------------------------------------------------------------------------------------------------------------

def random_program(seed: int) -> tuple[Builder, list[str], list[torch.Tensor]]:
    """Chains of pointwise operators, permutations, broadcasts and reductions over small odd sizes."""
    random_ = random.Random(seed)
    b = Builder()
    sizes = [random_.choice([1, 2, 3, 5, 17, 33]) for _ in range(random_.choice([1, 2, 2, 3]))]
    inputs: list[torch.Tensor] = []
    names: list[str] = []
    for k in range(random_.randint(1, 3)):
        shape = [size if random_.random() < 0.8 else 1 for size in sizes]
        names.append(b.input(f"x{k}", shape))
        inputs.append(torch.randn(shape, generator=torch.Generator().manual_seed(seed + k)))
    for _ in range(random_.randint(2, 14)):
        name = random_.choice(names[-4:])
        shape = b.buffers[name].sizes
        choice = random_.random()
        if choice < 0.4:
            other = random_.choice(names)
            compatible = len(b.buffers[other].sizes) <= len(shape) and all(
                a == c or str(a) == "1" or str(c) == "1" for a, c in zip(b.buffers[other].sizes[::-1], shape[::-1]))
            names.append(b.apply(random_.choice(["add", "sub", "maximum"]), name, other if compatible else name))
        elif choice < 0.65:
            names.append(b.apply(random_.choice(["sin", "tanh", "neg", "sigmoid", "abs"]), name))
        elif choice < 0.8 and len(shape) > 1:
            order = list(range(len(shape)))
            random_.shuffle(order)
            names.append(b.permute(name, order))
        else:
            dimensions = [k for k in range(len(shape)) if random_.random() < 0.5] or [len(shape) - 1]
            names.append(b.reduce(random_.choice(["sum", "maximum", "minimum"]), name, dimensions))
    outputs = list(dict.fromkeys([names[-1], *random_.sample(names[len(inputs):], min(2, len(names) - len(inputs)))]))
    return b, outputs, inputs


@pytest.mark.parametrize("seed", range(16))
def test_random_programs(seed: int) -> None:
    b, outputs, inputs = random_program(seed * 100)
    check(b.program(*outputs), inputs, tolerance=1e-4)
