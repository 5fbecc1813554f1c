"""A writer of indented text, for every generator of source.

    out = Writer()
    out.line("def f(x):")
    with out.indented():
        out.line("return x")
    out.text()          ->  "def f(x):\\n    return x\\n"
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Writer:
    """Lines with a current indentation. No line ends in blanks; the text ends in exactly one newline (or is empty)."""

    def __init__(self, indent: str = "    ") -> None:
        self._unit = indent
        self._depth = 0
        self._lines: list[str] = []

    def line(self, text: str = "") -> None:
        """One line; ``text`` may hold newlines, and then each of its lines gets the current indentation (not for text with multi-line strings)."""
        for part in text.split("\n"):
            self._lines.append(f"{self._unit * self._depth}{part}".rstrip(" \t") if part.strip() else "")

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    def blank(self, count: int = 1) -> None:
        """Exactly ``count`` empty lines before whatever comes next, however many were asked for before; none at the start of the text."""
        while self._lines and not self._lines[-1]:
            self._lines.pop()
        if self._lines:
            self._lines.extend([""] * count)

    @contextmanager
    def indented(self, opening: str | None = None, closing: str | None = None) -> Iterator[None]:
        """One level deeper within ``with``; ``opening`` is written before ("{"), ``closing`` after ("}"), both at the outer level."""
        if opening is not None:
            self.line(opening)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if closing is not None:
            self.line(closing)

    def text(self) -> str:
        body = "\n".join(self._lines).rstrip("\n")
        return f"{body}\n" if body else ""
