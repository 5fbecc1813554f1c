"""Operations that run Python code of the program's without a call in the text: operators, properties, items, iteration, construction.

    y = _call_0("+")(left, right)            left + right, where Vector.__add__ is a split function: its twin is called in its place
    y = _call_1(".")(self, "scale")          self.scale, a property
    for batch in _call_2("iter")(loader)     loader.__iter__ and __next__

Each follows Python's own rules as far as a twin takes part, and is the plain operation where none does.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

import torch

Twin = Callable[[FunctionType], Any]
"""The split twin of a function, or None."""

_BINARY: dict[str, tuple[str, Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "+": ("add", operator.add, operator.iadd), "-": ("sub", operator.sub, operator.isub), "*": ("mul", operator.mul, operator.imul),
    "/": ("truediv", operator.truediv, operator.itruediv), "//": ("floordiv", operator.floordiv, operator.ifloordiv),
    "%": ("mod", operator.mod, operator.imod), "**": ("pow", operator.pow, operator.ipow), "@": ("matmul", operator.matmul, operator.imatmul),
    "&": ("and", operator.and_, operator.iand), "|": ("or", operator.or_, operator.ior), "^": ("xor", operator.xor, operator.ixor),
    "<<": ("lshift", operator.lshift, operator.ilshift), ">>": ("rshift", operator.rshift, operator.irshift)}
_COMPARISONS: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "<": ("__lt__", "__gt__", operator.lt), "<=": ("__le__", "__ge__", operator.le), "==": ("__eq__", "__eq__", operator.eq),
    "!=": ("__ne__", "__ne__", operator.ne), ">": ("__gt__", "__lt__", operator.gt), ">=": ("__ge__", "__le__", operator.ge)}
_UNARY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "-x": ("__neg__", operator.neg), "+x": ("__pos__", operator.pos), "~x": ("__invert__", operator.invert)}
# Builtins that ask an object for one special method and check what it gives.
_ASKING: dict[Any, str] = {
    len: "__len__", str: "__str__", repr: "__repr__", bool: "__bool__", int: "__int__", float: "__float__", abs: "__abs__", hash: "__hash__",
    next: "__next__", round: "__round__", format: "__format__"}
_LOADS, _NEW, _MAKES = vars(object)["__getattribute__"], vars(object)["__new__"], vars(type)["__call__"]
_NUMBERS = (int, float, complex, bool)


def operation(what: Any, twin: Twin) -> Any:
    """What to call for an operation (by its symbol), or in place of a builtin, a class or a callable object; None where no twin takes part."""
    if isinstance(what, str):
        return _by_symbol(what, twin)
    if type(what) is functools.partial:
        inner = operation(what.func, twin) if type(what.func) is not FunctionType else twin(what.func)
        return functools.partial(inner, *what.args, **what.keywords) if inner is not None else None
    if isinstance(what, type) and what not in _ASKING:
        return _construction(what, twin)
    if what is getattr or what is hasattr:
        return functools.partial(_getattr if what is getattr else _hasattr, twin)
    if what is setattr:
        return functools.partial(_set_attribute, twin)
    if what is iter:
        return lambda *given: _iterator(twin, *given) if len(given) == 1 else iter(*given)
    if _hashable(what) and what in _ASKING:
        return functools.partial(_asked, twin, what, _ASKING[what])
    method = _method(type(what), "__call__")
    found = twin(method) if method is not None else None
    return MethodType(found, what) if found is not None else None


def _by_symbol(symbol: str, twin: Twin) -> Callable[..., Any]:
    if symbol in _BINARY:
        return functools.partial(_binary, twin, symbol)
    if symbol in _COMPARISONS:
        return functools.partial(_compare, twin, symbol)
    if symbol in _UNARY:
        name, function = _UNARY[symbol]
        return functools.partial(_special, twin, name, function)
    if symbol.removesuffix("=") in _BINARY:
        return functools.partial(_in_place, twin, symbol.removesuffix("="))
    return functools.partial(_OTHERS[symbol], twin)


def _hashable(value: Any) -> bool:
    return type(value).__hash__ is not None


# ---- special methods ------------------------------------------------------------------------------------------------------------------------


def lookup(cls: type, name: str) -> Any:
    """``name`` in a class or its bases, without running descriptors; None where nowhere."""
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)


def _method(cls: type, name: str) -> FunctionType | None:
    found = lookup(cls, name)
    return found if type(found) is FunctionType else None


def _twin_of(twin: Twin, cls: type, name: str) -> Any:
    """The twin of a class's special method; None where it has none."""
    method = _method(cls, name)
    return twin(method) if method is not None else None


