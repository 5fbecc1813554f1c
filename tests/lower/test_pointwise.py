"""Elementwise operators against eager: values, result types, rounding."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from checking import check, lower

from aotcompile.ir.nodes import Apply, Cast, Compute
from aotcompile.ir.traverse import buffers_read, tree_size, walk

FLOAT = ("exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf erfc lgamma sigmoid "
         "frac deg2rad logit sinc").split()
ANY = "neg abs sign sgn square floor ceil trunc round isnan isinf signbit relu".split()
BINARY = ("add sub mul div floor_divide remainder fmod maximum minimum pow eq ne lt le gt ge atan2 hypot copysign fmax fmin logaddexp xlogy").split()
INTEGERS = torch.tensor([[-7, 7, -3], [3, 5, -1]])
DIVISORS = torch.tensor([[2, -2, 5], [-5, 3, -1]])


def values(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(3, 4)
    x[0, :3] = torch.tensor([0.0, float("nan"), float("inf")])
    return x.to(dtype)


@pytest.mark.parametrize("name", FLOAT + ANY)
def test_unary(name: str) -> None:
    function = getattr(torch, name)
    check(lambda a, b: (function(a), function(b)), values(), values(torch.bfloat16), kernels_only=True)


@pytest.mark.parametrize("name", ANY + ["exp", "sqrt", "sigmoid"])
def test_unary_of_integers(name: str) -> None:
    check(getattr(torch, name), torch.arange(1, 7).reshape(2, 3), kernels_only=True)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    function = getattr(torch, name)
    x, y = values(), torch.randn(3, 4)
    check(lambda a, b, c, d: (function(a, b), function(c, d)), x, y, x.bfloat16(), y.bfloat16(), kernels_only=True)


@pytest.mark.parametrize("name", [name for name in BINARY if name not in ("hypot", "fmax", "fmin", "logaddexp", "pow")])
def test_binary_of_integers_and_mixed(name: str) -> None:
    function = getattr(torch, name)
    check(lambda a, b, c: (function(a, b), function(a, c), function(c, b)), INTEGERS, DIVISORS, torch.randn(2, 3), kernels_only=True)


@pytest.mark.parametrize("name", "add sub mul div floor_divide remainder fmod pow eq lt ge".split())
def test_with_numbers(name: str) -> None:
    function = getattr(torch, name)

    def run(x: torch.Tensor, h: torch.Tensor, i: torch.Tensor) -> Any:
        return function(x, 3), function(x, 0.3), function(h, 0.3), function(i, 3), function(i, 0.3)
    check(run, torch.randn(3, 4), torch.randn(3, 4).half(), INTEGERS.to(torch.int32), kernels_only=True)


def test_half_precision_rounds_as_eager_does() -> None:
    """A product keeps the number in f32, a sum rounds it first: bit for bit."""
    h, b = torch.randn(64).half(), torch.randn(64).bfloat16()

    def run(h: torch.Tensor, b: torch.Tensor) -> Any:
        return h * 0.3, h / 0.3, h + 0.3, h - 0.3, b * 0.3, b / 0.3, b + 0.3, b**3, h**3, (b * b) * b, h * h + h
    check(run, h, b, tolerance=0.0, kernels_only=True)


def test_round_trip_through_f16_is_kept() -> None:
    program = check(lambda x: (x.to(torch.float16).to(torch.float32), (x.half() * x.half()).float()), torch.full((4,), 4096.0), kernels_only=True)
    first = program.operations[0]
    assert isinstance(first, Compute) and sum(isinstance(node, Cast) for node in walk(first.body)) == 2


def test_float_floor_division_is_torchs() -> None:
    a, b = torch.tensor([2.0, 3.0, 0.6, -2.0, 1.0]), torch.tensor([0.1, 0.1, 0.2, 0.1, 0.0])

    def run(a: torch.Tensor, b: torch.Tensor) -> Any:
        return a // b, torch.div(a, b, rounding_mode="floor"), torch.div(a, b, rounding_mode="trunc")
    check(run, a, b, tolerance=0.0)
    check(run, a.double(), b.double(), tolerance=0.0)


def test_integer_division_edges() -> None:
    least = torch.tensor([-(2**31), 7], dtype=torch.int32)
    check(lambda a, b: a // b, least, torch.tensor([-1, -2], dtype=torch.int32), kernels_only=True)      # eager's % and trunc would kill the process
    check(lambda a, b: (a // b, a % b, torch.div(a, b, rounding_mode="trunc"), torch.fmod(a, b)), least + 1, torch.tensor([-1, -3], dtype=torch.int32))


@pytest.mark.parametrize("function", [F.silu, F.gelu, F.elu, F.selu, F.celu, F.leaky_relu, F.hardtanh, F.hardswish, F.hardsigmoid, F.relu6, F.softplus, F.mish,
                                      F.softsign, F.tanhshrink, F.logsigmoid, F.hardshrink, F.softshrink, lambda x: F.gelu(x, approximate="tanh")])
def test_activations(function: Callable[..., Any]) -> None:
    check(lambda a, b: (function(a), function(b)), torch.randn(3, 4), torch.randn(3, 4).half(), kernels_only=True)


def test_logic_bits_and_booleans() -> None:
    def run(a: torch.Tensor, b: torch.Tensor) -> Any:
        p, q = a > 0, b > 0
        return (a & b, a | 3, a ^ b, ~a, a << 2, a >> b.abs(), torch.logical_and(a, b), torch.logical_xor(a, b), p + q, p * q, torch.maximum(p, q), ~p,
                p.logical_not(), p & q, p ^ q)
    check(run, INTEGERS, DIVISORS, kernels_only=True)


def test_choices_clamps_powers_and_casts() -> None:
    def run(a: torch.Tensor, b: torch.Tensor) -> Any:
        return (torch.where(a > 0, a, b), torch.where(a > 0, 1.0, b), a.masked_fill(b > 0, 3), torch.where(a > 0, 1, 2), a.clamp(-0.5, 0.5), a.clamp(min=0.1),
                a.clamp(a.mean(), a.max()), a**0, a**2, a**3, a.abs()**0.5, a.abs()**-0.5, a**-1, a**-2, 2**a, a.abs()**1.7, a.to(torch.int32), a.double(), a.bool(),
                torch.add(a, b, alpha=2.5), torch.sub(a, b, alpha=0.5), torch.rsub(a, 2, alpha=3), a.lerp(b, 0.3), torch.addcmul(a, a, b), a.nan_to_num())
    check(run, torch.randn(3, 4), torch.randn(3, 4), kernels_only=True)


def test_small_integer_types() -> None:
    check(lambda a: (a + 1, a * 2, a // 3, -a, a >> 1, a.sum(), a.to(torch.int8)), torch.tensor([0, 1, 255, 7], dtype=torch.uint8), kernels_only=True)


def test_zero_dim_tensors_and_odd_strides() -> None:
    x, y = torch.randn(8, 6)[::2, ::3], torch.randn(2, 4).t()
    check(lambda a, b, s: (a + b, a * 2, (a + b).sum(1), a.expand(3, 4, 2) + 1, a * s, a.to(torch.int8) + s, b.t() + 1), x, y, torch.tensor(2.5, dtype=torch.float64))


def test_int64_arithmetic_is_64_bit() -> None:
    check(lambda k: torch.arange(8) * k + torch.arange(8), torch.tensor([1_500_000_000]), kernels_only=True)


def fibonacci(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    for _ in range(40):
        a, b = a + b, a * b
    return a - b


def test_size_of_code_is_linear() -> None:
    program = lower(fibonacci, torch.tensor(0.5), torch.tensor(0.25))
    assert sum(tree_size(operation.body) for operation in program.operations if isinstance(operation, Compute)) < 40 * 12


def test_a_long_chain_is_cut() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(300):
            x = (x + 1).sin()
        return x
    program = lower(chain, torch.randn(3))
    assert all(tree_size(operation.body) < 100 for operation in program.operations if isinstance(operation, Compute))
    assert sum(isinstance(node, Apply) for operation in program.operations if isinstance(operation, Compute) for node in walk(operation.body)) == 600


def test_sums_of_a_residual_stream_are_computed_once() -> None:
    """Each has three users: both uses of the normalised value, and the next sum. Without memory of their own every block would read one term more."""
    def blocks(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = x + torch.mm(x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6), w)
        return x
    program = lower(blocks, torch.randn(4, 8), torch.randn(8, 8))
    computes = [operation for operation in program.operations if isinstance(operation, Compute)]
    assert max(len(buffers_read(compute)) for compute in computes) <= 2
    assert len(computes) == 4 * 3
    check(blocks, torch.randn(4, 8), torch.randn(8, 8))


def test_what_is_read_once_for_many_elements_is_no_reason_to_keep_a_value() -> None:
    def scaled(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> Any:
        y = x * a + b
        return torch.mm((y + 1).contiguous(), w), torch.mm((y + 2).contiguous(), w), torch.mm((y + 3).contiguous(), w)
    program = lower(scaled, torch.randn(4, 8), torch.randn(8), torch.randn(4, 1), torch.randn(8, 8))
    assert sum(isinstance(operation, Compute) for operation in program.operations) == 3
