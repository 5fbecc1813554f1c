"""wrapper.py of a variant: prologue, epilogue and the plan's steps as readable Python, which the runtime executes where the native executor is not.

    def inference(inputs, runtime):
        x, weight = inputs
        s0 = x.shape[0]
        buf0, = runtime.tensors(torch.ops.aten.mm.default(x, weight))
        buf1 = runtime.empty((s0, 128), (128, 1), torch.float32, "cpu")
        runtime.launch("cpp_poi_fused_relu_0", (buf0, buf1), (s0,))
        del buf0
        return [buf1]

The epilogue stands before the mark ``# ---- computation``: where kernels run natively, the runtime executes the text up to it only.
"""
from __future__ import annotations

import keyword
from typing import Any, Mapping, Sequence

from aotcompile.base.writer import Writer
from aotcompile.codegen.types import PlanAllocate, PlanCall, PlanCheck, PlanFree, PlanGraph, PlanKernel, PlanReadScalar, PlanStep, PlanView, Size
from aotcompile.frontend.types import CapturedVariant
from aotcompile.ir.dtypes import DType

COMPUTATION_MARK = "# ---- computation " + "-" * 100
_RESERVED = {"torch", "runtime", "inputs", "inf", "nan", "min", "max"}


def wrapper_source(variant: CapturedVariant, graphs: Mapping[str, PlanGraph]) -> str:
    """The text of wrapper.py. ``graphs``: "inference", or "forward" and "backward", in the order in which they are written."""
    out = Writer()
    out.line(f'"""{variant.region}: what runs when the guards of this variant hold.')
    out.blank()
    out.line("The native executor follows plan.json, which says the same. Graph inputs, in order:")
    for given in variant.inputs:
        kind = str(given.facts) if given.facts else given.number
        out.line(f"    {given.name}: {kind} = {given.path}{'  (changed in place)' if given.mutated else ''}")
    for number, path in enumerate(variant.fetches):
        out.line(f"    fetched[{number}] = {path}")
    out.line('"""')
    out.line("import torch")
    out.blank(1)
    if variant.epilogue_imports:
        out.blank()
        out.line("EPILOGUE_IMPORTS = {   # resolved by the runtime, so that names of this package lead to the generated copy")
        for name in sorted(variant.epilogue_imports):
            out.line(f'    "{name}": "{variant.epilogue_imports[name]}",')
        out.line("}")
    computation = Writer()
    computation.line(COMPUTATION_MARK)
    for name, graph in graphs.items():
        computation.blank(2)
        _Function(graph).write(computation, name)
    # The epilogue goes in as it is: a writer would trim the ends of lines, which may be inside strings.
    return "\n\n".join([out.text(), _epilogue(variant), computation.text()])


def _epilogue(variant: CapturedVariant) -> str:
    if variant.epilogue.strip():
        return variant.epilogue.strip("\n") + "\n"
    if isinstance(variant.result, int):
        result = f"outputs[{variant.result}]"
    else:
        result = _tuple([f"outputs[{index}]" for index in variant.result or ()])
    return f"def epilogue(inputs, outputs, symbols, fetched):\n    return {result}\n"


