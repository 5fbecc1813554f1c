"""Fake inputs for tracing, made from the facts of the graph inputs (no example tensors are needed)."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from aotcompile.frontend.types import CapturedVariant, GraphInput, SymbolFacts
from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.torch_private import RESERVED_PREFIXES, FakeTensorMode, define_size_symbol
from aotcompile.graph.tracing.shape_environment import SizeEnvironment
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Add, Expression, FloorDivide, Integer, Maximum, Minimum, Modulo, Multiply, Symbol, parse
from aotcompile.ir.guards import TensorFacts

# CUDA tensors are traced as "meta" ones: autograd on fake CUDA tensors needs a GPU, and the text must be the same on every build machine.
STAND_IN = "meta"


@dataclass
class TracingInputs:
    mode: FakeTensorMode
    environment: SizeEnvironment
    values: list[Any]
    symbols: dict[str, sympy.Symbol]
    sizes: dict[str, Any]                   # symbol -> SymInt


def make_inputs(variant: CapturedVariant, *, training: bool, running: Callable[[], str]) -> TracingInputs:
    """Fake tensors for the variant's inputs, in order; a "number" is a SymInt where it is a symbol of the variant, else a 0-dim i64/f64 CPU tensor.

    Sizes are SymInts over the variant's symbols by their own names. ``requires_grad`` is set in training only.
    Raises UnsupportedGraph (AOT315) for a symbol with a name that torch reserves."""
    environment = SizeEnvironment(running)
    mode = FakeTensorMode(shape_env=environment, static_shapes=False)
    hints = tracing_hints(variant)
    sizes: dict[str, Any] = {}
    symbols: dict[str, sympy.Symbol] = {}
    for facts in variant.symbols:
        if facts.name.startswith(RESERVED_PREFIXES):
            raise UnsupportedGraph("AOT315", f"the size symbol {facts.name} has a name that torch reserves for other kinds of symbols.")
        symbol = define_size_symbol(environment, facts.name, hints[facts.name], facts.minimum, facts.maximum)
        symbols[facts.name] = symbol
        sizes[facts.name] = environment.create_symintnode(symbol, hint=hints[facts.name], source=None)
    numbers = {facts.input: sizes[facts.name] for facts in variant.symbols if facts.dimension < 0}
    with mode:
        values = [numbers[number] if number in numbers else _fake(given, sizes, training) for number, given in enumerate(variant.inputs)]
    return TracingInputs(mode, environment, values, symbols, sizes)


def _fake(given: GraphInput, sizes: dict[str, Any], training: bool) -> torch.Tensor:
    if given.facts is None:
        return torch.empty((), dtype=torch.int64 if given.number == "int" else torch.float64)
    facts = given.facts
    shape, strides = geometry(facts, sizes)
    device = "cpu" if facts.device == "cpu" else STAND_IN
    tensor = torch.empty_strided(shape, strides, dtype=getattr(torch, DType(facts.dtype).torch_name), device=device)
    return tensor.requires_grad_(training and bool(facts.requires_grad))


def geometry(facts: TensorFacts, sizes: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Sizes and strides of a tensor, under values of the symbols."""
    shape, strides = ([evaluate(parse(str(number)), sizes) for number in numbers] for numbers in (facts.sizes, facts.strides))
    return shape, strides


def evaluate(expression: Expression, sizes: dict[str, Any]) -> Any:
    """An index expression over Python ints or SymInts."""
    match expression:
        case Integer(value):
            return value
        case Symbol(name):
            return sizes[name]
        case Add(terms):
            return sum((evaluate(term, sizes) for term in terms[1:]), evaluate(terms[0], sizes))
        case Multiply(coefficient, factors):
            result = evaluate(factors[0], sizes)
            for factor in factors[1:]:
                result = result * evaluate(factor, sizes)
            return result if coefficient == 1 else result * coefficient
        case FloorDivide(a, b):
            return evaluate(a, sizes) // evaluate(b, sizes)
        case Modulo(a, b):
            return evaluate(a, sizes) % evaluate(b, sizes)
        case Minimum(a, b):
            return torch.sym_min(evaluate(a, sizes), evaluate(b, sizes))
        case Maximum(a, b):
            return torch.sym_max(evaluate(a, sizes), evaluate(b, sizes))
    raise TypeError(f"not an index expression: {expression!r}")


def tracing_hints(variant: CapturedVariant) -> dict[str, int]:
    """The size by which each symbol is represented while tracing: the example's, but none of 0 and 1 where the range and the guards allow another.

    A hint of 1 would be answered as a broadcast dimension and make the graph one for that size only."""
    hints = {facts.name: facts.hint for facts in variant.symbols}
    conditions = [str(guard.expected) for guard in variant.guards if guard.kind == "expression"]
    for facts in variant.symbols:
        if 0 <= facts.hint < 2:
            hints[facts.name] = _larger(facts, hints, conditions)
    return hints


def _larger(facts: SymbolFacts, hints: dict[str, int], conditions: list[str]) -> int:
    names = {"min": min, "max": max, "Min": min, "Max": max, "__builtins__": {}}
    for candidate in (6, 4, 8, 12, 16, 2, 3, 5, 7, 24, 32, 64, 128):
        in_range = (facts.minimum is None or candidate >= facts.minimum) and (facts.maximum is None or candidate <= facts.maximum)
        if in_range and all(eval(text, dict(names), {**hints, facts.name: candidate}) for text in conditions):  # noqa: S307 - our own guard text
            return candidate
    return facts.hint
