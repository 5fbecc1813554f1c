"""Collecting the entries of a package: decorators in its code, ``[[tool.aotcompile.entry]]``, and recorded signatures, in this order.

A decorated module is found in the text first (does it import aotcompile at all?), so that only modules with marks are imported.

    @aotcompile.entry(inputs=("f32[B, 3]",))          ->  Entry(name="mypkg.model:preprocess", args=(tensor of 8x3,), dynamic_shapes={images: {0: B}},
    def preprocess(images): ...                             source="decorator, mypkg/model.py:12")

Codes: AOT102, AOT103, AOT104, AOT105 (see `providers`), AOT106 a class that cannot be made without arguments, AOT107 a mark without inputs.
"""
from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch

from aotcompile.base.diagnostic import Diagnostic, UsageError
from aotcompile.base.span import Span
from aotcompile.entry import ENTRY_ATTRIBUTE, EntryMark
from aotcompile.frontend.entries.discovery import Package, importable
from aotcompile.frontend.entries.entry import Entry, make_entry
from aotcompile.frontend.entries.providers import call_provider, import_module, resolve, situations_of
from aotcompile.frontend.entries.shapes import example_inputs_of
from aotcompile.options import EntryTable, Options, load_entry_tables


def collect_entries(package: Package, options: Options) -> tuple[Entry, ...]:
    """The entries of a package, selected by the options' patterns.

    Finds the configuration file next to or above the package, imports the modules that have marks, and calls the input providers. The package's root
    must stay on ``sys.path`` for as long as the entries are called (`importable`), since functions import things when they run.
    Raises UsageError (AOT101 to AOT122) at the first one that is wrong.
    """
    configured, recorded = load_entry_tables(package.path.parent, options.signatures)
    with importable(package.root):
        alone = len(options.packages) <= 1                  # the configuration is this package's own: what it names is meant, wherever it is defined
        found = [*_decorated(package), *_configured(configured, package, alone), *_configured(recorded, package, False)]
    return tuple(entry for entry in found if _selected(entry.name, options.select, options.exclude))


def _belongs(name: str, package: Package) -> bool:
    """Whether a name is of this package: a configuration file can hold the entries of several."""
    module = name.partition(":")[0]
    return module == package.name or module.startswith(package.name + ".")


def _selected(name: str, select: Iterable[str], exclude: Iterable[str]) -> bool:
    """Patterns match ``module:qualname``, the module, or the qualified name alone."""
    def matches(patterns: Iterable[str]) -> bool:
        forms = (name, name.replace(":", "."), *name.split(":"))
        return any(fnmatch(form, pattern) for pattern in patterns for form in forms)

    return (not select or matches(select)) and not matches(exclude)


# ---- decorators ---------------------------------------------------------------------------------------------------------------------------

def mentions_aotcompile(text: str) -> bool:
    """Whether a module's text imports aotcompile (only then it can have marks)."""
    if "aotcompile" not in text:
        return False
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=aliases) if any(alias.name.split(".")[0] == "aotcompile" for alias in aliases):
                return True
            case ast.ImportFrom(module=str(name), level=0) if name.split(".")[0] == "aotcompile":
                return True
    return False


def _decorated(package: Package) -> Iterator[Entry]:
    for name, file in package.modules():
        try:
            marked = mentions_aotcompile(file.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError) as error:
            line = getattr(error, "lineno", None) or 1
            _fail("AOT105", f"the file does not parse: {error}.", "Make it importable, or exclude it.", Span(_relative(file, package.root), line))
        if marked:
            module = import_module(name, package.root)
            for target, owner, marks in _marked_objects(module):
                for mark in marks:
                    yield from _from_mark(target, owner, mark, package)


def _marked_objects(module: ModuleType) -> Iterator[tuple[Any, type | None, tuple[EntryMark, ...]]]:
    """(object, class it is a method of, marks) for what this module defines, in the order of the definitions."""
    def own(value: Any) -> tuple[EntryMark, ...]:
        function = getattr(value, "__func__", value)                  # staticmethod, classmethod
        marks = {**getattr(function, "__dict__", {}), **getattr(value, "__dict__", {})}.get(ENTRY_ATTRIBUTE, ())
        return marks if getattr(value, "__module__", None) == module.__name__ else ()

    for value in list(vars(module).values()):
        if marks := own(value):
            yield value, None, marks
        if isinstance(value, type) and value.__module__ == module.__name__:
            for name, member in list(vars(value).items()):
                if marks := own(member):
                    yield (getattr(value, name) if isinstance(member, (staticmethod, classmethod)) else member), \
                        (None if isinstance(member, (staticmethod, classmethod)) else value), marks


def _from_mark(target: Any, owner: type | None, mark: EntryMark, package: Package) -> Iterator[Entry]:
    span = _definition(target, package.root)
    source = f"decorator, {span.file}:{span.line}" if span else "decorator"
    values = {"inputs": mark.inputs, "example_inputs": mark.example_inputs, "make": mark.make, "dims": mark.dims,
              "dynamic_shapes": mark.dynamic_shapes, "training": mark.training, "fullgraph": mark.fullgraph}
    yield from _entries(target, owner, values, source, span, package.root)


