"""Functions to be cut in their bytecode. Apart from the tests: pytest rewrites the assertions of those."""
from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

log: list[Any] = []


def note(value: Any, *more: Any, **named: Any) -> Any:
    log.append((value, more, sorted(named.items())))
    return value


class Manager:
    def __init__(self, name: str, swallow: bool = False) -> None:
        self.name, self.swallow = name, swallow

    def __enter__(self) -> str:
        log.append(("enter", self.name))
        return self.name

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        log.append(("exit", self.name, kind))
        return self.swallow


def straight(a: int, b: int) -> int:
    c = a * 2 + b
    d = note(c) - a
    return note(d, c) + note(a, key=b)


def branches(a: int, b: int) -> Any:
    if a > b:
        c = note(a) - b
    elif a == b:
        return "same"
    else:
        c = b - note(a)
    d = c if c > 2 else -c
    return a and d or b


def early(a: int, b: int) -> int:
    if not note(a):
        return b * 2
    b = b + a
    if b > 5:
        return note(b) + 1
    return a - b


def loops(a: int, b: int) -> list[int]:
    out = []
    for i in range(a):
        if i == 3:
            continue
        if i == 6:
            break
        out.append(note(i) * b)
    else:
        out.append(-1)
    n = 0
    while n < b:
        n += 1
        out += [n * a]
    return out


def handles(a: int, b: int) -> Any:
    x = "none"
    try:
        x = note(a) // b
        y = [1, 2][a]
    except ZeroDivisionError as error:
        y = (str(error), x)
    except IndexError:
        y = ("index", x)
    finally:
        note("finally")
    return x, y


def reraises(a: int, b: int) -> Any:
    try:
        try:
            return note(a) // b
        except ZeroDivisionError:
            note("inner")
            raise
    except ArithmeticError as error:
        return type(error).__name__
    finally:
        note(b)


def withs(a: int, b: int) -> Any:
    total = a
    with Manager("one") as first, Manager("two", swallow=True):
        total += note(b)
        if a > 4:
            return first, total
        total = total // b
    return total


def comprehensions(a: int, b: int) -> Any:
    scale = note(a) + 1
    xs = [scale * i for i in range(b) if i != a]
    ys = {i: scale - i for i in xs}
    return xs, ys, sum(note(x) for x in xs)


def shadowed(a: int, b: int) -> Any:
    i = note(a) * 10
    xs = [i * b for i in range(b + 1)]
    ys = {note(i) for i in xs if i}
    grid = [[i + j for j in range(i % 3)] for i in xs]
    return i, xs, sorted(ys), grid, {i: j for i, j in enumerate(xs)}, i


def restored_unbound(a: int, b: int) -> Any:
    if a > b:
        i = note(a)
    xs = [i * 2 for i in range(b)]
    note(xs)
    try:
        return [i for _ in xs], i + 1
    except UnboundLocalError as error:
        return type(error).__name__, [note(i) for i in xs]


def raising_comprehensions(a: int, b: int) -> Any:
    i = note(b)
    for k in range(3):
        try:
            xs = [note(12 // (i - a)) for i in range(k, b + k)]
        except ZeroDivisionError:
            xs = [i, k]
        note(xs)
    return i, xs, [k for k in xs]


def comprehended_closures(a: int, b: int) -> Any:
    makers = [lambda y: y + i * a for i in range(b)]        # noqa: B023 - all see the last one
    i = note(len(makers)) * 2
    note(a - b)
    tables = {j: (lambda: (j, i)) for j in range(a)}        # noqa: B023
    found = [note(f(a)) for f in makers], [f() for f in tables.values()]
    note(b * 3 + a)
    return found, i, note(a * b) + 1


def merges(a: int, b: int) -> Any:
    more = {"key": note(a), **{str(k): k for k in range(b)}}
    xs = [note(a), *[note(k) for k in range(b)], *(a, b)]
    return note(*xs, **more, **{"last": note(b)}), {*xs, note(-1)}, f"{[i for i in xs]}{note(a)}"


def closures(a: int, b: int) -> Any:
    count = a
    count2 = b + a

    def inner(x: int) -> int:
        return x + count * count2

    def bump() -> None:
        nonlocal count
        count += 1

    bump()
    first = note(inner(b))
    bump()
    return first, inner(a), count


def unpacks(a: int, b: int) -> Any:
    pair = (a, b, note(a + b), 4)
    x, *rest, y = pair
    (p, q), r = (x, y), [*rest, a]
    d = {"p": p, **{"q": q}}
    return note(x, *rest, **d), f"{p!r}-{q:>3}-{note(r)}", pair[1:3], a < note(b) < 9


def stars(a: int, *args: int, key: int = 3, **named: int) -> Any:
    total = a + sum(args)
    named["more"] = note(total)
    return total, key, sorted(named.items())


def deletes(a: int, b: int) -> Any:
    x = note(a)
    y = x + b
    del x
    try:
        return x  # type: ignore[used-before-def]  # noqa: F821 - that it is unbound is the point
    except UnboundLocalError:
        return y


def maybe_unbound(a: int, b: int) -> Any:
    if a > b:
        x = note(a)
    try:
        return x + b
    except UnboundLocalError as error:
        return str(error)


def methods(a: int, b: int) -> Any:
    text = str(a).rjust(note(b), "0").replace("0", note("-"))
    parts = [text.upper(), ",".join([text, str(b).center(5)])]
    table = collections.OrderedDict(x=a)
    table.update(y=note(b))
    return parts, list(table.items()), note(a) if a else note(b)


def matches(a: Any, b: Any) -> Any:
    match [a, b]:
        case [0, x]:
            return "zero", note(x)
        case [int(x), 2 | 3 as y]:
            z = note(x) + y
        case [_, *rest]:
            z = len(rest)
        case _:
            z = None
    return z


def asserts(a: int, b: int) -> int:
    assert note(a) != 4, f"four {b}"
    global counted
    counted = a + b
    import math
    return math.floor(note(counted) / 2) + counted


counted = 0
free_base = 10


def make_free(k: int) -> Callable[..., Any]:
    def f(a: int, b: int) -> Any:
        total = note(a) + k
        parts = [total + k + i for i in range(b)]
        return total, parts, (lambda x: x + k + total)(b)
    return f


class Base:
    def scaled(self, x: int) -> int:
        return x * 2


class Child(Base):
    def scaled(self, x: int) -> int:
        y = note(x) + 1
        z = super().scaled(y)
        return note(z) + y


def method_call(a: int, b: int) -> Any:
    return Child.scaled(Child(), a) + b
