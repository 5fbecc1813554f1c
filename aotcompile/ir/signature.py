"""The notation of signatures: the one torch prints in its graphs.

    signature = type "[" sizes "]" [ "[" strides "]" ] [ device ]
    type      = f32 | bf16 | i64 | b8 | ...          (`aotcompile.ir.dtypes.DType`)
    sizes     = nothing, or sizes and strides separated by commas: integers, letters (dynamic sizes; equal letters are equal sizes),
                or integer expressions over letters, ``2*T + 1``
    device    = cpu | cuda | cuda:0 | ...

    f32[B, 3, 224, 224]      bf16[8, 128][128, 1]cuda      i64[T]      f32[]

Code: AOT110, with the column of the error.
"""
from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol

from aotcompile.base.diagnostic import Diagnostic, UsageError
from aotcompile.base.span import Span
from aotcompile.ir.dtypes import BY_TORCH_NAME, DType
from aotcompile.ir.expression import Expression, Integer, Symbol, free_symbols, parse, substitute


class _Fail(Protocol):
    """`parse_signature`'s ``fail``: raises AOT110."""

    def __call__(self, position: int, what: str, hint: str = "") -> NoReturn: ...


_START = re.compile(r"\s*[A-Za-z_]\w*\s*\[")
_TYPE = re.compile(r"\s*([A-Za-z_]\w*)\s*")
_DEVICE = re.compile(r"\s*([a-z]+(?::\d+)?)?\s*$")


@dataclass(frozen=True)
class TensorSignature:
    """``strides`` None: contiguous. ``str`` prints the notation, `parse_signature` reads it back."""

    dtype: DType
    sizes: tuple[Expression, ...]
    strides: tuple[Expression, ...] | None = None
    device: str = "cpu"

    def __str__(self) -> str:
        text = f"{self.dtype.value}[{', '.join(map(str, self.sizes))}]"
        if self.strides is not None:
            text += f"[{', '.join(map(str, self.strides))}]"
        return text if self.device == "cpu" else text + self.device

    @property
    def letters(self) -> tuple[str, ...]:
        """The dynamic sizes, in the order in which they are first written."""
        found: dict[str, None] = {}
        for size in (*self.sizes, *(self.strides or ())):
            found.update(dict.fromkeys(sorted(symbol.name for symbol in free_symbols(size))))
        return tuple(found)

    def concrete(self, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Sizes and strides as integers. Raises KeyError for a letter without a size."""
        replacements = {Symbol(name): sizes[name] for name in self.letters}

        def value(expression: Expression) -> int:
            result = substitute(expression, replacements)
            assert isinstance(result, Integer)
            return result.value

        return tuple(map(value, self.sizes)), tuple(map(value, self.strides)) if self.strides is not None else None


def is_signature(value: object) -> bool:
    """Whether a value is meant as notation: a string that begins with a word and a bracket. Any other value is itself."""
    return isinstance(value, str) and _START.match(value) is not None


def parse_signature(text: str, span: Span | None = None) -> TensorSignature:
    """Read the notation. Raises UsageError AOT110 with the column (from 1) of the error; ``span`` is where the text stands."""
    def fail(position: int, what: str, hint: str = "") -> NoReturn:
        raise UsageError(Diagnostic("AOT110", "error", f"bad signature {text!r} at column {position + 1}: {what}.", span, hint))

    match = _TYPE.match(text)
    if match is None:
        fail(0, "an element type (f32, i64, ...) expected")
    dtype = _dtype(match, fail)
    sizes, position = _bracket(text, match.end(), fail)
    strides = None
    if text[position:].lstrip().startswith("["):
        start = position
        strides, position = _bracket(text, position, fail)
        if len(strides) != len(sizes):
            fail(start, f"{len(strides)} strides for {len(sizes)} sizes")
    device = _DEVICE.match(text, position)
    if device is None:
        fail(position + len(text[position:]) - len(text[position:].lstrip()), 'a device ("cuda", "cuda:0") or the end expected')
    return TensorSignature(dtype, sizes, strides, device.group(1) or "cpu")


def _dtype(match: re.Match[str], fail: _Fail) -> DType:
    word = match.group(1)
    known = {dtype.value: dtype for dtype in DType}
    if word in known:
        return known[word]
    if word in BY_TORCH_NAME:
        fail(match.start(1), f"unknown element type {word!r}", f"Write {BY_TORCH_NAME[word].value}, as torch does in its graphs.")
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    fail(match.start(1), f"unknown element type {word!r}", f"Did you mean {close[0]}?" if close else f"Known: {', '.join(known)}.")


def _bracket(text: str, position: int, fail: _Fail) -> tuple[tuple[Expression, ...], int]:
    """Read ``[a, b, ...]`` from ``position``; returns the expressions and the position after the bracket."""
    position += len(text[position:]) - len(text[position:].lstrip())
    if text[position:position + 1] != "[":
        fail(position, "'[' expected")
    depth, start, parts = 0, position + 1, []
    for index in range(position + 1, len(text)):
        character = text[index]
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "[":
            fail(index, "',' or ']' expected")
        elif character == "," and depth == 0:
            parts.append((start, text[start:index]))
            start = index + 1
        elif character == "]":
            if parts or text[start:index].strip():
                parts.append((start, text[start:index]))
            return tuple(_size(offset, part, fail) for offset, part in parts), index + 1
    fail(len(text), "']' expected")


def _size(offset: int, part: str, fail: _Fail) -> Expression:
    position = offset + len(part) - len(part.lstrip())
    if not part.strip():
        fail(position, "a size expected")
    try:
        size = parse(part.strip())
    except SyntaxError as error:
        fail(position + (error.offset or 1) - 1, f"{part.strip()!r} is no size", "Write an integer, a letter, or an expression such as 2*T + 1.")
    except ValueError:
        fail(position, f"{part.strip()!r} is no size", "Write an integer, a letter, or an expression such as 2*T + 1.")
    if isinstance(size, Integer) and size.value < 0:
        fail(position, f"{part.strip()} is negative")
    return size
