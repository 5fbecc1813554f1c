"""Plans: steps, argument forms, names of updated buffers."""
from __future__ import annotations

import json
import math

from codegen_running import Builder

from aotcompile.codegen.python.plan import as_json, plan_graph
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Symbol, wrap
from aotcompile.ir.nodes import (
    BufferReference, Compute, DTypeReference, LibraryCall, Load, Loop, Program, ReadScalar, Store, TorchReference, View,
)
from aotcompile.schedule.schedule import make_schedule


def steps(program: Program) -> list[dict[str, object]]:
    data = as_json(plan_graph(make_schedule(program, backend="cpp")))
    json.dumps(data)
    return data["steps"]                       # type: ignore[no-any-return]


def test_memory_is_reused_and_freed() -> None:
    b = Builder()
    x = b.input("x", [64, 32])
    for _ in range(3):
        h = b.apply("exp", x)
        x = b.fresh([64, 32], DType.f32)
        b.operations.append(LibraryCall("aten.cumsum.default", (BufferReference(h), 1), (), (x,)))
    found = [(step["step"], step.get("name")) for step in steps(b.program(x))]
    kinds = [kind for kind, _ in found]
    assert kinds.count("allocate") == 1 and kinds.count("view") == 2 and kinds.count("kernel") == 3
    freed = [name for kind, name in found if kind == "free"]
    assert len(freed) == len(set(freed)) and x not in freed and "x" not in freed and len(freed) == 5


def test_argument_forms() -> None:
    b = Builder()
    x = b.input("x", [Symbol("s0"), 4])
    y = b.fresh([Symbol("s0"), 4], DType.f32)
    arguments = (BufferReference(x), Symbol("s0") * 4 - 1, wrap(3), (1, Symbol("s0")), None, math.inf, 1 + 2j, True)
    keywords = (("dtype", DTypeReference("float32")), ("device", TorchReference("device", "cpu")), ("memory_format", TorchReference("memory_format", "torch.channels_last")))
    b.operations.append(LibraryCall("aten.something.default", arguments, keywords, (y,)))
    [call] = steps(b.program(y))
    assert call["arguments"] == [{"buffer": "x"}, {"size": "4*s0 - 1"}, 3, [1, {"size": "s0"}], None, {"float": "inf"}, {"complex": [1.0, 2.0]}, True]
    assert call["keywords"] == {"dtype": {"dtype": "float32"}, "device": {"device": "cpu"}, "memory_format": {"memory_format": "channels_last"}}
    assert call["strides"] == [[4, 1]]


def test_an_updated_buffer_keeps_its_name_and_scalars_come_first() -> None:
    b = Builder()
    x, n = b.input("x", [8]), b.input("n", [], DType.i64)
    b.operations.append(ReadScalar(Symbol("u0"), n))
    result = b.buffer("x_new", [8])
    p = Symbol("p0")
    b.operations.append(Compute(result, (Loop(p, wrap(8)),), Load(DType.f32, x, (p + Symbol("u0")) % 8), Store(wrap(p)), updates=None))
    updated = b.buffer("x_updated", [8])
    b.operations.append(Compute(updated, (Loop(p, wrap(8)),), Load(DType.f32, result, wrap(p)), Store(wrap(p)), updates=x))
    view = b.buffer("view", [4])
    b.operations.append(View(view, updated, wrap(2)))
    program = b.program(updated, view)
    found = steps(program)
    assert [step["step"] for step in found if step["step"] != "free"] == ["read_scalar", "allocate", "kernel", "kernel", "view"]
    assert found[-1]["base"] == "x" and as_json(plan_graph(make_schedule(program, backend="cpp")))["outputs"][0] == {"buffer": "x"}
