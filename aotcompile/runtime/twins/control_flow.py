"""torch's control flow operators as the ordinary Python they stand for.

    torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))     ->      if x.sum() > 0: return torch.sin(x)
                                                                    return torch.cos(x)

Called on tensors, torch's own would start torch.compile. These can be interpreted like any function, and split like any function of another package:
a region for each side of a branch, a loop that stays a loop and whose condition and body are regions.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

import torch
from torch.utils import _pytree

from aotcompile.runtime.twins.hooks import call_with_hooks, has_forward_hooks_only


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """`torch.cond`. Raises RuntimeError for what torch's own refuses before it looks at a branch."""
    if not isinstance(pred, (bool, int, float)):
        _check_condition(pred, true_fn, false_fn, operands)
    if pred:
        return true_fn(*operands)
    return false_fn(*operands)


def _check_condition(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any]) -> None:
    if not isinstance(pred, (torch.Tensor, torch.SymBool)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or not all(isinstance(leaf, torch.Tensor) for leaf in _pytree.tree_leaves(operands)):
        wanted = "a tuple of possibly nested dict/list/tuple that only consists of tensor leaves"
        raise RuntimeError(f"Expect operands to be {wanted}, but got {operands}.")


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]) -> Any:
    """``torch._higher_order_ops.while_loop``. What is returned is no tensor that was given."""
    carried = tuple(_pytree.tree_map_only(torch.Tensor, torch.clone, value) for value in carried_inputs)
    while cond_fn(*carried):
        carried = body_fn(*carried)
    return carried


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:                # noqa: A001 - torch's name
    """``torch._higher_order_ops.map``: ``f`` of each slice along dimension 0, stacked. Raises RuntimeError where there is none."""
    leaves, structure = _pytree.tree_flatten(xs)
    if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise RuntimeError(f"Mapped xs can only consist of tensors. Got xs {leaves}.")
    length = leaves[0].shape[0]
    if length == 0:
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    if any(leaf.shape[0] != length for leaf in leaves):
        raise RuntimeError(f"Leading dimensions of mapped xs must be consistent. Got shapes {[leaf.shape for leaf in leaves]}.")
    results = []
    for index in range(length):
        results.append(f(_pytree.tree_unflatten([leaf.select(0, index) for leaf in leaves], structure), *args))
    return _stacked(results, 0)


def scan(combine_fn: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """``torch._higher_order_ops.scan``: (what is carried at the end, the outputs stacked along ``dim``; before torch 2.12 or so along dimension 0).
    Raises RuntimeError for an empty ``dim`` before torch 2.14."""
    leaves, structure = _pytree.tree_flatten(xs)
    if not leaves:
        return init, []
    axis = dim if dim >= 0 else dim + leaves[0].ndim
    if any(leaf.ndim <= axis for leaf in leaves) or not _SCANS_NOTHING and any(leaf.shape[axis] == 0 for leaf in leaves):
        raise RuntimeError("All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0")
    carry, results, length = init, [], leaves[0].shape[axis]
    if length == 0:
        one = [leaf.new_zeros([size for number, size in enumerate(leaf.shape) if number != axis]) for leaf in leaves]
        _, result = combine_fn(init, _pytree.tree_unflatten(one, structure))
        return carry, _pytree.tree_map(lambda leaf: leaf.narrow(axis, 0, 0), _stacked([result], axis))
    for step in range(length):
        index = length - 1 - step if reverse else step
        carry, result = combine_fn(carry, _pytree.tree_unflatten([leaf.select(axis, index) for leaf in leaves], structure))
        results.append(result)
    return carry, _stacked(results[::-1] if reverse else results, axis if _STACKS_ALONG_DIM else 0)


def _stacked(results: list[Any], axis: int) -> Any:
    """Equal structures of tensors as one structure of stacked tensors; ``axis`` 0 for those that have fewer dimensions."""
    structure = _pytree.tree_structure(results[0])
    leaves = [_pytree.tree_leaves(result) for result in results]
    stacked = []
    for number, first in enumerate(leaves[0]):
        if isinstance(first, torch.Tensor):
            stacked.append(torch.stack([each[number] for each in leaves], axis if axis <= first.ndim else 0))
        else:
            stacked.append(first)
    return _pytree.tree_unflatten(stacked, structure)


_TORCHS_SCAN: Any = torch._higher_order_ops.scan
_STACKS_ALONG_DIM = any(isinstance(each, CodeType) and "movedim" in each.co_names for each in _TORCHS_SCAN.__code__.co_consts)
_SCANS_NOTHING = torch.torch_version.TorchVersion(torch.__version__) >= (2, 14)
_TORCHS = {torch._higher_order_ops.cond: cond, torch._higher_order_ops.while_loop: while_loop, torch._higher_order_ops.map: map,
           torch._higher_order_ops.scan: scan}


def plain_form(function: Any, hooks: Mapping[str, Any] | None = None) -> Any:
    """The plain Python that stands for a function of torch's, or for calling a module that has hooks (these tables of them, or those it has now);
    anything else itself."""
    if isinstance(function, torch.nn.Module):
        return call_with_hooks if has_forward_hooks_only(function, hooks) else function
    return _TORCHS.get(function, function)


__all__ = ["cond", "map", "plain_form", "scan", "while_loop"]