def _definition(target: Any, root: Path) -> Span | None:
    try:
        file, (_, line) = inspect.getsourcefile(target), inspect.getsourcelines(target)
    except (OSError, TypeError):                                      # made by exec, or a C function: there is no place
        return None
    return Span(_relative(Path(file), root), line, function=target.__qualname__) if file else None


def _relative(file: Path, root: Path) -> str:
    try:
        return file.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return file.name


# ---- tables -------------------------------------------------------------------------------------------------------------------------------

def _configured(tables: Iterable[EntryTable], package: Package, alone: bool) -> Iterator[Entry]:
    """Entries of tables. ``alone``: all of them are this package's; else those whose function or provider is, or whose provider returns its."""
    for table in tables:
        values, span = dict(table.values), Span(table.file, 1)
        function = values.pop("function", None)
        if function is None:
            source, mine = f'{table.place}, make = "{values["make"]}"', alone or _belongs(values["make"], package)
            yield from (e for e in _provided(values["make"], values, source, span, package.root) if mine or _belongs(e.name, package))
            continue
        if not alone and not _belongs(function, package):
            continue
        target, owner = resolve(function, package.root, table.place)
        yield from _entries(target, owner, values, f"{table.place}, {function}", span, package.root)


def _provided(make: str | Callable[..., Any], values: Mapping[str, Any], source: str, span: Span | None, root: Path) -> Iterator[Entry]:
    provider = resolve(make, root, source)[0] if isinstance(make, str) else make
    for target, args, kwargs in situations_of(call_provider(provider, source, root), provider, source):
        yield make_entry(target, args, kwargs, source=source, span=span, **_common(values))


def _common(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: values.get(key) for key in ("dynamic_shapes", "dims", "training", "fullgraph")}


# ---- one entry from its parts -------------------------------------------------------------------------------------------------------------

def _entries(target: Any, owner: type | None, values: Mapping[str, Any], source: str, span: Span | None, root: Path) -> Iterator[Entry]:
    """Entries for a function, method or class named by a mark or a table, whose inputs are a signature, examples, or come with ``make``."""
    inputs, examples, make = values.get("inputs"), values.get("example_inputs"), values.get("make")
    if inputs is None and examples is None:
        if make is None:
            _fail("AOT107", f"the entry {getattr(target, '__qualname__', target)} has no inputs.",
                  'Add inputs=("f32[B, 3]",), example_inputs or make.', span)
        yield from _provided(make, values, source, span, root)
        return
    is_class = owner or (target if isinstance(target, type) else None)
    if is_class is not None:
        instance = _instance(is_class, make, source, span, root)
        target = getattr(instance, target.__name__) if owner and target.__name__ != "forward" else instance
    if inputs is not None:
        args, kwargs, shapes = example_inputs_of(inputs, values.get("dims"), span=span)
        common = _common(values)
        common["dynamic_shapes"] = common["dynamic_shapes"] or _by_name(target, shapes)
        yield make_entry(target, args, kwargs, source=source, span=span, **common)
        return
    examples = call_provider(examples, source, root) if callable(examples) else examples
    pairs: list[Any] = examples if isinstance(examples, list) else [examples]
    triples = [(target, pair[0], pair[1]) if _is_pair(pair) else (target, pair) for pair in pairs]
    for _, args, kwargs in situations_of(triples, target, source):
        yield make_entry(target, args, kwargs, source=source, span=span, **_common(values))


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], (tuple, list)) and isinstance(value[1], dict)


def _by_name(target: Any, shapes: tuple[tuple[Any, ...], dict[str, Any]]) -> dict[str, Any]:
    """``(spec of args, spec of kwargs)`` by parameter name, by binding the specifications as if they were the arguments."""
    function = target.forward if isinstance(target, torch.nn.Module) else target
    try:
        return dict(inspect.signature(function).bind(*shapes[0], **shapes[1]).arguments)
    except TypeError:
        return {}                                                     # make_entry binds the arguments next and reports this with names


def _instance(of: type, make: Any, source: str, span: Span | None, root: Path) -> Any:
    """An instance of a marked class: from ``make`` (an instance, or a provider's result), or by calling the class."""
    if make is not None:
        provider = resolve(make, root, source)[0] if isinstance(make, str) else make
        result = call_provider(provider, source, root)
        first = result[0] if isinstance(result, (list, tuple)) and result else result
        return first[0] if isinstance(first, tuple) else first
    try:
        return of()
    except TypeError as error:
        _fail("AOT106", f"{of.__qualname__}() cannot be made without arguments: {error}.",
              'Add make="package.module:function" that returns an instance.', span)


def _fail(code: str, message: str, hint: str = "", span: Span | None = None) -> NoReturn:
    raise UsageError(Diagnostic(code, "error", message, span, hint))
