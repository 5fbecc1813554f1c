"""native.Graph: every kind of step, against eager."""
from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any

import pytest
import torch

from .conftest import allocate, call, graph_plan, kernel


def test_kernel_with_symbolic_size(native: ModuleType, kernels: dict[str, int]) -> None:
    plan = graph_plan(["x"], [allocate("y", ["s0", 4], [4, 1]), kernel("twice", ["x", "y"], ["s0*4"])], ["y", {"size": "s0 * 4 - 1"}, {"constant": None}],
                      symbols=[["s0", 0, 0]])
    graph = native.Graph(plan, kernels)
    for rows in (0, 1, 3, 20000):                                # the last one is long enough to run without the GIL
        x = torch.randn(rows, 4)
        y, size, nothing = graph([x])
        torch.testing.assert_close(y, 2 * x, rtol=0, atol=0)
        assert size == rows * 4 - 1 and nothing is None


@pytest.mark.parametrize(("text", "value"), [
    ("s0 + 2*s1", 17), ("-s0 // 2", -4), ("(-s0) % 4", 1), ("s0 % -4", -1), ("min(s0, s1, 6)", 5), ("max(s0, s1) * 3", 21), ("(s0 // 2) * (s1 - 1)", 12),
    ("-(s0 - s1)", -2), ("12", 12), ("s0 - -s1", 12)])
def test_expressions_are_pythons(native: ModuleType, text: str, value: int) -> None:
    assert eval(text, {"s0": 7, "s1": 5, "min": min, "max": max}) == value
    graph = native.Graph(graph_plan(["x"], [], [{"size": text}], symbols=[["s0", 0, 0], ["s1", 0, 1]]), {})
    assert graph([torch.empty(7, 5)]) == [value]


@pytest.mark.parametrize("text", ["s0 +", "s0 ** 2", "f(s0)", "s0 s0", "(s0", "1.5", "s0 / 2", "", "99999999999999999999"])
def test_text_that_is_no_expression_is_refused(native: ModuleType, text: str) -> None:
    with pytest.raises(ValueError, match="not a size expression"):
        native.Graph(graph_plan(["x"], [], [{"size": text}], symbols=[["s0", 0, 0]]), {})


def test_division_by_zero_is_an_exception(native: ModuleType) -> None:
    graph = native.Graph(graph_plan(["x"], [], [{"size": "8 // s0"}], symbols=[["s0", 0, 0]]), {})
    assert graph([torch.empty(2)]) == [4]
    with pytest.raises(ValueError, match="division by zero"):
        graph([torch.empty(0)])


def test_views_and_memory_reuse(native: ModuleType, kernels: dict[str, int]) -> None:
    view = {"step": "view", "name": "v", "base": "x", "dtype": "f32", "sizes": [2, 2], "strides": [1, 2], "offset": 1}
    other = {"step": "view", "name": "bits", "base": "x", "dtype": "i32", "sizes": [3], "strides": [1], "offset": 0}
    graph = native.Graph(graph_plan(["x"], [view, other], ["v", "bits"]), {})
    x = torch.arange(12.0)[2:]
    v, bits = graph([x])
    assert torch.equal(v, torch.as_strided(x, (2, 2), (1, 2), 3)) and v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert torch.equal(bits, x.view(torch.int32)[:3])
    outside = {**view, "sizes": [100, 1]}
    with pytest.raises(RuntimeError, match="outside of its base"):
        native.Graph(graph_plan(["x"], [outside], ["v"]), {})([x])


CALLS: list[tuple[dict[str, Any], Any]] = [
    (call("aten.mm.default", ["x", "y"], ["r"]), lambda x, y: x @ y),
    (call("aten.add.Tensor", ["x", 2], ["r"], alpha=3), lambda x, y: x.add(2, alpha=3)),
    (call("aten.add.Tensor", ["x", {"size": "s0"}], ["r"]), lambda x, y: x + 4),
    (call("aten.mul.Tensor", ["x", {"float": "-inf"}], ["r"]), lambda x, y: x * float("-inf")),
    (call("aten.sum.dim_IntList", ["x", [1], True], ["r"], dtype={"dtype": "float64"}), lambda x, y: x.sum([1], True, dtype=torch.float64)),
    (call("aten.view.default", ["x", [2, {"size": "s0*2"}]], ["r"]), lambda x, y: x.view(2, 8)),
    (call("aten.cat.default", [[{"buffer": "x"}, {"buffer": "y"}], 1], ["r"]), lambda x, y: torch.cat([x, y], 1)),
    (call("aten.index.Tensor", ["x", [None, {"buffer": "i"}]], ["r"]), lambda x, y: x[:, torch.tensor([1, 0])]),
    (call("aten.full.default", [[2, 2], 1.5], ["r"], dtype={"dtype": "torch.float16"}, device={"device": "cpu"}, pin_memory=False),
     lambda x, y: torch.full((2, 2), 1.5, dtype=torch.float16)),
    (call("aten.max_pool2d_with_indices.default", ["z", [2]], ["r", None]), lambda x, y: torch.max_pool2d(x.view(1, 1, 4, 4), [2])),
    (call("aten.clone.default", ["z"], ["r"], memory_format={"memory_format": "channels_last"}), lambda x, y: x.view(1, 1, 4, 4)),
    (call("aten.pow.Tensor_Scalar", ["x", 2], ["r"]), lambda x, y: x ** 2),
    (call("aten.split.Tensor", ["x", 1], [None, None, "r"]), lambda x, y: x[2:3]),
    (call("aten.gelu.default", ["x"], ["r"], approximate="tanh"), lambda x, y: torch.nn.functional.gelu(x, approximate="tanh")),
]


