"""Operators, items, iteration, truth and formatting of the interpreted program."""
from __future__ import annotations

import collections
import operator
import types
from typing import TYPE_CHECKING, Any

import torch

from aotcompile.frontend.interpret.attributes import static_lookup
from aotcompile.frontend.capture.containers import MAPPINGS, SEQUENCES, base_of
from aotcompile.frontend.capture.hook_tables import HookNumber
from aotcompile.frontend.capture.identities import Identity
from aotcompile.frontend.capture.signals import GraphBreak, UserException, branch_on_value
from aotcompile.frontend.capture.symbolic import SYMBOLIC

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

_SPECIAL = {
    operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.truediv: "truediv", operator.floordiv: "floordiv", operator.mod: "mod",
    operator.pow: "pow", operator.matmul: "matmul", operator.and_: "and", operator.or_: "or", operator.xor: "xor", operator.lshift: "lshift",
    operator.rshift: "rshift",
}
_INPLACE = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul, operator.itruediv: operator.truediv,
    operator.ifloordiv: operator.floordiv, operator.imod: operator.mod, operator.ipow: operator.pow, operator.imatmul: operator.matmul,
    operator.iand: operator.and_, operator.ior: operator.or_, operator.ixor: operator.xor, operator.ilshift: operator.lshift,
    operator.irshift: operator.rshift,
}
_COMPARE = {
    operator.lt: ("__lt__", "__gt__"), operator.le: ("__le__", "__ge__"), operator.eq: ("__eq__", "__eq__"), operator.ne: ("__ne__", "__ne__"),
    operator.gt: ("__gt__", "__lt__"), operator.ge: ("__ge__", "__le__"),
}
_SYMBOLS = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//", operator.mod: "%",
    operator.pow: "** or pow()", operator.matmul: "@", operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.lshift: "<<",
    operator.rshift: ">>", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}
_UNARY = {operator.neg: "__neg__", operator.pos: "__pos__", operator.invert: "__invert__", operator.index: "__index__", abs: "__abs__"}


def python_method(value: Any, name: str) -> types.FunctionType | None:
    """The special method ``name`` of ``value``'s class if it is written in Python (then it must be interpreted, not called natively). Tensors and
    symbolic numbers stand for objects whose methods are not."""
    if isinstance(value, (torch.Tensor, *SYMBOLIC)):
        return None
    found = static_lookup(type(value), name)
    return found if isinstance(found, types.FunctionType) else None


def operate(i: "Interpreter", function: Any, left: Any, right: Any, shown: str = "") -> Any:
    """A binary operator or comparison, by Python's protocol where a class written in Python takes part. ``shown``: the operator in messages."""
    if type(left) is Identity and type(right) is Identity and function in (operator.eq, operator.ne):
        return i.same(left.of, right.of) == (function is operator.eq)
    if isinstance(left, SYMBOLIC) and isinstance(right, (int, float, *SYMBOLIC)) or isinstance(right, SYMBOLIC) and isinstance(left, (int, float)):
        return _of_numbers(i, function, left, right)
    if function in _INPLACE:
        name = f"__i{_SPECIAL[_INPLACE[function]]}__"
        method = python_method(left, name)
        if method is not None:
            result = i.call(method, (left, right), {})
            if result is not NotImplemented:
                return result
        if not isinstance(left, torch.Tensor) and static_lookup(type(left), name) is not static_lookup(object, name) and _has(left, name):
            return i.native(function, (left, right), {})
        if not isinstance(left, torch.Tensor):
            return operate(i, _INPLACE[function], left, right, f"{_SYMBOLS[_INPLACE[function]].partition(' ')[0]}=")
        return i.native(function, (left, right), {})
    if function is operator.mod and isinstance(left, (str, bytes)):
        return _interpolate(i, left, right)
    names = _COMPARE.get(function) or (f"__{_SPECIAL[function]}__", f"__r{_SPECIAL[function]}__")
    first, second = python_method(left, names[0]), python_method(right, names[1])
    if first is None and second is None:
        number = isinstance(left, SYMBOLIC) or isinstance(right, SYMBOLIC)
        return _of_numbers(i, function, left, right) if number else i.native(function, (left, right), {})
    attempts = [(first, left, right), (second, right, left)]
    if type(right) is not type(left) and isinstance(right, type(left)) and second is not None:
        attempts.reverse()
    for method, owner, other in attempts:
        if method is not None:
            result = i.call(method, (owner, other), {})
            if result is not NotImplemented:
                return result
    if function is operator.ne and python_method(left, "__eq__") is not None:
        return not i.truth(operate(i, operator.eq, left, right))
    if function is operator.eq or function is operator.ne:
        return i.same(left, right) == (function is operator.eq)
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return i.native(function, (left, right), {})
    shown, kinds = shown or _SYMBOLS[function], (type(left).__name__, type(right).__name__)
    raise UserException(TypeError(f"'{shown}' not supported between instances of '{kinds[0]}' and '{kinds[1]}'" if function in _COMPARE else
                                  f"unsupported operand type(s) for {shown}: '{kinds[0]}' and '{kinds[1]}'"))


