"""Opcodes for operators, calls, jumps, loops, exceptions, context managers, generators and matching."""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from aotcompile.frontend.interpret.frame import NULL, InterpretedGenerator, Returned
from aotcompile.frontend.interpret.opcodes.table import opcode
from aotcompile.frontend.capture.signals import GraphBreak, UserException

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.frame import Frame
    from aotcompile.frontend.interpret.interpreter import Interpreter

# ---- operators ------------------------------------------------------------------------------------------------------------------------------

_BINARY = {
    "ADD": operator.add, "AND": operator.and_, "FLOOR_DIVIDE": operator.floordiv, "LSHIFT": operator.lshift, "MATRIX_MULTIPLY": operator.matmul,
    "MULTIPLY": operator.mul, "REMAINDER": operator.mod, "OR": operator.or_, "POWER": operator.pow, "RSHIFT": operator.rshift,
    "SUBTRACT": operator.sub,
    "TRUE_DIVIDE": operator.truediv, "XOR": operator.xor,
}
_INPLACE = {
    "ADD": operator.iadd, "AND": operator.iand, "FLOOR_DIVIDE": operator.ifloordiv, "LSHIFT": operator.ilshift, "MATRIX_MULTIPLY": operator.imatmul,
    "MULTIPLY": operator.imul, "REMAINDER": operator.imod, "OR": operator.ior, "POWER": operator.ipow, "RSHIFT": operator.irshift,
    "SUBTRACT": operator.isub, "TRUE_DIVIDE": operator.itruediv, "XOR": operator.ixor,
}
_COMPARE = {"LT": operator.lt, "LE": operator.le, "EQ": operator.eq, "NE": operator.ne, "GT": operator.gt, "GE": operator.ge}


@opcode("BINARY_OP")
def binary_op(i: "Interpreter", f: "Frame", a: Any) -> None:
    left, right = f.pop(2)
    name = a.name
    function = _INPLACE[name.removeprefix("INPLACE_")] if name.startswith("INPLACE_") else _BINARY[name]
    f.stack.append(i.operate(function, left, right))


@opcode("COMPARE_OP")
def compare_op(i: "Interpreter", f: "Frame", a: Any) -> None:
    left, right = f.pop(2)
    name = a.name
    result = i.operate(_COMPARE[name.removesuffix("_CAST")], left, right)
    f.stack.append(i.truth(result) if name.endswith("_CAST") else result)


@opcode("IS_OP")
def is_op(i: "Interpreter", f: "Frame", a: Any) -> None:
    left, right = f.pop(2)
    f.stack.append(i.same(left, right) != bool(a))


@opcode("CONTAINS_OP")
def contains_op(i: "Interpreter", f: "Frame", a: Any) -> None:
    key, container = f.pop(2)
    f.stack.append(i.contains(container, key) != bool(a))


