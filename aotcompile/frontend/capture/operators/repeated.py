"""Results of operators that were called before on tensors of the same kind, without running them again.

A model of 24 equal layers calls ``linear(f32[2, 16, 32], f32[64, 32])`` 24 times. What the result looks like is known from the first time::

    first    the operator runs on fakes           ->   f32[2, 16, 64], strides (1024, 64, 1): memory of its own, no operand changed
    later    an empty fake tensor of that look

Only operators of a list take part: their result depends on the looks of their operands, on their other arguments and on the state in the key, and on
nothing else. A result that shares memory with an operand (a view, ``reshape`` of something contiguous), and one with sizes that vary, is made anew.
"""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from aotcompile.frontend.torch_private import FakeTensor, FakeTensorMode, empty_fake, in_transform, was_view

_OPERATORS = """
    add sub mul div true_divide neg pow rsub abs square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log1p sin cos tan tanh sigmoid erf floor ceil
    round sign maximum minimum where clamp clamp_min clamp_max eq ne lt le gt ge logical_and logical_or logical_not bitwise_and bitwise_or
    bitwise_not masked_fill addcmul addcdiv lerp relu gelu silu elu leaky_relu hardtanh hardswish hardsigmoid softplus mish
    sum mean var std amax amin prod softmax log_softmax cumsum
    linear matmul mm bmm mv dot addmm baddbmm layer_norm rms_norm embedding cat concat stack reshape contiguous flatten
    __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __pow__ __rpow__ __neg__ __matmul__ __rmatmul__ __and__ __or__
    __invert__ __lt__ __le__ __gt__ __ge__ __eq__ __ne__
""".split()
_OWNERS = (torch, torch.Tensor, torch._C._nn, torch.nn.functional)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
PURE = frozenset(function for owner in _OWNERS for name in _OPERATORS if callable(function := getattr(owner, name, None)))
"""Functions whose result is told by its key."""


class _Unknown(Exception):
    """The call has no key."""


class RepeatedResults:
    """Of one capture."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._known: dict[Any, _Look | None] = {}             # None: not to be made here

    def run(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], with_symbols: bool, compute: Callable[[], Any]) -> Any:
        """The result of ``compute``, which calls ``function``. ``with_symbols``: whether the capture has sizes that vary."""
        if not isinstance(function, _FUNCTIONS) or function not in PURE or in_transform():
            return compute()
        operands: list[FakeTensor] = []
        try:
            key = (function, with_symbols, _state(), _key(arguments, operands), _key(keywords, operands))
        except _Unknown:
            return compute()
        if key in self._known:
            look = self._known[key]
            return compute() if look is None else look.make(self._mode, operands)
        versions = [operand._version for operand in operands]
        result = compute()
        unchanged = versions == [operand._version for operand in operands]
        self._known[key] = _look(result, operands) if unchanged else None
        return result


class _Look:
    """What a result looks like; it has memory of its own."""

    def __init__(self, result: FakeTensor) -> None:
        self._sizes, self._strides = tuple(result.shape), result.stride()
        self._dtype, self._device, self._requires_grad, self._is_view = result.dtype, result.device, result.requires_grad, result._is_view()

    def make(self, mode: FakeTensorMode, operands: list[FakeTensor]) -> torch.Tensor:
        def empty() -> torch.Tensor:
            fake = empty_fake(mode, self._sizes, self._strides, self._dtype, self._device)
            if self._is_view:
                was_view(fake)
            return fake

        if not self._requires_grad:
            return empty()
        return with_history(next(operand for operand in operands if operand.requires_grad), empty)


def with_history(source: torch.Tensor, make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What ``make`` gives, as a result that is computed from ``source``."""
    if not source.requires_grad:
        return make()
    made = _Computed.apply(source, make)
    assert isinstance(made, torch.Tensor)
    return made


class _Computed(torch.autograd.Function):
    """A tensor with a history: no leaf, requires grad. (A graph's derivatives come from the operators that are written down, not from the fakes.)"""

    @staticmethod
    def forward(context: Any, source: torch.Tensor, make: Callable[[], torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        return make()


def _look(result: Any, operands: list[FakeTensor]) -> _Look | None:
    """None for a result that is more than fresh memory: a view, a tensor whose value is known, sizes that vary."""
    if type(result) is not FakeTensor or not _is_plain(result) or result.storage_offset() or result.constant is not None:
        return None
    if result.requires_grad and (result.is_leaf or not any(operand.requires_grad for operand in operands)):
        return None
    memory = result.untyped_storage()
    if any(operand.untyped_storage()._cdata == memory._cdata for operand in operands):
        return None
    extent = 0 if 0 in result.shape else 1 + sum((size - 1) * stride for size, stride in zip(result.shape, result.stride()))
    return _Look(result) if memory.nbytes() == extent * result.element_size() else None


def _is_plain(fake: FakeTensor) -> bool:
    numbers = (*fake.shape, *fake.stride(), fake.storage_offset())
    return all(type(number) is int for number in numbers) and fake.layout is torch.strided and not fake.is_conj() and not fake.is_neg() \
        and not fake.is_inference()


def _key(value: Any, operands: list[FakeTensor]) -> Any:
    """Arguments as something to compare: tensors by their looks and by which of them are the same; 1, 1.0 and True are three."""
    kind = type(value)
    if kind is FakeTensor:
        for number, operand in enumerate(operands):
            if operand is value:
                return number
        if not _is_plain(value):
            raise _Unknown
        operands.append(value)
        return (tuple(value.shape), value.stride(), value.storage_offset(), value.dtype, value.device, value.requires_grad, value.constant is None)
    if kind is tuple or kind is list or kind is torch.Size:
        return (kind, *(_key(item, operands) for item in value))
    if kind is dict:
        return tuple((name, _key(item, operands)) for name, item in value.items())
    if kind in (int, float, bool, complex, str, types.NoneType, torch.dtype, torch.device, torch.memory_format, torch.layout):
        return (kind, value)
    raise _Unknown


def _state() -> tuple[Any, ...]:
    """What else decides the type of a result, and whether it requires grad."""
    autocast = [torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None for device in ("cpu", "cuda")]
    return (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(), *autocast)


__all__ = ["PURE", "RepeatedResults", "with_history"]
