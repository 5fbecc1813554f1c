"""Writes to inputs that autograd does not see: through ``.data``, which has a version counter of its own, or ``.detach()``.

    w.data.clamp_(-1, 1)          # in the graph in no_grad mode, which is the same
    y = x * w                     # eager keeps w for the backward pass, and will find there what is written next
    w.data.mul_(0.9)              # ends the region: a graph would keep the old values
"""
from __future__ import annotations

from typing import Any, Callable, Iterator

import torch
import torch.fx

from aotcompile.frontend.capture.signals import GraphBreak
from aotcompile.frontend.torch_private import FakeTensor, size_hint

_AUGMENTED = {f"__i{name}__" for name in ("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")}
_LOOKS = {"size", "dim", "stride", "numel", "is_contiguous", "storage_offset"}


class HiddenWrites:
    """``owner_of``: the input whose memory a stand-in shares. ``node_of``: the node of a stand-in."""

    def __init__(self, owner_of: Callable[[Any], FakeTensor | None], node_of: Callable[[FakeTensor], torch.fx.Node]) -> None:
        self._owner_of, self._node_of = owner_of, node_of
        self._grad = torch.is_grad_enabled()                     # around the region
        self.owners: set[int] = set()                            # inputs (by identity) that were written to so

    def watch(self, name: str, arguments: tuple[Any, ...]) -> Callable[[], bool]:
        """To be called before an operation called ``name``; what it gives, after it: whether it was such a write to an input that requires grad,
        where gradients are recorded. Raises a break at a write that no graph can stand for."""
        target = arguments[0] if arguments and isinstance(arguments[0], FakeTensor) and _may_write(name) else None
        owner = None if target is None else self._owner_of(target)
        if target is None or owner is None or owner is target:
            return _never
        before = target._version, owner._version

        def after() -> bool:
            if target._version == before[0]:
                return False
            if owner._version == before[1]:
                self._note(owner)
            return torch.is_grad_enabled() and owner.requires_grad and not target.requires_grad
        return after

    def _note(self, owner: FakeTensor) -> None:
        self.owners.add(id(owner))
        if self._grad and owner.requires_grad and any(_uses(self._node_of(owner))):
            raise GraphBreak("AOT205", "a tensor that requires grad and was used before is written through .data", kind="statement")


def _uses(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The nodes that compute with a tensor, or with an alias of it made by ``.data``."""
    for user in node.users:
        if user.target is getattr and user.args[1] == "data":
            continue
        if user.target not in _LOOKS:
            yield user


def writes_elements_twice(name: str, arguments: tuple[Any, ...]) -> bool:
    """Whether an operation in place is on a tensor some of whose elements are one in memory (a broadcast, overlapping windows). What eager does with
    those, where it does not raise, depends on the order in which it writes; a graph computes each element once."""
    in_place = name in _AUGMENTED or name.endswith("_") and not name.endswith("__")
    target = arguments[0] if arguments and in_place else None
    return isinstance(target, FakeTensor) and elements_overlap(target)


def elements_overlap(tensor: torch.Tensor) -> bool:
    """Whether some elements of the tensor are one in memory: a broadcast, overlapping windows (those are not told of dynamic sizes)."""
    if any(type(stride) is int and stride == 0 and size_hint(size) > 1 for stride, size in zip(tensor.stride(), tensor.shape)):
        return True
    if not all(type(number) is int for number in (*tensor.shape, *tensor.stride())) or not tensor.numel():
        return False
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _may_write(name: str) -> bool:
    return name.endswith("_") or name.startswith("__i")


def _never() -> bool:
    return False
