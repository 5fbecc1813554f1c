"""What the commands answer with: frozen records that print themselves, for people (`as_text`) and for programs (`as_json`, one object per line).

Closing table of a build::

    function                        regions  variants  breaks  kernels  library     size      time
    mypkg.model:Net.forward               2         3       1        4        2   18 KiB     0.4 s
      AOT201 mypkg/model.py:18 print
    1 function, 2 regions, 1 break, in 0.9 s -> generated/mypkg
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aotcompile.base.diagnostic import Diagnostic

JsonLines = list[dict[str, Any]]


@dataclass(frozen=True)
class BreakLine:
    """A graph break as a report shows it: its code, file and line of the user, and why."""

    code: str
    file: str
    line: int
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.code} {self.file}:{self.line} {self.reason}"

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "file": self.file, "line": self.line, "reason": self.reason, "hint": self.hint}


def count(number: int, word: str) -> str:
    """``1 region``, ``2 regions``."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def size_text(number: int) -> str:
    """Bytes in a readable unit."""
    value = float(number)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def table_text(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table: first column to the left, the others to the right."""
    rows = [tuple(head), *map(tuple, rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return ["  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]).rstrip() for row in rows]


# ---- build --------------------------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class FunctionReport:
    """One function after a build.

    ``bytes``: of its binaries; ``seconds``: the time spent on it; ``eager``: what of it stays eager, and why;
    ``notes``: what is compiled for less than was asked for (a dynamic size that the code fixes)."""

    name: str                                  # "mypkg.model:Net.forward"
    file: str
    regions: int
    variants: int
    breaks: tuple[BreakLine, ...] = ()
    kernels: int = 0
    library_calls: int = 0
    bytes: int = 0
    seconds: float = 0.0
    eager: tuple[Diagnostic, ...] = ()
    notes: tuple[Diagnostic, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"function": self.name, "file": self.file, "regions": self.regions, "variants": self.variants,
                "breaks": [b.as_json() for b in self.breaks], "kernels": self.kernels, "library_calls": self.library_calls, "bytes": self.bytes,
                "seconds": round(self.seconds, 3), "eager": [d.as_json() for d in self.eager],
                "notes": [d.as_json() for d in self.notes]}


@dataclass(frozen=True)
class BuildReport:
    """The answer of ``build``. ``ok`` is False where a diagnostic is an error (exit code 1)."""

    package: str
    out: str
    functions: tuple[FunctionReport, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not any(d.severity == "error" for d in self.diagnostics)

    def as_text(self) -> str:
        head = ("function", "regions", "variants", "breaks", "kernels", "library", "size", "time")
        rows = [(f.name, str(f.regions), str(f.variants), str(len(f.breaks)), str(f.kernels), str(f.library_calls), size_text(f.bytes),
                 f"{f.seconds:.1f} s") for f in self.functions]
        table = table_text(head, rows)
        lines = [table[0]]
        for function, line in zip(self.functions, table[1:]):
            lines += [line, *(f"  {b}" for b in function.breaks), *(f"  eager: {d}" for d in function.eager),
                      *(f"  note: {d}" for d in function.notes)]
        regions, breaks = sum(f.regions for f in self.functions), sum(len(f.breaks) for f in self.functions)
        total = ", ".join((count(len(self.functions), "function"), count(regions, "region"), count(breaks, "break")))
        return "\n".join([*(lines if self.functions else ()), f"{total}, in {self.seconds:.1f} s -> {self.out}"])

    def as_json(self) -> JsonLines:
        return [*(f.as_json() for f in self.functions),
                {"package": self.package, "out": self.out, "ok": self.ok, "functions": len(self.functions), "seconds": round(self.seconds, 3)}]


# ---- explain ------------------------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class VariantExplanation:
    """A variant: its number of operators, its guards as source, and the signature it was captured for."""

    operators: int
    guards: tuple[str, ...]
    signature: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"operators": self.operators, "guards": list(self.guards), "signature": self.signature}


@dataclass(frozen=True)
class RegionExplanation:
    """A region: ``Net.forward:r0``, the user's lines, its variants; ``eager`` says why there are none."""

    name: str
    file: str
    lines: tuple[int, int]
    variants: tuple[VariantExplanation, ...]
    eager: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"region": self.name, "file": self.file, "lines": list(self.lines), "variants": [v.as_json() for v in self.variants],
                "eager": self.eager}


@dataclass(frozen=True)
class FunctionExplanation:
    name: str
    signature_source: str                      # "decorator, mypkg/model.py:12"
    regions: tuple[RegionExplanation, ...]
    breaks: tuple[BreakLine, ...]
    eager: tuple[Diagnostic, ...] = ()
    notes: tuple[Diagnostic, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"function": self.name, "signature_source": self.signature_source, "regions": [r.as_json() for r in self.regions],
                "breaks": [b.as_json() for b in self.breaks], "eager": [d.as_json() for d in self.eager],
                "notes": [d.as_json() for d in self.notes]}


