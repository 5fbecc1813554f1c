"""The opcode table: every opcode of CPython 3.11 to 3.13 is handled or refused by name (a test walks `dis.opmap`)."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from aotcompile.frontend.capture.signals import GraphBreak

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.frame import Frame, Returned
    from aotcompile.frontend.interpret.interpreter import Interpreter

Handler = Callable[["Interpreter", "Frame", Any], "Returned | None"]
HANDLERS: dict[str, Handler] = {}


def opcode(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of these opcodes."""

    def register(handler: Handler) -> Handler:
        for name in names:
            if name in HANDLERS:
                raise ValueError(f"opcode {name} has two handlers")
            HANDLERS[name] = handler
        return handler

    return register


# Never seen by the interpreter: hidden by the `bytecode` library, written only by the running interpreter's own specialiser and tracers.
HIDDEN = {"CACHE", "EXTENDED_ARG", "RESERVED", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "EXIT_INIT_CHECK", "JUMP", "JUMP_NO_INTERRUPT", "POP_BLOCK",
          "SETUP_CLEANUP", "SETUP_FINALLY", "SETUP_WITH", "STORE_FAST_MAYBE_NULL", "LOAD_SUPER_METHOD", "LOAD_ZERO_SUPER_METHOD",
          "LOAD_ZERO_SUPER_ATTR"}
HIDDEN |= {f"INSTRUMENTED_{name}" for name in (
    "CALL", "CALL_FUNCTION_EX", "CALL_KW", "END_FOR", "END_SEND", "FOR_ITER", "INSTRUCTION", "JUMP_BACKWARD", "JUMP_FORWARD", "LINE",
    "LOAD_SUPER_ATTR",
    "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", "POP_JUMP_IF_TRUE", "RESUME", "RETURN_CONST", "RETURN_VALUE", "YIELD_VALUE")}

_REFUSED = {
    "async code": ("GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "GET_AWAITABLE", "ASYNC_GEN_WRAP"),
    "import *": ("IMPORT_STAR",),
    "a class definition": ("LOAD_BUILD_CLASS", "SETUP_ANNOTATIONS", "LOAD_CLASSDEREF", "STORE_NAME", "DELETE_NAME", "LOAD_NAME", "LOAD_LOCALS",
                           "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF"),
    "interactive printing": ("PRINT_EXPR",),
}


def _refuse(what: str) -> Handler:
    def handler(interpreter: "Interpreter", frame: "Frame", argument: Any) -> None:
        raise GraphBreak("AOT210", f"{what} cannot be part of a graph", kind="statement")

    return handler


for _what, _names in _REFUSED.items():
    opcode(*_names)(_refuse(_what))
