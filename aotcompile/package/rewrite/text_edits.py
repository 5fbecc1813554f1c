"""Edits of source text by position, so that everything that is not edited stays byte for byte.

`SourceText` knows lines as Python counts them (``\\n``, ``\\r\\n``, ``\\r``; a form feed ends no line) and turns the positions of ``ast`` nodes
(line from 1, column in UTF-8 bytes) into offsets.
"""
from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")
_OPENING = {"FSTRING_START", "TSTRING_START"}
_CLOSING = {"FSTRING_END", "TSTRING_END"}


@dataclass(frozen=True)
class Edit:
    """Replace ``text[start:end]``; ``start == end`` inserts. Insertions at one place keep their order."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Raises ValueError if two edits overlap."""
    pieces, position = [], 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < position:
            raise ValueError(f"edits overlap at offset {edit.start}")
        pieces += [text[position:edit.start], edit.text]
        position = edit.end
    return "".join([*pieces, text[position:]])


class SourceText:
    """A text with its lines, for positions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = _LINE.findall(text)
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))
        self.newline = next((ending for line in self.lines[:1] for ending in ("\r\n", "\n", "\r") if line.endswith(ending)), "\n")

    def line_start(self, line: int) -> int:
        """Offset of the first character of a line (the line after the last one: the end of the text)."""
        return self._starts[min(line, len(self._starts)) - 1]

    def line_end(self, line: int) -> int:
        """Offset just after the line's last character, before its line ending."""
        return self._starts[line - 1] + len(self.lines[line - 1].rstrip("\r\n"))

    def offset(self, line: int, byte_column: int) -> int:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return self.line_start(line) + (byte_column if text.isascii() else len(text.encode()[:byte_column].decode()))

    def start(self, node: ast.stmt | ast.expr) -> int:
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: ast.stmt | ast.expr) -> int:
        return self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def indent_of(self, line: int) -> str:
        """The blanks a line begins with."""
        text = self.lines[line - 1]
        return text[:len(text) - len(text.lstrip(" \t\f"))].replace("\f", "")

    def comment_block_above(self, line: int) -> int:
        """First line of the comments directly above a line with the same indentation (the line itself if there are none)."""
        indent = self.indent_of(line)
        while line > 1 and self.lines[line - 2].startswith(f"{indent}#"):
            line -= 1
        return line


def first_line(node: ast.stmt) -> int:
    """Line a statement begins on, its decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def lines_inside_strings(text: str) -> set[int]:
    """Lines (from 1) that begin inside a multi-line string literal: their leading blanks are the string's, not indentation."""
    inside: set[int] = set()
    openings: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        name = tokenize.tok_name[token.type]
        if name == "STRING":
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
        elif name in _OPENING:
            openings.append(token.start[0])
        elif name in _CLOSING:
            inside.update(range(openings.pop() + 1, token.end[0] + 1))
    return inside


def reindent(lines: list[str], first: int, inside: set[int], old: str, new: str) -> list[str]:
    """``lines``, which begin at line ``first`` of their text, with ``old`` indentation exchanged for ``new``; lines ``inside`` strings stay.

    A comment or continuation line that is indented less than ``old`` keeps what it has.
    """
    result = []
    for number, line in enumerate(lines, first):
        if number in inside or not line.strip():
            result.append(line if number in inside else line.lstrip(" \t\f"))
        elif line.startswith(old):
            result.append(new + line[len(old):])
        else:
            result.append(new + line.lstrip(" \t") if line.lstrip().startswith("#") else line)
    return result
