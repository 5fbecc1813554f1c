"""The split form of a function does what the function does: random functions with side effects (`Writer`), random breaks, and a comparison of results,
exceptions and the order of events; and whatever the breaks of real functions, the split form compiles."""
from __future__ import annotations

import ast
import importlib.util
import random
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aotcompile.base.span import Span
from aotcompile.frontend.split import split_function
from aotcompile.frontend.types import Break


class Fuel(Exception):
    """The run got too long."""


class Failure(Exception):
    """Raised by generated code."""


class Other(Exception):
    """Raised by generated code; no handler expects it."""


def namespace(log: list[Any]) -> dict[str, Any]:
    """Globals for generated code: everything it does is written to ``log``."""
    def note(*event: Any) -> None:
        log.append(event)
        if len(log) > 1500:
            raise Fuel

    class Value:
        """A number whose every operation is an event."""

        def __init__(self, number: int) -> None:
            self.number = number % 1000

        def __repr__(self) -> str:
            return f"V{self.number}"

        def __bool__(self) -> bool:
            note("bool", self.number)
            return self.number % 3 != 0

        def __format__(self, spec: str) -> str:
            note("format", self.number, spec)
            return f"{self.number}"

        def __hash__(self) -> int:
            return self.number

        def __iadd__(self, other: Any) -> Any:
            note("iadd", self.number, number(other))
            self.number = (self.number + number(other)) % 1000
            return self

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            note("get", self.number, name)
            if name == "method":
                return lambda *args, **kw: T("method", Value(self.number + sum(map(number, args)) + sum(map(number, kw.values()))))
            if name == "missing" or self.number % 11 == 10:
                raise AttributeError(name)
            return Value(self.number + len(name))

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "number":
                object.__setattr__(self, name, value)
            else:
                note("set", self.number, name, repr(value))

        def __getitem__(self, key: Any) -> Any:
            note("item", self.number, repr(key))
            return Value(self.number + 3)

        def __setitem__(self, key: Any, value: Any) -> None:
            note("setitem", self.number, repr(key), repr(value))

        def __delitem__(self, key: Any) -> None:
            note("delitem", self.number, repr(key))

        def __iter__(self) -> Any:
            note("iter", self.number)
            for each in range(self.number % 4):
                note("next", self.number, each)
                yield Value(each)

    def number(value: Any) -> int:
        return value.number if isinstance(value, Value) else value if isinstance(value, int) else len(repr(value))

    def operation(name: str) -> Callable[[Any, Any], Any]:
        def apply(left: Any, right: Any) -> Any:
            note(name, number(left), number(right))
            return Value(number(left) * 2 + number(right) + len(name))
        return apply

    for name in ("add", "sub", "mul"):
        setattr(Value, f"__{name}__", operation(name))
        setattr(Value, f"__r{name}__", (lambda each: lambda self, other: each(other, self))(operation(name)))
    for name, test in (("lt", lambda a, b: a < b), ("gt", lambda a, b: a > b), ("eq", lambda a, b: a == b)):
        setattr(Value, f"__{name}__", (lambda n, t: lambda self, other: T(n, Value(3 if not t(number(self), number(other)) else 4)))(name, test))

    def T(tag: Any, value: Any = None, *more: Any, **kw: Any) -> Any:
        note("T", repr(tag), repr(value), repr(more), repr(sorted(kw.items())))
        return value

    def boom(tag: Any, value: Any = None) -> Any:
        note("boom", repr(tag), repr(value))
        if number(value) % 4 == 1:
            raise Failure(tag)
        if number(value) % 13 == 12:
            raise Other(tag)
        return Value(number(value) + 1)

    class manager:
        def __init__(self, tag: Any, suppress: bool = False) -> None:
            note("manager", tag)
            self.tag, self.suppress = tag, suppress

        def __enter__(self) -> Any:
            note("enter", self.tag)
            return Value(len(self.tag))

        def __exit__(self, kind: Any, *rest: Any) -> bool:
            note("exit", self.tag, kind.__name__ if kind else None)
            return self.suppress and kind is not None and issubclass(kind, Failure)

    return {"T": T, "boom": boom, "manager": manager, "Value": Value, "Failure": Failure, "G": Value(7), "__builtins__": __builtins__}


