"""Graphs as records and as text: there and back, and the text executes to the same function."""
from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from captured import call, capture
from torch import fx

from aotcompile.frontend.types import NodeRecord, Reference
from aotcompile.graph import targets
from aotcompile.graph.aot import build_aten_graphs
from aotcompile.graph.aten_source import aten_source
from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.record import graph_module, graph_source, nodes_of, place_of, stack_trace


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def everything(x, y):
    a = torch.relu(x)[1:, ..., None, ::2]
    b = F.pad(x.view(torch.Size([2, 6])), (1, 1), value=-math.inf)
    c = x.to(dtype=torch.float64).contiguous(memory_format=torch.contiguous_format)
    d = torch.cat([y, y * 2.5], dim=0).to(torch.device("cpu"))
    e = torch.ops.aten.add.Tensor(y, y, alpha=2) @ torch.ones(4, 3, dtype=torch.float32)
    f = torch.where(x > 0, x, float("nan")) - y[0] ** 2
    g = call(Double.apply, -x) // 2
    h = torch.topk(x, 2, dim=1)
    return a, b, c, d, e, f, g, h[0], h.indices, torch.add(x, 1), call(torch.Tensor.mul, x, 2)


def inputs() -> list[torch.Tensor]:
    return [torch.arange(12.0).reshape(3, 4) - 5, torch.arange(4.0)]


def same(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine, other, equal_nan=True, rtol=0, atol=0)


def run_text(text: str, name: str, values: list[Any]) -> Any:
    namespace: dict[str, Any] = {}
    exec(compile(text, "graph.py", "exec"), namespace)  # noqa: S102 - our own text
    return namespace[name](*values)


def test_records_there_and_back() -> None:
    variant = capture(everything, inputs())
    module = graph_module(variant.nodes)
    assert nodes_of(module.graph) == variant.nodes
    same(module(*inputs()), everything(*inputs()))
    node = next(n for n in module.graph.nodes if n.op == "call_function")
    assert place_of(node.meta["stack_trace"]) == (node.meta["place"], node.meta["source"])


def test_text_executes_to_the_same_function() -> None:
    text = graph_source(capture(everything, inputs()))
    same(run_text(text, "computation", inputs()), everything(*inputs()))
    assert text == graph_source(capture(everything, inputs()))


def test_text_reads_well() -> None:
    text = graph_source(capture(lambda x, y: torch.relu(x @ y)[:, 0], [torch.ones(3, 4), torch.ones(5, 4).t()], {0: {0: "B"}}))
    assert "def computation(x: f32[B, 4], y: f32[4, 5][1, 4]):" in text
    assert "    # model.py:3  matmul = ...\n    matmul = x @ y\n" in text
    assert "relu[:, 0]" in text


def test_names_do_not_shadow() -> None:
    nodes = (NodeRecord("torch", "placeholder", "torch"), NodeRecord("len", "placeholder", "len"),
             NodeRecord("max", "call_function", "torch:add", (Reference("torch"), Reference("len"))), NodeRecord("output", "output", "output", ((Reference("max"),),)))
    variant = capture(lambda a, b: a, [torch.ones(2), torch.ones(2)])
    text = graph_source(type(variant)(**{**vars(variant), "nodes": nodes}))
    [result] = run_text(text, "computation", [torch.ones(2), torch.ones(2)])
    assert result.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("training", [False, True])
def test_aten_text_executes(training: bool) -> None:
    example = [torch.randn(3, 4, requires_grad=True), torch.randn(4, 4)]
    graphs = build_aten_graphs(capture(lambda x, w: F.layer_norm(torch.softmax(x @ w, 1), (4,)), example, {0: {0: "s0"}}), training=training)
    values = [value.detach() for value in example]
    same(run_text(aten_source(graphs.forward, "forward"), "forward", values), fx.Interpreter(graphs.forward).run(*values))
    if graphs.backward is not None:
        text = aten_source(graphs.backward, "backward")
        saved = fx.Interpreter(graphs.forward).run(*values)[graphs.output_count:]
        sizes = [v for s, v in zip(graphs.saved, saved) if s.kind == "size"]
        arguments = [*sizes, *(v for s, v in zip(graphs.saved, saved) if s.kind == "tensor"), torch.ones(3, 4)]
        ours, theirs = run_text(text, "backward", arguments), fx.Interpreter(graphs.backward).run(*arguments)
        assert ours[1] is None and theirs[1] is None
        same(ours[:1], theirs[:1])


@pytest.mark.parametrize("function", [torch.relu, F.dropout, F.linear, F.gelu, torch.Tensor.add, torch.add, torch.ops.aten.add.Tensor, torch.ops.aten.add,
                                      torch._C._set_grad_enabled, torch.amp.autocast_mode._enter_autocast, getattr, math.floor, torch.special.expit,
                                      torch.linalg.norm, torch.fft.fft, Double.apply, torch.sym_max, torch.conv2d, torch.nn.init.zeros_])
def test_names_of_functions(function: Any) -> None:
    name = targets.name_of(function)
    found = targets.resolve(name)
    assert found is function or targets.name_of(found) == name
    assert name.count(":") == 1


def test_a_function_without_a_name_is_refused() -> None:
    with pytest.raises(UnsupportedGraph) as caught:
        targets.name_of(lambda x: x)
    assert caught.value.code == "AOT301"


def test_places() -> None:
    assert place_of(stack_trace("dir with space/model.py:14", 'print("x, in region")')) == ("dir with space/model.py:14", 'print("x, in region")')
    assert place_of('  File "torch/x.py", line 3, in forward\n    return\n') == ("", "")
