"""More small programs for the interpreter, in the form of `interpreter_samples`: descriptors, dictionaries of instances, operators' corners."""
from __future__ import annotations

import copy
import enum
from typing import Any



class Doubling:
    """A data descriptor."""

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return owner.__dict__.get("stored", 3)

    def __set__(self, owner: Any, value: Any) -> None:
        owner.__dict__["stored"] = value * 2

    def __delete__(self, owner: Any) -> None:
        owner.__dict__["stored"] = 100


class Holder:
    field = Doubling()
    ready = property(lambda self: self.flag, lambda self, value: setattr(self, "flag", value), lambda self: setattr(self, "flag", "gone"))


class Registry(type):
    def __call__(cls, *arguments):
        made = super().__call__(*arguments)
        made.registered = True
        return made


class Registered(metaclass=Registry):
    def __init__(self, n):
        self.n = n

    @classmethod
    def make(cls, n):
        return cls(n)


class Derived(Registered):
    @classmethod
    def make(cls, n):
        return super().make(n + 1)


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


class Hashed:
    def __init__(self, key):
        self.key = key

    def __hash__(self):
        return hash((self.key, 1))


def power_operators(x, s):
    y = x ** 2
    y **= 2
    return y, 2 ** x, x.__pow__(3), (x * x) ** s.scale


def data_descriptor(x, s):
    h = Holder()
    h.__dict__["field"] = "hidden"
    first = h.field
    h.field = 4
    second = h.field
    del h.field
    return x * first + second, h.field


def property_deleter(x, s):
    h = Holder()
    h.ready = 1
    del h.ready
    return x, h.flag


def item_of_an_instance_dictionary(x, s):
    s.__dict__["count"] = 7
    s.extra = 1
    return x * s.count, "extra" in s.__dict__, s.__dict__["count"], s.__dict__.get("missing", 5)


def whole_instance_dictionary(x, s):
    s.count = 9
    vars(s).update(flag=False, fresh=x + 1)
    s.flag = None
    del s.names
    return s.fresh, s.flag, sorted(s.__dict__), s.count


def container_read_after_it_was_changed_as_a_whole(x, s):
    table = s.table
    keys = list(table)
    table["new"] = x * 2
    del table["a"]
    return table["new"], "a" in table, len(table), keys


def super_in_a_metaclass(x, s):
    made = Derived.make(3)
    return x * made.n, made.registered


def flags_leave(x, s):
    return x, Access.READ | Access.WRITE, Access.READ


def extremes_with_a_key(x, s):
    return max([x, s.scale], key=lambda t: t.ndim), min(x, s.scale, key=lambda t: -t.shape[0])


def hashes(x, s):
    return x * (hash(Hashed(2)) == hash((2, 1))), hash(1.5)


def exception_groups(x, s):
    found = []
    try:
        raise ExceptionGroup("several", [ValueError("a"), TypeError("b")])
    except* ValueError as group:
        found.append(len(group.exceptions))
    except* TypeError as group:
        found.append(str(group.exceptions[0]))
    try:
        try:
            raise ExceptionGroup("rest", [KeyError("k"), ValueError("v")])
        except* ValueError:
            found.append("v")
    except ExceptionGroup as left:
        found.append(repr(left.exceptions))
    try:
        raise KeyError("bare")
    except* KeyError as group:
        found.append(group.message)
    return x, found


def format_of_a_tensors_attributes(x, s):
    return x, "{} {0}".replace("{0}", "{}").format(1, 2) + "{0.ndim} {1[deep][0]!r:>12} {n:{width}}|{}".replace("{}", "{2}").format(
        x, s.nested, 5, n=3, width=4)


def shallow_copies(x, s):
    other = copy.copy(s)
    other.count = 50
    other.items.append(9)
    return x * other.count + s.count, other.items is s.items, other.scale is s.scale

