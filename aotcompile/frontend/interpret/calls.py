"""Calls of the interpreted program: what is inlined, what runs natively, what is a graph break."""
from __future__ import annotations

import contextvars
import dataclasses
import functools
import inspect
import reprlib
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from aotcompile.entry import SKIP_ATTRIBUTE
from aotcompile.frontend.interpret import natives, transforms
from aotcompile.frontend.interpret.known import logs, lookasides, torch_lookasides
from aotcompile.frontend.interpret.attributes import OutsideMethod, static_lookup
from aotcompile.frontend.interpret.classes import function_path
from aotcompile.frontend.interpret.operations import python_method
from aotcompile.frontend.capture.hook_tables import MODULE_HOOK_TABLES
from aotcompile.frontend.capture.outside import CONSTANT_TYPES
from aotcompile.frontend.capture.signals import GraphBreak, UserException
from aotcompile.frontend.capture.symbolic import SYMBOLIC
from aotcompile.frontend.library import is_library_module
from aotcompile.frontend.torch_private import is_stand_in
from aotcompile.ir.paths import Path

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

# Python functions of torch that are interpreted, because they read the user's objects; all others run natively and their tensor calls are recorded.
_INTERPRETED_TORCH = ("torch.nn.modules", "torch.nn.utils.parametrize", "torch.nn.utils.parametrizations", "torch.nn.parameter",
                      "torch.nn.utils.stateless", "torch.nn.utils._named_member_accessor", "torch._higher_order_ops.associative_scan",
                      "torch.utils._contextlib", "torch.utils.checkpoint", "torch.utils.hooks", "torch.nn.attention", "torch.distributions",
                      "torch.nn.init")
_NATIVE_MODULES = {
    "builtins", "_operator", "operator", "math", "itertools", "_collections", "collections", "_functools", "functools", "_abc", "cmath", "_struct",
    "_bisect", "bisect", "_heapq", "heapq", "numbers", "copyreg", "_string", "string", "unicodedata", "_weakref", "weakref", "_typing", "typing",
    "types", "enum", "re", "_sre", "dataclasses", "contextlib", "abc", "_decimal", "decimal", "fractions", "textwrap", "keyword", "inspect",
    "_collections_abc", "_contextvars", "reprlib",
}
_MAKES_INSTANCE: Any = vars(type)["__call__"]          # what a metaclass's own ``__call__`` ends in
_OUTSIDE = ("AOT201", "AOT204", "AOT207")      # breaks at code that takes Python values: numbers read from tensors are read before it
_OUTPUT = {"print": "print", "input": "input", "open": "open", "breakpoint": "breakpoint"}


