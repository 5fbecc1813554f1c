"""Recording below torch.func's transforms: the operators that a transformed function comes down to, on plain tensors.

    vmap(lambda row: row.dot(weight))(x)      ->   mul = aten.mul.Tensor(x, weight);  sum = aten.sum.dim_IntList(mul, [1])

torch's own functorch runs the transform on stand-ins. Inside it tensors are wrapped, level by level; what leaves the last level is an operator on
plain stand-ins, which a dispatch mode writes down. So each transform, nested or not, becomes ordinary operators, and each keeps its own derivative.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from aotcompile.frontend.capture.signals import GraphBreak, value_needed
from aotcompile.frontend.torch_private import FakeTensor, load_batching_rules, outside_transforms, unset_fake_temporarily

if TYPE_CHECKING:
    from aotcompile.frontend.capture.graph import GraphRecorder

_READS_VALUE = ("_local_scalar_dense", "item", "equal", "is_nonzero")
MOST_CONSTANTS = 1024         # elements of a tensor that the function makes from Python numbers


class TransformRecorder:
    """``active`` while a transformed function runs: torch calls are then not recorded themselves, but what they come down to."""

    def __init__(self, recorder: "GraphRecorder") -> None:
        self._recorder, self._mode = recorder, _BelowTransforms(self)
        self.active = False
        self._aside = False
        self._grad_enabled = True

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Around the call of a transformed function; around one inside another nothing changes."""
        if self.active:
            yield
            return
        load_batching_rules()
        graph = self._recorder.graph
        blocks = [graph.call_function(torch.amp.autocast_mode._enter_autocast, (device, torch.get_autocast_dtype(device), False, True))
                  for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]          # the operators seen here have their casts already
        before = self._grad_enabled = torch.is_grad_enabled()
        self.active = True
        try:
            with self._recorder.fake_mode, self._mode:
                yield
        finally:
            self.active = False
        self._switch_grad(before)
        for block in reversed(blocks):
            graph.call_function(torch.amp.autocast_mode._exit_autocast, (block,))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Around what is no part of the program: a stand-in that is made while a transformed function runs."""
        if not self.active:
            yield
            return
        self._aside = True
        try:
            with outside_transforms():
                yield
        finally:
            self._aside = False

    def operator(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """An operator on stand-ins. Raises a GraphBreak for one that reads values."""
        if self._aside or not _is_tensor_work(function):
            return function(*arguments, **keywords)
        if function._schema.name.partition("::")[2] in _READS_VALUE:
            raise value_needed(f"{function}")
        if function is torch.ops.aten.lift_fresh.default and not isinstance(arguments[0], FakeTensor):
            return self._constant(arguments[0])
        self._switch_grad(torch.is_grad_enabled())
        if arguments and isinstance(arguments[0], (int, float, complex)) and str(function._schema.arguments[0].type) == "Tensor":
            arguments = (self._number(arguments[0]), *arguments[1:])
        with torch._C.DisableTorchFunction():
            return self._recorder.below_transforms(function, self._constants(arguments), self._constants(keywords))

    def _number(self, value: complex) -> Any:
        """A Python number that torch has made a tensor of, of the widest type of its kind, for an operator of one tensor."""
        dtype = torch.bool if isinstance(value, bool) else next(
            dtype for kind, dtype in ((int, torch.int64), (float, torch.float64), (complex, torch.complex128)) if isinstance(value, kind))
        with torch._C.DisableTorchFunction():
            return self._recorder.call(torch.tensor, (value,), {"dtype": dtype})

    def _switch_grad(self, enabled: bool) -> None:
        if enabled != self._grad_enabled:
            self._recorder._annotate(self._recorder.graph.call_function(torch._C._set_grad_enabled, (enabled,)))
            self._grad_enabled = enabled

    def _constants(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if isinstance(value, FakeTensor) else self._constant(value)
        if type(value) in (tuple, list):
            return type(value)(map(self._constants, value))
        return {key: self._constants(item) for key, item in value.items()} if type(value) is dict else value

    def _constant(self, tensor: torch.Tensor) -> Any:
        """A tensor that torch made from Python numbers."""
        if type(tensor) is not torch.Tensor or tensor.numel() > MOST_CONSTANTS:
            raise GraphBreak("AOT211", f"a {type(tensor).__name__} that is not an input, in a function transformed by torch.func")
        with unset_fake_temporarily():
            elements = tensor.tolist()
        with torch._C.DisableTorchFunction():
            return self._recorder.call(torch.tensor, (elements,), {"dtype": tensor.dtype, "device": tensor.device})


class _BelowTransforms(TorchDispatchMode):
    def __init__(self, owner: TransformRecorder) -> None:
        super().__init__()
        self._owner = owner

    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None) -> Any:
        return self._owner.operator(function, arguments, keywords or {})


def _is_tensor_work(function: Any) -> bool:
    """Whether an operator takes part in a graph, and does not just ask for a size or device."""
    return function.namespace != "prim" and not function._schema.name.startswith(("aten::sym_", "aten::is_"))


__all__ = ["TransformRecorder"]
