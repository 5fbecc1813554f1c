"""Training variants: gradients, saved values, double backward, what is kept alive."""
from __future__ import annotations

import gc
import weakref
from types import ModuleType
from typing import Any, Callable

import pytest
import torch
from runtime_tests import HEADER, argument, buffer, call, graph, one, plan, tensor_input

Loader = Callable[..., ModuleType]
pytestmark = pytest.mark.filterwarnings("ignore::aotcompile.runtime.reporting.AotCompileWarning")

TEXT = HEADER + '''
def _r0_eager(x, w):
    y = x.sin() * w
    return y, x > 0, w + 1
_r0 = _region("f:r0", _r0_eager)
f = _r0
'''
COMPUTATION = '''
def computation(x, w):
    return (x.sin() * w, x > 0, w + 1)
'''


def training_plan(**more: Any) -> dict[str, Any]:
    """Outputs y = sin(x) * w, x > 0, w + 1; saved x, w; backward by hand."""
    forward = [call("aten.sin.default", [buffer("x")], "s"), call("aten.mul.Tensor", [buffer("s"), buffer("w")], "y"), {"step": "free", "name": "s"},
               call("aten.gt.Scalar", [buffer("x"), 0], "p"), call("aten.add.Tensor", [buffer("w"), 1], "v")]
    backward = [call("aten.cos.default", [buffer("x")], "c"), call("aten.mul.Tensor", [buffer("c"), buffer("w")], "cw"),
                call("aten.mul.Tensor", [buffer("cw"), buffer("ty")], "gx"), call("aten.sin.default", [buffer("x")], "s"),
                call("aten.mul.Tensor", [buffer("s"), buffer("ty")], "gy"), call("aten.add.Tensor", [buffer("gy"), buffer("tv")], "gw")]
    inputs = [tensor_input("x", argument("x"), [2, 3], requires_grad=True), tensor_input("w", argument("w"), [2, 3], requires_grad=True)]
    return plan("f:r0", inputs, {"forward": graph(["x", "w"], forward, ["y", "p", "v", "x", "w"]), "backward": graph(["x", "w", "ty", "tv"], backward, ["gx", "gw"])},
                **{"training": True, "output_requires_grad": [True, False, True], "output_count": 3, "result": [0, 1, 2], "tangents": [0, 2], "reached": [[0], [0, 2]],
                   "groups": [{"outputs": [0, 2], "inputs": [0, 1], "needed": [0, 1, 2, 3]}],
                   "saved": [[3, "tensor"], [4, "tensor"]], **more})


@pytest.fixture
def model(load_package: Loader) -> ModuleType:
    return load_package({"model.py": TEXT}, {"model": {"f:r0": [{"plan.json": training_plan(), "graph.py": COMPUTATION}]}})


def leaves() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)


def test_gradients_are_eagers(model: ModuleType) -> None:
    for loss in (lambda y, v: y.sum(), lambda y, v: v.sum(), lambda y, v: (y * v).sum(), lambda y, v: y.t()[1:].sum()):
        results = []
        for function in (model.f, model._r0_eager):
            x, w = leaves()
            y, p, v = function(x, w)
            assert (y.requires_grad, p.requires_grad, v.requires_grad, p.dtype) == (True, False, True, torch.bool)
            loss(y, v).backward()
            results.append((y.detach(), p, v.detach(), torch.zeros(2, 3) if x.grad is None else x.grad, w.grad))
        for got, expected in zip(*results):
            torch.testing.assert_close(got, expected)
    assert one(model).hits == 4 and one(model).misses == 0


def test_gradients_only_where_needed(load_package: Loader) -> None:
    made = training_plan()
    for given in (*made["inputs"], *made["guards"]):
        (given.get("facts") or given.get("expected"))["requires_grad"] = None
    model = load_package({"model.py": TEXT}, {"model": {"f:r0": [{"plan.json": made}]}})
    x, w = leaves()
    model.f(x.detach(), w)[0].sum().backward()
    assert x.grad is None and torch.allclose(w.grad, x.detach().sin())   # type: ignore[arg-type]
    assert one(model).hits == 1


def test_double_backward_is_eagers(model: ModuleType) -> None:
    results = []
    for function in (model.f, model._r0_eager):
        x, w = leaves()
        y, _, v = function(x * 1.0, w)
        gx, gw = torch.autograd.grad((y * v).sum(), (x, w), create_graph=True)
        assert gx.requires_grad and gw.requires_grad
        (gx.square().sum() + (gx * gw).sum()).backward()
        results.append((gx.detach(), gw.detach(), x.grad, w.grad))
    for got, expected in zip(*results):
        torch.testing.assert_close(got, expected)
    assert one(model).hits == 1