@pytest.mark.parametrize(("step", "eager"), CALLS, ids=[step["operator"] + f"-{i}" for i, (step, _) in enumerate(CALLS)])
def test_library_calls(native: ModuleType, step: dict[str, Any], eager: Any) -> None:
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    graph = native.Graph(graph_plan(["x", "y", "z", "i"], [step], ["r"], symbols=[["s0", 0, 0]]), {})
    (result,), expected = graph([x, y, x.view(1, 1, 4, 4), torch.tensor([1, 0])]), eager(x, y)
    assert result.dtype is expected.dtype
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


def test_number_argument_takes_part_in_promotion_as_a_number(native: ModuleType) -> None:
    graph = native.Graph(graph_plan(["x"], [call("aten.mul.Tensor", ["x", 0.5], ["r"])], ["r"]), {})
    assert graph([torch.ones(2, dtype=torch.bfloat16)])[0].dtype is torch.bfloat16


def test_declared_strides_are_made(native: ModuleType) -> None:
    plan = graph_plan(["x"], [call("aten.t.default", ["x"], ["r"], strides=[["s0", 1]])], ["r"], symbols=[["s0", 0, 0]])
    x = torch.randn(4, 3)
    (result,) = native.Graph(plan, {})([x])
    assert result.stride() == (4, 1) and torch.equal(result, x.t())
    single = torch.randn(1, 3)                                   # the strides of sizes 1 do not matter: no copy
    (result,) = native.Graph(plan, {})([single])
    assert result.data_ptr() == single.data_ptr()


def test_integers_scalars_and_reading_a_size(native: ModuleType) -> None:
    steps = [{"step": "read_scalar", "symbol": "u0", "buffer": "x"}, call("aten.mul.Tensor", ["n", "f"], ["r"])]
    graph = native.Graph(graph_plan(["x", "n", "f"], steps, ["r", {"size": "u0 + k"}], symbols=[["k", 1, -1]]), {})
    result, size = graph([torch.tensor(40), 2, 1.5])
    assert result.item() == 3.0 and result.dtype is torch.float64 and size == 42
    result, size = graph([torch.tensor(40), torch.tensor(2), torch.tensor(1.5)])
    assert result.item() == 3.0 and size == 42


def test_a_size_out_of_its_range_stops_the_graph(native: ModuleType) -> None:
    steps = [{"step": "read_scalar", "symbol": "u0", "buffer": "x"}, {"step": "check", "condition": "u0 >= 0 or u0 == -7"}]
    graph = native.Graph(graph_plan(["x"], steps, ["x"]), {})
    for number in (0, 3, -7):
        graph([torch.tensor(number)])
    with pytest.raises(native.KernelFailure) as caught:
        graph([torch.tensor(-1)])
    assert caught.value.args == ("u0 >= 0 or u0 == -7", 3)


def test_input_returned_is_the_same_object(native: ModuleType) -> None:
    x = torch.nn.Parameter(torch.randn(3))
    assert native.Graph(graph_plan(["x"], [], ["x"]), {})([x])[0] is x


def test_no_history_no_version_and_no_autocast_inside(native: ModuleType) -> None:
    x, y = torch.randn(4, 4, requires_grad=True), torch.zeros(4, 4)
    graph = native.Graph(graph_plan(["x", "y"], [call("aten.mm.default", ["x", "x"], ["r"]), call("aten.copy_.default", ["y", "r"], [None])], ["r"]), {})
    version = y._version
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (result,) = graph([x, y])
    assert not result.requires_grad and result.dtype is torch.float32 and y._version == version and torch.equal(y, result)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(("inputs", "step"), [
    ([torch.randn(2, 3), torch.randn(2, 3)], call("aten.mm.default", ["x", "y"], ["r"])),
    ([torch.randn(2, 3), torch.randn(2, 3)], call("aten.view.default", ["x", [7]], ["r"])),
    ([torch.randn(2, 3), torch.tensor([5])], call("aten.index.Tensor", ["x", [{"buffer": "y"}]], ["r"])),
])
def test_library_exceptions_are_eagers(native: ModuleType, inputs: list[torch.Tensor], step: dict[str, Any]) -> None:
    graph = native.Graph(graph_plan(["x", "y"], [step], ["r"]), {})
    operator = step["operator"]
    with pytest.raises(Exception) as compiled:
        graph(inputs)
    x, y = inputs
    with pytest.raises(Exception) as eager:
        {"aten.mm.default": lambda: torch.mm(x, y), "aten.view.default": lambda: x.view(7), "aten.index.Tensor": lambda: x[y]}[operator]()
    assert type(compiled.value) is type(eager.value) and str(compiled.value) == str(eager.value)


