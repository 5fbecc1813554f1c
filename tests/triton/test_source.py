"""The text: golden files, and properties of every text. A golden file is ``golden/<program>.py``; ``--update-golden`` writes it."""
from __future__ import annotations

import ast
from pathlib import Path

import pytest
from triton_programs import PROGRAMS
from triton_samples import every_operator, pointwise, program_schedules, source_of

from aotcompile.codegen.triton.shape import power_of_two, shape_of
from aotcompile.codegen.triton.source import generate_triton, launch_grid
from aotcompile.codegen.triton.values import rounded
from aotcompile.codegen.types import KernelSource
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Integer, Symbol
from aotcompile.ir.nodes import Apply, Buffer, BufferReference, Compute, Constant, Load, Loop, Program, Reduction, SizeSymbol, Store
from aotcompile.schedule.schedule import make_schedule
from aotcompile.schedule.types import FusedKernel, Schedule

GOLDEN = Path(__file__).parent / "golden"
SHOWN = ("pointwise", "half", "softmax", "softmax_long", "layer_norm", "extremes", "embedding", "scatter_add", "scatter_add_bytes", "pad_cat", "transpose")


@pytest.mark.parametrize("name", SHOWN)
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    text, path = source_of(name).text, GOLDEN / f"{name}.py"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; look at it and run pytest with --update-golden"


def test_every_golden_file_is_used() -> None:
    assert {path.stem for path in GOLDEN.glob("*.py")} == set(SHOWN)


@pytest.fixture(scope="module")
def everything() -> KernelSource:
    return generate_triton([*program_schedules(PROGRAMS).values(), *every_operator(100).values()])


def test_texts_are_python_with_short_lines(everything: KernelSource) -> None:
    tree = ast.parse(everything.text)
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert functions[-len(everything.kernels):] == list(everything.kernels)
    assert len(set(functions)) == len(functions)
    assert max(map(len, everything.text.splitlines())) <= 220
    assert not any(line != line.rstrip() for line in everything.text.splitlines())


def test_no_name_is_used_before_it_has_a_value(everything: KernelSource) -> None:
    """Every name read in a kernel is a parameter, a module name or assigned on an earlier line."""
    tree = ast.parse(everything.text)
    outside = {"triton", "tl", "libdevice", "float", "range"} | {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        known = outside | {argument.arg for argument in function.args.args}

        def check(statements: list[ast.stmt], known: set[str], name: str) -> None:
            for statement in statements:
                body = statement.body if isinstance(statement, ast.For) else []
                parts = [statement.iter] if isinstance(statement, ast.For) else [statement]
                for node in (n for part in parts for n in ast.walk(part)):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                        assert node.id in known, f"{name}: {node.id}"
                    elif isinstance(node, ast.Name):
                        known.add(node.id)
                if isinstance(statement, ast.For):
                    check(body, known | {n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)}, name)
        check([s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))], set(known), function.name)


def test_launch_facts_agree_with_the_text(everything: KernelSource) -> None:
    arguments = {node.name: [argument.arg for argument in node.args.args] for node in ast.parse(everything.text).body if isinstance(node, ast.FunctionDef)}
    assert set(everything.launch) == set(everything.kernels)
    for name, launch in everything.launch.items():
        assert launch["arguments"] == arguments[name] == list(launch["signature"])
        pointers = [argument for argument, kind in launch["signature"].items() if kind.startswith("*")]
        assert len(pointers) == launch["buffers"] and arguments[name][:len(pointers)] == pointers
        assert all(value & (value - 1) == 0 for value in launch["constants"].values())


def test_same_text_again() -> None:
    assert source_of("softmax_long", "index").text == source_of("softmax_long", "index").text


def test_equal_kernels_stand_there_once() -> None:
    schedule = program_schedules(["softmax"])["softmax"]
    assert generate_triton([schedule, schedule]).text == generate_triton([schedule]).text


