"""ATen graphs, run op by op on real tensors, give eager's values and gradients."""
from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
import torch.nn.functional as F
from captured import call, capture, run_inference, run_training
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from aotcompile.graph import passes
from aotcompile.graph.aot import build_aten_graphs
from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.ir.guards import Guard


def tensor(*sizes: int, grad: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes))
    return torch.randn(*sizes, generator=generator).to(dtype).requires_grad_(grad)


def copies(inputs: list[Any]) -> list[Any]:
    return [value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value for value in inputs]


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def close(ours: Any, eager: Any) -> None:
    if isinstance(eager, torch.Tensor):
        assert ours.stride() == eager.stride() or eager.numel() < 2 or 1 in eager.shape, (ours.stride(), eager.stride())
    torch.testing.assert_close(ours, eager, equal_nan=True)


def check_inference(function: Callable[..., Any], graphs: Any, inputs: list[Any]) -> None:
    ours, theirs = copies(inputs), copies(inputs)
    torch.manual_seed(7)
    with torch.no_grad():
        expected = as_tuple(function(*theirs))
    torch.manual_seed(7)
    results = run_inference(graphs, ours)
    assert len(results) == len(expected) == graphs.output_count
    for result, value in zip(results, expected):
        close(result, value)
    for mine, other in zip(ours, theirs):
        close(mine, other)


def check_training(function: Callable[..., Any], graphs: Any, inputs: list[Any]) -> None:
    ours, theirs = copies(inputs), copies(inputs)
    torch.manual_seed(7)
    expected = as_tuple(function(*theirs))
    tangents = [torch.randn(expected[n].shape, generator=torch.Generator().manual_seed(n)).to(expected[n].dtype) for n in graphs.tangents]
    assert list(graphs.tangents) == [n for n, value in enumerate(expected) if isinstance(value, torch.Tensor) and value.requires_grad]
    torch.autograd.backward([expected[n] for n in graphs.tangents], tangents)
    torch.manual_seed(7)
    results, gradients = run_training(graphs, ours, tangents)
    assert len(results) == len(expected) and len(gradients) == len(inputs)
    for result, value in zip(results, expected):
        close(result, value.detach() if isinstance(value, torch.Tensor) else value)
    for gradient, mine, other in zip(gradients, ours, theirs):
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(gradient, other.grad, equal_nan=True)
            torch.testing.assert_close(mine.detach(), other.detach())
        else:
            assert gradient is None


def pointwise(x, y):
    return torch.sin(x) * torch.cos(y) + torch.tanh(x) / (1 + y * y)


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / 4.0, dim=-1) @ v


def layer_norm(x, weight, bias):
    return F.gelu(F.layer_norm(x, (16,), weight, bias, 1e-5))


def batch_norm(x, mean, var, weight, bias, count):
    count.add_(1)
    return F.batch_norm(x, mean, var, weight, bias, True, 0.1, 1e-5)


def dropout(x):
    return F.dropout(x, 0.3, True) + torch.rand_like(x), F.dropout(x, 0.5, True)


def in_place_views(x):
    y = x * 2
    y[:, 1].add_(3)
    y.t()[0].mul_(x[:, 2])
    return y.relu_(), y.sum(0)


def several(x, y):
    return x.sum(), (y > 0).to(torch.int64).sum(), (x * 3).detach(), 5, None


def no_grad_inside(x, y):
    torch._C._set_grad_enabled(False)
    a = x * y
    torch._C._set_grad_enabled(True)
    return a * x, a + 1


def autocast_inside(x, w, b):
    block = torch.amp.autocast_mode._enter_autocast("cpu", torch.bfloat16, True, None)
    h = F.linear(x, w, b)
    torch.amp.autocast_mode._exit_autocast(block)
    return h, h.float().exp()


def convolution(x, w, b):
    return F.max_pool2d(F.relu(F.conv2d(x, w, b, padding=1)), 2)


def embedding(i, table):
    return F.embedding(i, table).mean(1)


def loss(x, target):
    return F.cross_entropy(x, target)


def constants(x):
    return x + torch.tensor([1.0, 2.0, 2.0]), torch.tensor(3, dtype=torch.int32) * x.to(torch.int32), torch.tensor([[1, 2], [3, 4]])


CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "pointwise": (pointwise, [tensor(4, 6, grad=True), tensor(6, grad=True)]),
    "attention": (attention, [tensor(2, 5, 8, grad=True), tensor(2, 5, 8, grad=True), tensor(2, 5, 8)]),
    "layer_norm": (layer_norm, [tensor(3, 16, grad=True), tensor(16, grad=True), tensor(16, grad=True)]),
    "dropout": (dropout, [tensor(64, 32, grad=True)]),
    "dropout_transposed": (dropout, [tensor(32, 64).t().requires_grad_()]),
    "dropout_bfloat16": (dropout, [tensor(64, 32, grad=True, dtype=torch.bfloat16)]),
    "in_place_views": (in_place_views, [tensor(4, 4, grad=True)]),
    "several": (several, [tensor(4, grad=True), tensor(5)]),
    "no_grad_inside": (no_grad_inside, [tensor(4, grad=True), tensor(4, grad=True)]),
    "autocast_inside": (autocast_inside, [tensor(4, 8, grad=True), tensor(3, 8, grad=True), tensor(3, grad=True)]),
    "convolution": (convolution, [tensor(2, 3, 8, 8, grad=True), tensor(4, 3, 3, 3, grad=True), tensor(4, grad=True)]),
    "embedding": (embedding, [torch.tensor([[1, 2], [3, 3]]), tensor(5, 4, grad=True)]),
    "loss": (loss, [tensor(4, 7, grad=True), torch.tensor([1, 0, -100, 6])]),
    "constants": (constants, [tensor(3, grad=True)]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("training", [False, True])
def test_against_eager(name: str, training: bool) -> None:
    function, inputs = CASES[name]
    graphs = build_aten_graphs(capture(function, inputs), training=training)
    assert (graphs.backward is not None) == training
    assert not graphs.guards
    (check_training if training else check_inference)(function, graphs, inputs)


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_updates_its_statistics(training: bool) -> None:
    inputs = [tensor(4, 3, 5, 5, grad=True), torch.zeros(3), torch.ones(3), tensor(3, grad=True), tensor(3, grad=True), torch.tensor(2)]
    graphs = build_aten_graphs(capture(batch_norm, inputs), training=training)
    written = [node.args[0].name for node in graphs.forward.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)]
    assert sorted(written) == ["count", "mean", "var"]
    (check_training if training else check_inference)(batch_norm, graphs, inputs)


DYNAMIC: dict[str, tuple[Callable[..., Any], Callable[[int], list[Any]], dict[int, dict[int, str]]]] = {
    "pointwise": (pointwise, lambda n: [tensor(n, 6, grad=True), tensor(6, grad=True)], {0: {0: "s0"}}),
    "pointwise_both": (pointwise, lambda n: [tensor(n, 6, grad=True), tensor(n, 6, grad=True)], {0: {0: "B"}, 1: {0: "B"}}),
    "attention": (attention, lambda n: [tensor(2, n, 8, grad=True), tensor(2, n, 8, grad=True), tensor(2, n, 8, grad=True)],
                  {0: {1: "s0"}, 1: {1: "s0"}, 2: {1: "s0"}}),
    "layer_norm": (layer_norm, lambda n: [tensor(n, 16, grad=True), tensor(16, grad=True), tensor(16, grad=True)], {0: {0: "s0"}}),
    "convolution": (convolution, lambda n: [tensor(n, 3, 8, 8, grad=True), tensor(4, 3, 3, 3, grad=True), tensor(4, grad=True)], {0: {0: "s0"}}),
    "dropout": (dropout, lambda n: [tensor(n, 32, grad=True)], {0: {0: "s0"}}),
    "embedding": (embedding, lambda n: [torch.ones(n, 2, dtype=torch.int64), tensor(5, 4, grad=True)], {0: {0: "s0"}}),
    "autocast_inside": (autocast_inside, lambda n: [tensor(n, 8, grad=True), tensor(3, 8, grad=True), tensor(3, grad=True)], {0: {0: "s0"}}),
    "reshape": (lambda x: x.flatten(1).sum(1), lambda n: [tensor(n, 3, 4, grad=True)], {0: {0: "s0"}}),
    "flatten_all": (lambda x: x.transpose(0, 1).reshape(-1) * 2, lambda n: [tensor(n, 4, grad=True)], {0: {0: "s0"}}),
    "einsum": (lambda x, y: torch.einsum("bij,jk->bik", x, y), lambda n: [tensor(n, 4, 5, grad=True), tensor(5, 3, grad=True)], {0: {0: "s0"}}),
    "layout": (lambda x: x.view(x.size(0), 5, 2, 4).transpose(1, 2).contiguous().view(x.size(0), 2, 20) * 1, lambda n: [tensor(n, 5, 8, grad=True)],
               {0: {0: "s0"}}),
    "slice": (lambda x: x[:, 1:3] * x[:, :1], lambda n: [tensor(n, 4, grad=True)], {0: {0: "s0"}}),
    "squeeze_other": (lambda x: x.unsqueeze(1).squeeze(1) * 2, lambda n: [tensor(n, 4, grad=True)], {0: {0: "s0"}}),
    "cat": (lambda x, y: torch.cat([x, y, x], 0), lambda n: [tensor(n, 4, grad=True), tensor(3, 4, grad=True)], {0: {0: "s0"}}),
}


