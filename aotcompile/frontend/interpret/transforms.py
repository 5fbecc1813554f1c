"""Calls of torch.func: ``vmap(f)(x)``, ``grad(f)(x)``, ``jvp(f, ...)``. torch's own code runs the transform; the function in it is interpreted.

A transformed function is a closure of torch's over the user's function: ``vmap(f)`` holds ``f`` in a cell. It is called with that cell's content
replaced by a way back into the interpreter, so that what the user's function reads is guarded as anywhere else.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from aotcompile.frontend.capture.signals import GraphBreak
from aotcompile.frontend.torch_private import is_stand_in

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

_READS_MODULES = ("torch._functorch.functional_call",)
_TRANSFORMS = ("torch._functorch.apis", "torch._functorch.eager_transforms", "torch._functorch.vmap", "torch._functorch.predispatch",
               "torch._functorch.batch_norm_replacement", "torch._functorch.deprecated")


def is_transform(function: types.FunctionType) -> bool:
    """Whether a function is torch.func's, or one that torch.func has made."""
    return str(function.__globals__.get("__name__", "")).startswith("torch._functorch")


def call(i: "Interpreter", function: types.FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call a function of torch.func."""
    module = str(function.__globals__.get("__name__", ""))
    if module in _READS_MODULES:
        return i.run_function(function, arguments, keywords)
    if module not in _TRANSFORMS:
        raise GraphBreak("AOT205", f"{module}.{function.__qualname__} is not part of a graph")
    given = tuple(_enterable(i, value) for value in arguments)
    named = {key: _enterable(i, value) for key, value in keywords.items()}
    with i.recorder.transforms.recording():
        result = i.plain(_with_enterable_cells(i, function), *given, **named)
    if isinstance(result, torch.Tensor) and not is_stand_in(result):
        raise GraphBreak("AOT204", f"{function.__qualname__} makes a tensor from outside data")
    for made in result if type(result) is tuple else (result,):
        if isinstance(made, types.FunctionType):
            i.outside.bind(made, f"a function made by torch.func ({made.__qualname__}) is used outside the region", i.call_chain())
    return result


def _with_enterable_cells(i: "Interpreter", function: types.FunctionType) -> types.FunctionType:
    """The function with a closure over the same values, of which those that are the user's functions come back into the interpreter."""
    if not function.__closure__:
        return function
    path = i.outside.path_of(function)
    cells = []
    for number, cell in enumerate(function.__closure__):
        try:
            content = cell.cell_contents
        except ValueError:
            cells.append(cell)
            continue
        value = i.outside.read(content, path.then("cell", number)) if path is not None else content
        cells.append(types.CellType(_enterable(i, value)))
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells))
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _enterable(i: "Interpreter", value: Any) -> Any:
    """A value as torch.func is given it: a callable of the user's comes back into the interpreter when it is called."""
    value = i.outside.whole_inside(value)
    if isinstance(value, (type, torch.Tensor)) or not callable(value) or _is_torchs(value) or "interpreted" in getattr(value, "__dict__", {}):
        return value
    enter = i.callback(value)
    enter.__name__ = enter.__qualname__ = getattr(value, "__name__", repr(type(value).__name__))
    return enter


def _is_torchs(value: Any) -> bool:
    """Whether a callable is a function of torch's own that holds nothing of the user's."""
    if isinstance(value, types.FunctionType):
        return (value.__module__ or "").startswith("torch.") and not value.__closure__
    owner = getattr(value, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):           # ``apply``, a C method from torch 2.14 on
        return False
    return isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType, torch._ops.OpOverload, torch._ops.OpOverloadPacket))


__all__ = ["call", "is_transform"]
