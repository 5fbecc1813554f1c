"""Diagnostics: a code, a place in the user's file, what happened, what to do.

Codes are AOT1xx discovery, 2xx frontend, 3xx graph, 4xx lowering and schedule, 5xx codegen and native builds, 6xx package and load, 7xx run time.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aotcompile.base.span import Span

Severity = Literal["note", "warning", "error"]


@dataclass(frozen=True)
class Diagnostic:
    """One message. ``hint`` is an imperative sentence: what the user can do."""

    code: str
    severity: Severity
    message: str
    span: Span | None = None
    hint: str = ""

    def __str__(self) -> str:
        place = f" {self.span}" if self.span else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"{self.code}{place} {self.message}{hint}"

    def as_json(self) -> dict[str, object]:
        """The ``--json`` form: one flat object."""
        span = self.span
        return {"code": self.code, "severity": self.severity, "file": span.file if span else None, "line": span.line if span else None,
                "column": span.column + 1 if span else None, "message": self.message, "hint": self.hint}


class AotCompileError(Exception):
    """Raised for an answer "no" of the tool (CLI exit code 1) or, as `UsageError`, for wrong usage (exit code 2)."""

    exit_code = 1

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics = diagnostics
        super().__init__("\n".join(map(str, diagnostics)))


class UsageError(AotCompileError):
    """Wrong usage or configuration: unknown key, entry that does not exist, signature with a syntax error. CLI exit code 2."""

    exit_code = 2
