"""Captured graphs cut where results are computed from each other; backward graphs in parts."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from aotcompile.graph.autograd.cut import cut
from aotcompile.graph.autograd.observe import Observed
from aotcompile.graph.autograd.reached import part_of
from aotcompile.graph.autograd.stages import Stages, cut_in_stages, may_depend


def in_stages(function: Callable[..., Any], count: int = 2) -> tuple[fx.Graph, Stages | None]:
    module = fx.symbolic_trace(function)
    observed = Observed()

    class Run(fx.Interpreter):
        def run_node(self, node: fx.Node) -> Any:
            result = super().run_node(node)
            observed(node, result)
            return result

    Run(module).run(*(torch.randn(4, 4, requires_grad=True) for _ in range(count)))
    return module.graph, cut_in_stages(module.graph, observed, [])


def cuts_of(graph: fx.Graph) -> list[str]:
    """"tanh > add": what is cut, and who takes it, in order."""
    return [f"{node.args[0]} > {user}" for node in graph.find_nodes(op="call_function", target=cut) for user in node.users]


def test_what_later_stages_take_is_cut() -> None:
    graph, stages = in_stages(lambda x, w: ((hidden := torch.tanh(x @ w)), (hidden * w).sum()))
    assert stages is not None and stages.sources == (("output", 0), ("input", 1)) and stages.edges == 0
    assert cuts_of(graph) == ["tanh > mul", "w > mul"]
    assert stages.cut_stages == (1, 1) and stages.result_stages == (0, 1)


def test_a_value_that_is_no_result_is_an_edge() -> None:
    graph, stages = in_stages(lambda x, w: ((body := torch.tanh(x)) * w, (body + torch.exp(body * w)).sum()))
    assert stages is None                                        # neither result is computed from the other one

    def beside(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        body = torch.tanh(x)
        result = body * w
        return result, body + torch.exp(result)

    graph, stages = in_stages(beside)
    assert stages is not None and stages.sources == (("output", 0), ("edge", 0)) and stages.result_stages == (0, 1, 0)
    assert cuts_of(graph) == ["mul > exp", "tanh > add"]


def test_what_only_later_stages_use_belongs_to_them() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scale = torch.exp(w)                                     # before the result, and only used after it
        hidden = torch.tanh(x)
        return hidden, hidden * scale

    graph, stages = in_stages(function)
    assert stages is not None and cuts_of(graph) == ["w > exp", "tanh > mul"]


def test_a_result_is_cut_after_it_is_written() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = x * w
        before = hidden + 1                                      # of the value that is no result
        hidden.relu_()
        return hidden, before, hidden * w

    graph, stages = in_stages(function)
    assert stages is None or "mul > add" not in cuts_of(graph)
    assert stages is not None and cuts_of(graph) == ["mul > mul_1", "w > mul_1"]


def written_from_result(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    hidden = x * w
    result = torch.tanh(hidden)
    hidden.add_(result)
    return result, hidden * 2


def detached(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    hidden = x * w
    return hidden, hidden.detach() * w


def independent(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.tanh(x), torch.tanh(w)


@pytest.mark.parametrize("function", [written_from_result, detached, independent])
def test_nothing_is_cut(function: Callable[..., Any]) -> None:
    graph, stages = in_stages(function)
    assert stages is None and not cuts_of(graph)


def test_the_short_look_runs_nothing() -> None:
    assert may_depend(fx.symbolic_trace(lambda x, w: ((h := x * w), h + 1)).graph, (True, True))
    assert not may_depend(fx.symbolic_trace(lambda x, w: ((h := x * w), h + 1)).graph, (False, True))
    assert not may_depend(fx.symbolic_trace(lambda x, w: (x * w, x + 1)).graph, (True, True))


def test_parts_of_a_backward_graph() -> None:
    graph = fx.Graph()
    saved, first, second = map(graph.placeholder, ("saved", "first", "second"))
    product = graph.call_function(torch.ops.aten.mul.Tensor, (saved, first))
    graph.output((product, None, graph.call_function(torch.ops.aten.neg.default, (second,))))
    part, taken = part_of(fx.GraphModule({}, graph), [2, 1], [2])
    assert taken == (2,) and [node.name for node in part.graph.nodes] == ["second", "neg_default", "output"]
    value = torch.randn(2)
    assert torch.equal(part(value)[0], -value) and part(value)[1] is None
