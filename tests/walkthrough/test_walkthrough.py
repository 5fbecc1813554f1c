"""ARCHITECTURE.md shows one function after every stage; here each block is made again and compared (``--update-golden`` writes them)."""
import re
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "aotcompile" / "ARCHITECTURE.md"
BLOCK = re.compile(r"<!-- walkthrough: (\w+) -->\n```\w*\n(.*?)```\n", re.S)


@pytest.fixture(scope="module")
def stages():
    """Stage name -> text, for the example function."""
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        import example
    finally:
        sys.path.pop(0)
    import aotcompile
    from aotcompile.codegen.python.guards import guards_source
    from aotcompile.codegen.python.plan import plan_graph
    from aotcompile.codegen.python.wrapper import wrapper_source
    from aotcompile.graph.aot import build_aten_graphs
    from aotcompile.graph.aten_source import aten_source
    from aotcompile.graph.record import graph_source

    traced = aotcompile.trace(example.normalize, example_inputs=((torch.randn(4, 8), 0.5), {}))
    first = traced.variants[0]
    lowered = traced.lower()
    scheduled = lowered.schedule()
    generated = scheduled.generate()
    graphs = build_aten_graphs(first, training=False)
    kernels = generated.as_text()
    split = traced.result.functions[0].split
    return {
        "source": Path(example.__file__).read_text(encoding="utf-8"),
        "breaks": "\n".join(map(str, traced.diagnostics)) + "\n",
        "regions": split.text,
        "graph": graph_source(first),
        "guards": guards_source(first.guards, first.region),
        "aten": aten_source(graphs.forward, "inference"),
        "ir": lowered.as_text().partition("\n# ")[0] + "\n",
        "schedule": scheduled.as_text().partition("\n# ")[0] + "\n",
        "cpp": kernels[kernels.index("// example.py"):kernels.index("\n}\n") + 3],         # the first kernel, without the header lines
        "wrapper": wrapper_source(first, {"inference": plan_graph(scheduled.schedules[0][1])}),
    }


def test_every_block_is_what_the_stage_gives(stages, request):
    text = DOCUMENT.read_text(encoding="utf-8")
    found = dict(BLOCK.findall(text))
    assert set(found) == set(stages), "ARCHITECTURE.md has a block for each stage and no other"
    if request.config.getoption("--update-golden"):
        text = BLOCK.sub(lambda m: m.group(0)[:m.start(2) - m.start()] + stages[m.group(1)].rstrip("\n") + "\n```\n", text)
        DOCUMENT.write_text(text, encoding="utf-8")
        found = dict(BLOCK.findall(text))
    for name, expected in stages.items():
        assert found[name].rstrip() == expected.rstrip(), f"block {name} of ARCHITECTURE.md is stale: run pytest --update-golden tests/walkthrough"