@pytest.mark.parametrize("name", DYNAMIC)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("traced", [5, 1])
def test_dynamic_batch_is_right_for_zero_and_one(name: str, training: bool, traced: int) -> None:
    function, make, dynamic = DYNAMIC[name]
    if training and traced == 1:
        pytest.skip("the forward graph is the same, and tracing takes a second")
    graphs = build_aten_graphs(capture(function, make(traced), dynamic), training=training)
    # A reduction over the symbolic dimension itself (softmax over the sequence) is left to eager where it is empty; nothing else is.
    assert [g.expected for g in graphs.guards] == (["s0 != 0"] if name == "attention" else [])
    for size in (1, 2, 7) if graphs.guards else (0, 1, 2, 7):
        (check_training if training else check_inference)(function, graphs, make(size))


@pytest.mark.parametrize(("function", "guard"), [
    (lambda x: x.squeeze(0) * 2, "s0 != 1"),
    (lambda x: x.squeeze() * 2, "s0 != 1"),
    (lambda x: x.amax(0), "s0 != 0"),
    (lambda x: x.reshape(x.size(0), -1) * 2, "s0 != 0"),
    (lambda x: x + torch.ones(5, 4), "s0 == 5"),
    (lambda x: x[1:] * 2, "s0 >= 1"),
    (lambda x: x.view(2, -1, 4) + 1, "(s0 % 2) == 0"),
])
def test_sizes_that_matter_become_guards(function: Callable[..., Any], guard: str) -> None:
    inputs = [tensor(5 if "5" in guard else 6, 4)]
    graphs = build_aten_graphs(capture(function, inputs, {0: {0: "s0"}}), training=False)
    assert guard in [g.expected for g in graphs.guards] or guard == "(s0 % 2) == 0" and any("s0" in g.expected for g in graphs.guards)
    check_inference(function, graphs, inputs)


def test_batch_norm_check_of_one_value_per_channel_becomes_a_guard() -> None:
    def function(x, mean, var):
        return F.batch_norm(x, mean, var, None, None, True)
    graphs = build_aten_graphs(capture(function, [tensor(6, 3), torch.zeros(3), torch.ones(3)], {0: {0: "s0"}}), training=False)
    assert sorted(g.expected for g in graphs.guards) == ["s0 != 0", "s0 != 1"]
    statistics = build_aten_graphs(capture(lambda x, m, v: F.batch_norm(x, m, v), [tensor(6, 3), torch.zeros(3), torch.ones(3)], {0: {0: "s0"}}), training=False)
    assert not statistics.guards


NUMBERS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "scale": (lambda x, n: x * n + n, [tensor(3, grad=True), 3]),
    "scale_float": (lambda x, n: x * n - n / 2, [tensor(3, grad=True), 2.5]),
    "half": (lambda x, n: x * n, [tensor(3, grad=True, dtype=torch.float16), 2.5]),
    "integers": (lambda x, n: (torch.arange(4) * n, x + n), [tensor(3, grad=True), 7]),
    "integers_float": (lambda x, n: (torch.arange(4) * n, x.exp() * n), [tensor(3, grad=True), 0.5]),
    "arithmetic": (lambda x, n: x * (n * 2 + 1), [tensor(3, grad=True), 4]),
    "fill": (lambda x, n: x * torch.full((3,), n), [tensor(3, grad=True), 2.5]),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("training", [False, True])
def test_numbers_promote_like_python_scalars(name: str, training: bool) -> None:
    function, inputs = NUMBERS[name]
    graphs = build_aten_graphs(capture(function, inputs), training=training)
    for factor in (1, 3, 0):
        check = [*inputs[:1], inputs[1] * factor]
        (check_training if training else check_inference)(function, graphs, check)
    if training:
        assert all(not isinstance(node.meta["val"], (torch.SymInt, torch.SymFloat)) for node in graphs.backward.graph.find_nodes(op="placeholder"))


