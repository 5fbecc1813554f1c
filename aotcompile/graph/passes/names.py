"""Names nodes after their operator and position, so that text does not change with what tracing did in between: mul_13, mul_20 -> mul, mul_1."""
from __future__ import annotations

import re
from collections.abc import Sequence

from torch import fx

from aotcompile.graph.torch_private import new_names


def rename_nodes(module: fx.GraphModule, placeholders: Sequence[str] = ()) -> dict[str, str]:
    """Renames in place; the first placeholders get the names given. Returns old name -> new name."""
    given = list(placeholders)
    before = [node.name for node in module.graph.nodes]
    wanted = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            wanted.append(given.pop(0) if given else node.name)
        else:
            wanted.append(re.sub(r"(_\d+)+$", "", node.name) or node.name)
    new_names(module.graph, wanted)
    module.recompile()
    return dict(zip(before, (node.name for node in module.graph.nodes)))
