"""Callables with a meaning of their own for the interpreter: builtins that look at classes, attributes, numbers and iterators."""
from __future__ import annotations

import builtins
import functools
import math
import operator
import sys
import types
from typing import TYPE_CHECKING, Any, Callable

import torch

from aotcompile.frontend.interpret import natives
from aotcompile.frontend.library import is_library_module
from aotcompile.frontend.interpret.attributes import OutsideMethod, class_attribute, plain_delete, plain_load, plain_store
from aotcompile.frontend.interpret.operations import _UNARY, fix_deep, format_value, operate, python_method, unary
from aotcompile.frontend.capture import custom_function
from aotcompile.frontend.capture.containers import CONTAINERS
from aotcompile.frontend.capture.identities import Identity
from aotcompile.frontend.capture.outside import CONSTANT_TYPES
from aotcompile.frontend.capture.signals import GraphBreak, UserException, number_needed
from aotcompile.frontend.capture.symbolic import SYMBOLIC
from aotcompile.frontend.torch_private import FakeTensor

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


@lookaside(object.__setattr__, type.__setattr__, torch.nn.Module.__setattr__)
def _plain_setattr(i: "Interpreter", owner: Any, name: str, value: Any) -> None:
    plain_store(i, owner, name, value)


@lookaside(object.__delattr__, type.__delattr__, torch.nn.Module.__delattr__)
def _plain_delattr(i: "Interpreter", owner: Any, name: str) -> None:
    plain_delete(i, owner, name)


@lookaside(object.__getattribute__, type.__getattribute__)
def _plain_getattribute(i: "Interpreter", owner: Any, name: str) -> Any:
    found, value = i.outside.written(owner, name)
    if isinstance(owner, type) and not found:
        return class_attribute(i, owner, name, i.outside.path_of(owner))
    return value if found else plain_load(i, owner, name, i.outside.path_of(owner), fallback=False)


def _metaclass_answer(i: "Interpreter", kind: Any, name: str, asked: Any) -> bool | None:
    """What a metaclass's ``__instancecheck__`` or ``__subclasscheck__`` written in Python says; None where it has none (libraries' are run)."""
    method = python_method(kind, name)
    return None if method is None or is_library_module(method.__module__) else i.truth(i.call(method, (kind, asked), {}))


@lookaside(issubclass)
def _issubclass(i: "Interpreter", kind: Any, kinds: Any) -> bool:
    if isinstance(kinds, tuple):
        return any(_issubclass(i, kind, each) for each in kinds)
    answer = _metaclass_answer(i, kinds, "__subclasscheck__", kind)
    return bool(i.plain(issubclass, kind, kinds)) if answer is None else answer


@lookaside(isinstance)
def _isinstance(i: "Interpreter", value: Any, kinds: Any) -> bool:
    if isinstance(kinds, tuple):
        return any(_isinstance(i, value, kind) for kind in kinds)
    answer = None if i.type_of(value) is kinds else _metaclass_answer(i, kinds, "__instancecheck__", value)
    if answer is not None:
        return answer
    if isinstance(value, torch.Tensor):
        if kinds is FakeTensor:          # ours, not the program's
            return False
        if i.type_of(value) is torch.Tensor or kinds is torch.nn.Parameter:
            return bool(i.plain(isinstance, value, kinds))
        return bool(i.plain(issubclass, i.type_of(value), kinds))
    if isinstance(value, SYMBOLIC):
        return bool(i.plain(issubclass, i.type_of(value), kinds))
    if i.is_interpreted_generator(value) or type(value) is Identity:
        return bool(i.plain(issubclass, i.type_of(value), kinds))
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
    if isinstance(value, (*CONSTANT_TYPES, int, float, *SYMBOLIC)):
        raise GraphBreak("AOT205", f"id() of a {type(value).__name__}, which may be any of those that are equal")
    original, _ = i.outside.originals.get(id(value), (value, None))
    return Identity(original)


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
    method = python_method(value, "__len__")
    if method is not None:
        return i.call(method, (value,), {})
    return i.outside.length(value) if i.outside.holds_items(value) else i.plain(len, value)


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
            whole = i.symbols.whole_quotient(value, upwards=False)
            return torch.sym_int(value) if whole is None else whole if i.truth(whole >= 0) else i.symbols.whole_quotient(value, upwards=True)
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


def _by_method(name: str, function: Any) -> Any:
    """C functions that ask an object for a special method: one written in Python is interpreted."""
    def run(i: "Interpreter", *arguments: Any, **keywords: Any) -> Any:
        method = python_method(arguments[0], name) if arguments else None
        if method is not None:
            return i.call(method, arguments, keywords)
        if function is round and len(arguments) > 1 and isinstance(arguments[0], torch.SymInt):
            arguments = tuple(i.symbols.fix(each) if isinstance(each, SYMBOLIC) else each for each in arguments)     # torch ignores negative digits
        if function in (math.floor, math.ceil) and isinstance(arguments[0], torch.SymFloat) \
                and (whole := i.symbols.whole_quotient(arguments[0], upwards=function is math.ceil)) is not None:
            return whole
        return natives.native_call(i, function, function.__name__, arguments, keywords)
    return run


for _name, _function in (("__round__", round), ("__floor__", math.floor), ("__ceil__", math.ceil), ("__trunc__", math.trunc),
                         ("__complex__", complex), ("__bytes__", bytes)):
    lookaside(_function)(_by_method(_name, _function))


@lookaside(divmod)
def _divmod(i: "Interpreter", left: Any, right: Any) -> Any:
    if isinstance(left, SYMBOLIC) or isinstance(right, SYMBOLIC):
        return operate(i, operator.floordiv, left, right), operate(i, operator.mod, left, right)
    for owner, other, name in ((left, right, "__divmod__"), (right, left, "__rdivmod__")):
        method = python_method(owner, name)
        if method is not None:
            return i.call(method, (owner, other), {})
    return i.native(divmod, (left, right), {})


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
    method = python_method(value, "__reversed__")
    if method is not None:
        return i.call(method, (value,), {})
    if python_method(value, "__getitem__") is not None and not isinstance(value, CONTAINERS):
        return iter([i.get_item(value, index) for index in range(i.call(len, (value,), {}) - 1, -1, -1)])
    return i.plain(reversed, i.outside.whole(value))


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