def test_double_backward_where_one_input_was_computed_from_the_other(model: ModuleType) -> None:
    results = []
    for function in (model.f, model._r0_eager):
        x, _ = leaves()
        y, _, v = function(x, x.exp())
        gx, = torch.autograd.grad((y * v).sum(), (x,), create_graph=True)
        gx.sum().backward()
        results.append((gx.detach(), x.grad))
    for got, expected in zip(*results):
        torch.testing.assert_close(got, expected)


def test_gradcheck(load_package: Loader) -> None:
    made = training_plan()
    for given in made["inputs"]:
        given["facts"]["dtype"] = "f64"
    model = load_package({"model.py": TEXT}, {"model": {"f:r0": [{"plan.json": made, "graph.py": COMPUTATION}]}})
    x, w = (t.detach().double().requires_grad_() for t in leaves())

    def f(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, _, v = model.f(a, b)
        return y, v
    assert torch.autograd.gradcheck(f, (x, w)) and torch.autograd.gradgradcheck(f, (x, w))
    assert one(model).hits > 10 and one(model).misses == 0


def test_random_regions_refuse_double_backward_with_what_to_do(load_package: Loader) -> None:
    made = training_plan()
    made["graphs"]["forward"]["steps"].insert(0, call("aten.bernoulli.p", [buffer("x"), 0.5], "mask"))
    model = load_package({"model.py": TEXT}, {"model": {"f:r0": [{"plan.json": made, "graph.py": COMPUTATION}]}})
    x, w = leaves()
    y, _, _ = model.f(x, w)
    with pytest.raises(RuntimeError, match=r"AOT703 f:r0: .*random numbers.*force_eager"):
        torch.autograd.grad(y.sum(), (x,), create_graph=True)
    y.sum().backward()
    assert x.grad is not None


def test_a_saved_input_changed_before_backward_is_eagers_error(model: ModuleType) -> None:
    x, w = leaves()
    z = x * 1.0
    y, _, _ = model.f(z, w)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_input_that_is_not_saved_dies_with_its_last_reference(load_package: Loader) -> None:
    steps = [call("aten.mul.Tensor", [buffer("x"), 3], "y")]
    back = [call("aten.mul.Tensor", [buffer("t"), 3], "g")]
    made = plan("f:r0", [tensor_input("x", argument("x"), [3])], {"forward": graph(["x"], steps, ["y"]), "backward": graph(["t"], back, ["g"])},
                training=True, output_requires_grad=[True], tangents=[0], reached=[[0]], groups=[{"outputs": [0], "inputs": [0], "needed": [0]}])
    text = HEADER + "\ndef _r0_eager(x):\n    return x * 3\n_r0 = _region('f:r0', _r0_eager)\nf = _r0\n"
    model = load_package({"model.py": text}, {"model": {"f:r0": [{"plan.json": made, "graph.py": "def computation(x):\n    return (x * 3,)\n"}]}})
    x = torch.ones(3, requires_grad=True)
    z = x * 1.0
    gone, y = weakref.ref(z), model.f(z)
    z.add_(1)                                                    # eager's mul by a number saves nothing: this is allowed
    del z
    gc.collect()
    assert gone() is None
    with pytest.raises(RuntimeError, match=r"AOT703 .*input 0 of the region has been freed"):
        torch.autograd.grad(y.sum(), (x,), create_graph=True)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0] * 3 and one(model).hits == 1


def test_saved_tensors_hooks_get_the_eager_body(model: ModuleType) -> None:
    x, w = leaves()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t + 100):
        model.f(x, w)
    assert one(model).hits == 0 and "saved_tensors_hooks" in (one(model).last_miss or "")


def test_outputs_may_be_changed_in_place_and_freed_graphs_say_so(model: ModuleType) -> None:
    x, w = leaves()
    y, _, v = model.f(x, w)
    v += 1
    y.relu_()
    (y.sum() + v.sum()).backward()
    torch.testing.assert_close(w.grad, torch.where(x * 0 + x.sin() * w > 0, x.sin(), 0.0).detach() + 1)
    y, _, _ = model.f(x, w)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_grad_mode_off_and_inference_tensors_are_misses(model: ModuleType) -> None:
    x, w = leaves()
    with torch.no_grad():
        assert not model.f(x, w)[0].requires_grad
    assert one(model).hits == 0 and "torch.is_grad_enabled() == True" in (one(model).last_miss or "")


def test_plans_that_would_give_wrong_gradients_are_refused(load_package: Loader) -> None:
    made = training_plan()
    made["inputs"][0]["mutated"] = True
    model = load_package({"model.py": TEXT}, {"model": {"f:r0": [{"plan.json": made}]}})
    x, w = leaves()
    model.f(x, w)[0].sum().backward()
    record = one(model)
    assert record.eager and "AOT606" in (record.reason or "")
