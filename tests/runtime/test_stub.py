"""The stub: hits, misses, their messages, stances, ambient modes and compiled failures, on packages made by hand."""
from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any, Callable

import pytest
import torch
from runtime_tests import DOUBLE, HEADER, argument, buffer, call, double_plan, facts, graph, guard, one, plan, tensor_input

from aotcompile.runtime import AotCompileWarning, MissError, set_stance

Loader = Callable[..., ModuleType]
pytestmark = pytest.mark.filterwarnings("ignore::aotcompile.runtime.reporting.AotCompileWarning")


def test_hit_runs_the_graph_and_not_the_eager_body(load_package: Loader) -> None:
    model = load_package({"model.py": DOUBLE}, {"model": {"f:r0": [{"plan.json": double_plan()}]}})
    x = torch.randn(2, 3)
    assert torch.equal(model.f(x), x * 2 + 1)
    record = one(model)
    assert (record.calls, record.hits, record.misses, model.EAGER) == (1, 1, 0, [])


def test_miss_is_eager_counted_and_warned_once_with_source(load_package: Loader) -> None:
    model = load_package({"model.py": DOUBLE}, {"model": {"f:r0": [{"plan.json": double_plan()}]}})
    with pytest.warns(AotCompileWarning, match=r"AOT701 .*x\.shape\[1\] == 3 \(got 5\) model\.py:3") as seen:
        assert model.f(torch.ones(2, 5)).shape == (2, 5)
        model.f(torch.ones(2, 6))
    assert len(seen) == 1
    record = one(model)
    assert (record.calls, record.hits, record.misses) == (2, 0, 2)
    assert record.last_miss == "x.shape[1] == 3 (got 6) model.py:3"


@pytest.mark.parametrize(("value", "text"), [
    (torch.ones(2, 3, dtype=torch.float64), "x.dtype == torch.float32 (got torch.float64)"),
    (torch.ones(3, 2).t(), "x.stride(0) == 3 (got 1)"),
    (torch.ones(6), "x.dim() == 2 (got 1)"),
    (torch.ones(2, 3).to_sparse(), "layout torch.sparse_coo"),
    (torch._neg_view(torch.ones(2, 3)), "lazy conjugate or negative"),
])
def test_what_is_wrong_with_a_tensor_is_said(load_package: Loader, value: torch.Tensor, text: str) -> None:
    model = load_package({"model.py": DOUBLE}, {"model": {"f:r0": [{"plan.json": double_plan()}]}})
    if value.is_sparse:
        with pytest.raises(RuntimeError, match="sparse"):        # eager's own
            model.f(value)
    else:
        assert torch.equal(model.f(value), value * 2 + 1)
    assert text in (one(model).last_miss or "")


def test_no_tensor_gives_eagers_own_answer_or_exception(load_package: Loader) -> None:
    model = load_package({"model.py": DOUBLE}, {"model": {"f:r0": [{"plan.json": double_plan()}]}})
    assert model.f(3) == 7
    assert one(model).last_miss == "type(x) is torch.Tensor (got int) model.py:3"
    with pytest.raises(TypeError):
        model.f("text")


def test_second_variant_takes_what_the_first_refuses_and_sizes_may_vary(load_package: Loader) -> None:
    dynamic = double_plan(["s0", 4])
    dynamic["symbols"] = [["s0", 0, 0]]
    dynamic["guards"].append(guard("expression", None, "s0 >= 2", 9))
    model = load_package({"model.py": DOUBLE}, {"model": {"f:r0": [{"plan.json": double_plan()}, {"plan.json": dynamic}]}})
    for shape in ((2, 3), (2, 4), (7, 4)):
        model.f(torch.ones(*shape))
    assert (one(model).hits, one(model).misses) == (3, 0)
    model.f(torch.ones(1, 4))
    assert one(model).last_miss == "s0 >= 2 (got s0 = 1) model.py:9"


