"""Private torch APIs that lowering uses, all in one place. Checked on torch 2.13."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

__all__ = ["OpOverload", "constant_numbers", "expression_as_traced", "same_storage"]


def constant_numbers(value: torch.Tensor) -> list[Any] | None:
    """The elements of a constant of the graph in row-major order, also while a fake mode is active. None where they are not known."""
    data = value.constant if isinstance(value, FakeTensor) else value
    if data is None:
        return None
    with unset_fake_temporarily():
        return data.detach().reshape(-1).tolist()  # type: ignore[no-any-return]


def expression_as_traced(number: Any) -> Any:
    """The sympy expression of a symbolic number as it was made, without what the fake run has learnt about its symbols since."""
    return number.node._expr


def same_storage(a: object, b: torch.Tensor) -> bool:
    """Whether two (fake) tensors are views of the same memory."""
    return isinstance(a, torch.Tensor) and a.untyped_storage()._cdata == b.untyped_storage()._cdata
