"""The three ways in which interpretation leaves an instruction: a graph break, an exception of the user's program, a whole region's refusal."""
from __future__ import annotations

from typing import Any


class GraphBreak(BaseException):
    """The instruction cannot be part of a graph. A BaseException, so that no ``except Exception`` of the interpreted program catches it.

    ``kind`` is a `frontend.types.BreakKind`; ``whole_statement`` asks the splitter to leave the whole statement outside. ``chain``: the calls at the
    instruction that is to blame (`BreakPoint`s), where that is not the one being interpreted."""

    def __init__(self, code: str, reason: str, hint: str = "", kind: str = "call", chain: Any = None) -> None:
        super().__init__(f"{code} {reason}")
        self.code, self.reason, self.hint, self.kind, self.chain = code, reason, hint, kind, chain


class UserException(BaseException):
    """An exception that the interpreted program raised; `Frame`s unwind to their handlers as CPython does."""

    def __init__(self, exception: BaseException) -> None:
        super().__init__(exception)
        self.exception = exception


class RegionRefused(BaseException):
    """The region as a whole cannot be captured in this situation (not one instruction of it is to blame): it stays eager, with this reason."""

    def __init__(self, code: str, reason: str, hint: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code, self.reason, self.hint = code, reason, hint


def internal_error(error: BaseException) -> GraphBreak:
    """A defect of ours at this instruction: it is left outside, so that it fails no build, and reported."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{code.co_filename.rpartition('aotcompile/')[2]}:{trace.tb_lineno}" if "aotcompile" in code.co_filename else place
        trace = trace.tb_next
    text = str(error).partition("\n")[0][:160]
    return GraphBreak("AOT299", f"internal error of aotcompile in {place}: {type(error).__name__}: {text}",
                      "Please report it; the code runs eagerly.")


def value_needed(what: str, chain: Any = None) -> GraphBreak:
    return GraphBreak("AOT203", f"{what} reads a tensor's value", "Use torch.where, or pass the value in.", chain=chain)


def number_needed(what: str) -> GraphBreak:
    return GraphBreak("AOT203", f"{what} needs the value of a number that depends on data", "Compute with tensors, or pass the number in.")


def branch_on_value(what: str = "a tensor's value") -> GraphBreak:
    return GraphBreak("AOT202", f"a branch on {what}", "Both sides are compiled; torch.where keeps it in one graph.", "branch")