def _special(twin: Twin, name: str, plain: Callable[..., Any], owner: Any, *given: Any) -> Any:
    found = _twin_of(twin, type(owner), name)
    return plain(owner, *given) if found is None else found(owner, *given)


def _asked(twin: Twin, builtin: Any, name: str, *given: Any, **keywords: Any) -> Any:
    """``len(x)`` and the like: the builtin asks an object whose method is the twin."""
    found = _twin_of(twin, type(given[0]), name) if given else None
    if found is None:
        return builtin(*given, **keywords)
    owner = given[0]
    stands_for = type(type(owner).__name__, (), {name: lambda self, *more: found(owner, *more)})
    return builtin(stands_for(), *given[1:], **keywords)


# ---- operators ------------------------------------------------------------------------------------------------------------------------------


def _binary(twin: Twin, symbol: str, left: Any, right: Any) -> Any:
    name, plain, _ = _BINARY[symbol]
    result = _attempts(twin, left, right, f"__{name}__", f"__r{name}__")
    if result is None:
        return plain(left, right)
    if result[0] is NotImplemented:
        shown = "** or pow()" if symbol == "**" else symbol
        raise TypeError(f"unsupported operand type(s) for {shown}: '{type(left).__name__}' and '{type(right).__name__}'")
    return result[0]


def _compare(twin: Twin, symbol: str, left: Any, right: Any) -> Any:
    name, reflected, plain = _COMPARISONS[symbol]
    result = _attempts(twin, left, right, name, reflected, comparison=True)
    if result is None:
        return plain(left, right)
    if result[0] is not NotImplemented:
        return result[0]
    if symbol in ("==", "!="):
        return (left is right) == (symbol == "==")
    raise TypeError(f"'{symbol}' not supported between instances of '{type(left).__name__}' and '{type(right).__name__}'")


def _attempts(twin: Twin, left: Any, right: Any, name: str, reflected: str, comparison: bool = False) -> tuple[Any] | None:
    """(what the first method gives that knows the operands,), or (NotImplemented,); None where the plain operation is right: no twin takes part, or
    an operand is of a class in C other than a number's, whose order of attempts is not followed here."""
    kinds = type(left), type(right)
    methods = lookup(kinds[0], name), lookup(kinds[1], reflected) if comparison or kinds[0] is not kinds[1] else None
    if not any(type(method) is FunctionType and twin(method) is not None for method in methods):
        return None
    if any(type(method) is not FunctionType and method is not None and kind not in _NUMBERS and method is not lookup(object, used)
           for method, kind, used in zip(methods, kinds, (name, reflected))):
        return None
    attempts = [(methods[0], left, right), (methods[1], right, left)]
    if kinds[0] is not kinds[1] and issubclass(kinds[1], kinds[0]) and (comparison or methods[1] is not lookup(kinds[0], reflected)):
        attempts.reverse()
    for method, owner, other in attempts:
        if method is not None:
            found = (twin(method) if type(method) is FunctionType else None) or method
            result = found(owner, other)
            if result is not NotImplemented:
                return (result,)
    return (NotImplemented,)


def _in_place(twin: Twin, symbol: str, left: Any, right: Any) -> Any:
    name, _, plain = _BINARY[symbol]
    method = lookup(type(left), f"__i{name}__")
    if method is None:
        return _binary(twin, symbol, left, right)
    found = twin(method) if type(method) is FunctionType else None
    if found is None:
        return plain(left, right)
    result = found(left, right)
    return _binary(twin, symbol, left, right) if result is NotImplemented else result


def _contains(twin: Twin, item: Any, container: Any) -> bool:
    return bool(_special(twin, "__contains__", operator.contains, container, item))


def _lacks(twin: Twin, item: Any, container: Any) -> bool:
    return not _contains(twin, item, container)


# ---- attributes -----------------------------------------------------------------------------------------------------------------------------


