"""A module's tables of hooks: what is in them is known by its place, because their keys are numbers that every process gives out anew.

    handle = layer.register_forward_hook(hook)     layer._forward_hooks: {17: hook} here, {4: hook} where the program runs
"""
from __future__ import annotations

import collections
from typing import Any, NoReturn

from torch.utils.hooks import RemovableHandle

from aotcompile.frontend.capture.signals import GraphBreak
from aotcompile.ir.paths import Path

MODULE_HOOK_TABLES = frozenset({
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
    "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
})
_OF_ALL_MODULES = frozenset({
    "_global_forward_hooks", "_global_forward_hooks_with_kwargs", "_global_forward_hooks_always_called", "_global_forward_pre_hooks",
    "_global_backward_hooks", "_global_backward_pre_hooks",
})
_OF_HANDLES = frozenset({"hooks_dict_ref", "extra_dict_ref"})


class HookNumber(int):
    """A hook's number (``handle.id``, a key of a table). It can be looked up and compared with others; code that computes with it runs eagerly.

    ``handle``: whose number it is, where the handle is made in the region; None for a number from outside."""

    handle: RemovableHandle | None = None


def _refuse(*values: Any) -> NoReturn:
    raise GraphBreak("AOT205", "the number of a hook is computed with")


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "mod", "truediv", "neg", "int", "index", "float", "str", "repr", "format",
              "lt", "le", "gt", "ge", "and", "or", "xor"):
    setattr(HookNumber, f"__{_name}__", _refuse)


def is_hook_table(value: object, path: Path) -> bool:
    """Whether what is found at ``path`` is such a table."""
    if type(value) is not collections.OrderedDict or not path.steps or not all(type(key) in (int, HookNumber) for key in value):
        return False
    if path.steps[-1] == ("referent",):
        return any(step[0] == "attribute" and step[1] in _OF_HANDLES for step in path.steps[-3:])
    names = _OF_ALL_MODULES if path.root == ("module", "torch.nn.modules.module") and len(path.steps) == 1 else MODULE_HOOK_TABLES
    return path.steps[-1][0] == "attribute" and path.steps[-1][1] in names


__all__ = ["MODULE_HOOK_TABLES", "HookNumber", "is_hook_table"]
