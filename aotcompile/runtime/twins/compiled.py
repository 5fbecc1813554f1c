"""Loading of ``aotcompile.compile`` results: the same kind of thing as the original, living in the original's globals and closure cells.

    def make(k):                              the split function's text           what `load_compiled` makes of it
        def f(x):
            y = x * k                         def _r0_eager(x): ...               code objects of both functions, compiled once;
            print(y.sum())                    def f(x):                           FunctionType(code of f, globals of the original,
            return y + 1                          y = _r0(x)                          closure: the original's cell of k, and new
        return f                                  print(y.sum())                      cells for _r0, _r1)
                                                  return _r1(y)

``_call_<N>(callable)`` in such a text gives the split twin of ``callable`` where it has one, and ``callable`` itself where it has none, has been
replaced or has hooks. Nothing of the user's is changed: no attribute, no global, no method.
"""
from __future__ import annotations

import ast
import copy
import copyreg
import functools
import hashlib
import linecache
import os
import weakref
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any, Mapping, Sequence

import torch

from aotcompile.runtime import digest, reporting
from aotcompile.runtime.twins.assemble import assemble
from aotcompile.runtime.twins.bytecode_twin import code_objects
from aotcompile.runtime.twins.control_flow import plain_form
from aotcompile.runtime.twins.operations import operation
from aotcompile.runtime.guards import ORIGINAL_CLASS
from aotcompile.runtime.loader import Package, Refused, make_region
from aotcompile.runtime.state import calls_forward_only


@dataclass(frozen=True)
class SplitFunction:
    """A function after splitting, as the runtime needs it. ``text`` defines the eager bodies and, last, the rewritten function.

    ``regions``: region name ("Net.forward:r0") -> (stub name "_r0", eager body's name "_r0_eager"); ``calls``: the numbers N of its ``_call_<N>``;
    ``digest``: of the original's code (`digest.code_digest`); ``bytecode``: ``text`` is that of a function split in its bytecode; ``lines``: line
    of ``text`` -> line of the original's file, which tracebacks and warnings then speak of."""

    module: str
    qualname: str
    text: str
    regions: Mapping[str, tuple[str, str]]
    calls: Sequence[int]
    digest: str
    bytecode: bool = False
    lines: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BreakRecord:
    """A graph break of a compiled function: code ("AOT201"), file and line of the user, and why."""

    code: str
    file: str
    line: int
    reason: str


@dataclass(frozen=True)
class Info:
    """What is known about a compiled function or module. ``out``: the folder with everything that was generated."""

    out: str
    breaks: tuple[BreakRecord, ...]
    _compiled: "TwinMaker"

    def report(self) -> reporting.Report:
        """The regions of this function or module and of the callees that were split with it."""
        return self._compiled.report()


class _Code:
    """The code objects of one split function. Raises ValueError if the text has a free variable that the original has not."""

    def __init__(self, split: SplitFunction, original: CodeType) -> None:
        self.stubs = {stub: (region, eager) for region, (stub, eager) in split.regions.items()}
        self.calls = [f"_call_{number}" for number in split.calls]
        self.original = original
        self.helpers: dict[str, Any] = {}
        if split.bytecode:
            codes = code_objects(split.text, original)
            self.eager, self.function = {eager: codes[eager] for _, eager in split.regions.values()}, codes[""]
            self._check_free_variables(split)
            return
        tree = ast.parse(split.text)
        eager_names = {eager for _, eager in split.regions.values()}
        definitions = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        rewritten = [node for node in definitions if node.name not in eager_names][-1]
        rewritten.name = "_rewritten"           # not its own: a function that calls itself means the global, or a cell of the original
        # What else the text defines (a marker class for variables without a value) is made once and reached through cells, like the stubs.
        helpers = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        exec(compile(ast.Module(helpers, []), "<aotcompile helpers>", "exec", dont_inherit=True), self.helpers)
        del self.helpers["__builtins__"]
        tree.body = [node for node in tree.body if node not in helpers]
        parameters = list(dict.fromkeys([*original.co_freevars, *self.stubs, *self.calls, *self.helpers]))
        factory = ast.parse(f"def factory({', '.join(parameters)}):\n    pass")
        holder = factory.body[0]
        assert isinstance(holder, ast.FunctionDef)
        holder.body = tree.body
        file = original.co_filename if split.lines else _cached_text(split)
        if split.lines:
            _place(factory, split.lines, original.co_firstlineno)
        module = compile(factory, file, "exec", dont_inherit=True, flags=original.co_flags & _FUTURE_FLAGS)
        inside = {code.co_name: code for code in _codes(next(code for code in _codes(module) if code.co_name == "factory"))}
        self.eager = {eager: _named(inside[eager], original.co_qualname).replace(co_qualname=eager) for eager in eager_names}
        self.function = _named(inside[rewritten.name], original.co_qualname, original.co_name)
        if split.lines:
            self.function = self.function.replace(co_firstlineno=original.co_firstlineno)
        self._check_free_variables(split)

    def _check_free_variables(self, split: SplitFunction) -> None:
        known = {*self.original.co_freevars, *self.stubs, *self.calls, *self.helpers}
        missing = [name for code in (self.function, *self.eager.values()) for name in code.co_freevars if name not in known]
        if missing:
            raise ValueError(f"free variable {missing[0]} is unknown to {split.qualname}")


