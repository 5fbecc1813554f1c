"""The plan's two Python executors: the steps of plan.json and the generated wrapper.py give the same, whatever the steps."""
from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from runtime_tests import run_python

from aotcompile.codegen.python.wrapper import COMPUTATION_MARK, wrapper_source
from aotcompile.codegen.types import PlanAllocate, PlanCall, PlanCheck, PlanFree, PlanGraph, PlanKernel, PlanReadScalar, PlanStep, PlanView
from aotcompile.frontend.types import CapturedVariant, GraphInput
from aotcompile.ir.guards import TensorFacts
from aotcompile.ir.paths import Path as AccessPath
from aotcompile.runtime import executor, loader
from aotcompile.runtime.guards import UnsupportedPlan

STEP = {PlanAllocate: "allocate", PlanView: "view", PlanKernel: "kernel", PlanCall: "call", PlanReadScalar: "read_scalar", PlanCheck: "check",
        PlanFree: "free"}


def as_json(graph: PlanGraph) -> dict[str, Any]:
    values = dataclasses.asdict(graph)
    values["steps"] = [{"step": STEP[type(step)], **dataclasses.asdict(step)} for step in graph.steps]
    return json.loads(json.dumps(values))                        # type: ignore[no-any-return]


def variant(inputs: tuple[GraphInput, ...] = (), **more: Any) -> CapturedVariant:
    values: dict[str, Any] = dict(region="f:r0", nodes=(), inputs=inputs, symbols=(), guards=(), fetches=(), epilogue="", epilogue_imports={}, result=(0,),
                                  grad_enabled=False, output_requires_grad=(False,), operator_count=1)
    return CapturedVariant(**{**values, **more})


def wrapper_graph(graph: PlanGraph, kernels: executor.Kernels | None = None) -> executor.WrapperGraph:
    space: dict[str, Any] = {}
    exec(compile(wrapper_source(variant(), {"inference": graph}), "wrapper.py", "exec"), space)
    return executor.WrapperGraph(space["inference"], kernels or executor.Kernels(None, ()))


def run_both(graph: PlanGraph, *inputs: Any, kernels: executor.Kernels | None = None) -> list[Any]:
    """Outputs of the plan's executor, after comparing them with the wrapper's."""
    kernels = kernels or executor.Kernels(None, ())

    def fresh() -> list[Any]:
        return [i.clone() if isinstance(i, torch.Tensor) else i for i in inputs]
    stepped = executor.Graph(as_json(graph), kernels)(fresh())
    written = wrapper_graph(graph, kernels)(fresh())
    assert len(stepped) == len(written)
    for a, b in zip(stepped, written):
        if isinstance(a, torch.Tensor):
            assert torch.equal(a, b) and a.stride() == b.stride() and a.dtype is b.dtype
        else:
            assert a == b and type(a) is type(b)
    return stepped


def graph(inputs: tuple[str, ...], steps: list[PlanStep], outputs: list[Any], symbols: tuple[Any, ...] = ()) -> PlanGraph:
    return PlanGraph(inputs, symbols, tuple(steps), tuple({"buffer": o} if isinstance(o, str) else o for o in outputs))


def call(operator: str, arguments: tuple[Any, ...], *results: str | None, strides: Any = None, **keywords: Any) -> PlanCall:
    return PlanCall(operator, arguments, keywords, results, strides or (None,) * len(results))


B = {"buffer": "x"}


