"""Reads the text of `ir.text.print` back: ``parse_program(program_text(p)) == p``."""

from __future__ import annotations

import ast
import math
import re
from typing import Any, NoReturn

from aotcompile.ir import expression as index_expressions
from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Expression, Symbol
from aotcompile.ir.nodes import (
    Apply,
    Argument,
    Buffer,
    BufferReference,
    Cast,
    Compute,
    Constant,
    DTypeReference,
    IndexValue,
    LibraryCall,
    Load,
    Loop,
    Masked,
    Operation,
    Origin,
    Program,
    ProgramOutput,
    Check,
    Comparison,
    ReadScalar,
    Reduction,
    SizeSymbol,
    Store,
    TorchReference,
    Value,
    View,
)
from aotcompile.ir.operators import OPERATORS, result_dtype

_TOKEN = re.compile(r"\s*('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|-?(?:\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf\b|nan\b)|\d+|[A-Za-z_][\w.]*|\+=|//|.)")
_DTYPES = {dtype.value: dtype for dtype in DType}


class _Reader:
    """A cursor over one line."""

    def __init__(self, text: str, buffers: dict[str, Buffer]) -> None:
        self.text = text
        self.position = 0
        self.buffers = buffers

    def fail(self, wanted: str) -> NoReturn:
        raise ValueError(f"expected {wanted} at column {self.position + 1} of {self.text!r}")

    def peek(self) -> str:
        match = _TOKEN.match(self.text, self.position)
        return match.group(1) if match else ""

    def next(self) -> str:
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            self.fail("more")
        self.position = match.end()
        return match.group(1)

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.next()
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            self.fail(repr(token))

    def expression(self, *ends: str) -> Expression:
        """Text up to one of ``ends`` (outside of parentheses, not consumed) as an index expression."""
        start, depth = self.position, 0
        while True:
            token = self.peek()
            if not token or (depth == 0 and token in ends):
                break
            depth += (token in "([") - (token in ")]")
            self.next()
        return index_expressions.parse(self.text[start : self.position].strip())

    # ---- values

    def value(self) -> Value:
        word = self.next()
        if word == "load":
            return self._load()
        if word == "cast":
            self.expect("(")
            dtype = _DTYPES[self.next()]
            self.expect(",")
            argument = self.value()
            self.expect(")")
            return Cast(dtype, argument)
        if word in _DTYPES:
            if self.accept("("):
                expression = self.expression(")")
                self.expect(")")
                return IndexValue(_DTYPES[word], expression)
            return Constant(_DTYPES[word], self._number())
        arguments = self._values()
        if word == "masked":
            mask, body, other = arguments
            return Masked(body.dtype, mask, body, other)
        if word not in OPERATORS:
            self.fail("an operator")
        return Apply(result_dtype(word, [argument.dtype for argument in arguments]), word, tuple(arguments))

    def _values(self) -> list[Value]:
        self.expect("(")
        found = [self.value()]
        while self.accept(","):
            found.append(self.value())
        self.expect(")")
        return found

    def _number(self) -> bool | int | float:
        word = self.next()
        if word == "-":
            word += self.next()
        if word in ("True", "False"):
            return word == "True"
        if word.lstrip("-") in ("inf", "nan"):
            return float(word) if word.lstrip("-") == "inf" else math.nan
        return float(word) if any(mark in word for mark in ".e") else int(word)

    def _load(self) -> Load:
        self.expect("(")
        name = self.next()
        self.expect("[")
        index = self.expression("]")
        self.expect("]")
        bindings, checks = self.bound()
        self.expect(")")
        return Load(self.buffers[name].dtype, name, index, bindings, checks)

    def bound(self) -> tuple[tuple[tuple[Symbol, Value], ...], tuple[tuple[Symbol, Expression], ...]]:
        bindings: list[tuple[Symbol, Value]] = []
        checks: list[tuple[Symbol, Expression]] = []
        while self.accept("where"):
            symbol = Symbol(self.next())
            self.expect("=")
            bindings.append((symbol, self.value()))
        while self.accept("check"):
            symbol = Symbol(self.next())
            self.expect("<")
            checks.append((symbol, self.expression("check", ")", "]")))
        return tuple(bindings), tuple(checks)

    def loops(self, *ends: str) -> tuple[Loop, ...]:
        found: list[Loop] = []
        while self.peek() and self.peek() not in ends:
            variable = Symbol(self.next())
            self.expect("<")
            found.append(Loop(variable, self.expression(",", *ends)))
            self.accept(",")
        return tuple(found)

    # ---- arguments

    def argument(self) -> Argument:
        word = self.next()
        if word == "%":
            number = self.accept("%")
            return BufferReference(self.next(), bool(number))
        if word == "[":
            items: list[Argument] = []
            while not self.accept("]"):
                items.append(self.argument())
                self.accept(",")
            return tuple(items)
        if word in ("dtype", "device", "layout", "memory_format", "size") and self.accept("("):
            if word == "size":
                expression = self.expression(")")
                self.expect(")")
                return expression
            name = self.next()
            self.expect(")")
            return DTypeReference(name) if word == "dtype" else TorchReference(word, name)  # type: ignore[arg-type]
        return self._literal(word)

    def _literal(self, word: str) -> Argument:
        if word.lstrip("-") in ("inf", "nan"):
            return float(word) if word.lstrip("-") == "inf" else math.nan
        text = word
        if word == "(":  # a complex number
            while not text.endswith(")"):
                text += self.next()
            return complex(text)
        if word == "-":
            text += self.next()
        if self.peek() == "j":
            text += self.next()
            return complex(text)
        return ast.literal_eval(text)  # type: ignore[no-any-return]


def parse_value(text: str, buffers: dict[str, Buffer]) -> Value:
    """One value. Raises ValueError."""
    return _Reader(text, buffers).value()