@opcode("UNARY_NOT")
def unary_not(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(not i.truth(f.stack.pop()))


@opcode("UNARY_NEGATIVE")
def unary_negative(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(i.call(operator.neg, (f.stack.pop(),), {}))


@opcode("UNARY_POSITIVE")
def unary_positive(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(i.call(operator.pos, (f.stack.pop(),), {}))


@opcode("UNARY_INVERT")
def unary_invert(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(i.call(operator.invert, (f.stack.pop(),), {}))


@opcode("TO_BOOL")
def to_bool(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(i.truth(f.stack.pop()))


@opcode("GET_LEN")
def get_len(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(i.call(len, (f.stack[-1],), {}))


# ---- calls ----------------------------------------------------------------------------------------------------------------------------------


@opcode("KW_NAMES")
def kw_names(i: "Interpreter", f: "Frame", a: tuple[str, ...]) -> None:
    f.keyword_names = a


@opcode("CALL")
def call(i: "Interpreter", f: "Frame", a: int) -> None:
    names, f.keyword_names = f.keyword_names, ()
    _call(i, f, a, names)


@opcode("CALL_KW")
def call_kw(i: "Interpreter", f: "Frame", a: int) -> None:
    names = f.stack.pop()
    _call(i, f, a, names)


def _call(i: "Interpreter", f: "Frame", count: int, names: tuple[str, ...]) -> None:
    arguments = f.pop(count)
    first, second = f.pop(2)
    if i.null_after_callable:
        function = first
        arguments = arguments if second is NULL else [second, *arguments]
    elif first is NULL:
        function = second
    else:
        function, arguments = first, [second, *arguments]
    split = len(arguments) - len(names)
    f.stack.append(i.call(function, tuple(arguments[:split]), dict(zip(names, arguments[split:]))))


@opcode("CALL_FUNCTION_EX")
def call_function_ex(i: "Interpreter", f: "Frame", a: int) -> None:
    keywords = i.as_mapping(f.stack.pop()) if a & 1 else {}
    arguments = f.stack.pop()
    if i.null_after_callable:
        f.stack.pop()
        function = f.stack.pop()
    else:
        function = f.stack.pop()
        f.stack.pop()
    f.stack.append(i.call(function, tuple(i.native(tuple, (i.iterate(arguments),), {})), dict(keywords)))


@opcode("CALL_INTRINSIC_1")
def call_intrinsic_1(i: "Interpreter", f: "Frame", a: Any) -> None:
    name = getattr(a, "name", str(a))
    if name == "INTRINSIC_LIST_TO_TUPLE":
        f.stack.append(tuple(f.stack.pop()))
    elif name == "INTRINSIC_UNARY_POSITIVE":
        f.stack.append(i.call(operator.pos, (f.stack.pop(),), {}))
    elif name == "INTRINSIC_STOPITERATION_ERROR":
        exception = f.stack.pop()
        f.stack.append(RuntimeError("generator raised StopIteration") if isinstance(exception, StopIteration) else exception)
    else:
        raise GraphBreak("AOT210", f"{name.removeprefix('INTRINSIC_').lower()} cannot be part of a graph", kind="statement")


@opcode("CALL_INTRINSIC_2")
def call_intrinsic_2(i: "Interpreter", f: "Frame", a: Any) -> None:
    if getattr(a, "name", str(a)) == "INTRINSIC_PREP_RERAISE_STAR":
        prepare_reraise(i, f, a)
        return
    raise GraphBreak("AOT210", f"{getattr(a, 'name', a)} cannot be part of a graph", kind="statement")


@opcode("IMPORT_NAME")
def import_name(i: "Interpreter", f: "Frame", a: str) -> None:
    level, names = f.pop(2)
    f.stack.append(i.import_name(f, a, level, names))


@opcode("IMPORT_FROM")
def import_from(i: "Interpreter", f: "Frame", a: str) -> None:
    f.stack.append(i.load_attribute(f.stack[-1], a))


# ---- jumps ----------------------------------------------------------------------------------------------------------------------------------


@opcode("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(i: "Interpreter", f: "Frame", a: int) -> None:
    f.jump(a)


@opcode("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_IF_FALSE")
def pop_jump_if_false(i: "Interpreter", f: "Frame", a: int) -> None:
    if not i.truth(f.stack.pop()):
        f.jump(a)


@opcode("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_IF_TRUE")
def pop_jump_if_true(i: "Interpreter", f: "Frame", a: int) -> None:
    if i.truth(f.stack.pop()):
        f.jump(a)


@opcode("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_IF_NONE")
def pop_jump_if_none(i: "Interpreter", f: "Frame", a: int) -> None:
    if f.stack.pop() is None:
        f.jump(a)


@opcode("POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", "POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(i: "Interpreter", f: "Frame", a: int) -> None:
    if f.stack.pop() is not None:
        f.jump(a)


@opcode("JUMP_IF_FALSE_OR_POP")
def jump_if_false_or_pop(i: "Interpreter", f: "Frame", a: int) -> None:
    if i.truth(f.stack[-1]):
        f.stack.pop()
    else:
        f.jump(a)


@opcode("JUMP_IF_TRUE_OR_POP")
def jump_if_true_or_pop(i: "Interpreter", f: "Frame", a: int) -> None:
    if i.truth(f.stack[-1]):
        f.jump(a)
    else:
        f.stack.pop()


# ---- loops and generators -------------------------------------------------------------------------------------------------------------------


@opcode("GET_ITER")
def get_iter(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(i.iterator(f.stack.pop()))


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(i: "Interpreter", f: "Frame", a: Any) -> None:
    if not isinstance(f.stack[-1], InterpretedGenerator):
        f.stack.append(i.iterator(f.stack.pop()))


@opcode("FOR_ITER")
def for_iter(i: "Interpreter", f: "Frame", a: int) -> None:
    found, value = i.advance(f.stack[-1])
    if found:
        f.stack.append(value)
        return
    if i.version >= (3, 12):     # END_FOR (and, from 3.13, POP_TOP) take the iterator and one value off
        f.stack.append(NULL)
    else:
        f.stack.pop()
    f.jump(a)


@opcode("END_FOR")
def end_for(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.pop(2 if i.version < (3, 13) else 1)


@opcode("END_SEND")
def end_send(i: "Interpreter", f: "Frame", a: Any) -> None:
    del f.stack[-2]


@opcode("SEND")
def send(i: "Interpreter", f: "Frame", a: int) -> None:
    value = f.stack.pop()
    receiver = f.stack[-1]
    try:
        result = i.plain(receiver.send if value is not None and hasattr(receiver, "send") else receiver.__next__,
                         *(() if value is None else (value,)))
    except UserException as raised:
        if not isinstance(raised.exception, StopIteration):
            raise
        f.end_delegation(raised.exception.value)
        return
    f.stack.append(result)


@opcode("CLEANUP_THROW")
def cleanup_throw(i: "Interpreter", f: "Frame", a: Any) -> None:
    """Where an exception thrown in at a ``yield from`` arrives after the inner iterator had it."""
    exception = f.stack[-1]
    if not isinstance(exception, StopIteration):
        raise UserException(exception)
    f.pop(3)
    f.stack.extend((None, exception.value))


@opcode("RETURN_GENERATOR")
def return_generator(i: "Interpreter", f: "Frame", a: Any) -> None:
    """The frame of a generator starts here when it is first resumed; the value sent in is not wanted."""
    f.stack.append(None)


@opcode("YIELD_VALUE")
def yield_value(i: "Interpreter", f: "Frame", a: Any) -> Returned:
    return Returned(f.stack.pop(), finished=False)


# ---- exceptions and context managers --------------------------------------------------------------------------------------------------------


@opcode("LOAD_ASSERTION_ERROR")
def load_assertion_error(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.stack.append(AssertionError)


@opcode("PUSH_EXC_INFO")
def push_exc_info(i: "Interpreter", f: "Frame", a: Any) -> None:
    exception = f.stack.pop()
    f.stack.extend((f.handled, exception))
    f.handled = exception


@opcode("POP_EXCEPT")
def pop_except(i: "Interpreter", f: "Frame", a: Any) -> None:
    f.handled = f.stack.pop()


@opcode("CHECK_EXC_MATCH")
def check_exc_match(i: "Interpreter", f: "Frame", a: Any) -> None:
    kinds = f.stack.pop()
    f.stack.append(isinstance(f.stack[-1], kinds))


@opcode("CHECK_EG_MATCH")
def check_group_match(i: "Interpreter", f: "Frame", a: Any) -> None:
    """``except*``: what is left of the exception, and the part of it that matches."""
    exception, kinds = f.pop(2)
    if exception is None:
        f.stack.extend((None, None))
        return
    if isinstance(exception, BaseExceptionGroup):
        match, rest = i.plain(exception.split, kinds)
    elif isinstance(exception, kinds):
        match, rest = i.plain(BaseExceptionGroup, "", [exception]), None
    else:
        match, rest = None, exception
    if match is not None:
        f.handled = match
    f.stack.extend((rest, match))


@opcode("PREP_RERAISE_STAR")
def prepare_reraise(i: "Interpreter", f: "Frame", a: Any) -> None:
    """What an ``except*`` statement raises at its end: nothing, or the part that no clause took."""
    original, left = f.pop(2)
    left = [exception for exception in left if exception is not None]
    rest = len(left) == 1 and isinstance(left[0], BaseExceptionGroup) and left[0].__context__ is original.__context__
    if left and left != [original] and not rest:
        raise GraphBreak("AOT210", "exceptions raised in except* clauses cannot be part of a graph", kind="statement")
    f.stack.append(left[0] if left else None)


@opcode("RAISE_VARARGS")
def raise_varargs(i: "Interpreter", f: "Frame", a: int) -> None:
    cause = f.stack.pop() if a == 2 else NULL
    if a == 0:
        raise UserException(f.handled if f.handled is not None else i.handled_above(f))
    exception = f.stack.pop()
    if isinstance(exception, type):
        exception = i.call(exception, (), {})
    if cause is not NULL:
        exception.__cause__ = i.call(cause, (), {}) if isinstance(cause, type) else cause
    raise UserException(exception)


@opcode("RERAISE")
def reraise(i: "Interpreter", f: "Frame", a: int) -> None:
    raise UserException(f.stack.pop())


@opcode("BEFORE_WITH")
def before_with(i: "Interpreter", f: "Frame", a: Any) -> None:
    manager = f.stack.pop()
    leave = i.load_special(manager, "__exit__")
    enter = i.load_special(manager, "__enter__")
    f.stack.append(leave)
    f.stack.append(i.call(enter, (), {}))


@opcode("WITH_EXCEPT_START")
def with_except_start(i: "Interpreter", f: "Frame", a: Any) -> None:
    exception, leave = f.stack[-1], f.stack[-4]
    f.stack.append(i.truth(i.call(leave, (type(exception), exception, exception.__traceback__), {})))


# ---- matching -------------------------------------------------------------------------------------------------------------------------------


@opcode("MATCH_SEQUENCE")
def match_sequence(i: "Interpreter", f: "Frame", a: Any) -> None:
    value = f.stack[-1]
    f.stack.append(bool(type(value).__flags__ & (1 << 5)))


@opcode("MATCH_MAPPING")
def match_mapping(i: "Interpreter", f: "Frame", a: Any) -> None:
    value = f.stack[-1]
    f.stack.append(bool(type(value).__flags__ & (1 << 6)))


@opcode("MATCH_KEYS")
def match_keys(i: "Interpreter", f: "Frame", a: Any) -> None:
    keys, subject = f.stack[-1], f.stack[-2]
    found = []
    for key in keys:
        if not i.contains(subject, key):
            f.stack.append(None)
            return
        found.append(i.get_item(subject, key))
    f.stack.append(tuple(found))


@opcode("MATCH_CLASS")
def match_class(i: "Interpreter", f: "Frame", a: int) -> None:
    subject, kind, names = f.pop(3)
    if not i.truth(i.call(isinstance, (subject, kind), {})):
        f.stack.append(None)
        return
    values: list[Any] = []
    if a:
        if kind in (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple) and a == 1:
            values.append(subject)
        else:
            values.extend(i.load_attribute(subject, name) for name in kind.__match_args__[:a])
    for name in names:
        if not i.truth(i.call(hasattr, (subject, name), {})):
            f.stack.append(None)
            return
        values.append(i.load_attribute(subject, name))
    f.stack.append(tuple(values))