def test_python_operator_may_raise(native: ModuleType) -> None:
    library = torch.library.Library("aotcompile_native_test", "DEF")
    library.define("check(Tensor x) -> Tensor")

    def check(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            raise LookupError("positive")
        return x + 1
    library.impl("check", check, "CPU")
    graph = native.Graph(graph_plan(["x"], [call("aotcompile_native_test.check.default", ["x"], ["r"])], ["r"]), {})
    assert graph([-torch.ones(2)])[0].tolist() == [0.0, 0.0]
    with pytest.raises(LookupError, match="positive"):
        graph([torch.ones(2)])


def test_kernel_status(native: ModuleType, kernels: dict[str, int]) -> None:
    graph = native.Graph(graph_plan(["x"], [kernel("give_up", ["x"], ["s0 - 3"])], ["x"], symbols=[["s0", 0, 0]]), kernels)
    x = torch.empty(3)
    assert graph([x])[0] is x
    for status in (1, 2):
        with pytest.raises(native.KernelFailure) as failure:
            graph([torch.empty(3 + status)])
        assert failure.value.args == ("give_up", status)


@pytest.mark.parametrize(("plan", "error"), [
    (graph_plan([], [call("aten.no_such_operator.default", [], ["r"])], []), NotImplementedError),
    (graph_plan([], [{"step": "teleport"}], []), NotImplementedError),
    (graph_plan(["x"], [{**kernel("twice", ["x"], []), "grid": [1, 1, 1]}], []), NotImplementedError),
    (graph_plan(["x"], [allocate("y", [1], [1], dtype="f3")], []), NotImplementedError),
    (graph_plan(["x"], [kernel("missing", ["x"], [])], []), KeyError),
    (graph_plan(["x"], [], ["y"]), ValueError),
    (graph_plan(["x"], [], ["x"], symbols=[["s0", 3, 0]]), ValueError),
    ({"inputs": []}, KeyError), ([], TypeError), (graph_plan(["x"], [5], []), TypeError),  # type: ignore[list-item]
    (graph_plan(["x"], [call("aten.mm.default", ["x"], ["r"])], []), ValueError),
    (graph_plan(["x"], [call("aten.mm.default", ["x", "x"], ["r"], no_such=1)], []), ValueError),
])
def test_plans_that_are_refused(native: ModuleType, plan: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        native.Graph(plan, {"twice": 1})


def test_wrong_inputs_are_refused(native: ModuleType) -> None:
    graph = native.Graph(graph_plan(["x"], [], ["x"], symbols=[["s0", 0, 1]]), {})
    for inputs in ([], [1, 2], ["text"], [None], [torch.empty(3)], [4]):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            graph(inputs)


def test_references_do_not_leak(native: ModuleType, kernels: dict[str, int]) -> None:
    plan = graph_plan(["x"], [allocate("y", ["s0"], [1]), kernel("twice", ["x", "y"], ["s0"]), call("aten.mm.default", ["w", "w"], ["m"]),
                              {"step": "free", "name": "y"}], ["m", "x"], symbols=[["s0", 0, 0]])
    plan["inputs"].append("w")
    graph = native.Graph(plan, kernels)
    x, w, text = torch.randn(8), torch.randn(2, 2), "text"
    bad = [x, text]
    before = [sys.getrefcount(o) for o in (x, w, text, graph)]
    for _ in range(200):
        graph([x, w])
        with pytest.raises(TypeError):
            graph(bad)
        with pytest.raises(RuntimeError):
            graph([x, x])
    assert [sys.getrefcount(o) for o in (x, w, text, graph)] == before


def test_threads(native: ModuleType, kernels: dict[str, int]) -> None:
    plan = graph_plan(["x"], [allocate("y", ["s0"], [1]), kernel("twice", ["x", "y"], ["s0"]), call("aten.add.Tensor", ["y", 1], ["r"])], ["r"],
                      symbols=[["s0", 0, 0]])
    graph, wrong = native.Graph(plan, kernels), []

    def work(size: int) -> None:
        x = torch.full((size,), float(size))
        for _ in range(100):
            if not torch.equal(graph([x])[0], 2 * x + 1):
                wrong.append(size)
    threads = [threading.Thread(target=work, args=(size,)) for size in (3, 70, 40000, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
