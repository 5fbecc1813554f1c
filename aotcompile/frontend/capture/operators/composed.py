"""Functions of torch that take sizes as plain ints only, written with others that take dynamic ones. Used where a size is dynamic.

    torch.linspace(0, 1, x.shape[1])        arange, lt, mul, add, sub, where
    F.max_pool1d(x, 2)                      unsqueeze, max_pool2d, squeeze
    torch.tensor([x.shape[0], 2])           full, stack

And functions that check the elements they are given, which a fake run cannot, written with others that are checked when the kernels run:

    F.one_hot(x, 3)                         zeros, scatter

And what `recurrent` writes with others.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from aotcompile.frontend.capture.operators.recurrent import RECURRENT
from aotcompile.frontend.capture.symbolic import SYMBOLIC


def composed(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Callable[..., Any] | None:
    """What to call instead of ``function`` with these arguments; None for a call that is to be made as it is."""
    if not isinstance(function, _HASHABLE):
        return None
    if function in _ALWAYS:
        return _ALWAYS[function]
    made = _COMPOSED.get(function)
    return made if made is not None and any(map(_is_dynamic, (*arguments, *keywords.values()))) else None


def _is_dynamic(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_dynamic, value))
    return isinstance(value, SYMBOLIC) or isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape)


def _linspace(start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, device: Any = None, requires_grad: bool = False,
              **rest: Any) -> Any:
    """Both halves are counted from their own end, as torch does."""
    dtype = dtype or torch.get_default_dtype()
    if rest or requires_grad or not dtype.is_floating_point or any(isinstance(value, (torch.Tensor, complex)) for value in (start, end)):
        return torch.linspace(start, end, steps, dtype=dtype, device=device, requires_grad=requires_grad, **rest)
    last = torch.sym_max(steps - 1, 0)
    position = torch.arange(steps, dtype=dtype, device=device)
    step = (end - start) / torch.sym_max(last, 1)
    return torch.where(position < torch.sym_max(steps // 2, 1), position * step + start, (position - last) * step + end)


def _logspace(start: Any, end: Any, steps: Any, base: float = 10.0, *, dtype: torch.dtype | None = None, **keywords: Any) -> Any:
    if dtype is not None and not dtype.is_floating_point:
        return torch.logspace(start, end, steps, base, dtype=dtype, **keywords)
    return torch.pow(base, _linspace(start, end, steps, dtype=dtype, **keywords))


def _triangle(part: Callable[..., Any]) -> Callable[..., Any]:
    def indices(row: Any, col: Any, offset: int = 0, *, dtype: torch.dtype = torch.int64, device: Any = None, **rest: Any) -> Any:
        whole = torch.ones(row, col, dtype=torch.bool, device=device, **rest)
        return part(whole, offset).nonzero().t().contiguous().to(dtype)
    return indices


def _max_pool1d(input: torch.Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
                return_indices: bool = False) -> Any:
    if return_indices:
        return F.max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    kernel, pad, dilated = (_single(value) for value in (kernel_size, padding, dilation))
    step = kernel if stride is None or stride == [] else _single(stride)
    return torch.max_pool2d(input.unsqueeze(-2), (1, kernel), (1, step), (0, pad), (1, dilated), ceil_mode).squeeze(-2)


def _one_hot(tensor: torch.Tensor, num_classes: Any = -1) -> Any:
    if tensor.dtype is not torch.int64 or isinstance(num_classes, int) and num_classes <= 0:
        return F.one_hot(tensor, num_classes)
    return torch.zeros((*tensor.shape, num_classes), dtype=torch.int64, device=tensor.device).scatter(-1, tensor.unsqueeze(-1), 1)


def _tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None, *, original: Any = torch.tensor, **keywords: Any) -> torch.Tensor:
    """``torch.tensor`` of numbers in lists, some of them dynamic."""
    leaves = list(_leaves(data))
    if not isinstance(data, (list, tuple)) or keywords or any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return original(data, dtype=dtype, device=device, **keywords)
    kinds = {kind for leaf in leaves for kind, types in _NUMBERS.items() if isinstance(leaf, types) and (kind is bool or type(leaf) is not bool)}
    of_numbers = torch.get_default_dtype() if float in kinds else torch.int64 if int in kinds else torch.bool

    def made(value: Any) -> torch.Tensor:
        if isinstance(value, (list, tuple)):
            return torch.stack([made(part) for part in value])
        return torch.full((), value, dtype=dtype or of_numbers, device=device)
    return made(data)


def _as_tensor(data: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
    return torch.as_tensor(data, dtype=dtype, device=device) if isinstance(data, torch.Tensor) else _tensor(data, dtype, device)


def _new_tensor(tensor: torch.Tensor, data: Any, *, dtype: torch.dtype | None = None, device: Any = None, **keywords: Any) -> torch.Tensor:
    return _tensor(data, dtype or tensor.dtype, device or tensor.device, original=tensor.new_tensor, **keywords)


def _leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, (list, tuple)):
        for part in data:
            yield from _leaves(part)
    else:
        yield data


_NUMBERS: dict[type, tuple[type, ...]] = {float: (float, torch.SymFloat), int: (int, torch.SymInt), bool: (bool, torch.SymBool)}


def _fill_diagonal(input: torch.Tensor, fill_value: Any, wrap: bool = False) -> torch.Tensor:
    if input.dim() != 2 or wrap:
        return input.fill_diagonal_(fill_value, wrap)
    input.diagonal().fill_(fill_value)
    return input


def _single(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


_HASHABLE = (type(torch.linspace), type(_linspace), type(torch.Tensor.fill_diagonal_))
_COMPOSED: dict[Any, Callable[..., Any]] = {
    torch.linspace: _linspace, torch.logspace: _logspace, torch.triu_indices: _triangle(torch.triu), torch.tril_indices: _triangle(torch.tril),
    F.max_pool1d: _max_pool1d, torch.max_pool1d: _max_pool1d, torch.Tensor.fill_diagonal_: _fill_diagonal,
    torch.tensor: _tensor, torch.as_tensor: _as_tensor, torch.Tensor.new_tensor: _new_tensor,
}
_ALWAYS: dict[Any, Callable[..., Any]] = {F.one_hot: _one_hot, **RECURRENT}
