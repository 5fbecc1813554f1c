"""Calling a module with forward hooks, as plain Python: what `torch.nn.Module.__call__` does for them, without what it does for others.

    self.block(x)      ->      for hook in block's pre-hooks: ...          each hook that has a graph break runs between the regions
                               result = block.forward(x)
                               for hook in block's hooks: ...
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.modules import module as _torch

_OTHERS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks_always_called")
_GLOBAL_OTHERS = ("_global_backward_hooks", "_global_backward_pre_hooks", "_global_forward_hooks_always_called")


def has_forward_hooks_only(module: torch.nn.Module, hooks: Mapping[str, Any] | None = None) -> bool:
    """Whether `torch.nn.Module.__call__` of a module is `call_with_hooks`: it has forward hooks or pre-hooks, and none of another kind.
    ``hooks``: its tables of hooks, where they are not those it has now."""
    own = module.__dict__
    tables = own if hooks is None else hooks
    hooked = tables.get("_forward_hooks") or tables.get("_forward_pre_hooks") or _torch._global_forward_hooks or _torch._global_forward_pre_hooks
    others = any(tables.get(name) for name in _OTHERS) or any(getattr(_torch, name) for name in _GLOBAL_OTHERS)
    return bool(hooked) and not others and own.get("_compiled_call_impl") is None and not torch._C._get_tracing_state()


def call_with_hooks(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """``self(*args, **kwargs)``. Raises RuntimeError, as torch does, for a pre-hook with keywords that does not give both."""
    for number, hook in (*_torch._global_forward_pre_hooks.items(), *self._forward_pre_hooks.items()):
        if number in self._forward_pre_hooks_with_kwargs:
            given = hook(self, args, kwargs)
            if given is not None:
                if not isinstance(given, tuple) or len(given) != 2:
                    raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {given}.")
                args, kwargs = given
        else:
            given = hook(self, args)
            if given is not None:
                args = given if isinstance(given, tuple) else (given,)
    result = self.forward(*args, **kwargs)
    for number, hook in (*_torch._global_forward_hooks.items(), *self._forward_hooks.items()):
        if number in self._forward_hooks_with_kwargs or number in _torch._global_forward_hooks_with_kwargs:
            changed = hook(self, args, kwargs, result)
        else:
            changed = hook(self, args, result)
        if changed is not None:
            result = changed
    return result


__all__ = ["call_with_hooks", "has_forward_hooks_only"]