def test_a_size_made_of_a_number_is_checked() -> None:
    graphs = build_aten_graphs(capture(lambda x, n: torch.zeros(n) + x[:1], [tensor(6), 2]), training=False)
    assert "_assert_scalar" in str(graphs.forward.graph)
    [result] = run_inference(graphs, [tensor(6), 4])
    assert result.shape == (4,)
    with pytest.raises(RuntimeError):
        run_inference(graphs, [tensor(6), -1])


def cat_of_two_masks(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[x > 0], x[x <= 0] * 2])


@pytest.mark.parametrize("function", [cat_of_two_masks, lambda x: x[x > 0] * 2, lambda x: torch.where(x > 0)[0] * x.sum(),
                                      lambda x: x.masked_select(x > 0).exp()])
def test_gradients_through_sizes_that_are_data(function) -> None:
    torch.manual_seed(0)
    graphs = build_aten_graphs(capture(function, [tensor(7, grad=True)]), training=True)
    for x in (torch.randn(7), torch.randn(7).abs()):
        x.requires_grad_()
        wanted = function(x)
        tangent = torch.randn_like(wanted)
        [result], [gradient] = run_training(graphs, [x.detach()], [tangent])
        torch.testing.assert_close(result, wanted.detach())
        torch.testing.assert_close(gradient, torch.autograd.grad(wanted, x, tangent)[0])


def test_a_number_whose_value_the_derivative_asks_for_is_refused_in_training_only() -> None:
    variant = capture(lambda x, n: torch.add(x, x * x, alpha=n), [tensor(3, grad=True), 2])
    check_inference(lambda x, n: torch.add(x, x * x, alpha=n), build_aten_graphs(variant, training=False), [tensor(3), 5])
    with pytest.raises(UnsupportedGraph) as caught:
        build_aten_graphs(variant, training=True)
    assert caught.value.code == "AOT303"


def test_a_saved_input_that_is_overwritten_is_saved_before() -> None:
    def function(x, state):
        y = x * state.clone()
        state.add_(1)
        return y
    x, state = tensor(4, grad=True), tensor(4)
    graphs = build_aten_graphs(capture(function, [x, state]), training=True)
    before, after = state.clone(), state.clone()
    [result], [gradient, none] = run_training(graphs, [x, after], [torch.ones(4)])
    torch.testing.assert_close(result, (x * before).detach())
    torch.testing.assert_close(after, before + 1)
    torch.testing.assert_close(gradient, before)
    assert none is None


@pytest.mark.parametrize(("function", "inputs", "training", "code"), [
    (lambda x: x.add_(1) * 2, [tensor(3, grad=True)], True, "AOT311"),
    (lambda x: (x.transpose_(0, 1), x * 2)[1], [tensor(3, 4)], False, "AOT312"),
    (lambda x: x.view(-1), [tensor(3, 4)], False, "AOT313"),
    (lambda x: x, [tensor(3, 4)], False, "AOT313"),
])
def test_refusals(function: Callable[..., Any], inputs: list[Any], training: bool, code: str) -> None:
    with pytest.raises(UnsupportedGraph) as caught:
        build_aten_graphs(capture(function, inputs), training=training)
    assert caught.value.code == code


def test_mutation_of_an_input_is_allowed_for_inference() -> None:
    def function(x, y):
        x[0] = y
        return x * 2
    inputs = [tensor(3, 2, grad=True), tensor(2)]
    graphs = build_aten_graphs(capture(lambda x, y: (x[0].copy_(y), x * 2)[1], inputs), training=False)
    check_inference(function, graphs, [inputs[0].detach(), inputs[1]])


@pytest.mark.parametrize("training", [False, True])
def test_autocast_around_the_region(training: bool) -> None:
    def function(x, w):
        return F.linear(x, w)

    def under_autocast(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return F.linear(x, w)
    inputs = [tensor(4, 8, grad=True), tensor(3, 8, grad=True)]
    variant = capture(function, inputs, guards=[Guard("state", None, {"autocast_cpu": "bfloat16"})])
    (check_training if training else check_inference)(under_autocast, build_aten_graphs(variant, training=training), inputs)
    assert not torch.is_autocast_enabled("cpu")


def test_cuda_autocast_without_a_gpu_is_refused() -> None:
    def function(x, w):
        block = torch.amp.autocast_mode._enter_autocast("cuda", torch.bfloat16, True, None)
        h = F.linear(x, w)
        torch.amp.autocast_mode._exit_autocast(block)
        return h
    with pytest.raises(UnsupportedGraph) as caught:
        build_aten_graphs(capture(function, [tensor(4, 8), tensor(3, 8)], device="cuda"), training=False)
    assert "autocast" in caught.value.reason


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, gradient):
        [x] = ctx.saved_tensors
        return gradient * 5 * x * x                              # not the true derivative: shows that this code is used