def test_every_argument_form() -> None:
    steps: list[PlanStep] = [
        call("aten.full.default", ([{"size": "s0*2"}, 2], {"float": "-inf"}), "a", dtype={"dtype": "float64"}, device={"device": "cpu"}, layout={"layout": "strided"}),
        call("aten.add.Tensor", (B, {"complex": [1.0, 2.0]}), "b"),
        call("aten.contiguous.default", (B,), "c", memory_format={"memory_format": "contiguous_format"}),
        call("aten.cat.default", ([B, B], 1), "class"), call("aten.clamp.default", (B, None, 0.5), "x+1")]
    got = run_both(graph(("x",), steps, ["a", "b", "c", "class", "x+1", {"size": "s0 + 1"}, {"constant": None}, {"constant": 2}], (("s0", 0, 0),)),
                   torch.arange(6.0).view(3, 2))
    assert got[0].shape == (6, 2) and got[0].dtype is torch.float64 and got[0].max() == float("-inf")
    assert got[1][0, 0] == 1 + 2j and got[3].shape == (3, 4) and got[4].max() == 0.5 and got[5:] == [4, None, 2]


def test_results_views_strides_and_scalars() -> None:
    steps: list[PlanStep] = [
        call("aten.topk.default", (B, 2), "values", "places"), call("aten.split.Tensor", (B, 2, 1), "first", None),
        call("aten.t.default", (B,), "t", strides=((3, 1),)),
        PlanView("row", "x", "float32", (4,), (1,), 4), PlanView("bits", "row", "int32", (2, 2), (1, 2), 0), PlanView("half", "row", "i16", ("s0",), (2,), 1),
        call("aten.max.default", ({"buffer": "places"},), "m"), PlanReadScalar("u0", "m"), PlanFree("m"),
        call("aten.arange.default", ({"size": "u0 + max(s0, 1) - 1"},), "r"), call("aten.add_.Tensor", (B, 1), None)]
    x = torch.arange(12.0).view(3, 4)
    got = run_both(graph(("x",), steps, ["values", "places", "first", "t", "row", "bits", "half", "r", "x"], (("s0", 0, 0),)), x)
    assert got[0].tolist() == [[3, 2], [7, 6], [11, 10]] and got[2].tolist() == x[:, :2].add(1).tolist() and got[3].stride() == (3, 1)
    assert got[3].tolist() == x.t().tolist() and got[4].tolist() == [5.0, 6.0, 7.0, 8.0]     # row shares memory with x, which was changed last
    assert got[5].dtype is torch.int32 and got[5].t().flatten().tolist() == got[4].view(torch.int32).tolist() and got[6].dtype is torch.int16
    assert got[7].tolist() == [0, 1, 2, 3, 4] and got[8][0, 0] == 1


def test_views_at_an_offset_and_of_another_dtype() -> None:
    x = torch.arange(8.0, dtype=torch.float64)[2:]
    view = executor.Runtime.view(x, (4,), (1,), 1, torch.float32)
    assert view.tolist() == x.view(torch.float32)[1:5].tolist()
    assert executor.Runtime.view(x, (2,), (2,), 1, torch.float64).tolist() == [3.0, 5.0]
    with pytest.raises(UnsupportedPlan):
        executor.Runtime.view(torch.arange(8, dtype=torch.int8)[1:], (1,), (1,), 0, torch.float32)


def test_sizes_come_from_inputs_ints_and_scalars() -> None:
    steps: list[PlanStep] = [call("aten.full.default", ([{"size": "s0"}, {"size": "n // 2"}], 1.0), "y")]
    for number in (7, torch.tensor(7)):
        assert run_both(graph(("x", "k"), steps, ["y"], (("s0", 0, 0), ("n", 1, -1))), torch.zeros(2), number)[0].shape == (2, 3)


def test_a_size_out_of_its_range_stops_the_graph() -> None:
    plan = graph(("x",), [PlanReadScalar("u0", "x"), PlanCheck("u0 >= 0 or u0 == -7")], ["x"])
    for number in (0, 3, -7):
        run_both(plan, torch.tensor(number))
    for made in (executor.Graph(as_json(plan), executor.Kernels(None, ())), wrapper_graph(plan)):
        with pytest.raises(executor.KernelFailure) as caught:
            made([torch.tensor(-1)])
        assert caught.value.status == 3 and "u0 >= 0" in str(caught.value)