def _of_numbers(i: "Interpreter", function: Any, left: Any, right: Any) -> Any:
    """What torch's symbolic numbers do not know (``n << 1`` of some versions) needs their values."""
    try:
        return i.native(function, (left, right), {})
    except UserException as raised:
        if not isinstance(raised.exception, (TypeError, AttributeError)):
            raise
        return i.native(function, (fix_deep(i, left), fix_deep(i, right)), {})


def _interpolate(i: "Interpreter", template: str | bytes, given: Any) -> Any:
    """``"%s" % given``."""
    given = i.outside.whole(given)
    if _holds_tensor(given):
        raise GraphBreak("AOT203", "formatting reads a tensor's value", "Format after the region, or log a detached copy.")
    for value in given if isinstance(given, tuple) else given.values() if isinstance(given, dict) else (given,):
        if python_method(value, "__str__") is not None or python_method(value, "__repr__") is not None:
            raise GraphBreak("AOT203", f"formatting a {type(value).__name__}")
    return i.native(operator.mod, (template, fix_deep(i, given)), {})


def _has(value: Any, name: str) -> bool:
    return any(name in base.__dict__ for base in type(value).__mro__)


def unary(i: "Interpreter", function: Any, value: Any) -> Any:
    method = python_method(value, _UNARY[function])
    if method is not None:
        return i.call(method, (value,), {})
    if function is operator.invert and isinstance(value, torch.SymInt):
        return operate(i, operator.sub, unary(i, operator.neg, value), 1)
    return i.native(function, (value,), {})


def truth(i: "Interpreter", value: Any) -> bool:
    """``bool(value)``. Raises a `branch` break for a tensor."""
    if value is True or value is False or value is None:
        return bool(value)
    if isinstance(value, torch.Tensor):
        raise branch_on_value()
    if isinstance(value, SYMBOLIC):
        return i.symbols.truth(value)
    if i.outside.is_container(value):
        return bool(i.outside.length(value))
    for name in ("__bool__", "__len__"):
        method = python_method(value, name)
        if method is not None:
            return truth(i, i.call(method, (value,), {}))
        if _has(value, name):
            break
    return bool(i.outside.length(value) if i.outside.is_derived(value) else i.plain(bool, value))


# ---- items ----------------------------------------------------------------------------------------------------------------------------------


def get_item(i: "Interpreter", container: Any, key: Any) -> Any:
    if isinstance(key, torch.SymInt) and i.symbols.varies(key) and _holds_modules(container):
        # Loops over positions: each would be a variant of its own. Outside, the module is an argument like the elements of a loop over modules.
        raise GraphBreak("AOT217", f"a module at a position that varies, of a {type(container).__name__}",
                         "Write the loop over the modules themselves.")
    if i.outside.is_container(container):
        key = as_key(i, key)
        if not isinstance(key, slice) and not (isinstance(container, MAPPINGS) and type(container).__name__ == "defaultdict"
                                               and key not in container):
            try:
                return i.outside.item(container, key)
            except (KeyError, IndexError, TypeError) as error:
                raise UserException(error) from None
        container = i.outside.shadow(container)
    method = python_method(container, "__getitem__")
    if method is not None:
        return i.call(method, (container, key), {})
    if isinstance(container, type) and not isinstance(container, torch.Tensor):
        return i.plain(operator.getitem, container, key)
    if isinstance(container, (dict, list, tuple, str)):
        key = as_key(i, key, container)
    missing = python_method(container, "__missing__")
    if missing is not None and isinstance(container, dict) and not contains_key(i, container, key):
        return i.call(missing, (container, key), {})
    if i.outside.is_derived(container) and not isinstance(key, slice) and base_of(type(container)) is not collections.defaultdict:
        try:
            return i.outside.item(container, key)
        except (KeyError, IndexError, TypeError) as error:
            raise UserException(error) from None
    return i.native(operator.getitem, (container, key), {})


