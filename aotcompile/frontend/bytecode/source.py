"""What is known of a function without source text: its code object, and where its lines are said to be."""
from __future__ import annotations

import inspect
import marshal
import types
from dataclasses import dataclass
from typing import Any

from aotcompile.frontend.library import file_label
from aotcompile.frontend.record.source import FunctionSource, defined_as

GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


@dataclass(frozen=True)
class BytecodeSource(FunctionSource):
    """``text`` is empty; ``code`` is the function's code object (it travels between processes as marshal data)."""

    code: types.CodeType = (lambda: None).__code__

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.module, self.qualname, self.file, self.text, self.first_line, self.indent, self.freevars, self.digest)
        return _restored, (fields, marshal.dumps(self.code))


def _restored(fields: tuple[Any, ...], code: bytes) -> BytecodeSource:
    return BytecodeSource(*fields, code=marshal.loads(code))


def bytecode_source(function: types.FunctionType, digest: str) -> BytecodeSource | None:
    """None for what cannot be split in its bytecode either: generators, coroutines, code of another kind than a function's."""
    code = function.__code__
    if code.co_flags & GENERATORS or not code.co_flags & inspect.CO_NEWLOCALS:
        return None
    module, qualname = defined_as(function)
    return BytecodeSource(module, qualname, file_label(code.co_filename, module), "", code.co_firstlineno, 0, code.co_freevars, digest,
                          code=code)


__all__ = ["BytecodeSource", "bytecode_source"]
