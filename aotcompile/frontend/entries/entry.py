"""The entry record, and how one is made from a function or module and example inputs.

Codes: AOT113 the inputs do not fit the parameters.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from aotcompile.base.diagnostic import Diagnostic, UsageError
from aotcompile.base.span import Span
from aotcompile.frontend.entries.shapes import DynamicShapes, normalize_dynamic_shapes


@dataclass(frozen=True)
class Entry:
    """One callable in one input situation. Entries with the same ``name`` are the situations of one entry, in the order to be tried.

    name: ``package.module:Net.forward``. target: the function, or the ``nn.Module`` instance (whose ``forward`` is meant).
    arguments: parameter name to example value in the order of the parameters, ``*args`` as a tuple and ``**kwargs`` as a dict, without ``self``.
    training, fullgraph: None is the build's option. source: where the signature came from, for people (``explain`` prints it).
    """

    name: str
    target: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: DynamicShapes = field(default_factory=dict)
    training: bool | None = None
    fullgraph: bool | None = None
    source: str = "example_inputs"

    @property
    def module(self) -> str:
        return self.name.partition(":")[0]

    @property
    def qualname(self) -> str:
        return self.name.partition(":")[2]

    @property
    def function(self) -> Callable[..., Any]:
        """What is called: the function itself, or the module's bound ``forward``."""
        return self.target.forward if isinstance(self.target, torch.nn.Module) else self.target


def name_of(target: Callable[..., Any]) -> str:
    """``package.module:Class.method`` of a function, method, partial, ``nn.Module`` or other callable object."""
    while isinstance(target, functools.partial):
        target = target.func
    if isinstance(target, torch.nn.Module):
        return f"{type(target).__module__}:{type(target).__qualname__}.forward"
    target = getattr(target, "__func__", target)
    if hasattr(target, "__qualname__"):
        return f"{target.__module__}:{target.__qualname__}"
    return f"{type(target).__module__}:{type(target).__qualname__}.__call__"


def make_entry(target: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None,
               dims: Mapping[str, Any] | None = None, training: bool | None = None, fullgraph: bool | None = None,
               source: str = "example_inputs", span: Span | None = None) -> Entry:
    """An entry from objects at hand. ``dynamic_shapes`` as in torch.export, or ``(spec of args, spec of kwargs)`` as `example_inputs_of` gives it.

    Raises UsageError: AOT113 where the arguments do not fit the parameters, AOT111 and AOT112 for the dynamic sizes.
    """
    name = name_of(target)
    function = target.forward if isinstance(target, torch.nn.Module) else target
    args, kwargs = tuple(args), dict(kwargs or {})
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):                       # a C function without a text signature: arguments go by position
        arguments: dict[str, Any] = {f"arg{i}": value for i, value in enumerate(args)} | kwargs
    else:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(Diagnostic("AOT113", "error", f"the inputs do not fit {name}{signature}: {error}.", span,
                                        f"The signature comes from {source}.")) from None
        arguments = dict(bound.arguments)
    shapes = normalize_dynamic_shapes(dynamic_shapes, arguments, dims, span)
    return Entry(name, target, args, kwargs, arguments, shapes, training, fullgraph, source)