def test_strides_of_sizes_one_and_of_empty_tensors_do_not_matter(load_package: Loader) -> None:
    model = load_package({"model.py": DOUBLE}, {"model": {"f:r0": [{"plan.json": double_plan([1, 3])}, {"plan.json": double_plan([0, 3])}]}})
    model.f(torch.empty_strided((1, 3), (77, 1)).zero_())
    model.f(torch.empty_strided((0, 3), (1, 5)))
    assert (one(model).hits, one(model).misses) == (2, 0)


def test_stances(load_package: Loader) -> None:
    model = load_package({"model.py": DOUBLE}, {"model": {"f:r0": [{"plan.json": double_plan()}]}})
    x = torch.ones(2, 3)
    with set_stance("force_eager"):
        model.f(x)
    assert (one(model).calls, one(model).hits, one(model).misses, len(model.EAGER)) == (1, 0, 0, 1)
    with set_stance("error_on_miss"):
        model.f(x)
        with pytest.raises(MissError, match=r"x\.shape\[0\] == 2 \(got 9\)"):
            model.f(torch.ones(9, 3))
    assert len(model.EAGER) == 1
    with pytest.raises(ValueError, match="unknown stance"):
        set_stance("sometimes")


class _Subclass(torch.Tensor):
    pass


class _SeesAll(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


def test_transforms_modes_and_subclasses_get_the_eager_body(load_package: Loader) -> None:
    model = load_package({"model.py": DOUBLE}, {"model": {"f:r0": [{"plan.json": double_plan()}]}})
    x = torch.ones(2, 3)
    assert type(model.f(x.as_subclass(_Subclass))) is _Subclass
    assert torch.equal(torch.func.vmap(model.f)(torch.ones(4, 2, 3)), torch.full((4, 2, 3), 3.0))
    assert "torch.func" in (one(model).last_miss or "")
    with _SeesAll() as mode:
        model.f(x)
    assert mode.seen and "TorchDispatchMode" in (one(model).last_miss or "")
    with torch.device("cpu"):
        model.f(x)
    assert "TorchFunctionMode" in (one(model).last_miss or "")
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones(2, 3))
        assert torch.autograd.forward_ad.unpack_dual(model.f(dual)).tangent is not None
    traced = torch.jit.trace(model.f, (x,), check_trace=False)
    assert torch.equal(traced(x + 5), (x + 5) * 2 + 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model.f(x)
    assert "autocast_cpu" in (one(model).last_miss or "")
    hits = one(model).hits
    assert hits == 0
    model.f(x)
    assert one(model).hits == 1


def test_a_miss_never_raises_even_where_warnings_are_errors(load_package: Loader, capsys: pytest.CaptureFixture[str]) -> None:
    model = load_package({"model.py": DOUBLE}, {"model": {"f:r0": [{"plan.json": double_plan()}]}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.f(torch.ones(1)).item() == 3
    assert "AOT701" in capsys.readouterr().err


def test_a_failing_library_call_gives_eagers_exception_or_its_result(load_package: Loader) -> None:
    text = HEADER + '''
import torch
def _r0_eager(x, i):
    return x[i]
_r0 = _region("f:r0", _r0_eager)
f = _r0
'''
    inputs = [tensor_input("x", argument("x"), [4]), tensor_input("i", argument("i"), [2], dtype="i64")]
    steps = [call("aten.index_select.default", [buffer("x"), 0, buffer("i")], "y")]
    model = load_package({"model.py": text}, {"model": {"f:r0": [{"plan.json": plan("f:r0", inputs, {"inference": graph(["x", "i"], steps, ["y"])})}]}})
    x = torch.arange(4.0)
    assert model.f(x, torch.tensor([1, 3])).tolist() == [1.0, 3.0]
    with pytest.raises(IndexError):                              # eager's own type: index_select raises another one
        model.f(x, torch.tensor([1, 9]))
    with pytest.warns(AotCompileWarning, match="AOT702"):        # x[-1] is fine in eager, not for index_select
        assert model.f(x, torch.tensor([1, -1])).tolist() == [1.0, 3.0]
    assert (one(model).hits, one(model).misses) == (1, 2)


def test_epilogue_numbers_fetches_and_side_effects(load_package: Loader) -> None:
    text = HEADER + '''
class Output:
    def __init__(self, y, n): self.y, self.n = y, n
class Holder: pass
def _r0_eager(self, x, k):
    self.last = k
    return Output(x * k, x.shape[0])
_r0 = _region("f:r0", _r0_eager)
f = _r0
'''
    wrapper = '''
EPILOGUE_IMPORTS = {"Output": "handmade.model:Output"}
def epilogue(inputs, outputs, symbols, fetched):
    fetched[0].last = inputs[1]
    return Output(outputs[0], symbols["s0"])

# ---- computation
def inference(inputs, runtime):
    import torch
    x, k = inputs
    y, = runtime.tensors(torch.ops.aten.mul.Tensor(x, k))
    return [y]
'''
    inputs = [tensor_input("x", argument("x"), ["s0"]), {"name": "k", "kind": "number", "path": argument("k"), "facts": None, "number": "float", "mutated": False}]
    made = plan("f:r0", inputs, {"inference": graph(["x", "k"], [call("aten.mul.Tensor", [buffer("x"), buffer("k")], "y")], ["y"])}, result=None,
                symbols=[["s0", 0, 0]], fetches=[argument("self")], first_guards=[guard("type", argument("self"), "handmade.model:Holder")],
                more_guards=[guard("number", argument("k"), "float")])
    model = load_package({"model.py": text}, {"model": {"f:r0": [{"plan.json": made, "wrapper.py": wrapper}]}})
    holder = model.Holder()
    result = model.f(holder, torch.ones(3), 2.5)
    assert type(result) is model.Output and result.n == 3 and result.y.tolist() == [2.5] * 3 and result.y.dtype is torch.float32 and holder.last == 2.5
    assert (one(model).hits, one(model).misses) == (1, 0)
    assert model.f(holder, torch.ones(3), 2).n == 3 and holder.last == 2
    assert one(model).last_miss == "type(k) is float (got 2) model.py:3"


def test_inputs_changed_in_place_count_a_version_once(load_package: Loader) -> None:
    text = HEADER + "\ndef _r0_eager(x):\n    x.add_(1)\n    return x * 2\n_r0 = _region('f:r0', _r0_eager)\nf = _r0\n"
    steps = [call("aten.add.Tensor", [buffer("x"), 1], "a"), call("aten.mul.Tensor", [buffer("a"), 2], "y"), call("aten.copy_.default", [buffer("x"), buffer("a")], None)]
    made = plan("f:r0", [tensor_input("x", argument("x"), [3], mutated=True)], {"inference": graph(["x"], steps, ["y"])})
    model = load_package({"model.py": text}, {"model": {"f:r0": [{"plan.json": made}]}})
    x = torch.zeros(3)
    version = x._version
    assert model.f(x).tolist() == [2.0] * 3 and x.tolist() == [1.0] * 3 and x._version == version + 1
    with torch.inference_mode():
        frozen = torch.zeros(3)
    assert one(model).hits == 1
    with pytest.raises(RuntimeError, match="[Ii]nference tensor"):
        model.f(frozen)
    assert one(model).hits == 1


def test_grad_mode_of_inference_variants(load_package: Loader) -> None:
    model = load_package({"model.py": DOUBLE}, {"model": {"f:r0": [{"plan.json": double_plan(grad_enabled=False)}]}})
    x = torch.ones(2, 3, requires_grad=True)
    assert model.f(x).requires_grad and one(model).misses == 1   # nothing says that x must not require grad: the stub does
    with torch.no_grad():
        assert not model.f(x).requires_grad
    assert not model.f(x.detach()).requires_grad
    assert one(model).hits == 2
    assert facts([2, 3])["strides"] == [3, 1]
