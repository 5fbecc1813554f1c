"""Callables with a meaning of their own for the interpreter: builtins that look at classes, containers' methods, torch's context managers."""
from __future__ import annotations

import builtins
import copy
import functools
import importlib.metadata
import importlib.util
import inspect
import math
import operator
import os
import sys
import types
import typing
import warnings
from typing import TYPE_CHECKING, Any, Callable

import torch
import torch.utils.checkpoint
from torch.utils.hooks import RemovableHandle

from aotcompile.frontend.interpret.attributes import OutsideMethod, plain_delete, plain_load, plain_store
from aotcompile.frontend.interpret.operations import _UNARY, fix_deep, format_value, operate, python_method, unary
from aotcompile.frontend.capture import custom_function
from aotcompile.frontend.capture.signals import GraphBreak, UserException, number_needed
from aotcompile.frontend.capture.symbolic import SYMBOLIC
from aotcompile.frontend.interpret.copying import deep_copy
from aotcompile.frontend.interpret.hook_handles import make_handle
from aotcompile.frontend.torch_private import FakeTensor, associative_scan_op, compile_and_run, generic_associative_scan
from aotcompile.ir.guards import constant_json
from aotcompile.ir.paths import Path

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

_TABLE: dict[int, tuple[Any, Callable[..., Any]]] = {}


