"""What a command prints: results to stdout, diagnostics and progress to stderr; text for people, or one JSON object per line."""
from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from aotcompile.base.diagnostic import Diagnostic

LOGGER = "aotcompile"


class Report(Protocol):
    """What `Output.result` prints."""

    @property
    def ok(self) -> bool: ...

    def as_text(self) -> str: ...

    def as_json(self) -> list[dict[str, Any]]: ...


class ProgressHandler(logging.Handler):
    """Shows what the pipeline logs to the logger ``aotcompile`` (level INFO): on a terminal one line that is written over, elsewhere plain lines.

    A record may carry ``done`` and ``total`` (``extra={"done": 3, "total": 8}``), shown as a count."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(logging.INFO)
        self.stream = stream
        self.terminal = stream.isatty()

    def emit(self, record: logging.LogRecord) -> None:
        done, total = getattr(record, "done", None), getattr(record, "total", None)
        text = (f"[{done}/{total}] " if done is not None and total is not None else "") + record.getMessage()
        if self.terminal and record.levelno == logging.INFO:
            width = shutil.get_terminal_size().columns
            self.stream.write(f"\r\x1b[K{text[:width - 1]}")
        else:
            self.stream.write(("\r\x1b[K" if self.terminal else "") + text + "\n")
        self.stream.flush()

    def clear(self) -> None:
        """Remove the line that is being written over."""
        if self.terminal:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


class Output:
    """Where a command writes. ``quiet`` leaves out progress and notes."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self.as_json, self.quiet = as_json, quiet
        self.stdout, self.stderr = stdout or sys.stdout, stderr or sys.stderr

    def text(self, text: str) -> None:
        """A result that is text in every form (source of a stage)."""
        self.stdout.write(text if text.endswith("\n") else text + "\n")

    def objects(self, objects: Iterable[dict[str, Any]]) -> None:
        for value in objects:
            self.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")

    def result(self, report: Report) -> int:
        """Print a report and its diagnostics; the exit code: 0 where it is ok, else 1."""
        self.diagnostics(getattr(report, "diagnostics", ()))
        if self.as_json:
            self.objects(report.as_json())
        else:
            self.text(report.as_text())
        return 0 if report.ok else 1

    def diagnostics(self, diagnostics: Iterable[Diagnostic]) -> None:
        for diagnostic in diagnostics:
            if self.quiet and diagnostic.severity == "note":
                continue
            if self.as_json:
                self.stderr.write(json.dumps(diagnostic.as_json(), ensure_ascii=False) + "\n")
            else:
                self.stderr.write(f"{diagnostic}\n" if diagnostic.severity == "note" else f"{diagnostic.severity}: {diagnostic}\n")

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show the pipeline's progress inside, unless quiet or in JSON."""
        if self.quiet or self.as_json:
            yield
            return
        logger, handler = logging.getLogger(LOGGER), ProgressHandler(self.stderr)
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            handler.clear()
            logger.removeHandler(handler)
            logger.setLevel(level)
