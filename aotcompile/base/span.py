"""A place in the user's source."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Span:
    """A range in a user's source file.

    ``file`` is relative to the root of the package's distribution (never absolute, so that generated files are the same on every machine);
    ``line``/``end_line`` count from 1, ``column``/``end_column`` from 0 in UTF-8 bytes, as ``code.co_positions()`` gives them.
    """

    file: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"
