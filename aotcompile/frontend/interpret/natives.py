"""Calls of native code: methods of containers from outside, C functions with callbacks or lazy results, numpy, the standard library."""
from __future__ import annotations

import _string
import collections
import copy
import functools
import itertools
import operator
import string
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from aotcompile.frontend.library import is_library_module
from aotcompile.frontend.interpret.attributes import OutsideMethod
from aotcompile.frontend.interpret.copying import copies_attributes, shallow_copy
from aotcompile.frontend.interpret.operations import fix_deep, format_value, operate, python_method
from aotcompile.frontend.capture.outside import CONTAINERS, SEQUENCES
from aotcompile.frontend.capture.graph import tensors_in
from aotcompile.frontend.capture.symbolic import SYMBOLIC
from aotcompile.frontend.capture.signals import GraphBreak, UserException

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter


def outside_method(i: "Interpreter", method: OutsideMethod, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Methods of an outside container that touch single items: no shadow. (A bounded deque drops items at its other end, at run time as here.)"""
    container = method.container
    if id(container) in i.outside.shadows:               # it was read as a whole since the method was looked up
        return i.native(getattr(i.outside.shadows[id(container)], method.name), arguments, keywords)
    if method.name in ("append", "add"):
        i.outside.put(container, None, arguments[0])
        return None
    if method.name == "__setitem__":
        i.set_item(container, arguments[0], arguments[1])
        return None
    if method.name == "setdefault":
        if i.contains(container, arguments[0]):
            return i.get_item(container, arguments[0])
        value = arguments[1] if len(arguments) > 1 else None
        i.set_item(container, arguments[0], value)
        return value
    if method.name == "__len__":
        return i.outside.length(container)
    if method.name == "__getitem__":
        return i.get_item(container, arguments[0])
    present = i.contains(container, arguments[0])
    if method.name == "__contains__":
        return present
    default = arguments[1] if len(arguments) > 1 else keywords.get("default")
    return i.get_item(container, arguments[0]) if present else default


_READS_ITEM = {"get", "__getitem__", "__contains__"}


def derived_container(i: "Interpreter", function: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A method of dict, list, ... on an instance from outside of a derived class: of a mapping single items are read, else its shadow is used."""
    container = arguments[0]
    if not issubclass(function.__objclass__, CONTAINERS):
        raise GraphBreak("AOT205", f"{name}() on a {type(container).__name__} from outside")
    if isinstance(container, dict) and name in _READS_ITEM and id(container) not in i.outside.shadows:
        return _read_item(i, container, name, *arguments[1:], **keywords)
    return i.outside.identity(i.call(i.load_attribute(i.outside.shadow(container), name), arguments[1:], keywords))


def _read_item(i: "Interpreter", container: dict[Any, Any], name: str, key: Any, default: Any = None) -> Any:
    key = i.as_key(key)
    path = i.outside.paths[id(container)]
    module = {"module": path.root[1], "global": i.home.__globals__.get("__name__")}.get(path.root[0])
    held = dict.get(container, key)
    if module and is_library_module(module) and name == "__getitem__" and isinstance(held, (type, types.FunctionType)):
        return held                        # classes and functions in a library's table need no guard
    if not i.outside.contains(container, key):
        if name == "__getitem__":
            raise UserException(KeyError(key))
        return False if name == "__contains__" else default
    return True if name == "__contains__" else i.outside.item(container, key)


def _get_attributes(i: "Interpreter", getter: Any, value: Any) -> Any:
    found = [functools.reduce(i.load_attribute, name.split("."), value) for name in getter.__reduce__()[1]]
    return found[0] if len(found) == 1 else tuple(found)


def _get_items(i: "Interpreter", getter: Any, value: Any) -> Any:
    found = [i.get_item(value, key) for key in getter.__reduce__()[1]]
    return found[0] if len(found) == 1 else tuple(found)


def _call_method(i: "Interpreter", caller: Any, value: Any) -> Any:
    made, arguments = caller.__reduce__()
    name, *given = (*made.args, *arguments) if isinstance(made, functools.partial) else arguments
    return i.call(i.load_attribute(value, name), tuple(given), made.keywords if isinstance(made, functools.partial) else {})


GETTERS: dict[type, Any] = {operator.attrgetter: _get_attributes, operator.itemgetter: _get_items, operator.methodcaller: _call_method}
_CALLBACK_KEYWORDS = ("key", "func")
# Which argument is a function that is called, now or later.
_FUNCTION_AT = dict.fromkeys((map, filter, functools.reduce, itertools.starmap, itertools.takewhile, itertools.dropwhile, itertools.filterfalse,
                              collections.defaultdict), 0) | {itertools.accumulate: 1, itertools.groupby: 1}
_ITERATES = {
    list, tuple, set, frozenset, sorted, zip, map, filter, enumerate, functools.reduce, dict.fromkeys,
}
_ITERATING_METHODS = {"extend", "update", "join", "union", "intersection", "difference", "extendleft", "symmetric_difference", "difference_update",
                      "intersection_update", "issubset", "issuperset"}


def native_call(i: "Interpreter", function: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A C function of the standard library that computes on its arguments alone."""
    if function is dict and arguments:
        return {**i.as_mapping(arguments[0]), **keywords}
    module = getattr(function, "__module__", "") or ""
    iterates = function in _ITERATES or module in ("itertools", "collections", "_collections", "heapq", "_heapq") if _hashable(function) else False
    positions = _iterated(function, module, len(arguments)) if iterates else ()
    position = _FUNCTION_AT.get(function, len(arguments)) if _hashable(function) else len(arguments)
    given = [i.iterate(a) if number in positions and number != position and _iterable(a) else a for number, a in enumerate(arguments)]
    if position < len(given):
        given[position] = _callback(i, function, given[position])
    keywords = {k: i.callback(v) if k in _CALLBACK_KEYWORDS and v is not None else v for k, v in keywords.items()}
    if function is sorted or name == "sort":
        _refuse_tensor_comparison(arguments, keywords)
    if function is range or module in ("math", "cmath"):
        given = [fix_deep(i, a) for a in given]
        if any(isinstance(a, torch.Tensor) for a in given):
            raise GraphBreak("AOT203", f"{name}() reads a tensor's value", "Use torch." + name + ".")
    result = _with_numbers(i, function, tuple(given), keywords)
    if isinstance(result, Iterator):
        i.outside.bind_iterator(result, f"an iterator ({type(result).__name__}) leaves the region", i.call_chain())
        i.special_methods.remember(result, i.special_methods.called_by(function, tuple(given), keywords))
    if function in (set, frozenset, dict, dict.fromkeys):
        i.compare_keys(result)
    return result


def _with_numbers(i: "Interpreter", function: Any, given: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Run a C function; one that does not know symbolic numbers (``pow(n, 3, 5)``) is given their values."""
    try:
        return i.native(function, given, keywords)
    except UserException as raised:
        if not isinstance(raised.exception, (TypeError, AttributeError)) or not any(isinstance(each, SYMBOLIC) for each in given):
            raise
        return i.native(function, tuple(fix_deep(i, each) for each in given), keywords)


def _iterated(function: Any, module: str, count: int) -> tuple[int, ...]:
    """Which arguments are iterated; the others are kept or handed on as they are."""
    if function is functools.reduce:
        return (1,)
    if function is itertools.repeat:
        return ()
    if function in (dict.fromkeys, enumerate, itertools.accumulate, itertools.islice, collections.deque, itertools.combinations,
                    itertools.permutations):
        return (0,)
    return (0,) if module == "_heapq" else tuple(range(count))


def _iterable(value: Any) -> bool:
    return bool(value.ndim) if isinstance(value, torch.Tensor) else hasattr(type(value), "__iter__")


def _hashable(function: Any) -> bool:
    return type(function).__hash__ is not None


def _callback(i: "Interpreter", function: Any, given: Any) -> Any:
    if given is None:
        return i.callback(bool) if function in (filter, itertools.filterfalse) else None
    return given if function is collections.defaultdict and isinstance(given, type) else i.callback(given)


def _refuse_tensor_comparison(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    compared = [list(a) if isinstance(a, dict) else a for a in arguments]      # of a dict, the keys
    if "key" not in keywords and any(True for _ in tensors_in(compared)):
        raise GraphBreak("AOT202", "sorting compares tensors")


def native_method(i: "Interpreter", function: Any, owner: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A method of a tensor, or of a built-in container, string or number."""
    if isinstance(owner, torch.Tensor):
        return i.native(function, tuple(map(i.symbols.decide, arguments)), {k: i.symbols.decide(v) for k, v in keywords.items()})
    if isinstance(owner, str) and name == "format":
        return _format_string(i, owner, arguments, keywords)
    if isinstance(owner, str) and name in ("join", "format_map"):
        if any(True for _ in tensors_in((arguments, keywords))):
            raise GraphBreak("AOT203", "formatting reads a tensor's value", "Format after the region, or log a detached copy.")
        arguments, keywords = fix_deep(i, arguments), fix_deep(i, keywords)
    given = [i.iterate(a) if name in _ITERATING_METHODS and not isinstance(a, dict) else a for a in arguments]
    if isinstance(owner, dict) and name in ("get", "pop", "setdefault", "__getitem__", "__setitem__", "__contains__") and given:
        given[0] = i.as_key(given[0], owner)
    if isinstance(owner, SEQUENCES) and name in ("index", "count", "remove") and (
            any(True for _ in tensors_in(owner)) or any(True for _ in tensors_in(given))):
        return _find_in_sequence(i, owner, name, given[0])
    if name == "sort":
        _refuse_tensor_comparison((list(owner),), keywords)
    keywords = {k: i.callback(v) if k == "key" and v is not None else v for k, v in keywords.items()}
    result = i.native(function, tuple(given), keywords)
    if isinstance(owner, (set, frozenset)):
        i.compare_keys(owner, *(item for value in given for item in (value if isinstance(value, (set, frozenset, list, tuple)) else (value,))))
    return result


_CONVERSIONS = {"r": repr, "s": str, "a": ascii}


def _format_string(i: "Interpreter", text: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """``text.format(...)``, field by field: only what is formatted in the end is looked into (``"{0.shape}".format(tensor)``)."""
    made, number = [], itertools.count()
    for literal, field, specification, conversion in i.plain(list, string.Formatter().parse(text)):
        made.append(literal)
        if field is None:
            continue
        first, rest = _string.formatter_field_name_split(field)
        if first == "":
            first = next(number)
        try:
            value = arguments[first] if isinstance(first, int) else keywords[first]
        except (IndexError, KeyError) as error:
            raise UserException(IndexError(f"Replacement index {first} out of range for positional args tuple")
                                if isinstance(first, int) else error) from None
        for is_attribute, name in rest:
            value = i.load_attribute(value, name) if is_attribute else i.get_item(value, name)
        if specification and "{" in specification:
            specification = _format_string(i, specification, arguments[next(number):] if "{}" in specification else arguments, keywords)
        made.append(format_value(i, value, _CONVERSIONS[conversion] if conversion else None, specification or None))
    return "".join(made)


def _find_in_sequence(i: "Interpreter", owner: Any, name: str, wanted: Any) -> Any:
    matches = [index for index, item in enumerate(owner) if i.same(item, wanted) or i.truth(operate(i, operator.eq, item, wanted))]
    if name == "count":
        return len(matches)
    if not matches:
        raise UserException(ValueError("value is not in list"))
    if name == "index":
        return matches[0]
    del owner[matches[0]]
    return None


# numpy functions of plain numbers that give plain numbers; everything else of numpy is a break
_NUMPY_PURE = {"prod", "sqrt", "log", "log2", "log10", "exp", "ceil", "floor", "cumsum", "maximum", "minimum", "power", "linspace", "arange",
               "isscalar", "round", "sin", "cos"}


def numpy_call(i: "Interpreter", function: Any, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    given = fix_deep(i, arguments)
    if name in _NUMPY_PURE and all(isinstance(a, (int, float, tuple, list)) for a in given) and not keywords \
            and not any(True for _ in tensors_in(given)):
        result = i.plain(function, *given)
        if type(result).__name__ != "ndarray":
            return result
    raise GraphBreak("AOT204", f"numpy.{name} is called")


# Functions of the standard library's modules that touch the world, which do not, for plain values.
_PURE = {"posixpath": {"join", "split", "splitext", "basename", "dirname", "normpath", "isabs", "commonpath", "normcase"},
         "genericpath": {"commonprefix"}, "json": {"dumps", "loads"}}


def standard_library(i: "Interpreter", module: str, function: types.FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Python functions of the standard library that touch the world (a break), and copying."""
    if function is copy.copy and arguments and type(i.outside.whole(arguments[0])) in (*CONTAINERS, tuple, frozenset):
        return copy.copy(i.outside.whole(arguments[0]))
    if function is copy.copy and arguments and not i.outside.is_container(arguments[0]):
        value = arguments[0]
        if isinstance(value, torch.Tensor):
            return i.native(torch.clone, (value,), {})
        custom = python_method(value, "__copy__")
        if custom is not None:
            return i.call(custom, (value,), {})
        return shallow_copy(i, value) if copies_attributes(value) else i.run_function(function, arguments, keywords)
    if module == "copy":
        return i.run_function(function, tuple(map(i.outside.whole, arguments)), keywords)
    if function.__name__ in _PURE.get(module, ()) and not keywords:
        given = fix_deep(i, tuple(map(i.outside.whole_inside, arguments)))
        if not any(True for _ in tensors_in(given)):
            return i.plain(function, *given)
    code = "AOT201" if module in ("warnings", "os", "tempfile", "shutil", "glob") else "AOT204"
    raise GraphBreak(code, f"{module}.{function.__qualname__} is called")