class Writer:
    """Writes one random function."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.tags = 0

    def tag(self) -> str:
        self.tags += 1
        return f'"{self.tags}"'

    def name(self) -> str:
        return self.random.choice("abcdxy")

    def expression(self, depth: int = 3) -> str:
        pick = self.random.choice
        if depth <= 0 or self.random.random() < 0.12:
            return pick([self.name(), self.name(), self.name(), "G", "1", "2", "o"])
        e = lambda: self.expression(depth - 1)                 # noqa: E731
        return pick([
            lambda: f"T({self.tag()}, {e()})", lambda: f"T({self.tag()}, {e()}, {e()}, k={e()})", lambda: f"boom({self.tag()}, {e()})",
            lambda: f"({e()} + {e()})", lambda: f"({e()} * {e()})", lambda: f"({e()} - {e()})", lambda: f"({e()} < {e()})",
            lambda: f"({e()} < {e()} < {e()})", lambda: f"({e()} and {e()})", lambda: f"({e()} or {e()} or {e()})", lambda: f"(not {e()})",
            lambda: f"({e()} if {e()} else {e()})", lambda: f"o.{pick(['u', 'vw'])}", lambda: f"{self.name()}.u", lambda: f"o[{e()}]", lambda: f"o[{e()}:{e()}]",
            lambda: f"o.method({e()}, {e()})", lambda: f"o.method(*[{e()}], {e()}, z={e()}, **{{'w': {e()}}})", lambda: f"({self.name()} := {e()})",
            lambda: f'f"{{{e()}}} s {{{e()}:>3}}"' if depth < 2 else f"({e()}, {e()})", lambda: f"[{e()}, *o, {e()}]", lambda: f"{{{e()}: {e()}}}",
            lambda: f"[T({self.tag()}, q) for q in {e()} if {self.name()}]", lambda: f"(lambda z: T({self.tag()}, z))({e()})", lambda: f"boom({self.tag()}, {e()})",
        ])()

    def target(self) -> str:
        return self.random.choice([self.name, self.name, self.name, lambda: f"o.{self.name()}", lambda: f"o[{self.expression(1)}]",
                                   lambda: f"o.u[{self.expression(1)}, {self.expression(1)}:2]", lambda: f"T({self.tag()}, o).s"])()

    def statement(self, depth: int, loop: bool) -> list[str]:
        pick = self.random.choice
        e = self.expression
        simple: list[Callable[[], list[str]]] = [
            lambda: [f"{self.name()} = {e()}"], lambda: [f"{self.name()} = {e()}"], lambda: [f"{self.target()} = {e()}"],
            lambda: [f"{self.target()} = {self.target()} = {e(2)}"], lambda: [f"{self.name()}, {self.target()} = {e(2)}, {e(2)}"],
            lambda: [f"{self.target()} += {e(2)}"], lambda: [f"{self.name()} += {e(2)}"], lambda: [f"T({self.tag()}, {e()})"], lambda: [f"T({self.tag()}, {e(1)})"],
            lambda: [f"{self.name()} = {self.name()}; T({self.tag()}, {e(1)})  # note"],
            lambda: [f"# about {self.tag()}", f"assert {e(2)}, {e(1)}"], lambda: [f"del o[{e(1)}]"],
        ]
        rare: list[Callable[[], list[str]]] = [
            lambda: [f"return {e(2)}"], lambda: ["return"], lambda: [f"raise Failure({e(1)})"], lambda: [f"del {self.name()}"],
            lambda: [f"if {e(1)}: return {e(1)}"], lambda: [f"h = lambda: T({self.tag()}, {self.name()})", f"{self.name()} = h()"],
            lambda: [f"def h({self.name()}=1):", f"    nonlocal {(n := pick('xy'))}", f"    {n} = T({self.tag()}, {self.name() if False else n})", "    return 3", "h()"],
        ]
        if loop:
            rare += [lambda: ["break"], lambda: ["continue"], lambda: [f"if {e(1)}: break"], lambda: [f"if {e(1)}: continue"]] * 2
        if depth > 0 and self.random.random() < 0.45:
            return self.compound(depth, loop)
        return pick(rare)() if self.random.random() < 0.13 else pick(simple)()

    def block(self, depth: int, loop: bool) -> list[str]:
        return ["    " + line for _ in range(self.random.randint(1, 3)) for line in self.statement(depth, loop)]

    def compound(self, depth: int, loop: bool) -> list[str]:
        pick, e = self.random.choice, self.expression
        b = lambda inside=None: self.block(depth - 1, loop if inside is None else inside)      # noqa: E731
        maybe = lambda head: [head, *b()] if self.random.random() < 0.4 else []                # noqa: E731
        return pick([
            lambda: [f"if {e(2)}:", *b(), *maybe(f"elif {e(2)}:"), *maybe("else:")],
            lambda: [f"if {e(2)}:", *b(), *maybe("else:")],
            lambda: [f"for {self.target()} in {e(2)}, {e(1)}:", *b(True), *maybe("else:")],
            lambda: [f"for {self.name()} in o:", *b(True), *maybe("else:")],
            lambda: [f"while T({self.tag()}, {e(2)}):", *b(True), *maybe("else:")],
            lambda: [f"with manager({self.tag()}, {pick(['True', 'False'])}) as {self.target()}:", *b()],
            lambda: [f"with manager({self.tag()}), manager(T({self.tag()}, 'q'), bool({e(1)})) as {self.name()}:", *b()],
            lambda: ["try:", *b(), f"except {pick(['Failure', 'T(1, Failure)'])} as {self.name()}:", *b(), *maybe("else:"), *maybe("finally:")],
            lambda: ["try:", *b(), "except (Failure, NameError):", *b()],
            lambda: ["try:", *b(), "finally:", *b()],
            lambda: [f"match {e(1)}:", f"    case 1 | 2 if {e(1)}:", *["    " + line for line in b()], f"    case {self.name()}:", *["    " + line for line in b()]],
        ])()

    def function(self) -> str:
        body = [line for _ in range(self.random.randint(1, 4)) for line in self.statement(2, False)]
        if self.random.random() < 0.3:
            body.insert(0, '"""A docstring."""')
        if self.random.random() < 0.7:
            body[:0] = ["c = T('c', y)", "d = 5"]
        if self.random.random() < 0.15:
            body.insert(0, "global d")
        return "\n".join(["def f(o, a, b, x, y):", *("    " + line for line in body), "    return a, b, x", ""])


def random_breaks(source: str, seed: int) -> list[Break]:
    """A few breaks anywhere in the function."""
    chance = random.Random(seed)
    found: list[Break] = []
    places: list[tuple[ast.AST, str]] = []
    for node in ast.walk(ast.parse(source).body[0]):
        if isinstance(node, (ast.Call, ast.BinOp, ast.Compare, ast.Subscript, ast.Attribute, ast.BoolOp, ast.IfExp, ast.JoinedStr, ast.ListComp)):
            places.append((node, "call"))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):     # other callees are looked up late on purpose
            places.append((node, "call_split"))
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            places += [(node.test, "branch")] * 2
        if isinstance(node, ast.BoolOp):
            places += [(value, "branch") for value in node.values] + [(node, "branch")]
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            places.append((node, "branch"))
        if isinstance(node, (ast.For, ast.While)):
            places.append((node, "loop"))
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.Global, ast.Nonlocal)):
            places.append((node, "statement"))
    for _ in range(chance.choice([1, 1, 2, 3, 5, 8])):
        node, kind = chance.choice(places)
        if isinstance(node, ast.FunctionDef) and node.name == "f":
            continue
        span = Span("fuzz.py", node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)   # type: ignore[attr-defined]
        found.append(Break(span, kind, "AOT201", kind, callee="callee" if kind == "call_split" else None))     # type: ignore[arg-type]
    return found


def outcome(text: str, number: int) -> tuple[Any, ...]:
    """Result, exception and events of ``f``, in a fresh namespace."""
    log: list[Any] = []
    space = namespace(log)
    exec(compile(text, "<split>", "exec"), space)
    for name in [name for name in space if name.startswith("_r") and name.endswith("_eager")]:
        space[name.removesuffix("_eager")] = space[name]
    for each in range(40):
        space[f"_call_{each}"] = lambda callee: callee
    value = space["Value"]
    try:
        result = ("returned", repr(space["f"](value(number), value(number + 1), number, value(2), value(number * 3))))
    except Fuel:
        result = ("fuel", "")
    except (Failure, Other, AssertionError, AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
        result = ("raised", f"{type(error).__name__} {error.args if not isinstance(error, TypeError) else ''}")
    except NameError:
        result = ("raised", "NameError")
    if sys.version_info >= (3, 12):         # `(a or b) and c` tests what the first half gave twice there, 3.11 and the split function once
        log = [event for k, event in enumerate(log) if event[0] != "bool" or k == 0 or log[k - 1] != event]
    return (*result, repr(space.get("d")), log)


SEEDS = range(25)
FORMER_FAILURES = [(29, 0), (71, 1), (124, 1), (173, 0), (222, 0), (222, 1), (410, 1), (426, 0), (455, 0), (540, 1)]
MODULES = ("textwrap", "heapq", "statistics", "torch.nn.modules.activation", "torch.nn.modules.rnn")


def compare(seed: int, variant: int, numbers: tuple[int, ...]) -> int:
    source = Writer(seed).function()
    try:
        compile(source, "<original>", "exec")
    except SyntaxError:                                        # such as `del` of a name that an inner function declares nonlocal
        return 0
    split = split_function(source, random_breaks(source, seed * 10 + variant), fixed_callee=lambda path: False)
    for number in numbers:
        assert outcome(source, number) == outcome(split.text, number), f"seed {seed} variant {variant} number {number}\n{source}\n{split.text}"
    return len(split.regions)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_split_functions_behave_like_the_original() -> None:
    regions = sum(compare(seed, 0, (0, 1, 6)) for seed in SEEDS)
    assert regions > len(SEEDS)                                # the comparison is not about unsplit functions


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize(("seed", "variant"), FORMER_FAILURES)
def test_former_failures(seed: int, variant: int) -> None:
    compare(seed, variant, (0, 1, 5, 6))


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_splitting_is_deterministic() -> None:
    for seed in range(5):
        source = Writer(seed).function()
        breaks = random_breaks(source, seed)
        assert split_function(source, breaks) == split_function(source, list(reversed(breaks)))


@pytest.mark.parametrize("module", MODULES)
def test_real_functions_compile_for_random_breaks(module: str) -> None:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text()
    lines = source.splitlines(keepends=True)
    tree = ast.parse(source)
    functions = [(each, "") for each in tree.body if isinstance(each, ast.FunctionDef)]
    functions += [(each, node.name) for node in tree.body if isinstance(node, ast.ClassDef) for each in node.body if isinstance(each, ast.FunctionDef)]
    regions = 0
    for number, (function, class_name) in enumerate(functions[:30]):
        text = textwrap.dedent("".join(lines[min([function.lineno, *(d.lineno for d in function.decorator_list)]) - 1:function.end_lineno]))
        split = split_function(text, random_breaks(text, number), class_name=class_name, freevars=("__class__",) if "super(" in text else ())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(split.text, module, "exec")
        regions += len(split.regions)
        assert max(split.line_map.values()) <= text.count("\n") + 1
    assert regions
