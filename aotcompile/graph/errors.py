"""The answer "no" of the graph stage: a region in one situation that has no ATen graph of ours. The caller leaves it eager there.

    AOT301  an operator or argument cannot be recorded or printed       AOT312  an input's sizes, strides or storage are changed
    AOT302  tracing failed                                              AOT313  an output shares memory with an input or another output
    AOT303  the value of a number or tensor is needed                   AOT314  a tensor constant is too large
    AOT311  an input that requires grad is changed in place             AOT315  a size relation or symbol that has no text form
"""
from __future__ import annotations

from aotcompile.base.diagnostic import AotCompileError, Diagnostic


class UnsupportedGraph(AotCompileError):
    """``code`` is AOT3xx, ``reason`` a sentence for the user, ``place`` the user's "file:line" where it is known."""

    def __init__(self, code: str, reason: str, hint: str = "", place: str = "") -> None:
        self.code, self.reason, self.place = code, reason, place
        super().__init__(Diagnostic(code, "note", f"{place} {reason}".strip(), None, hint))
