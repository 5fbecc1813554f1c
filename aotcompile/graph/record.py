"""FX graphs as data and as text.

`nodes_of` turns an FX graph into node records, `graph_module` turns records back into a module, `graph_source` prints a captured variant::

    # model.py:14  h = torch.relu(x @ self.weight)
    matmul = x @ weight
    relu = torch.relu(matmul)
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch import fx

from aotcompile.frontend.types import CapturedVariant, GraphInput, NodeRecord, Reference
from aotcompile.graph import targets
from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.printer import CUT, FunctionPrinter
from aotcompile.ir.expression import Integer, maximum, multiply, parse


def map_arguments(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """``value`` with ``leaf`` applied to everything that is no tuple, list, dict or slice; containers become plain ones (torch.Size stays)."""
    if isinstance(value, torch.Size):
        items = [map_arguments(item, leaf) for item in value]
        return torch.Size(items) if all(type(item) is int for item in items) else tuple(items)
    if isinstance(value, tuple):
        items = [map_arguments(item, leaf) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [map_arguments(item, leaf) for item in value]
    if isinstance(value, dict):
        return {key: map_arguments(item, leaf) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(map_arguments(item, leaf) for item in (value.start, value.stop, value.step)))
    return leaf(value)


def nodes_of(graph: fx.Graph) -> tuple[NodeRecord, ...]:
    """The graph's nodes as records. ``meta["place"]``/``meta["source"]`` of a node are kept.

    Raises UnsupportedGraph (AOT301) for get_attr and call_module nodes and for functions without an importable name."""
    return tuple(_record(node) for node in graph.nodes)


def _record(node: fx.Node) -> NodeRecord:
    if node.op not in ("placeholder", "call_function", "call_method", "output"):
        raise UnsupportedGraph("AOT301", f"a {node.op} node ({node.target}) cannot be recorded.")
    target = targets.name_of(node.target) if node.op == "call_function" else str(node.target)    # type: ignore[arg-type]
    arguments, keywords = (map_arguments(value, _to_reference) for value in (tuple(node.args), dict(node.kwargs)))
    return NodeRecord(node.name, node.op, target, arguments, keywords, node.meta.get("place", ""), node.meta.get("source", ""))   # type: ignore[arg-type]


def _to_reference(value: Any) -> Any:
    return Reference(value.name) if isinstance(value, fx.Node) else value


def graph_module(nodes: Sequence[NodeRecord]) -> fx.GraphModule:
    """A module whose graph has these nodes; each node's ``meta`` has ``place``, ``source`` and a ``stack_trace`` in Python's form.

    Raises UnsupportedGraph (AOT301) for a target that names nothing here."""
    graph = fx.Graph()
    made: dict[str, fx.Node] = {}

    def leaf(value: Any) -> Any:
        return made[value.name] if isinstance(value, Reference) else value

    for record in nodes:
        arguments, keywords = map_arguments(record.arguments, leaf), map_arguments(record.keywords, leaf)
        if record.operation == "placeholder":
            node = graph.placeholder(record.name, *([arguments[0]] if arguments else []))
        elif record.operation == "output":
            node = graph.output(arguments[0])
        else:
            target = targets.resolve(record.target) if record.operation == "call_function" else record.target
            node = graph.create_node(record.operation, target, arguments, keywords, name=record.name)
        if node.name != record.name and record.operation != "output":
            node._rename(record.name)
        made[record.name] = node
        if record.place:
            node.meta["place"], node.meta["source"] = record.place, record.source
            node.meta["stack_trace"] = stack_trace(record.place, record.source)
    return fx.GraphModule({}, graph, class_name="CapturedGraph")


def stack_trace(place: str, source: str) -> str:
    """A place as the text that torch carries through tracing, and back: `place_of`."""
    file, _, line = place.rpartition(":")
    return f'  File "{file}", line {line}, in region\n    {source}\n'


def place_of(trace: str | None) -> tuple[str, str]:
    """(place, source line) of a node's ``stack_trace`` as made by `stack_trace`; the innermost such entry, ("", "") where there is none."""
    lines = (trace or "").splitlines()
    for position in range(len(lines) - 1, -1, -1):
        head = lines[position].strip()
        if head.startswith('File "') and head.endswith(", in region"):
            file, _, rest = head[6:].partition('", line ')
            source = lines[position + 1].strip() if position + 1 < len(lines) else ""
            return f"{file}:{rest.removesuffix(', in region')}", source
    return "", ""


def graph_source(variant: CapturedVariant) -> str:
    """graph.py: the captured graph as a Python function ``computation`` of the graph inputs, in order, that returns the tuple of outputs.

    Executing the text gives the same function. Inputs are annotated ``f32[8, 128]``, with strides where they are not the contiguous ones."""
    names = [record.name for record in variant.nodes if record.operation == "placeholder"]
    inputs = dict(zip(names, variant.inputs, strict=True))

    def annotation(record: NodeRecord) -> str:
        return _annotation(inputs[record.name]) if record.name in inputs else ""

    header = f"# {variant.region}, as captured: {variant.operator_count} operators.\n"
    header += "".join(f"#   {name} = {given.path}\n" for name, given in inputs.items())
    if any(record.target == CUT for record in variant.nodes):
        header += "# cut(value, number): a node of autograd's graph ends; `value` as the next ones take it.\n"
    return FunctionPrinter("computation", annotation).text(variant.nodes, header)


def _annotation(given: GraphInput) -> str:
    facts = given.facts
    if facts is None:
        return given.number
    text = f"{facts.dtype}[{', '.join(map(str, facts.sizes))}]"
    if tuple(str(parse(str(s))) for s in facts.strides) != contiguous_strides(facts.sizes):
        text += f"[{', '.join(map(str, facts.strides))}]"
    return text + ("" if facts.device == "cpu" else facts.device)


def contiguous_strides(sizes: Sequence[int | str]) -> tuple[str, ...]:
    """Text of the row-major strides of ``sizes``, the product of the sizes behind each dimension (a size 0 counts as 1, as in torch)."""
    stride: Any = Integer(1)
    result: list[str] = []
    for size in reversed(sizes):
        result.append(str(stride))
        value = parse(str(size))
        stride = multiply(stride, maximum(value, 1) if isinstance(value, Integer) else value)
    return tuple(reversed(result))