@dataclass(frozen=True)
class Explanation:
    """The answer of ``explain``. ``guards``: print them (they can be many)."""

    package: str
    functions: tuple[FunctionExplanation, ...]
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(d.severity == "error" for d in self.diagnostics)

    @property
    def graph_count(self) -> int:
        return sum(len(r.variants) for f in self.functions for r in f.regions)

    @property
    def break_count(self) -> int:
        return sum(len(f.breaks) for f in self.functions)

    @property
    def operator_count(self) -> int:
        return sum(v.operators for f in self.functions for r in f.regions for v in r.variants)

    @property
    def break_reasons(self) -> tuple[BreakLine, ...]:
        return tuple(b for f in self.functions for b in f.breaks)

    def as_text(self) -> str:
        lines = []
        for function in self.functions:
            lines.append(f"{function.name}   signature from {function.signature_source}" if function.signature_source else function.name)
            parts = [(region.lines[0], 0, _region_lines(region)) for region in function.regions]
            parts += [(b.line, 1, [f"  break    {b}", *([f"           {b.hint}"] if b.hint else [])]) for b in function.breaks]
            for _, _, text in sorted(parts, key=lambda part: part[:2]):
                lines += text
            lines += [f"  eager    {d}" for d in function.eager]
            lines += [f"  note     {d}" for d in function.notes]
        total = (count(self.graph_count, "graph"), count(self.break_count, "break"), count(self.operator_count, "operator"))
        return "\n".join([*lines, ", ".join(total)])

    def as_json(self) -> JsonLines:
        return [*(f.as_json() for f in self.functions),
                {"package": self.package, "graphs": self.graph_count, "breaks": self.break_count, "operators": self.operator_count}]


def _region_lines(region: RegionExplanation) -> list[str]:
    place = f"{region.file}:{region.lines[0]}-{region.lines[1]}"
    lines = [f"  region   {region.name}  {place}  {count(len(region.variants), 'variant')}" + (f"  eager: {region.eager}" if region.eager else "")]
    for variant in region.variants:
        lines.append(f"    variant  {count(variant.operators, 'operator')}, {count(len(variant.guards), 'guard')}  {variant.signature}".rstrip())
        lines += [f"      {guard}" for guard in variant.guards]
    return lines


# ---- check, verify, clean -----------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class StaleFile:
    """A file that is not what a build would write: ``changed``, ``missing``, ``extra``, or a source/option/version that is different now."""

    path: str
    reason: str


@dataclass(frozen=True)
class CheckReport:
    """The answer of ``check``; ``ok``: a build would write what is there. ``diff`` is a unified diff, shown with ``--diff``."""

    package: str
    stale: tuple[StaleFile, ...]
    diff: str = ""

    @property
    def ok(self) -> bool:
        return not self.stale

    def as_text(self) -> str:
        lines = [f"{s.path}: {s.reason}" for s in self.stale]
        summary = f"{self.package}: up to date" if self.ok else f"{self.package}: stale ({count(len(self.stale), 'reason')}). Run aotcompile build."
        return "\n".join([*lines, summary])

    def as_json(self) -> JsonLines:
        return [*({"path": s.path, "reason": s.reason} for s in self.stale), {"package": self.package, "ok": self.ok}]


@dataclass(frozen=True)
class Comparison:
    """One comparison with eager: ``what`` is ``output 0``, ``gradient of weight``, ``attribute count`` ...; ``stage`` the backend that was compared.

    ``difference``: largest absolute difference (None where it is no number); ``message`` says what is different."""

    function: str
    stage: str
    what: str
    ok: bool
    difference: float | None = None
    message: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"function": self.function, "stage": self.stage, "what": self.what, "ok": self.ok, "difference": self.difference,
                "message": self.message}


@dataclass(frozen=True)
class VerifyReport:
    """The answer of ``verify``: every comparison made; ``ok`` where there was at least one and all agree."""

    package: str
    comparisons: tuple[Comparison, ...]
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def ok(self) -> bool:
        return bool(self.comparisons) and all(c.ok for c in self.comparisons) and not any(d.severity == "error" for d in self.diagnostics)

    def as_text(self) -> str:
        rows = [(c.function, c.stage, c.what, "-" if c.difference is None else f"{c.difference:.1e}", "same" if c.ok else "DIFFERENT")
                for c in self.comparisons]
        table = table_text(("function", "stage", "what", "difference", ""), rows) if rows else []
        lines = table[:1]
        for comparison, line in zip(self.comparisons, table[1:]):
            lines += [line, *([f"  {comparison.message}"] if comparison.message else [])]
        bad = sum(not c.ok for c in self.comparisons)
        if not self.comparisons:
            return f"{self.package}: nothing to compare"
        return "\n".join([*lines, f"{self.package}: {count(len(self.comparisons), 'comparison')}, {bad} different"])

    def as_json(self) -> JsonLines:
        return [*(c.as_json() for c in self.comparisons), {"package": self.package, "ok": self.ok, "comparisons": len(self.comparisons)}]


@dataclass(frozen=True)
class CleanReport:
    """The answer of ``clean``: the folders and files that were removed."""

    package: str
    removed: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return True

    def as_text(self) -> str:
        return "\n".join([*(f"removed {path}" for path in self.removed)] or [f"{self.package}: nothing to remove"])

    def as_json(self) -> JsonLines:
        return [{"package": self.package, "removed": list(self.removed)}]