class _Function:
    """Writes one graph. Buffer names become Python names that shadow nothing."""

    def __init__(self, graph: PlanGraph) -> None:
        self.graph = graph
        symbols = {name for name, _, _ in graph.symbols} | {step.symbol for step in graph.steps if isinstance(step, PlanReadScalar)}
        self._taken = _RESERVED | symbols
        self._names: dict[str, str] = {}

    def name(self, buffer: str) -> str:
        known = self._names.get(buffer)
        if known is None:
            known = "".join(c if c.isalnum() or c == "_" else "_" for c in buffer)
            if not known or known[0].isdigit():
                known = f"_{known}"
            while known in self._taken or keyword.iskeyword(known):
                known += "_"
            self._taken.add(known)
            self._names[buffer] = known
        return known

    def write(self, out: Writer, function: str) -> None:
        out.line(f"def {function}(inputs, runtime):")
        with out.indented():
            names = [self.name(buffer) for buffer in self.graph.inputs]
            if names:
                _unpack(out, names)
            for symbol, index, dimension in self.graph.symbols:
                source = f"{names[index]}.shape[{dimension}]" if dimension >= 0 else f"runtime.size({names[index]})"
                out.line(f"{symbol} = {source}")
            for step in self.graph.steps:
                out.line(self.step(step))
            _wrapped(out, "return [", [self.output(output) for output in self.graph.outputs], "]")

    def step(self, step: PlanStep) -> str:
        match step:
            case PlanAllocate():
                layout = f"{_sizes(step.sizes)}, {_sizes(step.strides)}"
                return f"{self.name(step.name)} = runtime.empty({layout}, {dtype(step.dtype)}, {device(step.device)})"
            case PlanView():
                base = self.name(step.base)
                layout = f"{_sizes(step.sizes)}, {_sizes(step.strides)}"
                return f"{self.name(step.name)} = runtime.view({base}, {layout}, {step.offset}, {dtype(step.dtype)})"
            case PlanKernel():
                return f'runtime.launch("{step.kernel}", {_tuple([self.name(buffer) for buffer in step.buffers])}, {_sizes(step.sizes)})'
            case PlanCall():
                return self.call(step)
            case PlanReadScalar():
                return f"{step.symbol} = int({self.name(step.buffer)}.item())"
            case PlanCheck():
                return f'runtime.check({step.condition}, "{step.condition}")'
            case PlanFree():
                return f"del {self.name(step.name)}"
        raise TypeError(f"no plan step: {step!r}")

    def call(self, step: PlanCall) -> str:
        arguments = [*map(self.argument, step.arguments), *(f"{name}={self.argument(value)}" for name, value in step.keywords.items())]
        text = f"torch.ops.{step.operator}({', '.join(arguments)})"
        if not any(step.results):
            return text
        results = [self.name(result) if result is not None else "_" for result in step.results]
        lines = [f"{', '.join(results)}{',' if len(results) == 1 else ''} = runtime.tensors({text})"]
        for result, strides in zip(step.results, step.strides):
            if result is not None and strides is not None:
                lines.append(f"{self.name(result)} = runtime.strided({self.name(result)}, {_sizes(strides)})")
        return "\n".join(lines)

    def argument(self, form: Any) -> str:
        """The Python text of an argument form, see `PlanCall`. Raises ValueError for an unknown one."""
        if isinstance(form, (list, tuple)):
            return f"[{', '.join(map(self.argument, form))}]"
        if not isinstance(form, dict):
            return repr(form)
        (kind, value), = form.items()
        match kind:
            case "buffer":
                return self.name(value)
            case "number":
                return f"{self.name(value)}.item()"
            case "size":
                return str(value)
            case "dtype":
                return dtype(value)
            case "device":
                return f"torch.device({value!r})"
            case "layout" | "memory_format":
                return f"torch.{value.removeprefix('torch.')}"
            case "complex":
                parts = [f"float({part!r})" if isinstance(part, str) else repr(part) for part in value]
                return f"complex({', '.join(parts)})"
            case "float":
                return f"float({value!r})"
        raise ValueError(f"unknown argument form {form!r}")

    def output(self, output: Mapping[str, Any]) -> str:
        if "buffer" in output:
            return self.name(output["buffer"])
        return str(output["size"]) if "size" in output else self.argument(output["constant"])


def _sizes(sizes: Sequence[Size]) -> str:
    return _tuple(list(map(str, sizes)))


def _tuple(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _unpack(out: Writer, names: Sequence[str]) -> None:
    if len(names) == 1:
        out.line(f"{names[0]}, = inputs")
        return
    line = f"{', '.join(names)} = inputs"
    if len(line) <= 140:
        out.line(line)
    else:
        _wrapped(out, "(", names, ") = inputs")


def _wrapped(out: Writer, opening: str, items: Sequence[str], closing: str) -> None:
    """``opening`` items ``closing`` on one line, or with as many items a line as fit."""
    line = f"{opening}{', '.join(items)}{closing}"
    if len(line) <= 140:
        out.line(line)
        return
    out.line(opening)
    with out.indented():
        current = ""
        for item in items:
            if current and len(current) + len(item) > 130:
                out.line(current)
                current = ""
            current = f"{current} {item}," if current else f"{item},"
        out.line(current)
    out.line(closing)


def dtype(name: str) -> str:
    """``torch.float32`` of "f32", "float32" or "torch.float32"."""
    bare = name.removeprefix("torch.")
    return f"torch.{DType(bare).torch_name if bare in DType._value2member_map_ else bare}"


def device(name: str) -> str:
    return f'"{name}"'
