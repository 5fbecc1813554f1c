"""Split bytecode brought to life for recording: the code objects that production makes of the same text, with truth tests that can be explored."""
from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import bytecode
from bytecode import Instr

from aotcompile.frontend.bytecode.emit import Writer
from aotcompile.frontend.bytecode.split import BytecodeSplit

_TESTS = frozenset({"POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_TRUE",
                    "POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE"})


class BytecodeTwinCode:
    """The same attributes as `record.twins.TwinCode`. ``load(text, original)`` makes the code objects (the runtime's function, handed in)."""

    def __init__(self, split: BytecodeSplit, original: types.CodeType, load: Callable[[str, types.CodeType], Mapping[str, types.CodeType]]) -> None:
        codes = load(split.text, original)
        self.eager_names = [region.name for region in split.regions]
        self.helpers: dict[str, Any] = {}
        self.extra = [f"_r{region.index}" for region in split.regions] + [f"_call_{number}" for number in split.calls] + ["_explore"]
        self.eager = {name: codes[name] for name in self.eager_names}
        self.function = _explored(codes[""])
        self.origins: None = None       # of the truth tests: not known, each may be data


def _explored(code: types.CodeType) -> types.CodeType:
    """``if t:`` -> ``if _explore(3, t):`` in the rewritten function."""
    made = bytecode.Bytecode.from_code(code, conserve_exception_block_stackdepth=True)
    items = list(made)
    result: list[Any] = []
    for item in items:
        if isinstance(item, Instr) and item.name in _TESTS:
            before = result.pop() if result and isinstance(result[-1], Instr) and result[-1].name == "TO_BOOL" else None
            result += _question(sum(isinstance(i, Instr) and i.name in _TESTS for i in result) + 1, item.location)
            result += [before] if before is not None else []
        elif isinstance(item, Instr) and item.name == "COPY_FREE_VARS":
            item = Instr("COPY_FREE_VARS", len(code.co_freevars) + 1, location=item.location)
        result.append(item)
    made[:] = result
    made.freevars = [*code.co_freevars, "_explore"]
    return made.to_code(compute_exception_stack_depths=False)


def _question(number: int, location: Any) -> list[Instr]:
    writer = Writer(location=location)
    writer.add("STORE_FAST", "_tested")

    def load() -> None:
        writer.add("LOAD_CONST", number)
        writer.take("_tested")

    writer.call("_explore", load, 2)
    return [item for item, _, _ in writer.items if isinstance(item, Instr)]


__all__ = ["BytecodeTwinCode"]
