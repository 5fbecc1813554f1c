"""native.Stub in front of a region written in Python: which calls it takes itself, what it leaves to the region."""
from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from .conftest import allocate, argument, call, graph_plan, kernel, tensor_facts


class Region:
    """The Python side: notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.__name__ = "region"

    def call(self, *arguments: Any) -> Any:
        self.asked.append(arguments)
        return "eager"

    def failed(self, arguments: tuple[Any, ...], failure: BaseException) -> Any:
        self.asked.append((arguments, failure))
        return "eager after failure"


TWICE = graph_plan(["x"], [allocate("y", ["s0"], [1]), kernel("twice", ["x", "y"], ["s0"])], ["y"], symbols=[["s0", 0, 0]])


@pytest.fixture
def make(native: ModuleType, kernels: dict[str, int], guards: Callable[..., Any]) -> Callable[..., Any]:
    """``make(graph plan, **changes of the variant)`` -> (stub, region) of a region of one vector ``x``."""
    def made(plan: dict[str, Any] | None, facts: dict[str, Any] | None = None, records: list[Any] | None = None, fetches: list[Any] | None = None, **changes: Any) -> Any:
        region = Region()
        stub = native.Stub(region)
        guard = guards(("x",), [("tensor", argument("x"), facts or tensor_facts(["s0"], [1])), *(records or [])], [argument("x"), *(fetches or [])])
        variant = {"guards": guard, "graph": native.Graph(plan, kernels) if plan else None, "inputs": 1, "fetches": len(fetches or []), "result": 0, "epilogue": None,
                   "numbers": [], "symbols": [["s0", 0, 0]], "mutated": [], "training": False, "grad_enabled": True, "output_requires_grad": [False], "run": None}
        stub.install([{**variant, **changes}])
        return stub, region
    return made


def test_hit(make: Callable[..., Any]) -> None:
    stub, region = make(TWICE)
    x = torch.randn(5)
    assert torch.equal(stub(x), 2 * x) and (stub.calls, stub.hits) == (1, 1) and not region.asked
    assert type(stub).__aotcompile_stub__ and stub.__name__ == "region" and stub.region is region


def test_whatever_is_not_ordinary_goes_to_the_region(native: ModuleType, make: Callable[..., Any]) -> None:
    stub, region = make(TWICE)
    x = torch.randn(5)
    misses: list[Callable[[], Any]] = [lambda: stub(x.double()), lambda: stub(), lambda: stub(x, x), lambda: stub(None)]
    assert [miss() for miss in misses[:2]] == ["eager"] * 2 and region.asked[1] == ()
    assert torch.equal(stub(x, x), 2 * x)                        # more arguments than the guards look at: the Python side decides what is passed
    with torch.overrides.TorchFunctionMode():
        assert stub(x) == "eager"
    with torch.utils._python_dispatch.TorchDispatchMode():
        assert stub(x) == "eager"
    with torch.device("cpu"):
        assert stub(x) == "eager"
    with torch._C.DisableTorchFunctionSubclass():
        assert stub(x) == "eager"
    with torch.autocast("cpu"):
        assert stub(x) == "eager"
    seen: list[Any] = []
    torch.func.vmap(lambda y: (seen.append(stub(x)), y)[1])(torch.empty(2, 2))
    torch.func.grad(lambda y: (seen.append(stub(x)), y.sum())[1])(torch.empty(2))
    torch.jit.trace(lambda y: (seen.append(stub(x)), y + 1)[1], torch.empty(2), check_trace=False)
    assert seen == ["eager"] * 3
    torch.use_deterministic_algorithms(True)
    try:
        assert stub(x) == "eager"
    finally:
        torch.use_deterministic_algorithms(False)
    native.set_stance(1)
    try:
        assert stub(x) == "eager"
    finally:
        native.set_stance(0)
    stub.enabled = False
    assert stub(x) == "eager"
    stub.enabled = True
    assert torch.equal(stub(x), 2 * x)
    with torch.no_grad():
        assert torch.equal(stub(x), 2 * x)
    with torch.inference_mode():
        result = stub(x)
        assert torch.equal(result, 2 * x) and result.is_inference()


def test_before_install(native: ModuleType) -> None:
    region = Region()
    assert native.Stub(region)(1, 2) == "eager" and region.asked == [(1, 2)]


def test_guarded_autocast_is_ordinary(make: Callable[..., Any]) -> None:
    stub, _ = make(TWICE, records=[("state", None, {"autocast_cpu": "bfloat16"})])
    assert stub(torch.ones(2)) == "eager"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert stub(torch.ones(2)).tolist() == [2.0, 2.0]


def test_second_variant(native: ModuleType, kernels: dict[str, int], guards: Callable[..., Any], make: Callable[..., Any]) -> None:
    stub, _ = make(TWICE)
    double = native.Graph(graph_plan(["x"], [call("aten.mul.Tensor", ["x", 3], ["y"])], ["y"]), kernels)
    base = {"inputs": 1, "fetches": 0, "result": [0], "epilogue": None, "numbers": [], "symbols": [], "mutated": [], "training": False, "grad_enabled": True,
            "output_requires_grad": [False], "run": None, "graph": double}
    stub.install([{**base, "guards": guards(("x",), [("tensor", argument("x"), tensor_facts([2], [1], dtype=dtype))], [argument("x")])} for dtype in ("f32", "f64")])
    (result,) = stub(torch.ones(2, dtype=torch.float64))
    assert result.tolist() == [3.0, 3.0] and stub(torch.ones(3)) == "eager"


def test_epilogue(make: Callable[..., Any]) -> None:
    seen: list[Any] = []

    def epilogue(inputs: Any, outputs: Any, symbols: Any, fetched: Any) -> Any:
        seen.append((list(inputs), list(outputs), dict(symbols), list(fetched), torch.is_grad_enabled()))
        if len(inputs[0]) == 7:
            raise LookupError("seven")
        return {"y": outputs[0]}
    stub, region = make(TWICE, fetches=[argument("x", ["attribute", "dtype"])], result=None, epilogue=epilogue)
    x = torch.randn(4)
    result = stub(x)
    inputs, outputs, symbols, fetched, grad_enabled = seen[0]
    assert inputs[0] is x and outputs[0] is result["y"] and symbols == {"s0": 4} and fetched == [torch.float32] and grad_enabled
    with pytest.raises(LookupError):
        stub(torch.randn(7))
    assert (stub.calls, stub.hits) == (2, 1) and not region.asked


def test_mutation_counts_a_version(make: Callable[..., Any]) -> None:
    plan = graph_plan(["x"], [kernel("increment", ["x"], ["s0"])], ["x"], symbols=[["s0", 0, 0]])
    stub, region = make(plan, mutated=[0])
    x = torch.zeros(3)
    assert stub(x) is x and x.tolist() == [1.0] * 3 and x._version == 1
    with torch.inference_mode():
        inner = torch.zeros(3)
        assert stub(inner) is inner and inner.tolist() == [1.0] * 3
    assert stub(inner) == "eager"                                # an inference tensor outside of inference mode


def test_failures_run_the_eager_body(native: ModuleType, make: Callable[..., Any]) -> None:
    stub, region = make(graph_plan(["x"], [kernel("give_up", ["x"], ["s0"])], ["x"], symbols=[["s0", 0, 0]]))
    x = torch.empty(2)
    assert stub(x) == "eager after failure"
    arguments, failure = region.asked[0]
    assert arguments[0] is x and isinstance(failure, native.KernelFailure) and failure.args == ("give_up", 2)
    stub, region = make(graph_plan(["x"], [call("aten.view.default", ["x", [5]], ["y"])], ["y"]))
    assert stub(x) == "eager after failure" and "shape" in str(region.asked[0][1]) and stub.hits == 0
    stub, region = make(graph_plan(["x"], [call("aten.view.default", ["x", [5]], ["y"])], ["y"]), mutated=[0])
    with pytest.raises(RuntimeError, match="shape"):
        stub(x)


def test_gradients_are_not_lost(make: Callable[..., Any]) -> None:
    stub, _ = make(TWICE, grad_enabled=False)
    x = torch.ones(2, requires_grad=True)
    assert stub(x) == "eager" and stub(x.detach()).tolist() == [2.0, 2.0]
    with torch.no_grad():
        assert stub(x).tolist() == [2.0, 2.0]


def test_training_runs_the_python_path(make: Callable[..., Any]) -> None:
    class Failed(Exception):
        pass

    def run(values: tuple[Any, ...]) -> Any:
        if len(values[0]) == 1:
            raise Failed from ZeroDivisionError("cause")
        if len(values[0]) == 2:
            raise LookupError("from the epilogue")
        return ("ran", values)
    stub, region = make(None, training=True, run=run)
    x = torch.ones(3, requires_grad=True)
    name, values = stub(x)
    assert name == "ran" and isinstance(values, tuple) and values[0] is x and stub.hits == 1
    with torch.no_grad():
        assert stub(x) == "eager"
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert stub(x) == "eager"
    with torch.inference_mode():
        inference = torch.ones(3)
    assert stub(inference) == "eager" and stub(torch.ones(1)) == "eager after failure" and isinstance(region.asked[-1][1], ZeroDivisionError)
    with pytest.raises(LookupError):
        stub(torch.ones(2))


def test_bad_descriptions_are_refused(make: Callable[..., Any]) -> None:
    for change in ({"result": 5}, {"inputs": 3}, {"mutated": [4]}, {"numbers": [[2, "int"]]}):
        with pytest.raises(ValueError):
            make(TWICE, **change)


def test_references_do_not_leak(make: Callable[..., Any]) -> None:
    stub, region = make(TWICE, fetches=[argument("x", ["attribute", "dtype"])], result=None, epilogue=lambda inputs, outputs, symbols, fetched: outputs[0])
    x, bad = torch.randn(3), object()
    stub(x), stub(bad)
    region.asked.clear()
    before = [sys.getrefcount(o) for o in (x, bad, region, stub, torch.float32, None)][:5]
    for _ in range(300):
        stub(x)
        stub(bad)
        region.asked.clear()
    assert [sys.getrefcount(o) for o in (x, bad, region, stub, torch.float32)] == before


def test_cycles_are_collected(make: Callable[..., Any]) -> None:
    stub, region = make(TWICE)
    region.native = stub
    seen = weakref.ref(region)
    del stub, region
    gc.collect()
    assert seen() is None


def test_threads_count_every_call(make: Callable[..., Any]) -> None:
    stub, _ = make(TWICE)
    wrong: list[int] = []

    def work(size: int) -> None:
        x = torch.full((size,), 1.0)
        wrong.extend(size for _ in range(500) if stub(x)[0] != 2)
    threads = [threading.Thread(target=work, args=(size,)) for size in (1, 2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and stub.calls == stub.hits == 2000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child(native: ModuleType, make: Callable[..., Any]) -> None:
    stub, _ = make(TWICE)
    stub(torch.ones(3))
    child = os.fork()
    if child == 0:
        native.after_fork()
        os._exit(0 if stub(torch.ones(3)).tolist() == [2.0] * 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
