"""Kernel names, and which kernels are equal.

A name says what is fused: ``cpp_poi_fused_add_cos_mul_sin_tanh_0``; kinds: poi (pointwise), red (reduction), sca (scatter). Kernels that differ only
in the buffers they are called with share a name and so are generated once.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping

from aotcompile.ir.expression import Expression, Symbol
from aotcompile.ir.nodes import Apply, Buffer, Cast, Compute, Constant, IndexValue, Load, Loop, Masked, Value
from aotcompile.ir.traverse import walk
from aotcompile.schedule.types import FusedKernel, operator_name, parameters

_LONGEST = 90


def kind_of(kernel: FusedKernel) -> str:
    computes = [compute for stage in kernel.stages for compute in stage.computes]
    if any(compute.store.mode == "add" or compute.store.bindings for compute in computes):
        return "sca"
    return "red" if any(compute.reduction is not None for compute in computes) else "poi"


def fused_name(backend: str, kernel: FusedKernel, number: int, suffix: str) -> str:
    operators = sorted({operator_name(origin.operator) for stage in kernel.stages for compute in stage.computes for origin in compute.origins})
    text = "_".join(operators)
    if len(text) > _LONGEST:
        text = text[:_LONGEST].rsplit("_", 1)[0] + "_etc"
    prefix = "triton" if backend == "triton" else "cpp"
    return "_".join(part for part in (prefix, kind_of(kernel), "fused", text, suffix, str(number)) if part)


def kernel_key(kernel: FusedKernel, buffers: Mapping[str, Buffer]) -> str:
    """A text equal for kernels that have the same code: buffers by position, everything else as it is. Linear in the kernel's distinct nodes."""
    names = {name: f"p{k}" for k, name in enumerate(parameters(kernel))}
    made = [compute.result for stage in kernel.stages for compute in stage.computes if compute.result not in names]
    names.update({name: f"l{k}" for k, name in enumerate(dict.fromkeys(made))})
    known: dict[int, str] = {}
    lines: list[str] = [f"{names[name]}: {buffers[name].dtype.value}" for name in names if name in buffers]
    numbers: dict[str, str] = {}

    def number(text: str) -> str:
        if text not in numbers:
            numbers[text] = f"v{len(numbers)}"
            lines.append(f"{numbers[text]} = {text}")
        return numbers[text]

    def describe(value: Value) -> str:
        for node in walk(value):
            if id(node) not in known:
                known[id(node)] = number(_text(node, known, names))
        return known[id(value)]

    lines.append("outer " + _loops(kernel.outer))
    for stage in kernel.stages:
        lines.append(f"{stage.kind} {_loops(stage.inner)}")
        for compute in stage.computes:
            lines.append(_compute_text(compute, describe, names))
    return "\n".join([*lines, "symbols " + ",".join(symbol.name for symbol in kernel.symbols)])


def _loops(loops: tuple[Loop, ...]) -> str:
    return ", ".join(f"{loop.variable}<{loop.size}" for loop in loops)


def _checks(checks: tuple[tuple[Symbol, Expression], ...]) -> str:
    return ",".join(f"{symbol}<{size}" for symbol, size in checks)


def _compute_text(compute: Compute, describe: Callable[[Value], str], names: Mapping[str, str]) -> str:
    store = compute.store
    bindings = ",".join(f"{symbol}={describe(value)}" for symbol, value in store.bindings)
    reduction = f"{compute.reduction.kind} {compute.reduction.accumulate.value}" if compute.reduction else ""
    updates = "updates" if compute.updates is not None else ""
    target = f"{names[compute.result]}[{store.index}; {bindings}; {_checks(store.checks)}]"
    return f"{target} {store.mode} {updates} {reduction} = {describe(compute.body)}"


def _text(node: Value, known: Mapping[int, str], names: Mapping[str, str]) -> str:
    match node:
        case Constant(dtype, value):
            return f"{dtype.value} {value!r}"
        case IndexValue(dtype, expression):
            return f"{dtype.value} index {expression}"
        case Load(dtype, buffer, index, bindings, checks):
            bound = ",".join(f"{symbol}={known[id(value)]}" for symbol, value in bindings)
            return f"{dtype.value} {names.get(buffer, buffer)}[{index}; {bound}; {_checks(checks)}]"
        case Apply(dtype, operator, arguments):
            return f"{dtype.value} {operator}({','.join(known[id(a)] for a in arguments)})"
        case Cast(dtype, argument):
            return f"{dtype.value} cast {known[id(argument)]}"
        case Masked(dtype, mask, body, other):
            return f"{dtype.value} masked({known[id(mask)]},{known[id(body)]},{known[id(other)]})"
    raise TypeError(node)
