"""The decorators `entry` and `skip`: marks for the build, nothing else.

A decorated function or class is the same object as before with one attribute more, so that undecorated behaviour, pickling and speed stay as
they are. This module imports nothing of aotcompile and no torch: a package that uses it pays no import cost.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

ENTRY_ATTRIBUTE = "__aotcompile_entries__"
SKIP_ATTRIBUTE = "__aotcompile_skip__"

Decorated = TypeVar("Decorated")


@dataclass(frozen=True)
class EntryMark:
    """What one use of `entry` said; read by `aotcompile.frontend.entries`. Fields are `entry`'s arguments, unchecked."""

    inputs: Any = None
    example_inputs: Any = None
    make: str | Callable[..., Any] | None = None
    dims: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    training: bool | None = None
    fullgraph: bool | None = None


@dataclass(frozen=True)
class SkipMark:
    """What `skip` said: the function stays eager. ``reason`` is shown by ``aotcompile explain``."""

    reason: str = ""


@overload
def entry(function: Decorated, /) -> Decorated: ...


@overload
def entry(function: None = None, /, *, inputs: Sequence[Any] | Mapping[str, Any] | None = None, example_inputs: Any = None,
          make: str | Callable[..., Any] | None = None, dims: Mapping[str, Any] | None = None, dynamic_shapes: Any = None,
          training: bool | None = None, fullgraph: bool | None = None) -> Callable[[Decorated], Decorated]: ...


def entry(function: Any = None, /, *, inputs: Sequence[Any] | Mapping[str, Any] | None = None, example_inputs: Any = None,
          make: str | Callable[..., Any] | None = None, dims: Mapping[str, Any] | None = None, dynamic_shapes: Any = None,
          training: bool | None = None, fullgraph: bool | None = None) -> Any:
    """Mark a function or an ``nn.Module`` class as an entry of the build. Stack it for several situations; the order written is the order tried.

    inputs: the signature, a sequence by position or a mapping by parameter name, in the notation torch prints in its graphs:
        ``"f32[B, 3, 224, 224]"``, ``"bf16[8, 128][128, 1]cuda"``, ``"i64[T]"``; letters are dynamic sizes, equal letters equal sizes;
        anything that is no such string is passed as it is.
    example_inputs: ``(args, kwargs)`` with real tensors instead, or a function without arguments that returns it.
    make: for a class, how to get the instance: ``"package.module:function"`` or a function, which returns an instance, or an input provider's
        ``(callable or nn.Module, args[, kwargs])``. Without it the class is called without arguments.
    dims: range of each letter, ``{"B": (1, 64)}`` or ``{"B": {"min": 1, "max": 64}}``, inclusive.
    dynamic_shapes: as in ``torch.export.export``; a string stands for a ``torch.export.Dim``.
    training: False builds inference variants only, True training variants only; None both where something requires grad.
    fullgraph: True makes a graph break an error, as in ``torch.compile``.
    Raises TypeError where ``inputs`` is neither a sequence nor a mapping, or the mark is put on something else than a function or a class.
    """
    if inputs is not None and not isinstance(inputs, (Sequence, Mapping)) or isinstance(inputs, str):
        where = "; a function that makes inputs is given as example_inputs=" if callable(inputs) else ""
        raise TypeError(f"aotcompile.entry: inputs must be a sequence or a mapping of signatures, not {type(inputs).__name__}{where}")
    mark = EntryMark(inputs, example_inputs, make, dims, dynamic_shapes, training, fullgraph)

    def decorate(target: Decorated) -> Decorated:
        if not (callable(target) or isinstance(target, (staticmethod, classmethod))):
            raise TypeError(f"aotcompile.entry marks functions and classes, not {type(target).__name__}")
        # vars(), not getattr: a class must not inherit (and then extend) the marks of its base.
        marks = vars(target).get(ENTRY_ATTRIBUTE, ())
        setattr(target, ENTRY_ATTRIBUTE, (mark, *marks))
        return target

    return decorate if function is None else decorate(function)


@overload
def skip(function: Decorated, /) -> Decorated: ...


@overload
def skip(function: None = None, /, *, reason: str = "") -> Callable[[Decorated], Decorated]: ...


def skip(function: Any = None, /, *, reason: str = "") -> Any:
    """Leave a function (or every method of a class) as it is: never part of a region, always called eagerly. Usable bare or with a ``reason``."""
    def decorate(target: Decorated) -> Decorated:
        setattr(target, SKIP_ATTRIBUTE, SkipMark(reason))
        return target

    return decorate if function is None else decorate(function)