def parse_program(text: str) -> Program:
    """A whole program. Raises ValueError on what `program_text` would not write."""
    return _ProgramParser().run(text)


class _ProgramParser:
    def __init__(self) -> None:
        self.name = ""
        self.buffers: dict[str, Buffer] = {}
        self.inputs: list[str | None] = []
        self.scalars: list[tuple[int, Symbol]] = []
        self.symbols: list[SizeSymbol] = []
        self.ranges: dict[str, tuple[int | None, int | None]] = {}
        self.operations: list[Operation] = []
        self.outputs: tuple[ProgramOutput, ...] = ()

    def run(self, text: str) -> Program:
        for line in text.splitlines():
            if line.strip():
                self._line(line)
        return Program(
            self.name, self.buffers, tuple(self.inputs), tuple(self.symbols), tuple(self.operations), self.outputs, tuple(self.scalars), self.ranges
        )

    def _line(self, line: str) -> None:
        body, _, comment = line.partition("   # ")
        origins = tuple(Origin(*part.split("@", 1)) for part in comment.split())
        word, _, rest = body.partition(" ")
        match word:
            case "program":
                self.name = rest
            case "input" if rest == "none":
                self.inputs.append(None)
            case "input" if rest.startswith("size "):
                self.scalars.append((len(self.inputs), Symbol(rest[5:])))
                self.inputs.append(None)
            case "input":
                self.inputs.append(self._buffer(rest))
            case "symbol":
                name, _, _, number, _, dimension = rest.split()
                self.symbols.append(SizeSymbol(Symbol(name), int(number), int(dimension)))
            case "range":
                name, _, span = rest.split()
                low, high = span.split("..")
                self.ranges[name] = (int(low) if low else None, int(high) if high else None)
            case "buffer":
                self._buffer(rest)
            case "return":
                reader = _Reader(f"[{rest}]", self.buffers)
                self.outputs = reader.argument()  # type: ignore[assignment]
            case _:
                self.operations.append(self._operation(body, origins))

    def _buffer(self, text: str) -> str:
        match = re.fullmatch(r"(\w+): (\w+)\[(.*)\]\[(.*)\](\w*)", text)
        if match is None:
            raise ValueError(f"not a buffer: {text!r}")
        name, dtype, sizes, strides, device = match.groups()
        self.buffers[name] = Buffer(name, _DTYPES[dtype], _expressions(sizes), _expressions(strides), device or "cpu")  # type: ignore[arg-type]
        return name

    def _operation(self, body: str, origins: tuple[Origin, ...]) -> Operation:
        if re.match(r"view \w+ = ", body):
            _, result, _, base, _, offset = body.split(" ", 5)
            return View(result, base, index_expressions.parse(offset), origins)
        if re.match(r"read \w+ = ", body):
            _, symbol, _, buffer = body.split()
            return ReadScalar(Symbol(symbol), buffer)
        if body.startswith("check "):
            return Check(tuple(map(_comparison, body.removeprefix("check ").split(" or "))))
        if re.match(r"(?:[\w, ]+ = )?call ", body):
            return self._call(body, origins)
        return self._compute(body, origins)

    def _call(self, body: str, origins: tuple[Origin, ...]) -> LibraryCall:
        left, _, right = body.partition("call ")
        results = tuple(None if name.strip() == "_" else name.strip() for name in left.removesuffix(" = ").split(",")) if left else ()
        right, _, mutated = right.partition("   mutates ")
        reader = _Reader(right, self.buffers)
        operator = reader.next()
        while not reader.accept("("):
            operator += reader.next()
        arguments: list[Argument] = []
        keywords: list[tuple[str, Argument]] = []
        while not reader.accept(")"):
            key = re.compile(r"\s*(\w+)=(?!=)").match(reader.text, reader.position)
            if key is not None:
                reader.position = key.end()
                keywords.append((key.group(1), reader.argument()))
            else:
                arguments.append(reader.argument())
            reader.accept(",")
        return LibraryCall(operator, tuple(arguments), tuple(keywords), results, tuple(mutated.split(", ")) if mutated else (), origins)

    def _compute(self, body: str, origins: tuple[Origin, ...]) -> Compute:
        body, _, updates = body.partition("   updates ")
        reader = _Reader(body, self.buffers)
        result = reader.next()
        reader.expect("[")
        index = reader.expression("]", "where", "check")
        bindings, checks = reader.bound()
        reader.expect("]")
        mode: Any = "add" if reader.accept("+=") else "assign"
        if mode == "assign":
            reader.expect("=")
        loops: tuple[Loop, ...] = ()
        if reader.accept("for"):
            loops = reader.loops(":")
            reader.expect(":")
        reduction = None
        before = reader.position
        kind: Any = reader.next()
        if reader.peek() in _DTYPES:
            accumulate = _DTYPES[reader.next()]
            if reader.accept("over"):
                reader.expect("(")
                inner = reader.loops(")")
                reader.expect(")")
                reader.expect(":")
                reduction = Reduction(kind, inner, accumulate)
        if reduction is None:
            reader.position = before
        return Compute(result, loops, reader.value(), Store(index, mode, bindings, checks), reduction, updates or None, origins)


def _comparison(text: str) -> Comparison:
    match = re.fullmatch(r"(.*) (==|!=|<=|>=|<|>) (.*)", text)
    if match is None:
        raise ValueError(f"not a comparison: {text!r}")
    left, sign, right = match.groups()
    return Comparison(index_expressions.parse(left), sign, index_expressions.parse(right))  # type: ignore[arg-type]


def _expressions(text: str) -> tuple[Expression, ...]:
    if not text:
        return ()
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return tuple(index_expressions.parse(part.strip()) for part in parts)
