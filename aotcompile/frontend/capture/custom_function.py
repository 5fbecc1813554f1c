"""Custom autograd functions (`torch.autograd.Function`): one node of the graph, so that the backward the user wrote is the one that runs.

``Scale.apply(x, 3)`` is recorded as it stands; AOTAutograd later traces its forward and backward. So that nothing that the two methods read goes
unnoticed, both are interpreted here first, on the same stand-ins, and what that records is thrown away; its guards and graph breaks stay.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Iterator

import torch

from aotcompile.frontend.capture.signals import GraphBreak
from aotcompile.frontend.capture.symbolic import SYMBOLIC

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, *SYMBOLIC)


class Context(torch.autograd.function.FunctionCtx):
    """Stands for the ``ctx`` of forward and backward."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.to_save: tuple[Any, ...] = ()

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        return self.to_save


def apply(i: "Interpreter", cls: type[torch.autograd.Function], *arguments: Any, **keywords: Any) -> Any:
    """``cls.apply(*arguments)``."""
    name = cls.__qualname__
    if i.recorder.transforms.active:
        raise GraphBreak("AOT205", f"the autograd function {name} is called inside a transform of torch.func")
    if keywords:
        raise GraphBreak("AOT205", f"{name}.apply with keyword arguments")
    given = tuple(map(i.outside.whole_inside, arguments))
    needs = tuple(isinstance(value, torch.Tensor) and value.requires_grad for value in given)
    differentiable = torch.is_grad_enabled() and any(needs)
    context = Context(needs if differentiable else (False,) * len(given))
    if not differentiable:
        return _forward(i, cls, context, given)
    if i.importable(cls) is None or not all(isinstance(value, (torch.Tensor, *_PLAIN)) for value in _leaves(given)):
        raise GraphBreak("AOT205", f"the autograd function {name} " + (
            "is given an object that is no tensor or number" if i.importable(cls) else "is defined inside a function"),
            "Define it at the top level of a module and pass tensors and numbers.")
    before = _effects(i)
    mark = i.recorder.mark()
    result = _forward(i, cls, context, given)
    grads = tuple(torch.ones_like(value) if isinstance(value, torch.Tensor) else None for value in (result if type(result) is tuple else (result,)))
    with torch.no_grad():
        i.call(_method(i, cls, "backward"), (context, *grads), {})
    i.recorder.forget(mark)
    if _effects(i) != before:
        raise GraphBreak("AOT208", f"a side effect in the autograd function {name}")

    def run(*values: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return cls.apply(*values)

    return i.recorder.call_opaque(cls.apply, i.symbols.fix_numbers(given), run)


def _forward(i: "Interpreter", cls: type[torch.autograd.Function], context: Context, given: tuple[Any, ...]) -> Any:
    """Forward, interpreted, as `apply` runs it: without grad mode."""
    with_setup = cls.setup_context is not torch.autograd.function._SingleLevelFunction.setup_context
    with torch.no_grad():
        if not with_setup:
            return i.call(_method(i, cls, "forward"), (context, *given), {})
        result = i.call(_method(i, cls, "forward"), given, {})
        i.call(_method(i, cls, "setup_context"), (context, given, result), {})
    return result


def _method(i: "Interpreter", cls: type, name: str) -> types.FunctionType:
    """A static method, guarded by its code."""
    function = getattr(cls, name)
    path = i.outside.path_of(cls) or i.importable(cls)
    return i.outside.read(function, path.attribute(name)) if path is not None else function  # type: ignore[no-any-return]


def _leaves(value: Any) -> Iterator[Any]:
    if type(value) in (tuple, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _effects(i: "Interpreter") -> Any:
    """What would be replayed if the region ended now."""
    changed = {id(container): list(map(id, shadow)) for container, shadow, _ in i.outside.changed_containers()}
    return len(i.outside.effects), {key: len(added) for key, added in i.outside.pending.items()}, changed


__all__ = ["apply"]