def test_custom_autograd_function() -> None:
    def function(x):
        return call(Cube.apply, x * 2) + 1
    graphs = build_aten_graphs(capture(function, [tensor(3, grad=True)]), training=True)
    check_training(function, graphs, [tensor(3, grad=True)])


@pytest.mark.parametrize("training", [False, True])
def test_cuda_facts_without_a_gpu(training: bool) -> None:
    def function(x, w, b):
        h = F.layer_norm(F.linear(x, w, b), (8,)) + torch.arange(8, device="cuda")
        return F.dropout(h, 0.5, True) + torch.tensor([2.0], device="cuda")
    inputs = [tensor(4, 6, grad=True), tensor(8, 6, grad=True), tensor(8, grad=True)]
    graphs = build_aten_graphs(capture(function, inputs, {0: {0: "s0"}}, device="cuda"), training=training)
    for graph in filter(None, (graphs.forward, graphs.backward)):
        for node in graph.graph.nodes:
            value = node.meta.get("val")
            assert "meta" not in str(node.args) + str(node.kwargs)
            assert not isinstance(value, torch.Tensor) or value.device.type == "cuda" or node.target is torch.ops.aten.full.default
    assert not graphs.guards


def test_composite_operators_have_derivatives_without_a_gpu() -> None:
    """nll_loss has a Python kernel for meta tensors, which must not hide from autograd what it is composed of."""
    def function(x, target):
        return F.cross_entropy(x, target, ignore_index=-1)
    graphs = build_aten_graphs(capture(function, [tensor(6, 5, grad=True), torch.arange(6) % 5], device="cuda"), training=True)
    assert graphs.backward is not None and torch._C.DispatchKey.AutogradMeta not in torch.ops.aten.nll_loss.default.py_kernels


def test_same_text_twice_and_no_trace_in_torch() -> None:
    from aotcompile.graph.aten_source import aten_source
    texts = []
    state = torch.get_rng_state()
    for _ in range(2):
        function, inputs = CASES["attention"]
        graphs = build_aten_graphs(capture(function, inputs, {0: {1: "s0"}, 1: {1: "s0"}, 2: {1: "s0"}}), training=True)
        texts.append(aten_source(graphs.forward, "forward") + aten_source(graphs.backward, "backward"))
    assert texts[0] == texts[1]
    assert torch.equal(state, torch.get_rng_state())
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and not torch.is_anomaly_enabled()


def test_state_is_restored_when_tracing_fails_inside_a_block() -> None:
    def function(x):
        torch._C._set_grad_enabled(False)
        torch.amp.autocast_mode._enter_autocast("cpu", torch.bfloat16, True, None)
        return x.reshape(5, 5)
    with pytest.raises(UnsupportedGraph) as caught:
        build_aten_graphs(capture(function, [tensor(3)]), training=True)
    assert caught.value.code == "AOT302" and caught.value.place.startswith("model.py:")
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and not torch.is_anomaly_enabled()


@pytest.mark.parametrize("traced", [(8, 4, 1), (2, 1, 6)], ids=["contiguous", "permuted"])
def test_gradients_come_in_the_layout_of_the_outputs(traced: tuple[int, ...]) -> None:
    """A backward graph traced for another layout (torch 2.11 does that) copies what comes into it."""
    mode = FakeTensorMode()
    forward, backward = fx.Graph(), fx.Graph()
    result, tangent = forward.placeholder("result"), backward.placeholder("tangents_1")
    forward.output((result,))
    backward.output((backward.call_function(torch.ops.aten.mul.Tensor, (tangent, 2)),))
    with mode:
        result.meta["val"] = torch.empty(4, 2, 3).permute(2, 1, 0)
        tangent.meta["val"] = torch.empty_strided((3, 2, 4), traced)
    made = fx.GraphModule({}, backward)
    passes.accept_tangents(fx.GraphModule({}, forward), made, [0], 1, mode)
    assert tangent.meta["val"].stride() == result.meta["val"].stride()
    [product] = made.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
    assert product.args[0].meta["val"].stride() == traced
    given = torch.randn(4, 2, 3).permute(2, 1, 0)
    torch.testing.assert_close(made(given)[0], given * 2)
