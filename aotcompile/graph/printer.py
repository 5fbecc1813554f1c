"""Readable Python text of graphs. Shared by graph.py (torch level) and forward.py/backward.py (ATen level)."""
from __future__ import annotations

import keyword
import math
from enum import Enum
from functools import lru_cache
from typing import Any, Callable, Sequence

import torch

from aotcompile.frontend.types import NodeRecord, Reference
from aotcompile.graph import targets
from aotcompile.graph.autograd.cut import cut
from aotcompile.graph.errors import UnsupportedGraph

CUT = targets.name_of(cut)


class FunctionPrinter:
    """Prints one function from node records.

    ``annotation(record)`` is the text behind a name ("f32[8, 128]" or ""): on parameters it becomes an annotation, on assignments a comment, when
    ``comment_shapes``. Node names become Python names that shadow neither builtins nor the modules in use."""

    def __init__(self, function: str, annotation: Callable[[NodeRecord], str], comment_shapes: bool = False) -> None:
        self.function, self.annotation, self.comment_shapes = function, annotation, comment_shapes
        self.modules: set[str] = set()
        self.names: dict[str, str] = {}

    def text(self, records: Sequence[NodeRecord], header: str) -> str:
        """The whole module's text: ``header`` (comment lines), imports, the function."""
        cuts = ["cut"] if any(record.target == CUT for record in records) else []
        taken = {"torch", *cuts, *(record.target.partition(":")[0].split(".")[0] for record in records if record.operation == "call_function")}
        for record in records:
            name = record.name
            while keyword.iskeyword(name) or name in taken or name in targets.BUILTIN_NAMES:
                name += "_"
            taken.add(name)
            self.names[record.name] = name
        body = self._body(records)
        parameters = [self._parameter(r) for r in records if r.operation == "placeholder"]
        if cuts:
            parameters.append("cut=lambda value, number: value")
        line = f"def {self.function}({', '.join(parameters)}):"
        if len(line) > 120:
            line = f"def {self.function}(\n" + "".join(f"    {p},\n" for p in parameters) + "):"
        imports = "".join(f"import {module}\n" for module in sorted(self.modules | {"torch"}))
        return f"{header}from __future__ import annotations\n\n{imports}\n\n{line}\n" + "".join(f"    {text}\n" if text else "\n" for text in body)

    def _parameter(self, record: NodeRecord) -> str:
        annotation = self.annotation(record)
        if not annotation:
            return self.names[record.name]
        if not _is_expression(annotation):
            annotation = f'"{annotation}"'                        # f32[] and f32[8]cuda are no Python expressions
        return f"{self.names[record.name]}: {annotation}"

    def _body(self, records: Sequence[NodeRecord]) -> list[str]:
        lines: list[str] = []
        place: tuple[str, str] = ("", "")
        used = {name for record in records for name in references((record.arguments, record.keywords))}
        for record in records:
            if record.operation == "placeholder":
                continue
            if record.operation == "output":
                lines.append(f"return {self.literal(record.arguments[0])}")
                continue
            if record.place and (record.place, record.source) != place:
                place = (record.place, record.source)
                lines += ["", f"# {record.place}  {record.source}".rstrip()] if lines else [f"# {record.place}  {record.source}".rstrip()]
            shape = self.annotation(record) if self.comment_shapes else ""
            call = self.call(record)
            statement = call if record.name not in used and not shape else f"{self.names[record.name]} = {call}"
            lines.append(statement + (f"  # {shape}" if shape else ""))
        return lines

    def call(self, record: NodeRecord) -> str:
        arguments, keywords = list(record.arguments), record.keywords
        if record.operation == "call_method":
            return f"{self.operand(arguments[0])}.{record.target}({self.call_arguments(arguments[1:], keywords)})"
        module, _, qualname = record.target.partition(":")
        function = targets.resolve(record.target)
        if function is cut:
            return f"cut({self.call_arguments(arguments, keywords)})"
        if module == "_operator" and qualname == "getitem" and not keywords:
            return f"{self.operand(arguments[0])}[{self.index(arguments[1])}]"
        if function in targets.INFIX and len(arguments) == 2 and not keywords:
            return f"{self.operand(arguments[0])} {targets.INFIX[function]} {self.operand(arguments[1])}"
        if module == "builtins":
            return f"{qualname}({self.call_arguments(arguments, keywords)})"
        if module == "_operator":
            module = "operator"
        if module == "torch.ops":
            module = "torch"
            qualname = f"ops.{qualname}"
        self.modules.add(module)
        return f"{module}.{qualname}({self.call_arguments(arguments, keywords)})"

    def call_arguments(self, arguments: Sequence[Any], keywords: dict[str, Any]) -> str:
        return ", ".join([*map(self.literal, arguments), *(f"{name}={self.literal(value)}" for name, value in keywords.items())])

    def operand(self, value: Any) -> str:
        text = self.literal(value)
        return text if text.isidentifier() or isinstance(value, (list, tuple, str)) else f"({text})"

    def index(self, value: Any) -> str:
        if isinstance(value, slice):
            parts = ["" if part is None else self.literal(part) for part in (value.start, value.stop, value.step)]
            return f"{parts[0]}:{parts[1]}" + (f":{parts[2]}" if parts[2] else "")
        if isinstance(value, tuple) and value:
            return ", ".join(map(self.index, value)) + ("," if len(value) == 1 else "")
        return "..." if value is Ellipsis else self.literal(value)

    def literal(self, value: Any) -> str:
        """The Python expression of an argument. Raises UnsupportedGraph (AOT301) for an object without one."""
        if isinstance(value, Reference):
            return self.names[value.name]
        if value is None or value is Ellipsis or isinstance(value, (bool, int, str, bytes)) and not isinstance(value, Enum):
            return repr(value)
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else f"float('{value}')"
        if isinstance(value, complex):
            return f"complex({self.literal(value.real)}, {self.literal(value.imag)})"
        if isinstance(value, torch.Size):
            return f"torch.Size([{', '.join(map(self.literal, value))}])"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.literal, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.literal, value))}]"
        if isinstance(value, (set, frozenset)):
            items = ", ".join(sorted(map(self.literal, value)))
            return f"frozenset([{items}])" if isinstance(value, frozenset) else f"set([{items}])"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.literal(k)}: {self.literal(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self.literal(value.start)}, {self.literal(value.stop)}, {self.literal(value.step)})"
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
            return str(value)
        return self._named(value)

    def _named(self, value: Any) -> str:
        if isinstance(value, Enum):
            self.modules.add(type(value).__module__)
            return f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"
        if hasattr(type(value), "__members__"):                   # a pybind11 enum (SDPBackend)
            self.modules.add(type(value).__module__)
            return f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"
        if callable(value):
            module, _, qualname = targets.name_of(value).partition(":")
            module, qualname = ("torch", f"ops.{qualname}") if module == "torch.ops" else (module, qualname)
            self.modules.add(module)
            return f"{module}.{qualname}"
        raise UnsupportedGraph("AOT301", f"an argument of type {type(value).__qualname__} cannot be written as source.")


@lru_cache(maxsize=1024)
def _is_expression(text: str) -> bool:
    try:
        compile(text, "", "eval")
    except SyntaxError:
        return False
    return True


def references(value: Any) -> list[str]:
    """Names of the nodes that an argument refers to, in order."""
    if isinstance(value, Reference):
        return [value.name]
    if isinstance(value, (tuple, list)):
        return [name for item in value for name in references(item)]
    if isinstance(value, dict):
        return [name for item in value.values() for name in references(item)]
    if isinstance(value, slice):
        return references((value.start, value.stop, value.step))
    return []
