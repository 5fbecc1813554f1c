"""The generated C++ of small programs, word for word: golden/<test>.cpp. ``pytest --update-golden`` writes them."""
from __future__ import annotations

from pathlib import Path

import pytest
from codegen_running import Builder

from aotcompile.codegen.cpp.source import generate_cpp
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Symbol
from aotcompile.ir.nodes import Program
from aotcompile.schedule.schedule import make_schedule

GOLDEN = Path(__file__).resolve().parent / "golden"


def pointwise() -> Program:
    b = Builder()
    x = b.input("x", [4096, 4096])
    return b.program(b.apply("add", b.apply("mul", b.apply("sin", x), b.apply("cos", x)), b.apply("tanh", x)))


def softmax_of_symbolic_sizes() -> Program:
    b = Builder()
    x = b.input("x", [Symbol("s0"), Symbol("s1")], DType.bf16)
    x = b.cast(x, DType.f32)
    p = b.apply("exp", b.apply("sub", x, b.reduce("maximum", x, [1])))
    return b.program(b.apply("truediv", p, b.reduce("sum", p, [1])))


def sum_over_columns() -> Program:
    b = Builder()
    x = b.input("x", [3000, 700])
    return b.program(b.reduce("sum", b.apply("exp", x), [0]))


def whole_sum() -> Program:
    b = Builder()
    x = b.input("x", [1000, 1000])
    return b.program(b.constant(b.reduce("sum", x, [0, 1]), "mul", 1e-6))


def transpose() -> Program:
    b = Builder()
    x = b.input("x", [64, 48])
    return b.program(b.apply("neg", b.permute(b.apply("exp", x), [1, 0])))


PROGRAMS = {"pointwise": pointwise, "softmax_of_symbolic_sizes": softmax_of_symbolic_sizes, "sum_over_columns": sum_over_columns, "whole_sum": whole_sum,
            "transpose": transpose}


def text_of(program: Program) -> str:
    """The source without the line that names the headers' version."""
    text = generate_cpp([make_schedule(program, backend="cpp")]).text
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("// Support headers:"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    text = text_of(PROGRAMS[name]())
    assert text == text_of(PROGRAMS[name]())
    path = GOLDEN / f"{name}.cpp"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_equal_kernels_are_written_once() -> None:
    first, second = (make_schedule(Program(**{**vars(pointwise()), "name": name}), backend="cpp") for name in ("forward", "backward"))
    source = generate_cpp([first, second])
    assert len(source.kernels) == 2 and source.text.count("sin(") == 1 and f"return {source.kernels[0]}(buffers, sizes);" in source.text
