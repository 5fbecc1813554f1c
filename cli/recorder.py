"""The part of ``aotcompile record`` that runs inside the user's own process: sees calls of a package's functions and modules.

An import hook wraps, as soon as a module of the package has been executed, its functions and the ``forward`` of its ``nn.Module`` classes. Only the
outermost call is noted: what it calls inside the package is part of it. A note is one line of JSON, appended when it is first seen, so that a
process that is killed has written what it saw. Only dtype, sizes, strides, device class and Python constants are written, never a tensor's values.

    {"function": "mypkg.model:f", "arguments": {"x": {"tensor": ["f32", [8, 3], null, "cpu"]}, "scale": {"value": 2.5}}}
"""
from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any

PACKAGES, FOLDER = "AOTCOMPILE_RECORD_PACKAGES", "AOTCOMPILE_RECORD_FOLDER"

_depth = threading.local()
_seen: set[str] = set()


def install() -> None:
    """Start recording; packages and the folder for the notes come from the environment."""
    packages = tuple(os.environ[PACKAGES].split(","))
    sys.meta_path.insert(0, Finder(packages, os.environ[FOLDER]))


class Finder(importlib.abc.MetaPathFinder):
    """Finds modules as the other finders do, and wraps what those of the packages define."""

    def __init__(self, packages: tuple[str, ...], folder: str) -> None:
        self.packages, self.folder = packages, folder

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if not any(name == package or name.startswith(package + ".") for package in self.packages):
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                self.patch(spec)
                return spec
        return None

    def patch(self, spec: importlib.machinery.ModuleSpec) -> None:
        execute = getattr(spec.loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            wrap_module(module, self.folder)

        spec.loader.exec_module = exec_module                         # type: ignore[union-attr, method-assign]


def wrap_module(module: ModuleType, folder: str) -> None:
    """Wrap the functions and the ``forward`` methods that a module defines."""
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if isinstance(value, FunctionType):
            setattr(module, name, recording(value, f"{module.__name__}:{value.__qualname__}", folder, skip_first=False))
        elif isinstance(value, type) and isinstance(vars(value).get("forward"), FunctionType) and _is_module_class(value):
            forward = vars(value)["forward"]
            value.forward = recording(forward, f"{module.__name__}:{forward.__qualname__}", folder, skip_first=True)  # type: ignore[attr-defined]


def _is_module_class(value: type) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(value, torch.nn.Module)


def recording(function: FunctionType, name: str, folder: str, *, skip_first: bool) -> Callable[..., Any]:
    """``function`` as before, noting the signature of each outermost call."""
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return function
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        depth = getattr(_depth, "value", 0)
        if depth == 0:
            try:
                arguments = dict(signature.bind(*args, **kwargs).arguments)
            except TypeError:
                return function(*args, **kwargs)                      # raises the user's own error
            if skip_first:
                arguments.pop(next(iter(signature.parameters)), None)
            note(name, signature, arguments, folder)
        _depth.value = depth + 1
        try:
            return function(*args, **kwargs)
        finally:
            _depth.value = depth

    return call


def note(name: str, signature: inspect.Signature, arguments: dict[str, Any], folder: str) -> None:
    """Append a note unless the same one was written before."""
    described = {}
    for key, value in arguments.items():
        kind = signature.parameters[key].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            if len(value) if kind is inspect.Parameter.VAR_POSITIONAL else True:
                described[key] = {"unsupported": f"positional arguments without a name ({key})"}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            described.update({name: describe(item) for name, item in value.items()})
        elif not (value is None and signature.parameters[key].default is None):
            described[key] = describe(value)
    line = json.dumps({"function": name, "arguments": described})
    if line not in _seen:
        _seen.add(line)
        with open(os.path.join(folder, f"{os.getpid()}.jsonl"), "a", encoding="utf-8") as file:
            file.write(line + "\n")


def describe(value: Any) -> dict[str, Any]:
    """What is written about a value; ``unsupported`` with its type where TOML cannot say it."""
    import torch
    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided:
        from aotcompile.ir.dtypes import BY_TORCH_NAME
        dtype = BY_TORCH_NAME.get(str(value.dtype).removeprefix("torch."))
        if dtype is not None:
            strides = None if value.is_contiguous() else list(value.stride())
            return {"tensor": [dtype.value, list(value.shape), strides, value.device.type]}
    if type(value) in (bool, int, str) or (type(value) is float and value == value):
        return {"value": value}
    if type(value) is list:
        return {"list": [describe(item) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: describe(item) for key, item in value.items()}}
    return {"unsupported": f"{type(value).__module__}.{type(value).__qualname__}"}