def symbolic(reduce: bool, limit: int | None = None) -> Schedule:
    """``result[i, j] = 2 * x[i, j]`` (or summed over j) for any sizes."""
    s0, s1, i, j = Symbol("s0"), Symbol("s1"), Symbol("i"), Symbol("j")
    x = Buffer("x", DType.f32, (s0, s1), (s1, Integer(1)), "cuda")
    result = Buffer("result", DType.f32, (s0,), (Integer(1),), "cuda") if reduce else Buffer("result", DType.f32, (s0, s1), (s1, Integer(1)), "cuda")
    body = Apply(DType.f32, "mul", (Load(DType.f32, "x", i * s1 + j), Constant(DType.f32, 2.0)))
    loops = (Loop(i, s0),) if reduce else (Loop(i, s0), Loop(j, s1))
    compute = Compute("result", loops, body, Store(i if reduce else i * s1 + j), Reduction("sum", (Loop(j, s1),), DType.f32) if reduce else None)
    symbols = (SizeSymbol(s0, 0, 0), SizeSymbol(s1, 0, 1))
    program = Program("inference", {"x": x, "result": result}, ("x",), symbols, (compute,), (BufferReference("result"),),
                      ranges={"s0": (0, limit), "s1": (0, limit)})
    return make_schedule(program, backend="triton")


@pytest.mark.parametrize("reduce", [False, True])
@pytest.mark.parametrize("sizes", [(3, 5), (1, 1), (7, 3000), (0, 4), (4, 0)])
def test_symbolic_sizes(interpreter: object, reduce: bool, sizes: tuple[int, int]) -> None:
    import torch
    from triton_running import execute
    x = torch.randn(sizes)
    found, = execute(symbolic(reduce), [x], interpreter.launch)                    # type: ignore[attr-defined]
    torch.testing.assert_close(found, 2 * x.sum(1) if reduce else 2 * x)


@pytest.mark.parametrize(("limit", "expected"), [(None, "i64"), (1 << 20, "i64"), (1 << 10, "i32")])
def test_indices_have_64_bits_unless_they_surely_fit(limit: int | None, expected: str) -> None:
    for reduce in (False, True):
        launch, = generate_triton([symbolic(reduce, limit)]).launch.values()
        assert launch["size_type"] == expected
        assert all(launch["signature"][name] == expected for name in launch["sizes"])


def test_large_static_sizes_have_64_bit_indices() -> None:
    body = Load(DType.b8, "x", Symbol("i"))
    launch, = generate_triton([pointwise(body, {"x": DType.b8}, (1 << 31) + 5)]).launch.values()
    assert launch["size_type"] == "i64" and launch["grid"] == [-(-((1 << 31) + 5) // 1024), 1, 1]


def test_grid_of_symbolic_sizes() -> None:
    schedule = symbolic(False)
    kernel = next(step for step in schedule.steps if isinstance(step, FusedKernel))
    grid = launch_grid(kernel, schedule)
    assert eval(str(grid[0]), {}, {"s0": 3, "s1": 1000}) == 3 and grid[1:] == (1, 1)
    assert eval(str(grid[0]), {}, {"s0": 0, "s1": 1000}) == 0


def test_constants_are_rounded_to_their_type() -> None:
    assert rounded(0.1, DType.bf16) == 0.10009765625 and rounded(0.1, DType.f16) == 0.0999755859375 and rounded(0.1, DType.f64) == 0.1
    assert rounded(1e39, DType.f32) == float("inf") and rounded(-1e6, DType.f16) == float("-inf")
    assert rounded(3.3961775292304601e38, DType.bf16) == float("inf")
    assert [power_of_two(value) for value in (0, 1, 2, 3, 5, 1024, 1025)] == [1, 1, 2, 4, 8, 1024, 2048]


def test_rows_in_one_block_and_rows_in_a_loop() -> None:
    schedules = program_schedules(["softmax", "softmax_long", "sums"])
    shapes = {name: [shape_of(step, schedule.program.buffers, {}) for step in schedule.steps if isinstance(step, FusedKernel)] for name, schedule in schedules.items()}
    assert [shape.persistent for shape in shapes["softmax"]] == [True] and [shape.persistent for shape in shapes["softmax_long"]] == [False]
    assert any(shape.x_block >= 16 for shape in shapes["sums"])           # over the first dimension: neighbours in memory are neighbouring rows