def call(i: "Interpreter", function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call ``function``. Raises GraphBreak where that cannot be part of a region."""
    try:
        return _call(i, function, arguments, keywords)
    except GraphBreak as signal:
        if i.break_chain is None and signal.code in _OUTSIDE:     # raised here, and not by what the function itself calls
            i.symbols.refuse_items((arguments, keywords))
        raise


def _call(i: "Interpreter", function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    special = lookasides.find(function)
    if special is not None:
        return special(i, *arguments, **keywords)
    if function is _MAKES_INSTANCE:
        return _make_instance(i, arguments[0], arguments[1:], keywords)
    if isinstance(function, types.MethodType):
        if i.is_interpreted_generator(function.__self__):      # send, throw, close: of ours
            return i.plain(function, *arguments, **keywords)
        return call(i, function.__func__, (function.__self__, *arguments), keywords)
    if isinstance(function, OutsideMethod):
        return natives.outside_method(i, function, arguments, keywords)
    if isinstance(function, types.FunctionType):
        ours, original = function.__dict__.get("interpreted", (None, None))      # one of our own callbacks comes back (wraps copies the mark)
        return call(i, original, arguments, keywords) if ours is function else _call_python(i, function, arguments, keywords)
    if isinstance(function, functools.partial):
        return _call_partial(i, function, arguments, keywords)
    if isinstance(function, type):
        return _construct(i, function, arguments, keywords)
    if isinstance(function, torch.nn.Module):
        return _call_module(i, function, arguments, keywords)
    if isinstance(function, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
                             types.ClassMethodDescriptorType)):
        return _call_native(i, function, arguments, keywords)
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return i.plain(function, *map(i.outside.whole, arguments), **keywords)  # the recorder is a function mode: it sees the call
    if type(function) is weakref.ref and not arguments and not keywords:
        path = i.outside.path_of(function)
        return function() if path is None else i.outside.read(function(), path.then("referent"))
    if isinstance(function, functools._lru_cache_wrapper):
        return _call_cached(i, function, arguments, keywords)
    if type(function) in natives.GETTERS and arguments:
        return natives.GETTERS[type(function)](i, function, arguments[0])
    method = python_method(function, "__call__")
    if method is not None:
        _read_class_method(i, function, "__call__", method)
        return call(i, method, (function, *arguments), keywords)
    return _call_native(i, function, arguments, keywords)


def _call_cached(i: "Interpreter", function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A function whose results are remembered (``functools.lru_cache``). What the user's own gives for constants is an object from outside, found by
    calling it; other results are computed again, once in a region, which nobody notices unless they are seen outside or changed: there each is one
    object for all calls.

    With an object made in the region among the arguments, known by its identity, nothing is remembered from before: the region remembers."""
    given = (*arguments, *keywords.values())
    if any(_is_made_here(i, value) for value in given) and all(map(_is_plain_key, given)):
        return _call_remembered(i, function, arguments, keywords)
    key = _remembered_key(function, arguments, keywords) if all(map(_is_plain_key, given)) else None
    if key in i.remembered:
        return i.remembered[key][1]
    before, mark = i.outside.changes(), i.recorder.mark()
    result = call(i, function.__wrapped__, arguments, keywords)
    reason = f"{function.__qualname__} remembers its results"
    if i.outside.changes() != before:
        raise GraphBreak("AOT208", f"{reason} and has effects, once for each")
    made = [part for part in (result if type(result) is tuple else (result,)) if not isinstance(part, _IDENTICAL)
            and (i.original_tensor(part) if isinstance(part, torch.Tensor) else i.outside.path_of(part)) is None]
    constant = not keywords and all(type(each) in (int, bool, str, type(None)) for each in arguments)
    path = i.outside.path_of(function) if made and constant and not is_library_module(function.__module__) else None
    if path is not None and i.may_run:
        i.recorder.forget(mark)
        with torch._C.DisableTorchFunction(), i.recorder.transforms.aside():
            remembered = function(*arguments)
        return i.outside.read(remembered, path.then("call", arguments))
    i.wants_run = i.wants_run or path is not None
    for part in made:
        i.outside.bind(part, f"{reason}, and one is changed or leaves the region", i.call_chain())
    if key is not None:
        i.remembered[key] = given, result
    return result


def _is_made_here(i: "Interpreter", value: Any) -> bool:
    return not isinstance(value, (*_IDENTICAL, tuple, torch.Tensor)) and i.outside.path_of(value) is None


def _is_plain_key(value: Any) -> bool:
    """Whether a dict knows a value by its identity, or by the constants in it."""
    if isinstance(value, tuple):
        return type(value) in (tuple, torch.Size) and all(map(_is_plain_key, value))
    return type(value).__hash__ is object.__hash__ or isinstance(value, (int, float, str, type(None)))


def _plain_key(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_plain_key, value))
    return id(value) if type(value).__hash__ is object.__hash__ else value


