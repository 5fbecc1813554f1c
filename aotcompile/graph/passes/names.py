"""Names nodes after their operator and position, so that text does not change with what tracing did in between: mul_13, mul_20 -> mul, mul_1."""
from __future__ import annotations

import re
from collections.abc import Sequence

from torch import fx


def rename_nodes(module: fx.GraphModule, placeholders: Sequence[str] = ()) -> dict[str, str]:
    """Renames in place (the graph is rebuilt); the first placeholders get the names given. Returns old name -> new name."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    names: dict[str, str] = {}
    given = list(placeholders)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            name = given.pop(0) if given else node.name
        else:
            name = re.sub(r"(_\d+)+$", "", node.name) or node.name
        arguments, keywords = fx.node.map_arg((node.args, node.kwargs), lambda argument: made[argument])
        if node.op == "placeholder":
            new = graph.placeholder(name)
            new.target = new.name                            # two of one name: the graph made the second one's name unique
        else:
            new = graph.create_node(node.op, node.target, arguments, keywords, name=name)
        new.meta = node.meta
        made[node], names[node.name] = new, new.name
    module.graph = graph
    return names
