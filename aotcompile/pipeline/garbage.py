"""Garbage collection while building: graphs are many small objects that stay, and full collections of a process with torch in it are slow."""
from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG, MIDDLE, OLD = 200_000, 10, 100          # allocations, and collections of the generation before, between two collections


@contextmanager
def fewer_collections() -> Iterator[None]:
    """Inside, collections are rarer, and full ones very rare; the caller's settings are put back. Does nothing where they are turned off."""
    before = gc.get_threshold()
    if not gc.isenabled() or before[0] == 0:
        yield
        return
    gc.set_threshold(max(before[0], YOUNG), max(before[1], MIDDLE), max(before[2], OLD))
    try:
        yield
    finally:
        gc.set_threshold(*before)


__all__ = ["fewer_collections"]
