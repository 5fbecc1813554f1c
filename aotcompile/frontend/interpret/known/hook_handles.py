"""Registering and removing hooks in a region: the handle that torch gives, made without counting; the epilogue makes the real one, in order."""
from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch.utils.hooks import RemovableHandle

from aotcompile.frontend.capture.hook_tables import HookNumber

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter


def make_handle(i: "Interpreter", hooks_dict: Any, *, extra_dict: Any = None) -> RemovableHandle:
    """``RemovableHandle(hooks_dict, extra_dict=...)``. Tables from outside are their shadows from now on."""
    handle: Any = RemovableHandle.__new__(RemovableHandle)
    extra = i.outside.whole(extra_dict) if isinstance(extra_dict, dict) else extra_dict
    tables = () if extra is None else (extra,) if isinstance(extra, dict) else tuple(map(i.outside.whole, i.outside.whole(extra)))
    handle.hooks_dict_ref = weakref.ref(i.outside.whole(hooks_dict))
    handle.extra_dict_ref = tuple(map(weakref.ref, tables))
    handle.id = HookNumber(RemovableHandle.next_id + len(i.outside.made_handles))
    handle.id.handle = handle
    i.outside.made_handles.append(handle)
    return handle


__all__ = ["make_handle"]