@pytest.mark.parametrize("step", [{"step": "teleport"}, {"step": "kernel", "kernel": "k", "buffers": [], "sizes": [], "grid": [1, 1, 1]},
                                  {"step": "call", "operator": "aten.nothing.default", "arguments": [], "keywords": {}, "results": [], "strides": []},
                                  {"step": "call", "operator": "aten.add.Tensor", "arguments": [{"mystery": 1}], "keywords": {}, "results": [], "strides": []},
                                  {"step": "allocate", "name": "a", "dtype": "f4", "sizes": [], "strides": [], "device": "cpu"}])
def test_unknown_steps_are_refused(step: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedPlan):
        executor.Graph({"inputs": [], "symbols": [], "steps": [step], "outputs": []}, executor.Kernels(None, ()))


def test_wrapper_text_is_readable_and_its_head_holds_the_epilogue() -> None:
    x = AccessPath(("argument", "x"))
    given = GraphInput("x", "tensor", x, TensorFacts("f32", ("s0", 4), (4, 1), "cpu", None), mutated=True)
    epilogue = 'def epilogue(inputs, outputs, symbols, fetched):\n    fetched[0].note = """two\n    lines """\n    return Output(outputs[0])'
    text = wrapper_source(variant((given,), epilogue=epilogue, epilogue_imports={"Output": "m:Output"}, result=None, fetches=(AccessPath(("argument", "self")),)),
                          {"inference": graph(("x",), [PlanKernel("cpp_poi_fused_relu_0", ("x",), ("s0",))], ["x"])})
    assert "x: f32[s0, 4][4, 1] = x  (changed in place)" in text and "fetched[0] = self" in text and '"Output": "m:Output"' in text
    assert 'runtime.launch("cpp_poi_fused_relu_0", (x,), (s0,))' in text and epilogue in text
    head = text.partition(loader.COMPUTATION_MARK)[0]
    assert loader.COMPUTATION_MARK.strip() in COMPUTATION_MARK
    space: dict[str, Any] = {}
    exec(head, space)
    assert "epilogue" in space and "inference" not in space
    many = graph(tuple(f"input_{i}" for i in range(60)), [], [f"input_{i}" for i in range(60)])
    wide = wrapper_source(variant(), {"inference": many})
    assert max(map(len, wide.splitlines())) <= 150 and wide == wrapper_source(variant(), {"inference": many})
    assert len(run_both(many, *[torch.tensor(i) for i in range(60)])) == 60


PARALLEL = '''
#include <stdint.h>
int32_t add(void *const *buffers, const int64_t *sizes) {
    const float *x = buffers[0]; float *y = buffers[1];
    #pragma omp parallel for
    for (int64_t i = 0; i < sizes[0]; ++i) y[i] = x[i] + 1;
    return 0;
}
'''


def test_parallel_kernels_run_in_a_forked_child(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "k.c").write_text(PARALLEL)
    subprocess.run([compiler, "-shared", "-fPIC", "-fopenmp", "-O2", "-o", str(tmp_path / "k.so"), str(tmp_path / "k.c")], check=True)
    code = '''
import os, sys, time, torch
from aotcompile.runtime import executor
torch.set_num_threads(2)
kernels = executor.Kernels(sys.argv[1], ["add"])
x, y = torch.zeros(1000), torch.empty(1000)
kernels.launch("add", [x, y], [1000])
assert y.sum() == 1000 and not executor.forked
child = os.fork()
if child == 0:
    kernels.launch("add", [y, x], [1000])
    os._exit(0 if x[0] == 2 and x[999] == 2 and executor.forked and torch.get_num_threads() == 2 else 1)
for _ in range(200):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        print(os.waitstatus_to_exitcode(status)); break
    time.sleep(0.05)
else:
    os.kill(child, 9); print("hangs")
'''
    assert run_python(code, str(tmp_path / "k.so")).strip() == "0"
