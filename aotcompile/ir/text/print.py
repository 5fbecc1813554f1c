"""Readable text of a `Program`; `ir.text.parse` reads it back.

Example::

    program inference
    input x: f32[s0, 64][64, 1]
    symbol s0 = x.size(0)  in [2, inf]
    buffer relu: f32[s0, 64][64, 1]
    relu[i0*64 + i1] = for i0 < s0, i1 < 64: maximum(add(load(x[64*i0 + i1]), f32 1.0), f32 0.0)   # aten.add.Tensor aten.relu.default
    mm = call aten.mm.default(%relu, %w)
    view mm_view = mm + 0
    read u0 = item
    check u0 >= 0
    return %relu, s0*2, None

Values: ``f32 1.0`` constant, ``i64(i0 + 1)`` index value, ``load(x[k0*4 + i1] where k0 = ... check k0 < 9)``, ``cast(f32, v)``,
``masked(mask, body, other)``, operators by name. The dtype of an operator follows from its operands, that of a load from its buffer.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotcompile.ir.expression import Expression
from aotcompile.ir.nodes import (
    Apply,
    Argument,
    Buffer,
    BufferReference,
    Cast,
    Compute,
    Constant,
    DTypeReference,
    IndexValue,
    LibraryCall,
    Load,
    Loop,
    Masked,
    Operation,
    Origin,
    Program,
    Check,
    ReadScalar,
    Store,
    TorchReference,
    Value,
    View,
)


def _names(expressions: Iterable[object]) -> str:
    return ", ".join(map(str, expressions))


def constant_text(value: bool | int | float) -> str:
    """A literal that `float`, `int` or the names True/False read back exactly."""
    return repr(value)


def value_text(value: Value) -> str:
    """One value as text (shared parts are written out each time)."""
    match value:
        case Constant(dtype, number):
            return f"{dtype.value} {constant_text(number)}"
        case IndexValue(dtype, expression):
            return f"{dtype.value}({expression})"
        case Load(_, buffer, index, bindings, checks):
            return f"load({buffer}[{index}]{_bound(bindings, checks)})"
        case Apply(_, operator, arguments):
            return f"{operator}({', '.join(map(value_text, arguments))})"
        case Cast(dtype, argument):
            return f"cast({dtype.value}, {value_text(argument)})"
        case Masked(_, mask, body, other):
            return f"masked({value_text(mask)}, {value_text(body)}, {value_text(other)})"
    raise TypeError(f"not a value: {value!r}")


def _bound(bindings: Iterable[tuple[object, Value]], checks: Iterable[tuple[object, Expression]]) -> str:
    text = "".join(f" where {symbol} = {value_text(bound)}" for symbol, bound in bindings)
    return text + "".join(f" check {symbol} < {size}" for symbol, size in checks)


def _loops(loops: Iterable[Loop]) -> str:
    return ", ".join(f"{loop.variable} < {loop.size}" for loop in loops)


def argument_text(argument: Argument) -> str:
    match argument:
        case BufferReference(name, number):
            return f"%{'%' if number else ''}{name}"
        case DTypeReference(name):
            return f"dtype({name})"
        case TorchReference(kind, text):
            return f"{kind}({text})"
        case Expression():
            return f"size({argument})"
        case tuple():
            return f"[{', '.join(map(argument_text, argument))}]"
    return repr(argument)


def _origins(origins: tuple[Origin, ...]) -> str:
    return "   # " + " ".join(f"{origin.operator}@{origin.place}" if origin.place else origin.operator for origin in origins) if origins else ""


def _store(store: Store) -> str:
    return f"[{store.index}{_bound(store.bindings, store.checks)}]"


def operation_text(operation: Operation) -> str:
    """One line."""
    match operation:
        case Compute(result, loops, body, store, reduction, updates, origins):
            target = f"{result}{_store(store)} {'+=' if store.mode == 'add' else '='}"
            over = f" for {_loops(loops)}:" if loops else ""
            text = value_text(body)
            if reduction is not None:
                text = f"{reduction.kind} {reduction.accumulate.value} over ({_loops(reduction.loops)}): {text}"
            return f"{target}{over} {text}{f'   updates {updates}' if updates else ''}{_origins(origins)}"
        case LibraryCall(operator, arguments, keywords, results, mutates, origins):
            given = [argument_text(argument) for argument in arguments] + [f"{key}={argument_text(argument)}" for key, argument in keywords]
            left = ", ".join(result or "_" for result in results)
            target, written = f"{left} = " if results else "", f"   mutates {_names(mutates)}" if mutates else ""
            return f"{target}call {operator}({', '.join(given)}){written}{_origins(origins)}"
        case View(result, base, offset, origins):
            return f"view {result} = {base} + {offset}{_origins(origins)}"
        case ReadScalar(symbol, buffer):
            return f"read {symbol} = {buffer}"
        case Check():
            return f"check {operation}"
    raise TypeError(f"not an operation: {operation!r}")


def buffer_text(buffer: Buffer) -> str:
    return f"{buffer.name}: {buffer.dtype.value}[{_names(buffer.sizes)}][{_names(buffer.strides)}]{'' if buffer.device == 'cpu' else buffer.device}"


def program_text(program: Program) -> str:
    """The whole program, one line each for inputs, symbols, buffers and operations."""
    lines = [f"program {program.name}"]
    scalars = dict(program.scalar_inputs)
    for number, name in enumerate(program.inputs):
        lines.append(
            f"input {buffer_text(program.buffers[name])}"
            if name is not None
            else f"input size {scalars[number]}"
            if number in scalars
            else "input none"
        )
    for symbol in program.symbols:
        lines.append(f"symbol {symbol.symbol} = input {symbol.input} size {symbol.dimension}")
    for symbol_name, (low, high) in sorted(program.ranges.items()):
        lines.append(f"range {symbol_name} in {'' if low is None else low}..{'' if high is None else high}")
    inputs = set(program.inputs)
    lines += [f"buffer {buffer_text(buffer)}" for name, buffer in program.buffers.items() if name not in inputs]
    lines += [operation_text(operation) for operation in program.operations]
    outputs = [argument_text(output) for output in program.outputs]
    lines.append(f"return {', '.join(outputs)}".rstrip())
    return "\n".join(lines) + "\n"