def _call_remembered(i: "Interpreter", function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    key, limit = _remembered_key(function, arguments, keywords), function.cache_parameters()["maxsize"]
    if key not in i.remembered:
        if limit is not None and len(i.remembered) >= limit:
            raise GraphBreak("AOT208", f"{function.__qualname__} remembers its results, and forgets the first of them")
        i.remembered[key] = (*arguments, *keywords.values()), call(i, function.__wrapped__, arguments, keywords)
    return i.remembered[key][1]


def _remembered_key(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    names = list(map(_plain_key, (*arguments, *keywords.values())))
    count = len(arguments)
    made = functools._make_key(tuple(names[:count]), dict(zip(keywords, names[count:])), function.cache_parameters()["typed"])  # type: ignore[attr-defined]
    return function, made


_IDENTICAL = (*CONSTANT_TYPES, int, float, *SYMBOLIC, types.FunctionType, type, types.ModuleType)          # it does not matter which object it is


def _read_class_method(i: "Interpreter", owner: Any, name: str, method: types.FunctionType) -> None:
    path = i.outside.path_of(owner)
    if path is not None:
        i.outside.read(i.plain_form(method), path.then("type").attribute(name))


def _call_partial(i: "Interpreter", function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    path = i.outside.path_of(function)
    inner, bound, named = function.func, function.args, function.keywords
    if path is not None:
        inner = i.outside.read(inner, path.attribute("func"))
        bound = i.outside.read(bound, path.attribute("args"))
        named = i.outside.shadow(i.outside.read(named, path.attribute("keywords"))) if named else named
    return call(i, inner, (*bound, *arguments), {**named, **keywords})


# ---- Python functions -----------------------------------------------------------------------------------------------------------------------


def _call_python(i: "Interpreter", function: types.FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    if function is torch.nn.Module.__call__ and arguments and isinstance(arguments[0], torch.nn.Module):
        return _call_forward(i, arguments[0], arguments[1:], keywords)
    if getattr(function, "_torchdynamo_disable", False):
        raise GraphBreak("AOT207", f"{function.__qualname__} is marked torch.compiler.disable")
    if getattr(function, "_dynamo_marked_constant", False):
        return _constant_result(i, function, arguments, keywords)
    if SKIP_ATTRIBUTE in function.__dict__:
        raise GraphBreak("AOT207", f"{function.__qualname__} is marked aotcompile.skip")
    if function.__code__ in _GUARDS_RECURSION:
        return i.call(function.__wrapped__, arguments, keywords)  # type: ignore[attr-defined]
    if "registry" in function.__dict__ and function.__code__ is _SINGLE_DISPATCH:
        return _call_dispatched(i, function, arguments, keywords)
    plain = i.plain_form(function)
    if plain is not function:
        return i.run_function(plain, arguments, keywords)
    if transforms.is_transform(function):
        return transforms.call(i, function, arguments, keywords)
    module = function.__module__ or ""
    if module.partition(".")[0] == "torch" and not module.startswith(_INTERPRETED_TORCH) and not module.startswith("torch.testing"):
        return _call_torch(i, function, arguments, keywords)
    if module == "logging":
        return logs.call(i, function, arguments, keywords)
    if module.partition(".")[0] in _FOREIGN or module in _IO_MODULES:
        raise GraphBreak("AOT201" if module in _IO_MODULES else "AOT204", f"{module}.{function.__qualname__} is called")
    if module in _STANDARD_LIBRARY:
        return natives.standard_library(i, module, function, arguments, keywords)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise GraphBreak("AOT210", "async code cannot be part of a graph")
    return i.run_function(function, arguments, keywords)


# The ``__repr__`` of dataclasses and the like: whether it is running already is asked by id and thread.
_GUARDS_RECURSION = tuple(make(len).__code__ for make in (reprlib.recursive_repr(), getattr(dataclasses, "_recursive_repr", None)) if make)
_SINGLE_DISPATCH = functools.singledispatch(len).__code__            # type: ignore[attr-defined]


def _call_dispatched(i: "Interpreter", function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """`functools.singledispatch`: the implementation for the first argument's class. That no other has been registered since is guarded."""
    if not arguments:
        raise UserException(TypeError(f"{getattr(function, '__name__', 'singledispatch function')} requires at least 1 positional argument"))
    implementation = i.plain(function.dispatch, i.type_of(arguments[0]))
    path = i.outside.path_of(function)
    if path is not None:
        registry = path.attribute("registry")
        i.outside.guard("length", registry, {"type": "builtins:mappingproxy", "length": len(function.registry)})
        registered = next(cls for cls, known in function.registry.items() if known is implementation)
        implementation = i.outside.read(implementation, registry.item(registered))
    return call(i, implementation, arguments, keywords)


def _constant_result(i: "Interpreter", function: types.FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """``torch.compiler.assume_constant_result``: the function is run on the real values now, and what it gives is a constant, by the user's word."""
    def real(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        original = i.original_tensor(value)
        if original is None:
            raise GraphBreak("AOT205", f"{function.__name__} (assume_constant_result) of a tensor that is computed in the region")
        return original[0]

    given, named = tuple(map(real, arguments)), {key: real(value) for key, value in keywords.items()}
    with torch._C.DisableTorchFunction():
        result = i.plain(function, *given, **named)
    if not isinstance(result, (bool, int, float, str, type(None), torch.dtype, torch.device)):
        raise GraphBreak("AOT205", f"{function.__name__} (assume_constant_result) gives a {type(result).__name__}")
    return result


_FOREIGN = {"numpy", "scipy", "pandas", "sklearn", "PIL", "matplotlib", "cv2", "tqdm", "requests", "wandb", "tensorboard", "jax", "tensorflow"}
_IO_MODULES = {"io", "socket", "asyncio"}
_STANDARD_LIBRARY = {"copy", "json", "random", "time", "os", "posixpath", "genericpath", "warnings", "traceback", "threading", "subprocess",
                     "tempfile", "shutil", "glob", "pickle"}


def _call_torch(i: "Interpreter", function: types.FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A Python function of torch: it runs natively; what it does to tensors is recorded by the mode. Callables it gets are interpreted."""
    module = function.__module__
    if module.startswith(("torch._dynamo", "torch._inductor", "torch.compiler", "torch.jit", "torch.distributed", "torch.onnx", "torch.profiler",
                          "torch.hub", "torch.optim")):
        raise GraphBreak("AOT205", f"{module}.{function.__qualname__} is not part of a graph")
    if module in _TORCH_STATE or module.startswith(("torch.cuda", "torch.mps", "torch.xpu", "torch.accelerator")) and not _only_asks(function):
        raise GraphBreak("AOT208", f"{module}.{function.__qualname__} reads or changes a state of torch")
    if module.startswith("torch._higher_order_ops"):
        raise GraphBreak("AOT205", f"{function.__name__} is a higher-order operator")
    if any(_has_attributes(i, a) for a in (*arguments, *keywords.values())):
        return i.run_function(function, arguments, keywords)        # what it reads of them is guarded
    given = tuple(_for_torch(i, a) for a in arguments)
    named = {k: _for_torch(i, v) for k, v in keywords.items()}
    return _from_torch(function, i.plain(function, *given, **named))


def _has_attributes(i: "Interpreter", value: Any) -> bool:
    """Whether ``value`` is an object with attributes that the call may read or change: a module, a dataclass, an object from outside
    (`torch.amp.GradScaler`)."""
    if isinstance(value, torch.nn.Module) or dataclasses.is_dataclass(value) and not isinstance(value, type):
        return True
    return i.outside.path_of(value) is not None and type(getattr(value, "__dict__", None)) is dict \
        and not isinstance(value, (torch.Tensor, types.FunctionType, types.MethodType, types.ModuleType, functools.partial)) \
        and not isinstance(value, type)


# Modules of torch whose functions work on the state of generators, on files, on settings: what they do is no part of a graph.
_TORCH_STATE = {"torch.random", "torch.serialization", "torch._tensor_str", "torch.multiprocessing", "torch.cuda.random", "torch.utils.data",
                "torch.autograd.functional"}


def _only_asks(function: types.FunctionType) -> bool:
    return function.__name__.startswith(("is_", "get_device_", "device_count", "current_device", "_is_"))


def _from_torch(function: Any, result: Any) -> Any:
    """What torch gave back. A real tensor was made behind the recording mode's back (from numpy, from a buffer)."""
    if isinstance(result, torch.Tensor) and not is_stand_in(result):
        raise GraphBreak("AOT204", f"torch.{getattr(function, '__name__', function)} makes a tensor from outside data")
    return result


def _for_torch(i: "Interpreter", value: Any) -> Any:
    value = i.symbols.decide(i.outside.whole_inside(value))
    if isinstance(value, (types.FunctionType, types.MethodType)) and not (value.__module__ or "").startswith("torch."):
        return i.callback(value)
    return value


def bind(i: "Interpreter", function: types.FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """The local variables at a call, by CPython's rules; defaults of functions from outside are read with guards."""
    code = function.__code__
    names = code.co_varnames
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    path = function_path(i, function) if function.__defaults__ or function.__kwdefaults__ else None
    local: dict[str, Any] = dict(zip(names[:positional], arguments))
    extra = arguments[positional:]
    rest = dict(keywords)
    for name in names[:positional + keyword_only]:
        if name in rest and names.index(name) >= code.co_posonlyargcount:
            if name in local:
                raise UserException(TypeError(f"{function.__qualname__}() got multiple values for argument '{name}'"))
            local[name] = rest.pop(name)
    _fill_defaults(i, function, local, path)
    missing = [name for name in names[:positional + keyword_only] if name not in local]
    if missing:
        raise UserException(TypeError(f"{function.__qualname__}() {_missing_text(missing, names[:positional])}"))
    index = positional + keyword_only
    if code.co_flags & inspect.CO_VARARGS:
        local[names[index]] = tuple(extra)
        index += 1
    elif extra:
        raise UserException(TypeError(f"{function.__qualname__}() {_too_many_text(function, len(arguments), local)}"))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        local[names[index]] = rest
    elif rest:
        raise UserException(TypeError(f"{function.__qualname__}() got an unexpected keyword argument '{next(iter(rest))}'"))
    return local


def _missing_text(missing: list[str], positional: tuple[str, ...]) -> str:
    """CPython's words: positional ones are reported first, keyword-only ones when no other is missing."""
    first = [name for name in missing if name in positional]
    kind, named = ("positional", first) if first else ("keyword-only", missing)
    quoted = [repr(name) for name in named]
    text = quoted[0] if len(quoted) == 1 else " and ".join(quoted) if len(quoted) == 2 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
    return f"missing {len(named)} required {kind} argument{'s' if len(named) > 1 else ''}: {text}"


def _too_many_text(function: types.FunctionType, given: int, local: dict[str, Any]) -> str:
    code = function.__code__
    most = code.co_argcount
    least = most - len(function.__defaults__ or ())
    takes = str(most) if least == most else f"from {least} to {most}"
    defaults = function.__kwdefaults__ or {}
    keywords = sum(name in local and local[name] is not defaults.get(name, local) for name in code.co_varnames[most:most + code.co_kwonlyargcount])
    also = f" positional argument{'s' if given != 1 else ''} (and {keywords} keyword-only argument{'s' if keywords != 1 else ''})" if keywords else ""
    return f"takes {takes} positional argument{'' if most == 1 else 's'} but {given}{also} {'was' if given == 1 and not keywords else 'were'} given"


def _fill_defaults(i: "Interpreter", function: types.FunctionType, local: dict[str, Any], path: Path | None) -> None:
    code = function.__code__
    names = code.co_varnames
    defaults = function.__defaults__ or ()
    first = code.co_argcount - len(defaults)
    for index, value in enumerate(defaults):
        name = names[first + index]
        if name not in local:
            local[name] = i.outside.read(value, path.attribute("__defaults__").item(index)) if path else value
    for name, value in (function.__kwdefaults__ or {}).items():
        if name not in local:
            local[name] = i.outside.read(value, path.attribute("__kwdefaults__").item(name)) if path else value


# ---- classes --------------------------------------------------------------------------------------------------------------------------------


def _construct(i: "Interpreter", cls: type, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    if issubclass(cls, torch.Tensor) and cls not in (torch.Tensor,):
        raise GraphBreak("AOT211", f"a {cls.__name__} is made")
    metaclass_call = static_lookup(type(cls), "__call__")
    if isinstance(metaclass_call, types.FunctionType) and type(cls).__module__ not in ("enum", "abc", "typing"):
        return call(i, metaclass_call, (cls, *arguments), keywords)
    return _make_instance(i, cls, arguments, keywords)


def _make_instance(i: "Interpreter", cls: type, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """``type.__call__``."""
    if isinstance(static_lookup(cls, "__del__"), types.FunctionType):
        raise GraphBreak("AOT208", f"a {cls.__qualname__} is made, which has a finalizer (__del__)")
    make, initialise = static_lookup(cls, "__new__"), static_lookup(cls, "__init__")
    make = make.__func__ if isinstance(make, staticmethod) else make
    python_new, python_init = isinstance(make, types.FunctionType), isinstance(initialise, types.FunctionType)
    if type(cls).__module__ == "enum" or not (python_new or python_init):
        return _call_native(i, cls, arguments, keywords)
    if cls.__module__.partition(".")[0] in _FOREIGN:
        raise GraphBreak("AOT204", f"a {cls.__module__}.{cls.__qualname__} is made")
    if cls.__module__.startswith("torch.") and not cls.__module__.startswith(_INTERPRETED_TORCH) and not issubclass(cls, torch.autograd.Function):
        return torch_lookasides.construct_torch(i, cls, arguments, keywords)
    if python_new:
        made = i.run_function(make, (cls, *arguments), keywords)
    elif make is object.__new__ or static_lookup(object, "__new__") is make:
        made = i.plain(object.__new__, cls)
    else:
        base_takes_arguments = not python_init or issubclass(cls, (tuple, int, float, str, frozenset, bytes))
        made = i.native(cls.__new__, (cls, *arguments) if base_takes_arguments else (cls,), keywords if base_takes_arguments else {})
    if isinstance(made, cls):
        if python_init:
            i.run_function(initialise, (made, *arguments), keywords)
        elif static_lookup(object, "__init__") is not initialise:
            i.native(cls.__init__, (made, *arguments), keywords)
    return made


# ---- modules --------------------------------------------------------------------------------------------------------------------------------

_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _call_module(i: "Interpreter", module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """``module(...)``."""
    custom = static_lookup(type(module), "__call__")
    if custom is not torch.nn.Module.__call__ and isinstance(custom, types.FunctionType):
        return call(i, custom, (module, *arguments), keywords)
    return _call_forward(i, module, arguments, keywords)


def _call_forward(i: "Interpreter", module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """`torch.nn.Module.__call__`: straight to forward where no hook is registered (a guard), else by the plain form, or torch's own Python code."""
    i.outside.read(torch.nn.Module.__call__, Path(("module", "torch.nn.modules.module")).attribute("Module").attribute("__call__"))
    path = i.outside.path_of(module)
    hooked = False
    home = Path(("module", "torch.nn.modules.module"))
    for name in _GLOBAL_HOOKS:
        table = getattr(torch.nn.modules.module, name)
        hooked = hooked or bool(i.outside.shadows.get(id(table), table))
        i.outside.guard("length", home.attribute(name), {"type": "collections:OrderedDict", "length": len(table)})
    for name in _HOOKS:
        table = module.__dict__.get(name, {})
        hooked = hooked or bool(i.outside.shadows.get(id(table), table))
        if path is not None and name in module.__dict__:
            kind = type(table)
            i.outside.guard("length", path.attribute(name), {"type": f"{kind.__module__}:{kind.__qualname__}", "length": len(table)})
    if hooked:
        hooks = {name: i.outside.shadows.get(id(table), table) for name, table in vars(module).items() if name in MODULE_HOOK_TABLES}
        if hooks.get("_backward_hooks") or hooks.get("_backward_pre_hooks"):
            raise GraphBreak("AOT205", f"a module with backward hooks ({type(module).__name__}) is called")
        plain = i.plain_form(module, hooks)
        return i.run_function(torch.nn.Module._call_impl if plain is module else plain, (module, *arguments), keywords)
    return call(i, i.load_attribute(module, "forward"), arguments, keywords)


# ---- native code ----------------------------------------------------------------------------------------------------------------------------


def _call_native(i: "Interpreter", function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    name = getattr(function, "__name__", type(function).__name__)
    owner = getattr(function, "__self__", None)
    if isinstance(function, types.MethodDescriptorType) and arguments and isinstance(arguments[0], contextvars.ContextVar):
        return _context_variable(i, arguments[0], name, arguments[1:])
    if isinstance(owner, contextvars.ContextVar):
        return _context_variable(i, owner, name, arguments)
    if isinstance(owner, torch.Generator) or arguments and isinstance(arguments[0], torch.Generator):
        raise GraphBreak("AOT208", f"a random generator's {name}()")
    if isinstance(owner, torch.Tensor) or (not isinstance(owner, (types.ModuleType, type(None))) and type(owner).__module__ == "builtins"):
        return natives.native_method(i, function, owner, name, arguments, keywords)
    module = _module_of(function)
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)) and arguments and i.outside.is_derived(arguments[0]):
        return natives.derived_container(i, function, name, arguments, keywords)
    if module == "builtins" and name in _OUTPUT:
        raise GraphBreak("AOT201", f"{name}() is called")
    if module.partition(".")[0] == "torch":
        return _from_torch(function, i.plain(function, *(_for_torch(i, a) for a in arguments), **{k: _for_torch(i, v) for k, v in keywords.items()}))
    if module not in _NATIVE_MODULES and not _harmless_type(function):
        if module.partition(".")[0] == "numpy":
            return natives.numpy_call(i, function, name, arguments, keywords)
        raise GraphBreak("AOT204", f"{module}.{name} is called, code that cannot be looked into")
    return natives.native_call(i, function, name, arguments, keywords)


def _context_variable(i: "Interpreter", variable: contextvars.ContextVar[Any], name: str, arguments: tuple[Any, ...]) -> Any:
    """``variable.get()`` is read with a guard on the value it has now; setting one is outside a graph."""
    path = i.outside.path_of(variable)
    if name != "get" or arguments or path is None:
        raise GraphBreak("AOT208", f"a context variable's {name}() with an effect or a default")
    return i.outside.read(i.plain(variable.get), path.then("context_variable"))


def _harmless_type(function: Any) -> bool:
    """A class whose making runs no user code: exceptions, and classes without ``__new__``/``__init__`` of their own."""
    if not isinstance(function, type):
        return False
    return issubclass(function, BaseException) or all(
        base.__module__ in _NATIVE_MODULES or ("__init__" not in base.__dict__ and "__new__" not in base.__dict__)
        for base in function.__mro__) or type(function).__module__ == "enum"


def _module_of(function: Any) -> str:
    module = getattr(function, "__module__", None)
    owner = getattr(function, "__self__", None) if module is None else None
    if owner is None and module is None:
        owner = getattr(function, "__objclass__", None)
    if owner is not None:
        module = owner.__name__ if isinstance(owner, types.ModuleType) else owner.__module__ if isinstance(owner, type) else type(owner).__module__
    return str(module or type(function).__module__)


__all__ = ["bind", "call"]