def _attribute(twin: Twin, owner: Any, name: str) -> Any:
    """``owner.name``: a property, another descriptor or ``__getattr__`` by its twin."""
    cls = type(owner)
    if isinstance(owner, type) or lookup(cls, "__getattribute__") is not _LOADS:
        return getattr(owner, name)
    found, fallback = lookup(cls, name), _method(cls, "__getattr__")
    getter = _getter(twin, owner, name, found)
    if getter is None and (fallback is None or twin(fallback) is None):
        return getattr(owner, name)
    try:
        return object.__getattribute__(owner, name) if getter is None else getter()
    except AttributeError:
        if fallback is None:
            raise
    found = twin(fallback)
    return fallback(owner, name) if found is None else found(owner, name)


def _getter(twin: Twin, owner: Any, name: str, found: Any) -> Callable[[], Any] | None:
    """What reads an attribute through a descriptor whose function has a twin."""
    if type(found) is property:
        read = twin(found.fget) if type(found.fget) is FunctionType else None
        return None if read is None else functools.partial(read, owner)
    held = getattr(owner, "__dict__", {})
    if type(found) is functools.cached_property:
        compute = twin(found.func) if type(found.func) is FunctionType and name not in held else None
        return None if compute is None else lambda: held.setdefault(name, compute(owner))
    read = _twin_of(twin, type(found), "__get__")
    is_data = lookup(type(found), "__set__") is not None or lookup(type(found), "__delete__") is not None
    return None if read is None or name in held and not is_data else functools.partial(read, found, owner, type(owner))


def _getattr(twin: Twin, owner: Any, name: str, *default: Any) -> Any:
    try:
        return _attribute(twin, owner, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _hasattr(twin: Twin, owner: Any, name: str) -> bool:
    try:
        _attribute(twin, owner, name)
    except AttributeError:
        return False
    return True


def _set_attribute(twin: Twin, owner: Any, name: str, value: Any) -> None:
    """``owner.name = value``: ``__setattr__``, a property or another descriptor by its twin."""
    cls = type(owner)
    custom = _twin_of(twin, cls, "__setattr__")
    if custom is not None:
        custom(owner, name, value)
        return
    found = lookup(cls, name)
    write = twin(found.fset) if type(found) is property and type(found.fset) is FunctionType else None
    if not _assigns_plainly(owner, name, value):
        setattr(owner, name, value)
    elif write is not None:
        write(owner, value)
    elif (write := _twin_of(twin, type(found), "__set__")) is not None:
        write(found, owner, value)
    else:
        setattr(owner, name, value)


def _assigns_plainly(owner: Any, name: str, value: Any) -> bool:
    """Whether an assignment does what `object.__setattr__` does."""
    method = lookup(type(owner), "__setattr__")
    if method is not torch.nn.Module.__setattr__:
        return type(method) is not FunctionType
    registered = any(name in owner.__dict__.get(table, ()) for table in ("_parameters", "_buffers", "_modules"))
    return not registered and not isinstance(value, (torch.nn.Parameter, torch.nn.Module))


# ---- iteration and construction -------------------------------------------------------------------------------------------------------------


def _iterator(twin: Twin, value: Any) -> Iterator[Any]:
    found = _twin_of(twin, type(value), "__iter__")
    made: Iterator[Any] = iter(value) if found is None else iter(found(value))
    step = _twin_of(twin, type(made), "__next__")
    return made if step is None else _steps(step, made)


def _steps(step: Callable[[Any], Any], iterator: Any) -> Iterator[Any]:
    while True:
        try:
            item = step(iterator)
        except StopIteration:
            return
        yield item


def _construction(cls: type, twin: Twin) -> Callable[..., Any] | None:
    initialise = _twin_of(twin, cls, "__init__")
    if initialise is None or lookup(type(cls), "__call__") is not _MAKES:
        return None

    def make(*given: Any, **keywords: Any) -> Any:
        plain = lookup(cls, "__new__") is _NEW
        made: Any = object.__new__(cls) if plain else cls.__new__(cls, *given, **keywords)
        if isinstance(made, cls):
            (initialise if type(made) is cls else lookup(type(made), "__init__"))(made, *given, **keywords)
        return made
    return make


_OTHERS: dict[str, Callable[..., Any]] = {
    ".": _attribute, ".=": _set_attribute, "in": _contains, "not in": _lacks, "iter": _iterator,
    "[]": lambda twin, owner, key: _special(twin, "__getitem__", operator.getitem, owner, key),
    "[]=": lambda twin, owner, key, value: _special(twin, "__setitem__", operator.setitem, owner, key, value)}


__all__ = ["lookup", "operation"]
