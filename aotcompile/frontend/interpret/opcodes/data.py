"""Opcodes that move, build and take apart values."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from aotcompile.frontend.interpret.frame import NULL, Returned
from aotcompile.frontend.interpret.opcodes.table import opcode
from aotcompile.frontend.capture.signals import GraphBreak, UserException

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.frame import Frame
    from aotcompile.frontend.interpret.interpreter import Interpreter


@opcode("NOP", "RESUME", "PRECALL", "COPY_FREE_VARS")
def nothing(i: "Interpreter", f: "Frame", a: Any) -> None:
    """Free variables' cells are there when the frame is made; the rest is bookkeeping of CPython."""


@opcode("MAKE_CELL")
def make_cell(i: "Interpreter", f: "Frame", a: str) -> None:
    f.cells[a] = types.CellType(f.locals.pop(a)) if a in f.locals else types.CellType()


@opcode("POP_TOP")
def pop_top(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.pop()


@opcode("PUSH_NULL")
def push_null(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(NULL)


@opcode("COPY")
def copy(i: "Interpreter", f: "Frame", a: int) -> None:
    f.stack.append(f.stack[-a])


@opcode("SWAP")
def swap(i: "Interpreter", f: "Frame", a: int) -> None:
    f.stack[-a], f.stack[-1] = f.stack[-1], f.stack[-a]


@opcode("LOAD_CONST")
def load_const(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(a)


@opcode("RETURN_VALUE")
def return_value(i: "Interpreter", f: "Frame", a: Any) -> Returned:
    return Returned(f.stack.pop())


@opcode("RETURN_CONST")
def return_const(i: "Interpreter", f: "Frame", a: Any) -> Returned:
    return Returned(a)


# ---- names ------------------------------------------------------------------------------------------------------------------------------


def _unbound(name: str, free: bool = False) -> UserException:
    if free:
        return UserException(NameError(f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"))
    return UserException(UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value"))


def _read_local(f: "Frame", name: str) -> Any:
    if name not in f.locals:
        if name in f.cells:      # CPython 3.13 loads a closure's cell with LOAD_FAST
            return f.cells[name]
        raise _unbound(name)
    return f.locals[name]


@opcode("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(i: "Interpreter", f: "Frame", a: str) -> None:
    f.stack.append(_read_local(f, a))


@opcode("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(i: "Interpreter", f: "Frame", a: str) -> None:
    f.stack.append(f.cells.pop(a) if a in f.cells else f.locals.pop(a, NULL))


@opcode("STORE_FAST")
def store_fast(i: "Interpreter", f: "Frame", a: str) -> None:
    value = f.stack.pop()
    if value is NULL:
        f.locals.pop(a, None)
    elif type(value) is types.CellType and a in f.code.co_cellvars:
        f.cells[a] = value       # the end of an inlined comprehension gives the outer variable its cell back
    else:
        f.locals[a] = value


@opcode("LOAD_FAST_LOAD_FAST")
def load_fast_load_fast(i: "Interpreter", f: "Frame", a: tuple[str, str]) -> None:
    f.stack.extend((_read_local(f, a[0]), _read_local(f, a[1])))


@opcode("STORE_FAST_LOAD_FAST")
def store_fast_load_fast(i: "Interpreter", f: "Frame", a: tuple[str, str]) -> None:
    store_fast(i, f, a[0])
    load_fast(i, f, a[1])


@opcode("STORE_FAST_STORE_FAST")
def store_fast_store_fast(i: "Interpreter", f: "Frame", a: tuple[str, str]) -> None:
    store_fast(i, f, a[0])
    store_fast(i, f, a[1])


@opcode("DELETE_FAST")
def delete_fast(i: "Interpreter", f: "Frame", a: str) -> None:
    if a not in f.locals:
        raise _unbound(a)
    if f.function is i.home and i.is_outside(f.locals[a]) and hasattr(type(f.locals[a]), "__del__"):
        raise GraphBreak("AOT208", f"a {type(f.locals[a]).__qualname__}, which has a finalizer (__del__), is dropped", kind="statement")
    del f.locals[a]


@opcode("LOAD_GLOBAL")
def load_global(i: "Interpreter", f: "Frame", a: tuple[bool, str]) -> None:
    value = i.load_global(f, a[1])
    if a[0] and not i.null_after_callable:
        f.stack.append(NULL)
    f.stack.append(value)
    if a[0] and i.null_after_callable:
        f.stack.append(NULL)


@opcode("STORE_GLOBAL")
def store_global(i: "Interpreter", f: "Frame", a: str) -> None:
    i.store_global(f, a, f.stack.pop())


@opcode("DELETE_GLOBAL")
def delete_global(i: "Interpreter", f: "Frame", a: str) -> None:
    i.delete_global(f, a)


@opcode("LOAD_CLOSURE")
def load_closure(i: "Interpreter", f: "Frame", a: str) -> None:
    f.stack.append(f.cells[a])


@opcode("LOAD_DEREF")
def load_deref(i: "Interpreter", f: "Frame", a: str) -> None:
    try:
        f.stack.append(i.read_cell(f, a))
    except ValueError:
        raise _unbound(a, a in f.code.co_freevars) from None


@opcode("STORE_DEREF")
def store_deref(i: "Interpreter", f: "Frame", a: str) -> None:
    i.write_cell(f, a, f.stack.pop())


@opcode("DELETE_DEREF")
def delete_deref(i: "Interpreter", f: "Frame", a: str) -> None:
    try:
        i.read_cell(f, a)
    except ValueError:
        raise _unbound(a, a in f.code.co_freevars) from None
    i.delete_cell(f, a)


# ---- attributes and items ---------------------------------------------------------------------------------------------------------------


@opcode("LOAD_ATTR")
def load_attr(i: "Interpreter", f: "Frame", a: Any) -> None:
    is_method, name = a if isinstance(a, tuple) else (False, a)
    value = i.load_attribute(f.stack.pop(), name)
    _push_attribute(i, f, value, is_method)


def _push_attribute(i: "Interpreter", f: "Frame", value: Any, is_method: bool) -> None:
    if not is_method:
        f.stack.append(value)
    elif i.null_after_callable:
        f.stack.extend((value, NULL))
    else:
        f.stack.extend((NULL, value))


@opcode("LOAD_METHOD")
def load_method(i: "Interpreter", f: "Frame", a: str) -> None:
    f.stack.extend((NULL, i.load_attribute(f.stack.pop(), a)))


@opcode("LOAD_SUPER_ATTR")
def load_super_attr(i: "Interpreter", f: "Frame", a: tuple[bool, bool, str]) -> None:
    is_method, _, name = a
    function, cls, owner = f.pop(3)
    _push_attribute(i, f, i.load_attribute(i.call(function, (cls, owner), {}), name), is_method)


@opcode("STORE_ATTR")
def store_attr(i: "Interpreter", f: "Frame", a: str) -> None:
    value, owner = f.pop(2)
    i.store_attribute(owner, a, value)


@opcode("DELETE_ATTR")
def delete_attr(i: "Interpreter", f: "Frame", a: str) -> None:
    i.delete_attribute(f.stack.pop(), a)


@opcode("BINARY_SUBSCR")
def binary_subscr(i: "Interpreter", f: "Frame", a: Any) -> None:
    container, key = f.pop(2)
    f.stack.append(i.get_item(container, key))


@opcode("STORE_SUBSCR")
def store_subscr(i: "Interpreter", f: "Frame", a: Any) -> None:
    value, container, key = f.pop(3)
    i.set_item(container, key, value)


@opcode("DELETE_SUBSCR")
def delete_subscr(i: "Interpreter", f: "Frame", a: Any) -> None:
    container, key = f.pop(2)
    i.delete_item(container, key)


@opcode("BINARY_SLICE")
def binary_slice(i: "Interpreter", f: "Frame", a: Any) -> None:
    container, start, stop = f.pop(3)
    f.stack.append(i.get_item(container, slice(start, stop)))


@opcode("STORE_SLICE")
def store_slice(i: "Interpreter", f: "Frame", a: Any) -> None:
    value, container, start, stop = f.pop(4)
    i.set_item(container, slice(start, stop), value)


# ---- building -----------------------------------------------------------------------------------------------------------------------------


@opcode("BUILD_TUPLE")
def build_tuple(i: "Interpreter", f: "Frame", a: int) -> None:
    f.stack.append(tuple(f.pop(a)))


@opcode("BUILD_LIST")
def build_list(i: "Interpreter", f: "Frame", a: int) -> None:
    f.stack.append(f.pop(a))


@opcode("BUILD_SET")
def build_set(i: "Interpreter", f: "Frame", a: int) -> None:
    made = i.native(set, (f.pop(a),), {})
    i.compare_keys(made)
    f.stack.append(made)


@opcode("BUILD_MAP")
def build_map(i: "Interpreter", f: "Frame", a: int) -> None:
    values = f.pop(2 * a)
    made: dict[Any, Any] = {}
    for key, value in zip(values[::2], values[1::2]):
        _put(i, made, key, value)
    f.stack.append(made)


def _put(i: "Interpreter", target: dict[Any, Any], key: Any, value: Any) -> None:
    key = i.as_key(key, target)
    if type(key) is str:
        target[key] = value
    else:
        i.plain(dict.__setitem__, target, key, value)


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(i: "Interpreter", f: "Frame", a: int) -> None:
    keys = f.stack.pop()
    f.stack.append(dict(zip(keys, f.pop(a))))


@opcode("BUILD_STRING")
def build_string(i: "Interpreter", f: "Frame", a: int) -> None:
    f.stack.append("".join(f.pop(a)))


@opcode("BUILD_SLICE")
def build_slice(i: "Interpreter", f: "Frame", a: int) -> None:
    f.stack.append(slice(*f.pop(a)))


@opcode("LIST_TO_TUPLE")
def list_to_tuple(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(tuple(f.stack.pop()))


@opcode("LIST_APPEND")
def list_append(i: "Interpreter", f: "Frame", a: int) -> None:
    value = f.stack.pop()
    f.stack[-a].append(value)


@opcode("SET_ADD")
def set_add(i: "Interpreter", f: "Frame", a: int) -> None:
    value = f.stack.pop()
    i.native(f.stack[-a].add, (i.as_key(value, f.stack[-a]),), {})


@opcode("MAP_ADD")
def map_add(i: "Interpreter", f: "Frame", a: int) -> None:
    key, value = f.pop(2)
    _put(i, f.stack[-a], key, value)


@opcode("LIST_EXTEND")
def list_extend(i: "Interpreter", f: "Frame", a: int) -> None:
    values = f.stack.pop()
    i.native(f.stack[-a].extend, (i.iterate(values),), {})


@opcode("SET_UPDATE")
def set_update(i: "Interpreter", f: "Frame", a: int) -> None:
    values = f.stack.pop()
    i.native(f.stack[-a].update, (i.iterate(values),), {})


@opcode("DICT_UPDATE")
def dict_update(i: "Interpreter", f: "Frame", a: int) -> None:
    values = f.stack.pop()
    f.stack[-a].update(i.as_mapping(values))


@opcode("DICT_MERGE")
def dict_merge(i: "Interpreter", f: "Frame", a: int) -> None:
    values = i.as_mapping(f.stack.pop())
    target = f.stack[-a]
    for key in values:
        if key in target:
            raise UserException(TypeError(f"got multiple values for keyword argument '{key}'"))
    target.update(values)


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(i: "Interpreter", f: "Frame", a: int) -> None:
    values = i.take(f.stack.pop(), a, exact=True)
    f.stack.extend(reversed(values))


@opcode("UNPACK_EX")
def unpack_ex(i: "Interpreter", f: "Frame", a: int | tuple[int, int]) -> None:
    before, after = (a & 0xFF, a >> 8) if isinstance(a, int) else a
    values = list(i.native(list, (i.iterate(f.stack.pop()),), {}))
    if len(values) < before + after:
        raise UserException(ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(values)})"))
    tail = values[len(values) - after:] if after else []
    middle = values[before:len(values) - after]
    f.stack.extend(reversed([*values[:before], middle, *tail]))


# ---- strings ------------------------------------------------------------------------------------------------------------------------------

_CONVERSIONS = {0: None, 1: str, 2: repr, 3: ascii}


@opcode("FORMAT_VALUE")
def format_value(i: "Interpreter", f: "Frame", a: int | tuple[Any, bool]) -> None:
    flags = a if isinstance(a, int) else int(a[0]) | (4 if a[1] else 0)
    specification = f.stack.pop() if flags & 4 else ""
    f.stack.append(i.format(f.stack.pop(), _CONVERSIONS[flags & 3], specification))


@opcode("CONVERT_VALUE")
def convert_value(i: "Interpreter", f: "Frame", a: int) -> None:
    f.stack.append(i.format(f.stack.pop(), _CONVERSIONS[int(a)], None))


@opcode("FORMAT_SIMPLE")
def format_simple(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(i.format(f.stack.pop(), None, ""))


@opcode("FORMAT_WITH_SPEC")
def format_with_spec(i: "Interpreter", f: "Frame", a: Any) -> None:
    value, specification = f.pop(2)
    f.stack.append(i.format(value, None, specification))


# ---- functions ------------------------------------------------------------------------------------------------------------------------------


@opcode("MAKE_FUNCTION")
def make_function(i: "Interpreter", f: "Frame", a: int | None) -> None:
    code: types.CodeType = f.stack.pop()
    flags = int(a or 0)
    # CPython 3.13 sets the closure afterwards (SET_FUNCTION_ATTRIBUTE), a function object cannot be without.
    closure = f.stack.pop() if flags & 8 else [types.CellType() for _ in code.co_freevars]
    annotations = f.stack.pop() if flags & 4 else None
    keyword_defaults = f.stack.pop() if flags & 2 else None
    defaults = f.stack.pop() if flags & 1 else None
    made = types.FunctionType(code, f.globals, code.co_name, defaults, tuple(closure) or None)
    made.__kwdefaults__ = keyword_defaults
    made.__qualname__ = code.co_qualname
    if annotations:
        made.__annotations__ = _annotations(annotations)
    note_made(i, made)
    f.stack.append(made)


def note_made(i: "Interpreter", made: types.FunctionType) -> None:
    i.made_functions[id(made)] = made
    if not made.__name__.endswith(("comp>", "expr>")):
        i.outside.bind(made, f"{made.__name__}, a function made here, leaves the region", i.call_chain())


def _annotations(value: Any) -> dict[str, Any]:
    """The compiler writes them as a tuple of names and values in turn."""
    return dict(zip(value[::2], value[1::2])) if isinstance(value, tuple) else dict(value)


@opcode("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(i: "Interpreter", f: "Frame", a: int) -> None:
    made = f.stack.pop()
    value = f.stack.pop()
    if a == 8:
        old = made
        made = types.FunctionType(old.__code__, old.__globals__, old.__name__, old.__defaults__, tuple(value))
        made.__kwdefaults__, made.__qualname__, made.__annotations__ = old.__kwdefaults__, old.__qualname__, old.__annotations__
        note_made(i, made)
    elif a == 4:
        made.__annotations__ = _annotations(value)
    else:
        setattr(made, {1: "__defaults__", 2: "__kwdefaults__"}[a], dict(value) if a == 2 else value)
    f.stack.append(made)
