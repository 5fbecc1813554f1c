"""Built-in containers and classes derived from them.

    class Config(dict):                                 a *derived* container: what it holds is in its base, which the base's methods read
        def __getitem__(self, key): ...                 Python code of its own is interpreted, and never run to look at what is held

and source that changes a container as its shadow was changed in the region (`ContainerChanges`):

    log.append(y)          ->      fetched[0].append(outputs[0])
    config["k"] = y        ->      dict.__setitem__(fetched[1], 'k', outputs[0])          past the method of a derived class, which has run
"""
from __future__ import annotations

import collections
import functools
import types
from dataclasses import dataclass
from typing import Any, Callable

MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)
SEQUENCES = (list, collections.deque)
SETS = (set,)
CONTAINERS = (*MAPPINGS, *SEQUENCES, *SETS)
_BASES: tuple[type, ...] = (collections.OrderedDict, collections.defaultdict, dict, collections.deque, list, set)         # most derived first


def is_derived(value: object) -> bool:
    """Whether ``value`` is an instance of a class derived from a container's."""
    return isinstance(value, CONTAINERS) and type(value) not in CONTAINERS


@functools.cache
def base_of(kind: type) -> Any:
    """The built-in class that holds the items of ``kind``'s instances."""
    return next(base for base in _BASES if issubclass(kind, base))


@functools.cache
def overrides(kind: type, *names: str) -> str:
    """The first of these methods that a class (or one it is derived from) has in Python; "" if none."""
    for name in names:
        found = next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None)
        if isinstance(found, types.FunctionType):
            return name
    return ""


def held_items(container: Any) -> list[tuple[Any, Any]]:
    """(key, value) of a mapping, (position, value) of a sequence: what its base holds."""
    base = base_of(type(container))
    return list(base.items(container)) if issubclass(base, dict) else list(enumerate(base.__iter__(container)))


def held_item(container: Any, key: Any) -> Any:
    return base_of(type(container)).__getitem__(container, key)


def holds(container: Any, key: Any) -> bool:
    return bool(base_of(type(container)).__contains__(container, key))


def empty_copy(container: Any) -> Any:
    """An empty container of the base's class, with the same default factory or maximal length."""
    base = base_of(type(container))
    if base is collections.defaultdict:
        return collections.defaultdict(container.default_factory)
    return collections.deque(maxlen=container.maxlen) if base is collections.deque else base()


@dataclass(frozen=True)
class ContainerChanges:
    """``target``: source of the container; ``base``: source of the class whose methods are called past the container's own, or ""; ``expression``:
    gives source for a value."""

    target: str
    base: str
    expression: Callable[[Any], str]

    def lines(self, shadow: Any, snapshot: Any) -> list[str]:
        """What makes of ``snapshot`` (the content before) the content of ``shadow``."""
        if isinstance(shadow, MAPPINGS):
            return self._mapping(shadow, snapshot)
        if isinstance(shadow, set):
            discarded = [self._call("discard", self.expression(item)) for item in sorted(snapshot - shadow, key=repr)]
            return discarded + [self._call("add", self.expression(item)) for item in sorted(shadow - snapshot, key=repr)]
        before, after = list(snapshot), list(shadow)
        if len(after) >= len(before) and all(a is b for a, b in zip(before, after)):
            return [self._call("append", self.expression(item)) for item in after[len(before):]]
        items = f"[{', '.join(map(self.expression, after))}]"
        if isinstance(shadow, collections.deque):
            return [self._call("clear"), self._call("extend", items)]
        return [self._call("__setitem__", "slice(None)", items) if self.base else f"{self.target}[:] = {items}"]

    def _mapping(self, shadow: Any, snapshot: Any) -> list[str]:
        kept = [key for key in snapshot if key in shadow]
        if list(shadow)[:len(kept)] == kept:
            lines = [self._delete(self.expression(key)) for key in snapshot if key not in shadow]
            changed = [key for key in shadow if key not in snapshot or shadow[key] is not snapshot[key]]
        else:
            lines, changed = [self._call("clear")], list(shadow)
        return lines + [self._set(self.expression(key), self.expression(shadow[key])) for key in changed]

    def _call(self, name: str, *arguments: str) -> str:
        return f"{self.base}.{name}({', '.join([self.target, *arguments])})" if self.base else f"{self.target}.{name}({', '.join(arguments)})"

    def _set(self, key: str, value: str) -> str:
        return self._call("__setitem__", key, value) if self.base else f"{self.target}[{key}] = {value}"

    def _delete(self, key: str) -> str:
        return self._call("__delitem__", key) if self.base else f"del {self.target}[{key}]"


__all__ = ["CONTAINERS", "MAPPINGS", "SEQUENCES", "SETS", "ContainerChanges", "base_of", "empty_copy", "held_item", "held_items", "holds",
           "is_derived", "overrides"]
