"""Torch calls tried for real, on small stand-ins of memory, to learn what eager does with them.

A fake run tells what a result looks like by torch's shape rules, and those know less than the operators do::

    index_select(x, 1, index)        index of int16: the rule gives a result, the operator raises
    max_pool1d(x, 2)                 x of ints: '"max_pool1d_impl" not implemented for 'Long''
    select_scatter(x: f32, y: f64)   the rule says f64, the operator gives f32

So a call that is small (`MOST_BYTES`) is made once more, on tensors of the same dtypes, sizes, strides and shared memory. What it raises is what the
program raises; what its result looks like is what the recorded result looks like. The elements are made up: zeros and halves, and where that raises
also ones, so that an error of theirs is none of the program's.
"""
from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
import warnings

import torch
from torch.utils import _pytree as pytree

from aotcompile.frontend.torch_private import FakeTensor, is_data_dependent, unset_fake_temporarily, with_hints

MOST_BYTES = 1 << 19                  # of all memory of the arguments, and of all results
_MOST_OUTCOMES = 4096
_FILLS = (0.5, 1.0)                   # ints: 0 and 1
_OWNERS = ("torch", "torch.functional", "torch.nn.functional", "torch._tensor", "torch._C._nn", "torch._C._fft", "torch._C._linalg",
           "torch._C._special", "torch.fft", "torch.linalg", "torch.special")
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
_BY_VALUE = frozenset({"masked_scatter", "masked_scatter_", "segment_reduce", "_assert_async", "_linalg_check_errors"})
"""Functions that are right or wrong by the values of several elements together."""
_PIVOTS = frozenset({"ldl_solve", "linalg_ldl_solve", "lu_solve", "linalg_lu_solve", "lu_unpack", "linalg_lu_unpack", "_lu_solve_helper"})
"""Functions that take row numbers as LAPACK counts them and write where these say: made-up ones lead outside of the memory."""
_UNTRIED = _BY_VALUE | _PIVOTS


@dataclass(frozen=True)
class Look:
    """What a tensor among the results looks like. ``fresh``: it shares no memory with an argument."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    fresh: bool


@dataclass(frozen=True)
class Outcome:
    """``error``: what the call raises; otherwise ``looks`` of the tensors among its results."""

    error: Exception | None
    looks: tuple[Look, ...] = ()


class _NoTrial(Exception):
    """This call is not tried."""


_outcomes: dict[Any, Outcome | None] = {}


def outcome_of(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any,
               hints: Mapping[Any, int] | None = None) -> Outcome | None:
    """What eager does with a call that takes fake tensors. ``result``: of the fake run, None where that raised. ``hints``: values of symbols in sizes
    to use instead of the example's. None: not tried, or the elements that were made up are to blame."""
    if not _is_of_torch(function) or _too_large(pytree.tree_leaves(result)):
        return None
    memory = _Memory(hints or {})
    try:
        described = memory.describe(arguments), memory.describe(keywords)
        key = (function, described, _state())
        hash(key)
    except (_NoTrial, TypeError):
        return None
    if key not in _outcomes:
        if len(_outcomes) >= _MOST_OUTCOMES:
            _outcomes.clear()
        _outcomes[key] = _try(function, arguments, keywords, memory)
    return _outcomes[key]


def raises(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any, hints: Mapping[Any, int]) -> bool:
    """Whether eager raises for these sizes, as far as is known: in the call, or before it where a number given cannot be computed (``1 / size``)."""
    try:
        outcome = outcome_of(function, arguments, keywords, result, hints)
    except ZeroDivisionError:
        return True
    return outcome is not None and outcome.error is not None


def _is_of_torch(function: Any) -> bool:
    if isinstance(function, torch._ops.OpOverload):
        return function.namespace == "aten" and function.name().partition("::")[2].partition(".")[0] not in _UNTRIED
    name = getattr(function, "__name__", "")
    if name in _UNTRIED:
        return False
    if isinstance(function, _METHODS):
        return getattr(torch.Tensor, name, None) is function
    if isinstance(function, types.BuiltinFunctionType):
        return getattr(torch, name, None) is function or getattr(function, "__module__", None) in _OWNERS
    return isinstance(function, types.FunctionType) and function.__module__ in _OWNERS


def _state() -> tuple[Any, ...]:
    autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    return torch.get_default_dtype(), autocast, torch.are_deterministic_algorithms_enabled()


def _too_large(leaves: list[Any]) -> bool:
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return any(map(is_data_dependent, tensors)) or sum(with_hints(tensor.numel(), {}) * tensor.itemsize for tensor in tensors) > MOST_BYTES


