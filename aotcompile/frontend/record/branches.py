"""Both sides of branches on data, in one recording run.

At the first visit of a branch the process forks, and the child sleeps at the branch. When the program has come to its end the sleepers go on, one
after another, each taking the side that was not taken. Which sides were seen is told from one to the next, so that a program with n branches is run
at most n + 1 times, however they follow each other:

    if a: ...      # the run itself: a and b; a sleeper each for "not a" and "not b"
    if b: ...      # "not a" then b: both sides of b are seen already, nobody sleeps here
"""
from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Any, Hashable


class Branches:
    """State of one process: the sides seen so far, and the sleepers that it has to wake."""

    def __init__(self) -> None:
        self._seen: set[tuple[Hashable, bool]] = set()
        self._sleepers: list[tuple[int, Connection]] = []
        self._waker: Connection | None = None           # who woke this process up, if anybody did

    def side(self, site: Hashable, value: Any, data: bool) -> bool:
        """``bool(value)``, and in a process of its own later the opposite, where ``value`` is ``data``."""
        truth = bool(value)
        if not data:
            return truth
        self._seen.add((site, truth))
        if (site, not truth) in self._seen:
            return truth
        self._seen.add((site, not truth))
        return truth is not self._sleeping_child()

    def on_its_own_side(self) -> bool:
        """Whether this process has taken no side but those that the program takes."""
        return self._waker is None

    def _sleeping_child(self) -> bool:
        """True in the child, once it is woken up."""
        ours, theirs = multiprocessing.Pipe()
        child = os.fork()
        if child:
            theirs.close()
            self._sleepers.append((child, ours))
            return False
        ours.close()
        for _, connection in self._sleepers:            # else the death of the parent would go unnoticed
            connection.close()
        if self._waker is not None:
            self._waker.close()
        self._sleepers, self._waker = [], theirs
        try:
            self._seen = theirs.recv()
        except EOFError:                                # the parent died before its end
            os._exit(0)
        return True

    def finish(self) -> None:
        """At the end of a process: let the sleepers go on, one after another, and tell what was seen."""
        for child, connection in self._sleepers:
            try:
                connection.send(self._seen)
                self._seen = connection.recv()
            except (EOFError, BrokenPipeError):
                pass                                    # it died on its side; what it had seen stays to be looked at by others
            connection.close()
            os.waitpid(child, 0)
        if self._waker is not None:
            self._waker.send(self._seen)
            self._waker.close()