def contains_key(i: "Interpreter", mapping: dict[Any, Any], key: Any) -> bool:
    return i.outside.contains(mapping, key) if i.outside.is_derived(mapping) else dict.__contains__(mapping, key)


def _holds_modules(container: Any) -> bool:
    if isinstance(container, (torch.nn.ModuleList, torch.nn.Sequential)):
        return True
    return isinstance(container, (list, tuple)) and len(container) > 1 and all(isinstance(item, torch.nn.Module) for item in container)


def set_item(i: "Interpreter", container: Any, key: Any, value: Any) -> None:
    if i.outside.is_container(container) and isinstance(container, MAPPINGS) and id(container) not in i.outside.shadows:
        key = as_key(i, key)
        original = i.original_tensor(value) if isinstance(value, torch.Tensor) else None
        if original is not None and original[1] == i.outside.paths[id(container)].item(key):
            i.outside.take_back(container, key)
        else:
            i.outside.put(container, key, value)
        return
    method = python_method(container, "__setitem__")
    if method is not None:
        i.call(method, (container, key, value), {})
        return
    container = i.outside.whole(container)
    if isinstance(container, (dict, list)):
        key = as_key(i, key, container)
    i.native(operator.setitem, (container, key, value), {})


def delete_item(i: "Interpreter", container: Any, key: Any) -> None:
    method = python_method(container, "__delitem__")
    if method is not None:
        i.call(method, (container, key), {})
    else:
        container = i.outside.whole(container)
        i.native(operator.delitem, (container, as_key(i, key, container)), {})


def as_key(i: "Interpreter", key: Any, container: Any = None) -> Any:
    """A symbolic number used as a key or index has its value fixed. ``container``: what is looked into, where it may have tensors as keys."""
    if isinstance(key, SYMBOLIC):
        return i.symbols.fix(key)
    if type(key) is tuple and any(isinstance(part, SYMBOLIC) for part in key):
        return tuple(as_key(i, part) for part in key)
    if isinstance(key, torch.Tensor) or type(key) is Identity:
        return _identified_key(i, container, key)
    if type(key) is HookNumber:
        i.outside.note_position(key, container)
    position = python_method(key, "__index__") if isinstance(container, (list, tuple, str)) else None
    return key if position is None else i.call(position, (key,), {})


def _identified_key(i: "Interpreter", container: Any, key: Any) -> Any:
    """A tensor, or what `id` gives, as a key of a dict or set made here: tensors are hashed by identity, and equal ones share a stand-in."""
    if not isinstance(container, (dict, set, frozenset)) or id(container) in i.outside.originals or i.is_outside(container):
        raise GraphBreak("AOT205", f"{'what id() gives' if type(key) is Identity else 'a tensor'} as a key from outside or a list's index")
    i.compare_keys(container, key)
    return key


def contains(i: "Interpreter", container: Any, key: Any) -> bool:
    if i.outside.is_container(container) and not isinstance(container, SEQUENCES):
        return i.outside.contains(container, as_key(i, key))
    method = python_method(container, "__contains__")
    if method is not None:
        return truth(i, i.call(method, (container, key), {}))
    if i.outside.is_derived(container) and not isinstance(container, SEQUENCES):
        return i.outside.contains(container, as_key(i, key))
    container = i.outside.whole(container)
    if isinstance(container, (dict, set, frozenset)):
        if isinstance(key, torch.Tensor) and id(container) not in i.outside.originals:
            i.compare_keys(container, key)
            return any(item is key for item in container)
        key = as_key(i, key, container)
    elif isinstance(container, (list, tuple)):
        return any(i.same(item, key) or truth(i, operate(i, operator.eq, item, key)) for item in container)
    elif python_method(container, "__iter__") is not None:
        return any(i.same(item, key) or truth(i, operate(i, operator.eq, item, key)) for item in iterator(i, container))
    return bool(i.native(operator.contains, (container, key), {}))


# ---- iteration ------------------------------------------------------------------------------------------------------------------------------