_FUTURE_FLAGS = 0x1000000 | 0x800000 | 0x400000                  # annotations, generator_stop, barry_as_FLUFL (compile's flags; PyCF and CO agree)


def _cached_text(split: SplitFunction) -> str:
    """A file name for the text, by which tracebacks find its lines."""
    fingerprint = hashlib.sha256(split.text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    file = f"<aotcompile {split.module}:{split.qualname} {fingerprint}>"
    linecache.cache[file] = (len(split.text), None, split.text.splitlines(keepends=True), file)
    return file


def _place(tree: ast.AST, lines: Mapping[int, int], first: int) -> None:
    """Gives the nodes of a text the lines of the original's file (what has none that of the statement around it) and no columns."""
    waiting = [(tree, first)]
    while waiting:
        node, around = waiting.pop()
        line = lines.get(getattr(node, "lineno", 0), around)
        if "lineno" in node._attributes:
            for name, value in (("lineno", line), ("end_lineno", line), ("col_offset", -1), ("end_col_offset", -1)):
                setattr(node, name, value)
        waiting += [(child, line) for child in ast.iter_child_nodes(node)]


def _codes(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _named(code: CodeType, qualname: str, name: str | None = None) -> CodeType:
    """``code`` under another qualified name, and with it what is defined inside."""
    inner = tuple(_named(each, qualname + each.co_qualname.removeprefix(code.co_qualname)) if isinstance(each, CodeType) else each
                  for each in code.co_consts)
    return code.replace(co_qualname=qualname, co_name=name or code.co_name, co_consts=inner)


class TwinMaker:
    """The twins of some split functions, made as they are asked for: everything behind one result of `load_compiled`."""

    def __init__(self, package: Package, functions: Sequence[SplitFunction]) -> None:
        self.package = package
        self.splits = {(split.module, split.qualname): split for split in functions}
        self.definitions: dict[tuple[str, str], list[SplitFunction]] = {}
        for split in functions:                                  # "name@2": another function of the same name
            self.definitions.setdefault((split.module, split.qualname.partition("@")[0]), []).append(split)
        self.codes: dict[SplitFunctionKey, _Code] = {}
        self.twins: weakref.WeakKeyDictionary[FunctionType, tuple[CodeType, FunctionType | None]] = weakref.WeakKeyDictionary()
        self.counters: dict[tuple[str, str], reporting.Counters] = {}

    # ---- functions ----------------------------------------------------------------------------------------------------------------------

    def twin(self, function: FunctionType) -> FunctionType | None:
        """The split twin of a function; None where it has none (another function, or its code has been replaced)."""
        known = self.twins.get(function)
        if known is None or known[0] is not function.__code__:
            known = self.twins[function] = (function.__code__, self._make_twin(function))
        twin = known[1]
        if twin is not None:
            if twin.__defaults__ is not function.__defaults__:
                twin.__defaults__ = function.__defaults__
            if twin.__kwdefaults__ is not function.__kwdefaults__:
                twin.__kwdefaults__ = function.__kwdefaults__
        return twin

    def _make_twin(self, function: FunctionType) -> FunctionType | None:
        candidates = self.definitions.get(digest.defined_as(function), ())
        declared = function.__dict__.get(digest.DIGEST_ATTRIBUTE)
        if not candidates or declared is not None and digest.digest_of(function) == declared:
            return None
        split = next((s for s in candidates if digest.same_digest(s.digest, function)), None)
        if split is None:
            return None
        key = (split.module, split.qualname)
        code = self.codes.get(key)
        if code is None:
            try:
                code = self.codes[key] = _Code(split, function.__code__)
            except (ValueError, SyntaxError) as error:
                reporting.refuse(f"{self.package.folder}:{key}",
                                 f"AOT606 the split source of {key[0]}:{key[1]} cannot be used: {error}. It runs eagerly.")
                return None
        eager = {stub: (name, code.eager[name]) for stub, (_, name) in code.stubs.items()}
        helpers = {**code.helpers, **{name: _Call(self) for name in code.calls}}

        def stub_of(stub: str, body: FunctionType) -> Any:
            region = code.stubs[stub][0]
            counters = self.counters.setdefault((split.module, region), reporting.Counters())
            return make_region(self.package, split.module, region, body, counters)
        return assemble(function, code.function, eager, helpers, stub_of, split.digest)

    def direct(self, function: Any) -> Any:
        """What to call in place of ``function``."""
        kind = type(function)
        if kind is FunctionType:
            function = plain_form(function)
            return self.twin(function) or function
        if kind is MethodType and not _is_module_call(function):
            return self._method(function.__func__, function.__self__, function)
        if kind is MethodType or isinstance(function, torch.nn.Module) and kind.__call__ is torch.nn.Module.__call__:
            return self._forward(function.__self__ if kind is MethodType else function, function)
        if isinstance(function, torch.nn.Module):
            return self._method(kind.__call__, function, function)
        found = operation(function, self.twin)
        return function if found is None else found

    def _forward(self, module: torch.nn.Module, function: Any) -> Any:
        """What to call in place of `torch.nn.Module.__call__`."""
        plain = plain_form(module)
        if plain is not module:                                  # it has hooks
            return self._method(plain, module, function)
        if calls_forward_only(module) and "forward" not in module.__dict__:
            return self._method(getattr(type(module), "forward", None), module, function)
        return function

    def _method(self, method: Any, owner: Any, function: Any) -> Any:
        """The twin of a method, bound; ``function`` where it has none."""
        twin = self.twin(method) if type(method) is FunctionType else None
        return function if twin is None else MethodType(twin, owner)

    def report(self) -> reporting.Report:
        records = [counters.record(region, module) for (module, region), counters in self.counters.items()]
        for (module, _), split in self.splits.items():
            records += [reporting.Counters().record(region, module) for region in split.regions if (module, region) not in self.counters]
        order = [(split.module, region) for split in self.splits.values() for region in split.regions]
        return reporting.Report(tuple(sorted((self._eager(record) for record in records), key=lambda r: order.index((r.module, r.name)))))

    def _eager(self, record: reporting.RegionRecord) -> reporting.RegionRecord:
        """With ``eager`` also for a region that was never called and has no variant in the manifest."""
        try:
            built = bool(self.package.variants_of(record.module, record.name))
        except Refused:
            built = False
        return record if built or record.eager else reporting.eager_record(record)


def _is_module_call(method: MethodType) -> bool:
    """Whether a method is ``super().__call__`` of a module, or the like."""
    return method.__func__ is torch.nn.Module.__call__ and isinstance(method.__self__, torch.nn.Module)


SplitFunctionKey = tuple[str, str]


class _Call:
    """The value of ``_call_<N>``."""

    __aotcompile_stub__ = True

    def __init__(self, compiled: TwinMaker) -> None:
        self._direct = compiled.direct

    def __call__(self, function: Any) -> Any:
        return self._direct(function)


# ---- modules and other callables ----------------------------------------------------------------------------------------------------------

class _Quiet:
    """First base of a twin's class: keeps the user's ``__init_subclass__`` from seeing (registering, refusing) a class of ours."""

    __slots__ = ()

    def __init_subclass__(cls, **keywords: Any) -> None:
        return None


def _object_twin(compiled: TwinMaker, original: Any, method: str) -> Any:
    """An object of a subclass of the original's class that shares its ``__dict__`` and whose ``method`` calls the split twin with the original
    as self.

    A copy of it is the twin of a copy of the original; a pickle is the original's."""
    cls = type(original)

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        # Others get here too: replicas with a dict of their own, and this object once the program has given it another class (parametrizations).
        is_twin = type(self) is twin_class and self.__dict__ is original.__dict__
        return compiled.direct(getattr(original, method) if is_twin else MethodType(getattr(cls, method), self))(*arguments, **keywords)

    @functools.wraps(getattr(cls, method))
    def forward(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return call(self, *arguments, **keywords)

    def copied(self: Any, of_original: Any) -> Any:
        made = _object_twin(compiled, of_original, method)
        if self in _INFOS:
            _INFOS[made] = _INFOS[self]
        return made

    def reduce(self: Any, protocol: Any) -> Any:
        found = original.__reduce_ex__(protocol)
        if isinstance(found, tuple) and found[0] is copyreg.__newobj__:   # type: ignore[attr-defined]
            # pickle wants the class of __newobj__ to be that of the object at hand, which ours is not.
            return (cls.__new__, *found[1:])
        return found

    members: dict[str, Any] = {
        method: forward, ORIGINAL_CLASS: cls,
        "__deepcopy__": lambda self, memo: copied(self, copy.deepcopy(original, memo)), "__copy__": lambda self: copied(self, copy.copy(original)),
        "__reduce_ex__": reduce, "__module__": cls.__module__, "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__}
    metaclass: Any = type(cls)
    hooked = any("__init_subclass__" in base.__dict__ for base in cls.__mro__[:-1])
    # With one base, the program may still assign ``__class__`` (torch's lazy modules do).
    twin_class = metaclass(cls.__name__, (_Quiet, cls) if hooked else (cls,), members)
    twin = object.__new__(twin_class)
    object.__setattr__(twin, "__dict__", original.__dict__)
    return twin


# ---- the public side ----------------------------------------------------------------------------------------------------------------------

_INFOS: weakref.WeakKeyDictionary[Any, Info] = weakref.WeakKeyDictionary()


def load_compiled(target: Any, *, folder: str, functions: Sequence[SplitFunction], out: str | None = None) -> Any:
    """The compiled form of ``target``: a function for a function, a method for a method, an object of (a subclass of) its class for a module or
    another object.

    folder: the generated package (it holds manifest.json). functions: the split ones, with the entry. out: what `Info.out` says, ``folder``
    if left out. A function without a twin (nothing of it was compiled) is returned as a copy that runs as it is."""
    package = Package(os.path.abspath(folder))                   # not package_at: the folder may have been written anew since
    compiled = TwinMaker(package, functions)
    try:
        breaks = tuple(BreakRecord(b["code"], b["file"], b["line"], b["reason"]) for b in package.manifest().get("breaks", ()))
    except Refused:
        breaks = ()
    result, key = _twin_of(compiled, target)
    _INFOS[key] = Info(out or folder, breaks, compiled)
    return result


def _twin_of(compiled: TwinMaker, target: Any) -> tuple[Any, Any]:
    """The compiled form, and the object that `info` finds it by."""
    if isinstance(target, functools.partial):
        inner, key = _twin_of(compiled, target.func)
        return functools.partial(inner, *target.args, **target.keywords), key
    if isinstance(target, MethodType) and isinstance(target.__func__, FunctionType):
        function, key = _twin_of(compiled, target.__func__)
        return MethodType(function, target.__self__), key
    if isinstance(target, FunctionType):
        twin = compiled.twin(target)
        if twin is None:
            twin = FunctionType(target.__code__, target.__globals__, target.__name__, target.__defaults__, target.__closure__)
            twin.__kwdefaults__ = target.__kwdefaults__
            wrapped = target.__dict__.get("__wrapped__")
            functools.update_wrapper(twin, target)
            twin.__dict__.pop("__wrapped__", None)
            if wrapped is not None:
                twin.__dict__["__wrapped__"] = wrapped
        return twin, twin
    if isinstance(target, torch.nn.Module):
        twin_object = _object_twin(compiled, target, "forward")
        return twin_object, twin_object
    if hasattr(target, "__dict__") and not isinstance(target, type) and callable(target):
        twin_object = _object_twin(compiled, target, "__call__")
        return twin_object, twin_object

    def call(*arguments: Any, **keywords: Any) -> Any:
        return target(*arguments, **keywords)
    return call, call


def info(compiled: Any) -> Info:
    """What is known about a result of ``aotcompile.compile``. Raises TypeError for anything else."""
    key = compiled
    while isinstance(key, functools.partial):
        key = key.func
    if isinstance(key, MethodType):
        key = key.__func__
    try:
        return _INFOS[key]
    except (KeyError, TypeError):
        raise TypeError(f"{type(compiled).__name__} object was not made by aotcompile.compile") from None
