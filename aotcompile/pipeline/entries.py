"""From what the user names (a function, a method, a module, an object, with example inputs) to the frontend's function and situations."""
from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any, Iterator, Sequence

import torch

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.frontend.capture.region import DimensionSpec, Dimensions, DynamicNumbers
from aotcompile.frontend.record.driver import Situation
from aotcompile.frontend.entries.entry import Entry
from aotcompile.ir.paths import Path


def plain_function(target: Any) -> tuple[types.FunctionType | None, tuple[Any, ...], dict[str, Any]]:
    """The Python function behind a callable, and the arguments it is given in front. None where there is none (C code)."""
    front: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    while True:
        if isinstance(target, functools.partial):
            front, keywords, target = (*target.args, *front), {**target.keywords, **keywords}, target.func
        elif isinstance(target, types.MethodType):
            front, target = (target.__self__, *front), target.__func__
        elif isinstance(target, torch.nn.Module):
            target = target.forward
        elif isinstance(target, types.FunctionType):
            return target, front, keywords
        elif not isinstance(target, type) and isinstance(
                getattr(type(target), "__call__", None), types.FunctionType):  # noqa: B004 - which function it is matters, not whether it is callable
            target = types.MethodType(type(target).__call__, target)
        else:
            return None, front, keywords


def situations_of(entries: Sequence[Entry], *, dynamic: str, training: bool | None) -> list[Situation]:
    """The situations of one entry's records, in their order. A Python number or a size that is another one than in an earlier record is dynamic:
    what came first has a variant of its own, and all others have one together."""
    situations = [_situation_of(entry, dynamic, training) for entry in entries]
    if dynamic == "none":
        return situations
    seen: dict[tuple[Any, ...], int | float] = {}
    for entry, situation in zip(entries, situations):
        arguments = tuple(entry.arguments.items())
        for place, number in _numbers(arguments):
            if seen.setdefault((*place, type(number)), number) != number:
                situation.numbers.add(number)
        for number, tensor in enumerate(_tensors(arguments)):
            for dimension, size in enumerate(tensor.shape):
                if seen.setdefault((number, tensor.dtype, tensor.dim(), dimension), size) != size and size > 1:
                    situation.dimensions.setdefault(id(tensor), {}).setdefault(dimension, DimensionSpec(f"d{number}_{dimension}"))
    return situations


def _situation_of(entry: Entry, dynamic: str, training: bool | None) -> Situation:
    """The situation of one entry record. ``training`` False builds under no_grad only, True under grad mode only, None both where something requires
    grad."""
    _, front, keywords = plain_function(entry.target)
    dimensions, numbers = _dynamic(entry, dynamic)
    wanted = entry.training if entry.training is not None else training
    modes = None if wanted is None else (True,) if wanted else (False,)
    return Situation((*front, *entry.args), {**keywords, **entry.kwargs}, dimensions, numbers, modes)


def _dynamic(entry: Entry, dynamic: str) -> tuple[Dimensions, DynamicNumbers]:
    found: Dimensions = {}
    numbers = DynamicNumbers(everything=dynamic == "all")
    if dynamic == "none":
        return found, numbers
    for path, sizes in entry.dynamic_shapes.items():
        value = _follow(path, entry.arguments)
        if isinstance(value, torch.Tensor):
            found[id(value)] = {d: DimensionSpec(size.name, size.minimum, size.maximum) for d, size in sizes.items()}
        else:
            numbers.add(value)
    if dynamic == "all":
        for number, tensor in enumerate(_tensors(tuple(entry.arguments.values()))):
            known = found.setdefault(id(tensor), {})
            for dimension, size in enumerate(tensor.shape):
                if size > 0 and dimension not in getattr(tensor, "_dynamo_static_indices", ()):                # `torch._dynamo.mark_static`
                    known.setdefault(dimension, DimensionSpec(f"d{number}_{dimension}"))
    return found, numbers


def _follow(path: Path, arguments: Any) -> Any:
    value = arguments[path.root[1]]
    for step in path.steps:
        value = value[step[1]] if step[0] == "item" else getattr(value, step[1])
    return value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if not value.is_nested:                    # it has no shape to speak of
            yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name, None))


def _numbers(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], int | float]]:
    """The Python ints and floats of the arguments, with where they are."""
    if type(value) in (int, float):
        yield place, value
    elif isinstance(value, (tuple, list, dict)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _numbers(item, (*place, key))


def function_of(entries: Sequence[Entry]) -> types.FunctionType:
    """The Python function that all situations of one entry call. Raises AotCompileError (AOT108) where there is none."""
    function, _, _ = plain_function(entries[0].target)
    if function is None:
        raise AotCompileError(Diagnostic("AOT108", "error", f"{entries[0].name} is no Python function or module: there is nothing to compile.", None,
                                         "Name a function, a method or an nn.Module."))
    return function
