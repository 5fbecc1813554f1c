"""The plan of one graph: a schedule as the data both executors follow.

    Allocate(y); FusedKernel(...); Free(t)   ->   {"step": "allocate", "name": "y", ...}, {"step": "kernel", ...}, {"step": "free", "name": "t"}

The result of an update has its base's memory and so its base's name.
"""
from __future__ import annotations

import dataclasses
import math
from typing import Any

from aotcompile.codegen.types import PlanAllocate, PlanCall, PlanCheck, PlanFree, PlanGraph, PlanKernel, PlanReadScalar, PlanStep, PlanView, Size
from aotcompile.ir.expression import Expression, Integer, free_symbols
from aotcompile.ir.nodes import Argument, Buffer, BufferReference, Check, Compute, DTypeReference, LibraryCall, ReadScalar, TorchReference, View
from aotcompile.schedule.types import Allocate, Free, FusedKernel, Reuse, Schedule, Step, parameters

_STEP_NAMES: dict[type, str] = {PlanAllocate: "allocate", PlanView: "view", PlanKernel: "kernel", PlanCall: "call", PlanReadScalar: "read_scalar",
                                PlanCheck: "check", PlanFree: "free"}


def size(value: Expression) -> Size:
    return value.value if isinstance(value, Integer) else str(value)


def sizes(values: tuple[Expression, ...]) -> tuple[Size, ...]:
    return tuple(size(value) for value in values)


def plan_graph(schedule: Schedule) -> PlanGraph:
    """The plan that runs ``schedule``'s kernels and calls. An input that is no tensor and is not used has the name ``""``."""
    return _Planner(schedule).plan()


class _Planner:
    def __init__(self, schedule: Schedule) -> None:
        self._program = schedule.program
        self._steps = schedule.steps
        self._same: dict[str, str] = {}
        self._known = {entry.symbol for entry in schedule.program.symbols} | {symbol for _, symbol in schedule.program.scalar_inputs}
        for operation in schedule.program.operations:
            if isinstance(operation, Compute) and operation.updates is not None:
                self._same[operation.result] = self._name(operation.updates)

    def _name(self, buffer: str) -> str:
        return self._same.get(buffer, buffer)

    def _buffer(self, name: str) -> Buffer:
        return self._program.buffers[name]

    def plan(self) -> PlanGraph:
        program = self._program
        symbols = [(entry.symbol.name, entry.input, entry.dimension) for entry in program.symbols]
        symbols += [(symbol.name, number, -1) for number, symbol in program.scalar_inputs]
        outputs = tuple(self._output(output) for output in program.outputs)
        return PlanGraph(tuple(name if name is not None else f"unused_{k}" for k, name in enumerate(program.inputs)), tuple(symbols),
                         tuple(map(self._step, self._steps)), outputs)

    def _output(self, output: object) -> dict[str, Any]:
        match output:
            case BufferReference(name):
                return {"buffer": self._name(name)}
            case Integer(value):
                return {"constant": value}
            case Expression():
                return {"size": str(output)}
        return {"constant": _constant(output)}

    def _step(self, step: Step) -> PlanStep:
        match step:
            case Allocate(name):
                buffer = self._buffer(name)
                return PlanAllocate(name, buffer.dtype.torch_name, sizes(buffer.sizes), sizes(buffer.strides), buffer.device)
            case Reuse(name, previous):
                buffer = self._buffer(name)
                return PlanView(name, previous, buffer.dtype.torch_name, sizes(buffer.sizes), sizes(buffer.strides), 0)
            case Free(name):
                return PlanFree(name)
            case FusedKernel():
                buffers = tuple(self._name(name) for name in parameters(step))
                return PlanKernel(step.name, buffers, tuple(symbol.name for symbol in step.symbols))
            case View(result=result, base=base, offset=offset):
                buffer = self._buffer(result)
                return PlanView(result, self._name(base), buffer.dtype.torch_name, sizes(buffer.sizes), sizes(buffer.strides), size(offset))
            case ReadScalar(symbol, buffer_name):
                self._known.add(symbol)
                return PlanReadScalar(symbol.name, self._name(buffer_name))
            case Check():
                return PlanCheck(str(step))
            case LibraryCall():
                return self._call(step)
        raise TypeError(step)

    def _call(self, call: LibraryCall) -> PlanCall:
        # Strides that contain a size of the result itself (nonzero) are not known yet; the lowering has an alias call behind it that fixes them.
        relied = [name is not None and all(free_symbols(stride) <= self._known for stride in self._buffer(name).strides) for name in call.results]
        strides = tuple(sizes(self._buffer(name).strides) if name is not None and known else None for name, known in zip(call.results, relied))
        return PlanCall(call.operator, tuple(map(self._argument, call.arguments)), {name: self._argument(value) for name, value in call.keywords},
                        call.results, strides)

    def _argument(self, argument: Argument) -> Any:
        match argument:
            case BufferReference(name, number):
                return {"number" if number else "buffer": self._name(name)}
            case DTypeReference(name):
                return {"dtype": name}
            case TorchReference(kind, text):
                return {kind: text.removeprefix("torch.")}
            case Integer(value):
                return value
            case Expression():
                return {"size": str(argument)}
            case tuple():
                return [self._argument(item) for item in argument]
        return _constant(argument)


def _constant(value: object) -> Any:
    """A JSON constant; complex numbers and floats that JSON cannot say are tagged."""
    if isinstance(value, complex):
        return {"complex": [_number(value.real), _number(value.imag)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": _number(value)}
    return value


def _number(value: float) -> float | str:
    """The number; as text where JSON has no form for it."""
    return value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def as_json(graph: PlanGraph) -> dict[str, Any]:
    """``graph`` as JSON data; each step is an object with its kind under "step"."""
    return {"inputs": list(graph.inputs), "symbols": [list(entry) for entry in graph.symbols], "steps": [_step_json(step) for step in graph.steps],
            "outputs": list(graph.outputs)}


def _step_json(step: PlanStep) -> dict[str, Any]:
    data: dict[str, Any] = {"step": _STEP_NAMES[type(step)]}
    for entry in dataclasses.fields(step):
        value = getattr(step, entry.name)
        if entry.name == "grid" and value is None:
            continue
        data[entry.name] = _listed(value)
    return data


def _listed(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_listed(item) for item in value]
    return {key: _listed(item) for key, item in value.items()} if isinstance(value, dict) else value


__all__ = ["as_json", "plan_graph", "size", "sizes"]
