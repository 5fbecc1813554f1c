"""Stance, counters and warnings: what a process can say about its regions.

`set_stance` has torch.compiler.set_stance's names: "default", "force_eager" (no compiled code runs), "error_on_miss" (a miss raises `MissError`).
The environment variable ``AOTCOMPILE_STANCE`` sets the stance a process starts with.
"""
from __future__ import annotations

import os
import sys
import warnings
import weakref
from dataclasses import dataclass, replace
from typing import Any, Callable

STANCES = ("default", "force_eager", "error_on_miss")
stance = "default"
_listeners: list[Callable[[str], None]] = []
_regions: list["weakref.ref[Any]"] = []
_refusals: dict[str, str] = {}                                   # what could not be trusted -> why


class AotCompileWarning(RuntimeWarning):
    """A miss (AOT701), a compiled failure (AOT702) or a refusal to load something (AOT6xx). Eager code runs instead; results are right."""


class MissError(RuntimeError):
    """Raised for a miss under the stance "error_on_miss"."""


@dataclass(frozen=True)
class RegionRecord:
    """One region so far. ``eager``: no compiled variant (never built, or refused at load: see ``reason``). ``last_miss``: the guard that failed
    last, as source."""

    name: str
    module: str
    calls: int
    hits: int
    misses: int
    eager: bool
    last_miss: str | None
    reason: str | None = None


class Counters:
    """The counters of a region. Several stubs share one where a function object is made anew at each call (a closure)."""

    __slots__ = ("calls", "hits", "misses", "last_miss", "eager", "reason", "warned", "natives")

    def __init__(self) -> None:
        self.calls = self.hits = self.misses = 0
        self.last_miss: str | None = None
        self.eager = False                                       # known to have no variant
        self.reason: str | None = None
        self.warned: set[str] = set()
        self.natives: list[Any] = []                             # native stubs, which count calls and hits of their own

    def record(self, name: str, module: str) -> RegionRecord:
        calls, hits = self.calls + sum(n.calls for n in self.natives), self.hits + sum(n.hits for n in self.natives)
        return RegionRecord(name, module, calls, hits, self.misses, self.eager, self.last_miss, self.reason)


def eager_record(record: RegionRecord) -> RegionRecord:
    return replace(record, eager=True)


@dataclass(frozen=True)
class Report:
    """``regions`` by module and name; ``refusals``: "AOT6xx ..." messages of what was not loaded."""

    regions: tuple[RegionRecord, ...]
    refusals: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{r.module}:{r.name}: {r.calls} calls, {r.hits} hits, {r.misses} misses" + (", eager" if r.eager else "")
                 + (f"; last miss: {r.last_miss}" if r.last_miss else "") + (f"; {r.reason}" if r.reason else "") for r in self.regions]
        return "\n".join([*lines, *self.refusals])


class _Stance:
    """What `set_stance` returns: may be used with ``with``, which restores the stance before."""

    def __init__(self, previous: str) -> None:
        self._previous = previous

    def __enter__(self) -> None:
        return None

    def __exit__(self, *details: object) -> None:
        set_stance(self._previous)


def set_stance(name: str) -> _Stance:
    """Sets the process's stance: "default", "force_eager" or "error_on_miss". As a context manager it restores the one before. Raises ValueError."""
    global stance
    if name not in STANCES:
        raise ValueError(f"unknown stance {name!r}; known: {', '.join(STANCES)}")
    previous, stance = stance, name
    for listener in _listeners:
        listener(name)
    return _Stance(previous)


def on_stance(listener: Callable[[str], None]) -> None:
    """Calls ``listener`` now and at each change (the native extension keeps the stance as an int)."""
    _listeners.append(listener)
    listener(stance)


def register(region: Any) -> None:
    if len(_regions) >= 256 and len(_regions) & (len(_regions) - 1) == 0:
        live_regions()                                           # drops those that are gone, now and then
    _regions.append(weakref.ref(region))


def live_regions() -> list[Any]:
    """The regions of this process that are still referred to."""
    found = [region for reference in _regions if (region := reference()) is not None]
    if len(found) < len(_regions):
        _regions[:] = [weakref.ref(region) for region in found]
    return found


def report() -> Report:
    """Counters of every region in this process."""
    regions = {id(region.counters): region for region in live_regions()}
    records = sorted((region.record() for region in regions.values()), key=lambda record: (record.module, record.name))
    return Report(tuple(records), tuple(_refusals[key] for key in sorted(_refusals)))


def warn(message: str) -> None:
    """A warning that never becomes an exception: under ``-W error`` it goes to stderr, since a miss must not change what a program does."""
    try:
        warnings.warn(message, AotCompileWarning, stacklevel=4)
    except Warning:
        print(f"AotCompileWarning: {message}", file=sys.stderr)


def refuse(what: str, message: str) -> None:
    """Records why ``what`` is not used, and warns the first time."""
    if what not in _refusals:
        _refusals[what] = message
        warn(message)


def _from_environment() -> None:
    name = os.environ.get("AOTCOMPILE_STANCE", "").strip()
    if name in STANCES:
        set_stance(name)
    elif name:
        warn(f"AOT704 AOTCOMPILE_STANCE={name!r} is unknown and ignored; known: {', '.join(STANCES)}.")


_from_environment()
