"""The partition of joint graphs without Inductor's pattern matcher: the same graphs, sooner."""
from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
import torch
from captured import capture
from test_aot import CASES
from torch import fx

from aotcompile.graph import torch_private
from aotcompile.graph.aot import build_aten_graphs
from aotcompile.graph.aten_source import aten_source

NAME = "torch._inductor.pattern_matcher"


@pytest.mark.parametrize("name", sorted(CASES)[::3])
def test_the_graphs_are_those_that_torch_makes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, inputs = CASES[name]
    real = importlib.import_module(NAME)

    def texts() -> list[str]:
        graphs = build_aten_graphs(capture(function, inputs), training=True)
        return [aten_source(graph, "graph") for graph in (graphs.forward, graphs.backward) if graph is not None]
    with_the_real_one = texts()
    numbered = []
    monkeypatch.setattr(torch_private, "number_regions", lambda graph, made=torch_private.number_regions: numbered.append(made(graph)))
    monkeypatch.delitem(sys.modules, NAME)
    assert texts() == with_the_real_one and NAME not in sys.modules
    assert numbered
    monkeypatch.setitem(sys.modules, NAME, real)


def test_a_build_does_not_import_it() -> None:
    program = f"""
import sys, torch
from aotcompile.graph import torch_private
with torch_private._light_pattern_matcher():
    from {NAME} import same_mutation_regions
    assert same_mutation_regions is torch_private.same_region and "torch._inductor" not in sys.modules
assert "{NAME}" not in sys.modules
with torch_private._light_pattern_matcher():
    from {NAME} import Match
    import {NAME} as real
assert sys.modules["{NAME}"] is real and Match is real.Match and real.same_mutation_regions is not torch_private.same_region
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_write_in_place_ends_a_region() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    before = graph.call_function(torch.ops.aten.sin.default, (x,))
    write = graph.call_function(torch.ops.aten.copy_.default, (x, before))
    after = graph.call_function(torch.ops.aten.sin.default, (x,))
    again = graph.call_function(torch.ops.aten.sin.default, (x,))
    graph.output((write, after, again))
    torch_private.number_regions(graph)
    assert not torch_private.same_region(before, after) and torch_private.same_region(after, again)
