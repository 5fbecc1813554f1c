"""Running the user's own code for a build: importing modules, calling input providers. What goes wrong there is reported at the user's line.

Codes: AOT102 an entry or provider that does not exist, AOT103 a provider raised, AOT104 a provider returned something else, AOT105 an import failed.
"""
from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch

from aotcompile.base.diagnostic import Diagnostic, UsageError
from aotcompile.base.span import Span
from aotcompile.options import nearest

FORM = "Return (callable or nn.Module, args tuple), (callable, args, kwargs), or a list of those."


def _fail(code: str, message: str, hint: str = "", span: Span | None = None, cause: BaseException | None = None) -> NoReturn:
    raise UsageError(Diagnostic(code, "error", message, span, hint)) from cause


def user_span(error: BaseException, root: Path) -> Span | None:
    """The innermost line under ``root`` in a traceback (for a file that does not parse, the place in it), as a span relative to ``root``."""
    places = [(frame.filename, frame.lineno or 1, frame.colno or 0, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno or 1, max((error.offset or 1) - 1, 0), ""))
    for filename, line, column, function in reversed(places):
        try:
            file = Path(filename).resolve().relative_to(root.resolve())
        except ValueError:
            continue
        if not filename.startswith("<"):
            return Span(file.as_posix(), line, column, function=function)
    return None


def _says(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0]


def import_module(name: str, root: Path) -> ModuleType:
    """Import one of the user's modules. Raises UsageError AOT102 if there is none, AOT105 if it raises while it is imported."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            _fail("AOT102", f"there is no module {error.name!r} (for {name!r}).", "Name it as it is imported from the package's parent folder.")
        _fail("AOT105", f"importing {name} failed: {_says(error)}.", "Install what it imports, or exclude it.", user_span(error, root), error)
    except Exception as error:                                        # noqa: BLE001 (the user's code can raise anything; it is reported)
        _fail("AOT105", f"importing {name} failed: {_says(error)}.", "Make it importable, or exclude it.", user_span(error, root), error)


def resolve(text: str, root: Path, place: str) -> tuple[Any, Any]:
    """``(object, owner)`` for ``package.module:Class.method``; owner is the class, or None. ``place`` says who names it. Raises AOT102, AOT105."""
    module_name, colon, qualname = text.partition(":")
    if not colon or not module_name or not qualname:
        _fail("AOT102", f"{place} names {text!r}.", 'Write "package.module:function".')
    value: Any = import_module(module_name, root)
    owner = None
    for part in qualname.split("."):
        if not hasattr(value, part):
            where = module_name if owner is None and value.__class__ is ModuleType else f"{module_name}:{getattr(value, '__qualname__', value)}"
            names = [name for name in vars(value) if not name.startswith("__")]
            _fail("AOT102", f"{place} names {text!r}, but {where} has no {part!r}.", nearest(part, names))
        owner, value = (value if isinstance(value, type) else None), getattr(value, part)
    return value, owner


def call_provider(provider: Callable[..., Any], place: str, root: Path) -> Any:
    """What the provider returns. Raises AOT103 with the user's line if it raises."""
    try:
        return provider()
    except Exception as error:                                        # noqa: BLE001 (as above)
        _fail("AOT103", f"the input provider {_name(provider)} ({place}) raised {_says(error)}.", "Run it by itself to see the whole traceback.",
              user_span(error, root), error)


def situations_of(result: Any, provider: Callable[..., Any], place: str) -> tuple[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]], ...]:
    """A provider's result as (callable, args, kwargs) triples. Raises AOT104."""
    items = result if isinstance(result, list) else [result]
    if not items:
        _fail("AOT104", f"the input provider {_name(provider)} ({place}) returned an empty list.", FORM, _definition(provider))
    return tuple(_situation(item, provider, place) for item in items)


def _situation(item: Any, provider: Callable[..., Any], place: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    def wrong(what: str) -> NoReturn:
        _fail("AOT104", f"the input provider {_name(provider)} ({place}) returned {what}.", FORM, _definition(provider))

    if not isinstance(item, tuple) or len(item) not in (2, 3):
        wrong(f"a tuple of {len(item)}" if isinstance(item, tuple) else f"a {type(item).__name__}")
    target, args, kwargs = item if len(item) == 3 else (*item, {})
    if not callable(target):
        wrong(f"a {type(target).__name__} where a callable belongs")
    if isinstance(args, torch.Tensor) or not isinstance(args, (tuple, list)):
        wrong(f"args as a {type(args).__name__} (a tuple belongs there: (x,))")
    if not (isinstance(kwargs, Mapping) and all(isinstance(key, str) for key in kwargs)):
        wrong(f"kwargs as a {type(kwargs).__name__}")
    return target, tuple(args), dict(kwargs)


def _name(provider: Callable[..., Any]) -> str:
    return f"{getattr(provider, '__module__', '?')}:{getattr(provider, '__qualname__', provider)}"


def _definition(provider: Callable[..., Any]) -> Span | None:
    code = getattr(provider, "__code__", None)
    return Span(f"{provider.__module__.replace('.', '/')}.py", code.co_firstlineno, function=code.co_name) if code else None