class _Memory:
    """The storages behind the arguments of one call, and tensors on fresh ones."""

    def __init__(self, hints: Mapping[Any, int]) -> None:
        self._hints = hints
        self._numbers: dict[int, int] = {}                       # of a storage, in the order of their first use
        self._extents: list[tuple[int, torch.dtype]] = []        # bytes, and the dtype of the first tensor in it
        self._storages: list[torch.UntypedStorage] = []

    def describe(self, value: Any) -> Any:
        """Arguments as something to compare. Raises _NoTrial at one that has no stand-in."""
        if isinstance(value, torch.Tensor):
            return self._described(value)
        if isinstance(value, (tuple, list)):
            return (type(value), *map(self.describe, value))
        if isinstance(value, dict):
            return (dict, *((name, self.describe(item)) for name, item in value.items()))
        if isinstance(value, slice):
            return (slice, *map(self.describe, (value.start, value.stop, value.step)))
        if isinstance(value, torch.Generator):
            raise _NoTrial
        return type(value), repr(self._number(value)) if isinstance(value, float) else self._number(value)

    def _number(self, value: Any) -> Any:
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value
        if value.node.hint is None:
            raise _NoTrial
        return with_hints(value, self._hints)

    def _described(self, tensor: torch.Tensor) -> Any:
        plain = type(tensor) is FakeTensor and tensor.layout is torch.strided and tensor.device.type == "cpu"
        if not plain or tensor.is_conj() or tensor.is_neg() or is_data_dependent(tensor) or tensor.is_quantized:
            raise _NoTrial
        place = tuple(map(self._number, tensor.shape)), tuple(map(self._number, tensor.stride())), self._number(tensor.storage_offset())
        if any(number < 0 for number in (*place[0], *place[1], place[2])):
            raise _NoTrial
        key = tensor.untyped_storage()._cdata
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._extents):
            self._extents.append((0, tensor.dtype))
        last = 0 if 0 in place[0] else 1 + place[2] + sum((size - 1) * stride for size, stride in zip(place[0], place[1]))
        whole = tensor.untyped_storage().nbytes()
        needed = max(last * tensor.itemsize, whole if type(whole) is int and not self._hints else 0, self._extents[number][0])
        self._extents[number] = needed, self._extents[number][1]
        if sum(size for size, _ in self._extents) > MOST_BYTES:
            raise _NoTrial
        return number, tensor.dtype, *place

    def fill(self, fill: float) -> None:
        """Make the storages."""
        self._storages = []
        for size, dtype in self._extents:
            elements = torch.empty((size + dtype.itemsize - 1) // dtype.itemsize, dtype=dtype)
            number = fill if dtype.is_floating_point or dtype.is_complex else int(fill)
            self._storages.append(elements.fill_(number).untyped_storage())

    def made(self, value: Any) -> Any:
        """Arguments with stand-ins for tensors and numbers for symbols."""
        if isinstance(value, torch.Tensor):
            _, dtype, *place = self._described(value)
            return torch.empty(0, dtype=dtype).set_(self._storages[self._numbers[value.untyped_storage()._cdata]], place[2], place[0], place[1])
        if isinstance(value, (tuple, list)):
            items = [self.made(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, dict):
            return {name: self.made(item) for name, item in value.items()}
        if isinstance(value, slice):
            return slice(*map(self.made, (value.start, value.stop, value.step)))
        return self._number(value)

    def looks(self, result: Any) -> tuple[Look, ...]:
        own = {storage._cdata for storage in self._storages}
        return tuple(Look(leaf.dtype, tuple(leaf.shape), leaf.stride(), leaf.untyped_storage()._cdata not in own)
                     for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided)


def _try(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any], memory: _Memory) -> Outcome | None:
    errors: list[Exception] = []
    random_state = torch.random.get_rng_state()
    with unset_fake_temporarily(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for fill in _FILLS:
                memory.fill(fill)
                try:
                    return Outcome(None, memory.looks(function(*memory.made(arguments), **memory.made(keywords))))
                except Exception as error:  # noqa: BLE001  whatever eager raises is what is asked for
                    errors.append(error.with_traceback(None))
        finally:
            torch.random.set_rng_state(random_state)
    by_value = isinstance(errors[0], torch.linalg.LinAlgError) or type(errors[0]) is not type(errors[1]) or _has_mask(arguments, keywords)
    return None if by_value else Outcome(errors[0])


def _has_mask(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Whether a truth value decides how many elements there are: ``x[mask] = values`` raises by the number of trues."""
    leaves = [leaf for leaf in pytree.tree_leaves((arguments[1:], keywords)) if isinstance(leaf, torch.Tensor)]
    return len(leaves) > 1 and any(leaf.dtype in (torch.bool, torch.uint8) for leaf in leaves)