def lookaside(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the interpreter's version of these callables."""

    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            _TABLE[id(function)] = (function, handler)
        return handler

    return register


def find(function: Any) -> Callable[..., Any] | None:
    entry = _TABLE.get(id(function))
    if entry is not None and entry[0] is function:
        return entry[1]
    return functools.partial(_bound_apply, function) if type(function) is types.BuiltinFunctionType and function.__name__ == "apply" \
        and isinstance(function.__self__, type) and issubclass(function.__self__, torch.autograd.Function) else None


def _bound_apply(function: Any, i: "Interpreter", *arguments: Any, **keywords: Any) -> Any:
    """``Scale.apply`` where it is a C method (torch 2.14)."""
    return custom_function.apply(i, function.__self__, *arguments, **keywords)


# ---- attributes and classes -----------------------------------------------------------------------------------------------------------------

_NOTHING = object()


@lookaside(getattr)
def _getattr(i: "Interpreter", owner: Any, name: str, default: Any = _NOTHING) -> Any:
    try:
        return i.load_attribute(owner, name)
    except UserException as raised:
        if default is not _NOTHING and isinstance(raised.exception, AttributeError):
            return default
        raise


@lookaside(hasattr)
def _hasattr(i: "Interpreter", owner: Any, name: str) -> bool:
    return _getattr(i, owner, name, _NOTHING_FOUND) is not _NOTHING_FOUND


_NOTHING_FOUND = object()


@lookaside(setattr)
def _setattr(i: "Interpreter", owner: Any, name: str, value: Any) -> None:
    i.store_attribute(owner, name, value)


@lookaside(delattr)
def _delattr(i: "Interpreter", owner: Any, name: str) -> None:
    i.delete_attribute(owner, name)


@lookaside(object.__setattr__, torch.nn.Module.__setattr__)
def _plain_setattr(i: "Interpreter", owner: Any, name: str, value: Any) -> None:
    plain_store(i, owner, name, value)


@lookaside(object.__delattr__, torch.nn.Module.__delattr__)
def _plain_delattr(i: "Interpreter", owner: Any, name: str) -> None:
    plain_delete(i, owner, name)


@lookaside(object.__getattribute__)
def _plain_getattribute(i: "Interpreter", owner: Any, name: str) -> Any:
    found, value = i.outside.written(owner, name)
    return value if found else plain_load(i, owner, name, i.outside.path_of(owner), fallback=False)


@lookaside(isinstance)
def _isinstance(i: "Interpreter", value: Any, kinds: Any) -> bool:
    if isinstance(value, torch.Tensor):
        if isinstance(kinds, tuple):
            return any(_isinstance(i, value, kind) for kind in kinds)
        if kinds is FakeTensor:          # ours, not the program's
            return False
        if i.type_of(value) is torch.Tensor or kinds is torch.nn.Parameter:
            return bool(i.plain(isinstance, value, kinds))
        return bool(i.plain(issubclass, i.type_of(value), kinds))
    if isinstance(value, SYMBOLIC):
        return bool(i.plain(issubclass, i.type_of(value), kinds))
    if i.is_interpreted_generator(value):
        return bool(i.plain(issubclass, types.GeneratorType, kinds))
    return bool(i.plain(isinstance, value, kinds))


@lookaside(type)
def _type(i: "Interpreter", *arguments: Any) -> Any:
    if len(arguments) != 1:
        raise GraphBreak("AOT210", "a class definition cannot be part of a graph", kind="statement")
    return i.type_of(arguments[0])


@lookaside(torch.overrides.has_torch_function, torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic)
def _has_torch_function(i: "Interpreter", *values: Any) -> bool:
    """The capture's own function mode is not the user's: plain tensors have no ``__torch_function__`` here."""
    given = values[0] if len(values) == 1 and isinstance(values[0], (tuple, list)) else values
    kinds = [i.type_of(value) for value in given]
    return any(kind not in (torch.Tensor, torch.nn.Parameter) and hasattr(kind, "__torch_function__") for kind in kinds)


@lookaside(callable)
def _callable(i: "Interpreter", value: Any) -> bool:
    return isinstance(value, OutsideMethod) or callable(value)


@lookaside(sys.exc_info)
def _exc_info(i: "Interpreter") -> tuple[Any, Any, Any]:
    frame = i.frame
    while frame is not None and frame.handled is None:
        frame = frame.caller
    return (None, None, None) if frame is None or frame.handled is None else (type(frame.handled), frame.handled, frame.handled.__traceback__)


@lookaside(sys.exception)
def _exception(i: "Interpreter") -> BaseException | None:
    return _exc_info(i)[1]


@lookaside(id)
def _identity(i: "Interpreter", value: Any) -> Any:
    raise GraphBreak("AOT205", "id() of an object")


@lookaside(hash, object.__hash__)
def _hash(i: "Interpreter", value: Any) -> Any:
    """Of numbers, and by a ``__hash__`` written in Python. All other hashes are different in every process."""
    value = fix_deep(i, value)
    method = python_method(value, "__hash__")
    if method is not None:
        return i.plain(hash, _Hashed(i.call(method, (value,), {})))
    if type(value) is tuple:
        return i.plain(hash, tuple(_Hashed(_hash(i, item)) for item in value))
    if isinstance(value, (int, float, complex)):
        return i.plain(hash, value)
    raise GraphBreak("AOT205", f"hash() of a {type(value).__name__}, which is another number in every process")


class _Hashed:
    """Something whose hash is known."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __hash__(self) -> int:
        return self._value


@lookaside(super)
def _super(i: "Interpreter", *arguments: Any) -> Any:
    if not arguments:
        frame = i.frame
        assert frame is not None
        owner = frame.locals.get(frame.code.co_varnames[0])
        if owner is None and frame.code.co_varnames[0] in frame.cells:
            owner = frame.cells[frame.code.co_varnames[0]].cell_contents
        return i.plain(super, i.read_cell(frame, "__class__"), owner)
    return i.plain(super, *arguments)


@lookaside(vars)
def _vars(i: "Interpreter", *arguments: Any) -> Any:
    if not arguments:
        raise GraphBreak("AOT205", "vars() without an argument", kind="statement")
    return i.load_attribute(arguments[0], "__dict__")


@lookaside(locals, globals, eval, exec, compile, builtins.__import__, dir)
def _reflection(i: "Interpreter", *arguments: Any, **keywords: Any) -> Any:
    raise GraphBreak("AOT205", "locals(), globals(), dir(), eval() or exec()", kind="statement")


# ---- numbers and sizes ----------------------------------------------------------------------------------------------------------------------


@lookaside(len)
def _len(i: "Interpreter", value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.ndim == 0:
            raise UserException(TypeError("len() of a 0-d tensor"))
        return value.shape[0]
    if i.outside.is_container(value):
        return i.outside.length(value)
    method = python_method(value, "__len__")
    return i.call(method, (value,), {}) if method is not None else i.plain(len, value)


@lookaside(bool)
def _bool(i: "Interpreter", *arguments: Any) -> Any:
    value = arguments[0] if arguments else False
    if isinstance(value, FakeTensor) and value.numel() == 1:
        return i.recorder.number(value if value.dtype is torch.bool else i.native(torch.ne, (value, 0), {}), "bool()")
    return value if isinstance(value, torch.SymBool) and i.symbols.is_data(value) else i.truth(value)


@lookaside(int)
def _int(i: "Interpreter", *arguments: Any, **keywords: Any) -> Any:
    if len(arguments) == 1 and not keywords:
        value = arguments[0]
        if isinstance(value, FakeTensor):
            value = i.recorder.number(value, "int()")
        if isinstance(value, torch.SymInt):
            return value
        if isinstance(value, torch.SymFloat):
            return torch.sym_int(value)
        method = python_method(value, "__int__") or python_method(value, "__index__")
        if method is not None:
            return i.call(method, (value,), {})
    return i.plain(int, *fix_deep(i, arguments), **keywords)


@lookaside(float)
def _float(i: "Interpreter", *arguments: Any) -> Any:
    if len(arguments) == 1 and isinstance(arguments[0], FakeTensor):
        value = i.recorder.number(arguments[0], "float()")
        return torch.sym_float(value) if isinstance(value, torch.SymInt) else value
    if arguments and isinstance(arguments[0], torch.SymInt):
        return torch.sym_float(arguments[0])
    if arguments and isinstance(arguments[0], torch.SymFloat):
        i.symbols.refuse_items(arguments[0])       # float(x.item()): a plain Python number is asked for
        return arguments[0]
    method = python_method(arguments[0], "__float__") if arguments else None
    return i.call(method, arguments, {}) if method is not None else i.plain(float, *arguments)


@lookaside(str)
def _text(i: "Interpreter", *arguments: Any, **keywords: Any) -> str:
    return format_value(i, arguments[0], str, None) if arguments and not keywords and len(arguments) == 1 else i.plain(str, *arguments, **keywords)


@lookaside(repr)
def _repr(i: "Interpreter", value: Any) -> str:
    return format_value(i, value, repr, None)


@lookaside(format)
def _format(i: "Interpreter", value: Any, specification: str = "") -> str:
    return format_value(i, value, None, specification)


def _extreme(i: "Interpreter", function: Any, symbolic: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    values = list(i.native(list, (i.iterate(arguments[0]),), {})) if len(arguments) == 1 else list(arguments)
    if any(isinstance(v, SYMBOLIC) for v in values) and not keywords and all(isinstance(v, (int, float, *SYMBOLIC)) for v in values):
        if len({i.type_of(v) for v in values}) == 1:
            return functools.reduce(symbolic, values)
        values = [i.symbols.fix(v) for v in values]           # of an int and a float, which type the result has depends on the values
    if "key" in keywords and keywords["key"] is not None:
        keywords = {**keywords, "key": i.callback(keywords["key"])}
    elif any(isinstance(v, torch.Tensor) for v in values) and len(values) > 1:
        raise GraphBreak("AOT202", f"{function.__name__}() compares tensors", "Use torch.maximum/torch.minimum.")
    return i.plain(function, values, **keywords)


@lookaside(max)
def _max(i: "Interpreter", *arguments: Any, **keywords: Any) -> Any:
    return _extreme(i, max, torch.sym_max, arguments, keywords)


@lookaside(min)
def _min(i: "Interpreter", *arguments: Any, **keywords: Any) -> Any:
    return _extreme(i, min, torch.sym_min, arguments, keywords)


@lookaside(sum)
def _sum(i: "Interpreter", values: Any, start: Any = 0) -> Any:
    total = start
    for value in i.native(list, (i.iterate(values),), {}):
        total = operate(i, operator.add, total, value)
    return total


@lookaside(any)
def _any(i: "Interpreter", values: Any) -> bool:
    iterator = i.iterator(values)
    while True:
        found, value = i.advance(iterator)
        if not found or i.truth(value):
            return found


@lookaside(all)
def _all(i: "Interpreter", values: Any) -> bool:
    iterator = i.iterator(values)
    while True:
        found, value = i.advance(iterator)
        if not found or not i.truth(value):
            return not found


@lookaside(iter)
def _iter(i: "Interpreter", *arguments: Any) -> Any:
    return i.iterator(arguments[0]) if len(arguments) == 1 else i.plain(iter, i.callback(arguments[0]), arguments[1])


@lookaside(next)
def _next(i: "Interpreter", iterator: Any, *default: Any) -> Any:
    found, value = i.advance(iterator)
    if found:
        return value
    if default:
        return default[0]
    raise UserException(StopIteration() if value is None else StopIteration(value))


@lookaside(math.sqrt)
def _sqrt(i: "Interpreter", value: Any) -> Any:
    if isinstance(value, SYMBOLIC) and i.symbols.is_data(value):
        raise number_needed("math.sqrt()")
    symbolic = isinstance(value, SYMBOLIC) and hasattr(torch, "sym_sqrt") and i.truth(operate(i, operator.ge, value, 0))
    return i.plain(torch.sym_sqrt if symbolic else math.sqrt, value)


@lookaside(reversed)
def _reversed(i: "Interpreter", value: Any) -> Any:
    value = i.outside.whole(value)
    method = python_method(value, "__reversed__")
    if method is not None:
        return i.call(method, (value,), {})
    if python_method(value, "__getitem__") is not None:
        return iter([i.get_item(value, index) for index in range(i.call(len, (value,), {}) - 1, -1, -1)])
    return i.plain(reversed, value)


def _operators() -> None:
    binary = [getattr(operator, name) for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
        "lt", "le", "eq", "ne", "gt", "ge", "iadd", "isub", "imul", "itruediv")]
    for function in binary:
        lookaside(function)(functools.partial(_operate, function))
    for function in _UNARY:
        lookaside(function)(functools.partial(_unary, function))
    lookaside(operator.getitem)(lambda i, container, key: i.get_item(container, key))
    lookaside(operator.setitem)(lambda i, container, key, value: i.set_item(container, key, value))
    lookaside(operator.delitem)(lambda i, container, key: i.delete_item(container, key))
    lookaside(operator.contains)(lambda i, container, key: i.contains(container, key))
    lookaside(operator.truth)(lambda i, value: i.truth(value))
    lookaside(operator.not_)(lambda i, value: not i.truth(value))
    lookaside(operator.is_)(lambda i, left, right: i.same(left, right))
    lookaside(operator.is_not)(lambda i, left, right: not i.same(left, right))


def _operate(function: Any, i: "Interpreter", left: Any, right: Any) -> Any:
    return operate(i, function, left, right)


def _unary(function: Any, i: "Interpreter", value: Any) -> Any:
    return unary(i, function, value)


_operators()

# ---- torch ----------------------------------------------------------------------------------------------------------------------------------


@lookaside(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _is_compiling(i: "Interpreter") -> bool:
    return True


@lookaside(*(getattr(owner, name) for owner, name in (
    (torch.compiler, "is_exporting"), (torch.jit, "is_tracing"), (torch.jit, "is_scripting"), (torch.onnx, "is_in_onnx_export"),
    (torch._C, "_get_tracing_state")) if hasattr(owner, name)))
def _other_tracers(i: "Interpreter") -> bool:
    """torch.jit's and torch.export's questions: the compiled code runs under none of them."""
    return False


@lookaside(*(getattr(torch.nn.RNNBase, name) for name in ("_weights_have_changed",) if hasattr(torch.nn.RNNBase, name)))
def _weights_have_changed(i: "Interpreter", module: Any) -> bool:
    """Whether the weights are not those of the module's flat list any more. It asks weak references; reading both guards that they are the same."""
    flat = i.load_attribute(module, "_flat_weights")
    names = list(i.iterate(i.load_attribute(module, "_flat_weights_names")))
    return any(i.load_attribute(module, name) is not i.get_item(flat, number) for number, name in enumerate(names))


@lookaside(*{type(form).__getitem__ for form in (typing.List, typing.Tuple, typing.Callable, typing.Optional)})
def _type_expression(i: "Interpreter", form: Any, parameters: Any) -> Any:
    """``List[torch.Tensor]`` in a function: the same object each time."""
    return i.plain(operator.getitem, form, parameters)


@lookaside(torch.jit.annotate)
def _annotate(i: "Interpreter", the_type: Any, the_value: Any) -> Any:
    """A type for torch.jit's compiler; nothing anywhere else."""
    return the_value


@lookaside(importlib.util.find_spec)
def _find_specification(i: "Interpreter", *arguments: Any) -> Any:
    """What is installed: versions are checked when a package is loaded."""
    return i.plain(importlib.util.find_spec, *arguments)


@lookaside(importlib.metadata.version)
def _installed_version(i: "Interpreter", name: str) -> Any:
    return i.plain(importlib.metadata.version, name)


@lookaside(os._Environ.__getitem__)
def _environment(i: "Interpreter", environment: Any, name: str) -> str:
    """A variable of the process's environment is read with a guard on its value."""
    if environment is not os.environ or not isinstance(name, str):
        raise GraphBreak("AOT201", "an environment is read")
    path = Path(("module", "os")).attribute("environ")
    i.outside.guard("contains", path, {"key": constant_json(name), "present": name in os.environ})
    if name not in os.environ:
        raise UserException(KeyError(name))
    return str(i.outside.read(os.environ[name], path.item(name)))


@lookaside(os.getenv)
def _getenv(i: "Interpreter", name: str, default: Any = None) -> Any:
    try:
        return _environment(i, os.environ, name)
    except UserException:
        return default


@lookaside(copy.deepcopy)
def _deepcopy(i: "Interpreter", value: Any, memo: Any = None) -> Any:
    return deep_copy(i, value, {}, memo)


@lookaside(inspect.signature)
def _signature(i: "Interpreter", function: Any, **keywords: Any) -> Any:
    """A function's own signature, which its guard covers."""
    return i.plain(inspect.signature, function, **keywords)


@lookaside(compile_and_run)
def _compile_and_run(i: "Interpreter", function: Any, *arguments: Any) -> Any:
    return i.call(function, arguments, {})


@lookaside(associative_scan_op)
def _associative_scan(i: "Interpreter", function: Any, leaves: Any, additional_inputs: Any) -> Any:
    """torch's own algorithm, in as many steps as the length has binary digits."""
    return i.call(generic_associative_scan, (function, leaves), {"additional_inputs": additional_inputs})


if isinstance(torch.autograd.Function.apply, types.MethodType):
    lookaside(torch.autograd.Function.apply.__func__)(custom_function.apply)


@lookaside(torch.utils.checkpoint.checkpoint)
def _checkpoint(i: "Interpreter", function: Any, *arguments: Any, use_reentrant: bool | None = None, context_fn: Any = None, **keywords: Any) -> Any:
    """What is recomputed in the backward pass is decided when the graph is partitioned: here it is a call."""
    if use_reentrant is not False or context_fn is not None:
        raise GraphBreak("AOT205", "torch.utils.checkpoint with use_reentrant=True or a context_fn", "Pass use_reentrant=False.")
    own = ("preserve_rng_state", "determinism_check", "debug", "early_stop")
    return i.call(function, arguments, {name: value for name, value in keywords.items() if name not in own})


@lookaside(torch.is_tensor)
def _is_tensor(i: "Interpreter", value: Any) -> bool:
    return isinstance(value, torch.Tensor)


@lookaside(torch.is_grad_enabled)
def _is_grad_enabled(i: "Interpreter") -> bool:
    return torch.is_grad_enabled()


@lookaside(torch._check, torch._check_value, torch._check_index, torch._check_type, torch._check_not_implemented)
def _check(i: "Interpreter", condition: Any, message: Any = None) -> None:
    """A condition on data is checked at run time; one on sizes is a guard, or fails now."""
    if i.symbols.is_data(condition) and i.symbols.check(condition, i.recorder):
        return
    if not i.truth(condition):
        text = "Expected cond to be True, but got False." if message is None else i.call(message, (), {})
        raise UserException(RuntimeError(text))


@lookaside(torch._check_is_size)
def _check_is_size(i: "Interpreter", value: Any, message: Any = None, *, max: Any = None) -> None:
    _check(i, operate(i, operator.ge, value, 0), message)
    if max is not None:
        _check(i, operate(i, operator.le, value, max), message)


@lookaside(torch._assert)
def _assert(i: "Interpreter", condition: Any, message: str) -> None:
    if not i.truth(condition):
        raise UserException(AssertionError(message))


@lookaside(torch.compiler.disable)
def _disable(i: "Interpreter", *arguments: Any, **keywords: Any) -> Any:
    raise GraphBreak("AOT207", "torch.compiler.disable is used")


@lookaside(warnings.warn)
def _warn(i: "Interpreter", *arguments: Any, **keywords: Any) -> None:
    raise GraphBreak("AOT201", "warnings.warn is called")


@lookaside(torch.set_default_dtype, torch.set_default_device, torch.set_num_threads, torch.use_deterministic_algorithms,
           torch.set_default_tensor_type, torch.set_float32_matmul_precision, torch.set_flush_denormal, torch.set_warn_always,
           torch.set_deterministic_debug_mode, torch.set_num_interop_threads, torch.autograd.set_multithreading_enabled)
def _global_setting(i: "Interpreter", *arguments: Any, **keywords: Any) -> None:
    raise GraphBreak("AOT208", "a global setting of torch is changed", kind="statement")


def construct_torch(i: "Interpreter", cls: type, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """An object of a torch class: grad-mode switches and the like are made for real; their effect is part of the graph."""
    if cls is torch.Generator:
        raise GraphBreak("AOT205", "a random generator is made")
    if cls.__module__.startswith(("torch.autograd.grad_mode", "torch.amp", "torch.cpu.amp", "torch.cuda.amp", "torch.backends",
                                  "torch.nn.attention", "torch._C", "torch.types", "torch.utils._python_dispatch")) or issubclass(cls, BaseException):
        return i.plain(cls, *arguments, **keywords)
    raise GraphBreak("AOT205", f"a {cls.__module__}.{cls.__qualname__} is made")


lookaside(RemovableHandle)(make_handle)


@lookaside(torch.inference_mode.__enter__)
def _enter_inference_mode(i: "Interpreter", context: torch.inference_mode) -> None:
    """It stays in the program: regions inside run under it, and what they make are inference tensors."""
    raise GraphBreak("AOT205", "torch.inference_mode is entered", "What it holds is compiled.")


@lookaside(torch.is_inference_mode_enabled)
def _is_inference_mode_enabled(i: "Interpreter") -> bool:
    i.outside.guard("state", None, {"inference_mode": i.recorder.inference_mode})
    return i.recorder.inference_mode


@lookaside(torch.autocast.__enter__)
def _enter_autocast(i: "Interpreter", context: torch.autocast) -> Any:
    if not i.recorder.transforms.active:           # there the operators are recorded with their casts
        arguments = (context.device, context.fast_dtype, context._enabled, context._cache_enabled)
        node = i.recorder.graph.call_function(torch.amp.autocast_mode._enter_autocast, arguments)
        i.recorder._annotate(node)
        context._aotcompile_node = node  # type: ignore[attr-defined]
    with torch._C.DisableTorchFunction():
        return i.plain(torch.autocast.__enter__, context)


@lookaside(torch.autocast.__exit__)
def _exit_autocast(i: "Interpreter", context: torch.autocast, *error: Any) -> Any:
    if not i.recorder.transforms.active:
        i.recorder.graph.call_function(torch.amp.autocast_mode._exit_autocast, (context._aotcompile_node,))  # type: ignore[attr-defined]
    with torch._C.DisableTorchFunction():
        return i.plain(torch.autocast.__exit__, context, *error)
