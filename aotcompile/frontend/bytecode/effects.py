"""What every operation does to the stack, on CPython 3.11 to 3.13: how many values it takes off, how many it puts there, how deep it looks.

    LIST_APPEND 2       takes 1, puts 0, looks at 3: the list lies under the iterator of the inlined comprehension's loop
    FOR_ITER            takes 0, puts 1, looks at 1: the iterator stays

A program can be cut only where it is known what lies where, so an operation without an entry is an error, never a guess.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_VERSION = sys.version_info[:2]
Effect = tuple[int, int]

_FIXED: dict[Effect, tuple[str, ...]] = {
    (0, 0): ("CACHE", "COPY_FREE_VARS", "DELETE_DEREF", "DELETE_FAST", "DELETE_GLOBAL", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD",
             "KW_NAMES", "MAKE_CELL", "NOP", "RESUME", "RETURN_CONST"),
    (0, 1): ("GET_LEN", "IMPORT_FROM", "LOAD_ASSERTION_ERROR", "LOAD_CLOSURE", "LOAD_CONST", "LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_AND_CLEAR",
             "LOAD_FAST_CHECK", "MATCH_KEYS", "MATCH_MAPPING", "MATCH_SEQUENCE", "PUSH_NULL", "WITH_EXCEPT_START"),
    (1, 0): ("DELETE_ATTR", "DICT_MERGE", "DICT_UPDATE", "LIST_APPEND", "LIST_EXTEND", "POP_EXCEPT", "POP_TOP", "RERAISE", "RETURN_VALUE", "SET_ADD",
             "SET_UPDATE", "STORE_DEREF", "STORE_FAST", "STORE_GLOBAL"),
    (1, 1): ("CALL_INTRINSIC_1", "CHECK_EXC_MATCH", "CONVERT_VALUE", "FORMAT_SIMPLE", "GET_ITER", "LIST_TO_TUPLE", "TO_BOOL", "UNARY_INVERT",
             "UNARY_NEGATIVE", "UNARY_NOT", "UNARY_POSITIVE"),
    (1, 2): ("BEFORE_WITH", "PUSH_EXC_INFO"),
    (2, 0): ("DELETE_SUBSCR", "MAP_ADD", "STORE_ATTR"),
    (2, 1): ("BINARY_OP", "BINARY_SUBSCR", "CALL_INTRINSIC_2", "COMPARE_OP", "CONTAINS_OP", "FORMAT_WITH_SPEC", "IMPORT_NAME", "IS_OP",
             "PREP_RERAISE_STAR", "SET_FUNCTION_ATTRIBUTE"),
    (2, 2): ("CHECK_EG_MATCH",),
    (3, 0): ("STORE_SUBSCR",),
    (3, 1): ("BINARY_SLICE", "MATCH_CLASS"),
    (4, 0): ("STORE_SLICE",),
}
_EFFECTS = {name: effect for effect, names in _FIXED.items() for name in names}
_BY_ARGUMENT: dict[str, Callable[[Any], Effect]] = {
    **dict.fromkeys(("BUILD_LIST", "BUILD_SET", "BUILD_SLICE", "BUILD_STRING", "BUILD_TUPLE"), lambda count: (count, 1)),
    "BUILD_CONST_KEY_MAP": lambda count: (count + 1, 1),
    "BUILD_MAP": lambda count: (2 * count, 1),
    "CALL": lambda count: (2 if _VERSION < (3, 12) else 2 + count, 1),
    "CALL_FUNCTION_EX": lambda flags: (3 + (flags & 1), 1),
    "CALL_KW": lambda count: (3 + count, 1),
    "FORMAT_VALUE": lambda flags: (2 if flags & 4 else 1, 1),
    "LOAD_ATTR": lambda name: (1, 1 + (isinstance(name, tuple) and bool(name[0]))),
    "LOAD_GLOBAL": lambda name: (0, 1 + (isinstance(name, tuple) and bool(name[0]))),
    "LOAD_SUPER_ATTR": lambda name: (3, 1 + bool(name[0])),
    "MAKE_FUNCTION": lambda flags: (1 + (flags & 15).bit_count() if _VERSION < (3, 13) else 1, 1),
    "PRECALL": lambda count: (count, 0),
    "RAISE_VARARGS": lambda count: (count, 0),
    "UNPACK_EX": lambda counts: (1, (counts & 255) + (counts >> 8) + 1),
    "UNPACK_SEQUENCE": lambda count: (1, count),
}
# Where an operation looks deeper than what it takes. DICT_MERGE names the callee in its error.
_REACH: dict[str, Callable[[Any], int]] = {
    "CHECK_EXC_MATCH": lambda _: 2,
    "COPY": lambda depth: depth,
    "DICT_MERGE": lambda depth: 1 + depth + (2 if _VERSION < (3, 13) else 3),
    "FOR_ITER": lambda _: 1,
    "GET_LEN": lambda _: 1,
    "IMPORT_FROM": lambda _: 1,
    "JUMP_IF_FALSE_OR_POP": lambda _: 1,
    "JUMP_IF_TRUE_OR_POP": lambda _: 1,
    "MAP_ADD": lambda depth: 2 + depth,
    "MATCH_KEYS": lambda _: 2,
    "MATCH_MAPPING": lambda _: 1,
    "MATCH_SEQUENCE": lambda _: 1,
    "PRECALL": lambda count: 2 + count,
    "RERAISE": lambda depth: 1 + (depth if isinstance(depth, int) else 0),
    "SWAP": lambda depth: depth,
    "WITH_EXCEPT_START": lambda _: 4,
    **dict.fromkeys(("DICT_UPDATE", "LIST_APPEND", "LIST_EXTEND", "SET_ADD", "SET_UPDATE"), lambda depth: 1 + depth),
}


def effect(name: str, argument: Any, jump: bool) -> Effect:
    """(values taken off, values put there). ``jump``: on the way to its target. SWAP and COPY are the caller's. Raises ValueError for an operation
    that is not known."""
    if name == "FOR_ITER":              # an exhausted loop: END_FOR takes away what 3.12 and 3.13 are said to leave
        return (1, 0) if jump and _VERSION < (3, 12) else (0, 1)
    if name == "END_FOR":
        return (2, 0) if _VERSION < (3, 13) else (1, 0)
    if name in ("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"):
        return (0, 0) if jump else (1, 0)
    if name.startswith("POP_JUMP_"):
        return 1, 0
    if name in _BY_ARGUMENT:
        return _BY_ARGUMENT[name](argument)
    if name not in _EFFECTS:
        raise ValueError(f"what {name} does to the stack is not known")
    return _EFFECTS[name]


def reach(name: str, argument: Any) -> int:
    """How many of the uppermost values an operation takes or looks at."""
    looks = _REACH[name](argument) if name in _REACH else 0
    return looks if name in ("SWAP", "COPY") else max(looks, effect(name, argument, False)[0])


__all__ = ["effect", "reach"]