def iterator(i: "Interpreter", value: Any) -> Any:
    """``iter(value)``; objects whose ``__iter__`` is written in Python are interpreted."""
    method = python_method(value, "__iter__")
    if method is not None:
        return i.call(method, (value,), {})
    value = i.outside.whole(value)
    if isinstance(value, torch.Tensor):
        if value.ndim == 0:
            raise UserException(TypeError("iteration over a 0-d tensor"))
        return iter(i.native(torch.unbind, (value, 0), {}))
    if isinstance(value, SYMBOLIC):
        raise UserException(TypeError(f"'{i.type_of(value).__name__}' object is not iterable"))
    if not _has(value, "__iter__") and python_method(value, "__getitem__") is not None:
        return i.sequence_iterator(value)
    return i.plain(iter, value)


def iterate(i: "Interpreter", value: Any) -> Any:
    """``value`` fit to be iterated by native code."""
    if isinstance(value, torch.Tensor) or python_method(value, "__iter__") is not None:
        made = iterator(i, value)
        return i.native_iterator(made)
    return i.native_iterator(i.outside.whole(value))


def advance(i: "Interpreter", values: Any) -> tuple[bool, Any]:
    """One step of a loop: (True, item), or (False, the generator's value) at the end."""
    method = python_method(values, "__next__")
    try:
        if method is not None and not i.is_interpreted_generator(values):
            return True, i.call(method, (values,), {})
        return True, i.plain(next, values)
    except UserException as raised:
        if isinstance(raised.exception, StopIteration):
            return False, raised.exception.value
        raise


def take(i: "Interpreter", values: Any, count: int, exact: bool) -> list[Any]:
    """Unpack into ``count`` values. Raises ValueError (in the program) on another length."""
    found = list(values) if type(values) in (tuple, list) and not i.outside.is_container(values) else list(i.native(list, (iterate(i, values),), {}))
    if len(found) < count:
        raise UserException(ValueError(f"not enough values to unpack (expected {count}, got {len(found)})"))
    if exact and len(found) > count:
        raise UserException(ValueError(f"too many values to unpack (expected {count})"))
    return found


def as_mapping(i: "Interpreter", value: Any) -> dict[Any, Any]:
    """A plain dict of a mapping (``**value``, ``dict.update``)."""
    value = i.outside.whole(value)
    if isinstance(value, dict):
        return dict(value)
    keys = i.load_attribute(value, "keys") if hasattr(type(value), "keys") else None
    if keys is None:
        return dict(i.native(dict, (iterate(i, value),), {}))
    return {key: get_item(i, value, key) for key in iterator(i, i.call(keys, (), {}))}


def format_value(i: "Interpreter", value: Any, conversion: Any, specification: str | None) -> str:
    """f-strings and ``format``: text of a tensor needs its values."""
    if not i.outside.is_derived(value):
        value = i.outside.whole(value)
    elif python_method(value, "__repr__") is None and python_method(value, "__str__") is None:
        if base_of(type(value)) not in (dict, list):
            raise GraphBreak("AOT203", f"formatting a {type(value).__name__}")
        value = i.outside.shadow(value)
    if isinstance(value, torch.Tensor) or _holds_tensor(value):
        raise GraphBreak("AOT203", "formatting reads a tensor's value", "Format after the region, or log a detached copy.")
    value = fix_deep(i, value)
    if conversion is not None:
        method = python_method(value, "__repr__" if conversion is repr else "__str__")
        value = i.call(method, (value,), {}) if method is not None else i.plain(conversion, value)
        if specification is None:
            return str(value)
    method = python_method(value, "__format__") or (python_method(value, "__str__") if not specification else None)
    if method is not None:
        arguments = (value, specification or "") if method.__name__ == "__format__" else (value,)
        return str(i.call(method, arguments, {}))
    if type(value).__module__ != "builtins" and not isinstance(value, (torch.dtype, torch.device, torch.Size)) \
            and type(value).__repr__ is object.__repr__:
        raise GraphBreak("AOT203", f"formatting a {type(value).__name__}")
    return str(i.plain(format, value, specification or ""))


def fix_deep(i: "Interpreter", value: Any) -> Any:
    """Symbolic numbers in nested tuples and lists, fixed."""
    if isinstance(value, SYMBOLIC):
        return i.symbols.fix(value)
    if isinstance(value, torch.Size):
        return torch.Size([i.symbols.fix(v) for v in value])
    if type(value) in (tuple, list):
        return type(value)(fix_deep(i, v) for v in value)
    if type(value) is dict:
        return {k: fix_deep(i, v) for k, v in value.items()}
    return value


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, (tuple, list, set)):
        return any(map(_holds_tensor, value))
    return isinstance(value, dict) and any(map(_holds_tensor, value.values()))
