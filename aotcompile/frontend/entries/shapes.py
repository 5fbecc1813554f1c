"""Dynamic sizes: their ranges, example tensors for a signature, and torch.export's ``dynamic_shapes`` in one normal form.

The normal form maps the `Path` of a tensor argument to {dimension: `Dimension`}:

    f(x, states)   dynamic_shapes={"x": {0: "B"}, "states": ({0: "B", 1: Dim("T", max=64)},)}
    ->             {x: {0: B}, states[0]: {0: B, 1: T <= 64}}

Codes: AOT111 a wrong range, AOT112 ``dynamic_shapes`` does not fit the inputs, AOT114 a device that is not there.
"""
from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from aotcompile.base.diagnostic import Diagnostic, UsageError
from aotcompile.base.span import Span
from aotcompile.ir.expression import Integer, Symbol, free_symbols, parse, substitute
from aotcompile.ir.paths import Path
from aotcompile.ir.signature import TensorSignature, is_signature, parse_signature


@dataclass(frozen=True)
class Dimension:
    """A dynamic size. ``name`` is a letter, or an expression over letters (``2*B``); equal letters are equal sizes. The range is inclusive, of the
    size itself (not of its letters); ``maximum`` None: no limit."""

    name: str
    minimum: int = 0
    maximum: int | None = None

    def __str__(self) -> str:
        low = f"{self.minimum} <= " if self.minimum else ""
        return f"{low}{self.name}" + (f" <= {self.maximum}" if self.maximum is not None else "")


DynamicShapes = dict[Path, dict[int, Dimension]]


def _fail(code: str, message: str, hint: str = "", span: Span | None = None) -> NoReturn:
    raise UsageError(Diagnostic(code, "error", message, span, hint))


def read_dimensions(dims: Mapping[str, Any] | None, span: Span | None = None) -> dict[str, Dimension]:
    """Ranges of letters: ``{"B": (1, 64)}``, ``{"B": {"min": 1, "max": 64}}``, a ``torch.export.Dim``, or an int (the largest). Raises AOT111."""
    found = {}
    for name, value in (dims or {}).items():
        if isinstance(value, Mapping):
            unknown = sorted(set(value) - {"min", "max"})
            if unknown:
                _fail("AOT111", f"unknown key {unknown[0]!r} in the range of {name}.", "Write {min = 1, max = 64}.", span)
            low, high = value.get("min", 0), value.get("max")
        elif isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
            low, high = value
        elif isinstance(value, int):
            low, high = 0, value
        elif hasattr(value, "min") and hasattr(value, "max"):
            low, high = value.min, _limit(value.max)
        else:
            _fail("AOT111", f"the range of {name} is {value!r}.", "Write (1, 64) or {min = 1, max = 64}.", span)
        if not name.isidentifier() or not _is_size(low) or not (high is None or _is_size(high)) or (high is not None and high < low):
            _fail("AOT111", f"the range of {name} is {low!r} to {high!r}.", "Give two whole numbers, the smaller first.", span)
        found[name] = Dimension(name, low, high)
    return found


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _limit(value: Any) -> int | None:
    """torch's "no limit" (sys.maxsize - 1, or its int_oo) as None."""
    return value if isinstance(value, int) and value < 2**62 else None


# ---- example tensors ----------------------------------------------------------------------------------------------------------------------

def choose_sizes(signatures: Sequence[TensorSignature], dimensions: Mapping[str, Dimension]) -> dict[str, int]:
    """An example size per letter: within its range, unlike the other sizes where the range lets it, so that nothing is equal by accident."""
    taken = {size.value for signature in signatures for size in signature.sizes if isinstance(size, Integer)} | {0, 1}
    sizes: dict[str, int] = {}
    for name in dict.fromkeys(letter for signature in signatures for letter in signature.letters):
        limits = dimensions.get(name, Dimension(name))
        low, high = limits.minimum, limits.maximum if limits.maximum is not None else max(limits.minimum, 8) + 1024
        candidates = [n for n in (*range(max(low, 8), high + 1, 2), *range(min(high, 8), low - 1, -1)) if low <= n <= high]
        sizes[name] = next((n for n in candidates if n not in taken), candidates[0])
        taken.add(sizes[name])
    return sizes


def example_tensor(signature: TensorSignature, sizes: Mapping[str, int], generator: torch.Generator, span: Span | None = None) -> torch.Tensor:
    """A tensor of that type, shape and layout with seeded values: normal for floats, 0 and 1 for integers (valid as indices of most tables)."""
    shape, strides = signature.concrete(sizes)
    dtype = getattr(torch, signature.dtype.torch_name)
    if signature.device.startswith("cuda") and not torch.cuda.is_available():
        _fail("AOT114", f"{signature} is on {signature.device}, and this machine has no such device.", "Build for it where there is one.", span)
    count = math.prod(shape) if strides is None else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides)) if 0 not in shape else 0
    if signature.dtype.kind in ("bool", "int", "uint"):
        memory = torch.randint(0, 2, (count,), generator=generator).to(dtype)
    elif signature.dtype.kind == "complex":
        memory = torch.randn(count, generator=generator, dtype=torch.complex64).to(dtype)
    else:
        memory = torch.randn(count, generator=generator).to(dtype)
    memory = memory.to(signature.device)
    return memory.view(shape) if strides is None else memory.as_strided(shape, strides)


def example_inputs_of(inputs: Any, dims: Mapping[str, Any] | None = None, *, span: Span | None = None,
                      seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """``(args, kwargs, dynamic_shapes)`` for signatures in the notation: a sequence by position, or a mapping by parameter name.

    ``dynamic_shapes`` is the matching torch.export form, ``(spec of args, spec of kwargs)``, with `Dimension`s. Tuples, lists and dicts nest;
    any value that is no notation is itself. Raises UsageError AOT110, AOT111, AOT114.
    """
    if isinstance(inputs, str):
        inputs = (inputs,)
    parsed = _map(inputs, lambda text: parse_signature(text, span))
    signatures: list[TensorSignature] = []
    _map(parsed, signatures.append, TensorSignature)
    dimensions = read_dimensions(dims, span)
    used = {letter for signature in signatures for letter in signature.letters}
    if unused := sorted(set(dimensions) - used):
        _fail("AOT111", f"dims names {unused[0]}, which no input has.", f"The inputs have {', '.join(sorted(used)) or 'no letters'}.", span)
    sizes = choose_sizes(signatures, dimensions)
    generator = torch.Generator().manual_seed(seed)
    values = _map(parsed, lambda signature: example_tensor(signature, sizes, generator, span), TensorSignature)
    shapes = _map(parsed, lambda signature: _dynamic_of(signature, dimensions), TensorSignature, other=None)
    if isinstance(inputs, Mapping):
        return (), dict(values), ((), dict(shapes))
    return tuple(values), {}, (tuple(shapes), {})


def _map(value: Any, change: Any, kind: type = str, **other: Any) -> Any:
    """``value`` with ``change`` applied to each signature in it; leaves of other kinds stay, or become ``other``."""
    if isinstance(value, kind) and (kind is not str or is_signature(value)):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _map(item, change, kind, **other) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_map(item, change, kind, **other) for item in value)
    return other.get("other", value)


def _dynamic_of(signature: TensorSignature, dimensions: Mapping[str, Dimension]) -> dict[int, Dimension] | None:
    found = {}
    for index, size in enumerate(signature.sizes):
        if isinstance(size, Symbol):
            found[index] = dimensions.get(size.name, Dimension(size.name))
        elif free_symbols(size):
            found[index] = Dimension(str(size))
    return found or None


# ---- torch.export's dynamic_shapes --------------------------------------------------------------------------------------------------------

def normalize_dynamic_shapes(dynamic_shapes: Any, arguments: Mapping[str, Any], dims: Mapping[str, Any] | None = None,
                             span: Span | None = None) -> DynamicShapes:
    """torch.export's form to the normal form.

    dynamic_shapes: a mapping by parameter name or a sequence by position; per tensor a mapping {dimension: size} or a sequence of sizes; for a Python
        number a size (dimension -1 in the normal form: the number may be another one next time); a size is
        a ``Dim``, ``Dim.AUTO``/``Dim.DYNAMIC`` (a letter of its own), a string (stands for a Dim; an expression such as "2*B" too), a `Dimension`,
        an int (checked), or None / ``Dim.STATIC``. None anywhere: static. Containers and dataclasses nest as the
        inputs do. Keys may be strings, as in TOML.
    arguments: parameter name to example value, in order (``inspect.BoundArguments.arguments``).
    dims: ranges of the letters.
    Raises UsageError AOT111, AOT112.
    """
    found: DynamicShapes = {}
    reader = _Reader(read_dimensions(dims, span), found, span)
    if dynamic_shapes is None:
        return found
    if isinstance(dynamic_shapes, Mapping):
        for name, spec in dynamic_shapes.items():
            if name not in arguments:
                reader.fail(f"it names {name!r}, which is no argument", f"The arguments are {', '.join(arguments) or 'none'}.")
            reader.read(spec, arguments[name], Path(("argument", name)))
    elif isinstance(dynamic_shapes, Sequence) and not isinstance(dynamic_shapes, str):
        if len(dynamic_shapes) > len(arguments):
            reader.fail(f"it has {len(dynamic_shapes)} items for {len(arguments)} arguments")
        for (name, value), spec in zip(arguments.items(), dynamic_shapes):
            reader.read(spec, value, Path(("argument", name)))
    else:
        reader.fail(f"it is a {type(dynamic_shapes).__name__}", 'Write {"x": {0: "B"}} or ({0: "B"}, None).')
    reader.check_derived()
    return found


class _Reader:
    """Walks a specification along the example values."""

    def __init__(self, dimensions: dict[str, Dimension], found: DynamicShapes, span: Span | None) -> None:
        self.dimensions, self.found, self.span = dimensions, found, span
        self.sizes: dict[str, tuple[int, str]] = {}                # letter: example size, where
        self.derived: list[tuple[str, int, str]] = []              # expression, example size, where

    def fail(self, what: str, hint: str = "") -> NoReturn:
        _fail("AOT112", f"dynamic_shapes does not fit the inputs: {what}.", hint, self.span)

    def read(self, spec: Any, value: Any, path: Path) -> None:
        if spec is None:
            return
        if isinstance(value, torch.Tensor):
            self.read_tensor(spec, value, path)
        elif isinstance(value, Mapping):
            if not isinstance(spec, Mapping):
                self.fail(f"{path} is a dict, its specification {spec!r} is not")
            for key, item in spec.items():
                if key not in value:
                    self.fail(f"{path} has no key {key!r}")
                self.read(item, value[key], path.item(key))
        elif isinstance(value, (tuple, list)):
            items = list(_by_index(spec)) if isinstance(spec, Mapping) else list(enumerate(spec)) if isinstance(spec, Sequence) else None
            if items is None or any(not isinstance(i, int) or i >= len(value) for i, _ in items):
                self.fail(f"{path} is a {type(value).__name__} of {len(value)}, its specification is {spec!r}")
            for index, item in items:
                self.read(item, value[index], path.item(index))
        elif type(value) in (int, float):
            self.read_number(spec, value, path)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            self.read_fields(spec, value, path)
        else:
            self.fail(f"{path} is a {type(value).__name__}, no tensor and no number", "Write None for it.")

    def read_fields(self, spec: Any, value: Any, path: Path) -> None:
        """A dataclass: by field name, in the fields' order, or as an object of the same class."""
        fields = [field.name for field in dataclasses.fields(value)]
        if type(spec) is type(value):
            spec = {name: getattr(spec, name) for name in fields}
        elif isinstance(spec, Sequence) and not isinstance(spec, str) and len(spec) <= len(fields):
            spec = dict(zip(fields, spec))
        if not isinstance(spec, Mapping):
            self.fail(f"{path} is a {type(value).__name__}, its specification is {spec!r}", f"Write a dict of {', '.join(fields)}.")
        for name, item in spec.items():
            if name not in fields:
                self.fail(f"{path} has no field {name!r}", f"Its fields are {', '.join(fields)}.")
            self.read(item, getattr(value, name), path.attribute(name))

    def read_number(self, spec: Any, value: int | float, path: Path) -> None:
        """A Python number: dynamic or not. A range says what is expected of the example; other numbers are taken as the code takes them."""
        if type(value) is int or isinstance(spec, str) or getattr(spec, "type", None) is not None:
            dimension = self.dimension(spec, value, str(path))     # type: ignore[arg-type]  # of a float only its range is looked at
        else:
            self.fail(f"{path} is a float, its specification is {spec!r}", "Write torch.export.Dim.DYNAMIC.")
        if dimension is not None:
            self.found[path] = {-1: dimension}

    def read_tensor(self, spec: Any, value: torch.Tensor, path: Path) -> None:
        if isinstance(spec, Mapping):
            items = list(_by_index(spec))
        elif isinstance(spec, Sequence) and not isinstance(spec, str):
            if len(spec) != value.dim():
                self.fail(f"{path} has {value.dim()} dimensions, its specification {len(spec)}")
            items = list(enumerate(spec))
        else:
            self.fail(f"the specification of {path} is {spec!r}", 'Write {0: "B"}.')
        for key, size in items:
            if not isinstance(key, int) or not -value.dim() <= key < value.dim():
                self.fail(f"{path} has {value.dim()} dimensions, {key!r} is none of them")
            index = key % value.dim()
            dimension = self.dimension(size, value.shape[index], f"{path}.shape[{index}]")
            if dimension is not None:
                self.found.setdefault(path, {})[index] = dimension

    def dimension(self, size: Any, actual: int, place: str) -> Dimension | None:
        """One size of the specification; ``actual`` is the example's."""
        hint = getattr(getattr(size, "type", None), "name", None)          # torch.export's Dim.AUTO, .DYNAMIC, .STATIC
        if size is None or hint == "STATIC":
            return None
        if isinstance(size, int) and not isinstance(size, bool):
            if size != actual:
                self.fail(f"{place} is {actual}, {size} was said")
            return None
        if hint is not None:
            dimension = Dimension(_own_letter(place), getattr(size, "min", None) or 0, _limit(getattr(size, "max", None)))
        elif isinstance(size, Dimension):
            dimension = size
        elif isinstance(size, str):
            dimension = self.dimensions.get(size) or Dimension(self.expression(size, place))
        elif hasattr(size, "__name__") and hasattr(size, "min") and hasattr(size, "max"):
            name = self.expression(size.__name__, place)
            dimension = self.dimensions.get(name) or Dimension(name, size.min, _limit(size.max))
        else:
            self.fail(f"the size of {place} is {size!r}", 'Write a string, a torch.export.Dim, or None.')
        if actual < dimension.minimum or (dimension.maximum is not None and actual > dimension.maximum):
            self.fail(f"{place} is {actual} in the example, outside of {dimension}")
        self.remember(dimension, actual, place)
        return dimension

    def expression(self, text: str, place: str) -> str:
        try:
            expression = parse(text)
        except (SyntaxError, ValueError):
            self.fail(f"the size of {place} is {text!r}, no letter and no expression")
        if not free_symbols(expression):
            self.fail(f"the size of {place} is {text!r}", "Write the number without quotes.")
        return str(expression)

    def remember(self, dimension: Dimension, actual: int, place: str) -> None:
        if not dimension.name.isidentifier():
            self.derived.append((dimension.name, actual, place))
            return
        known, where = self.sizes.setdefault(dimension.name, (actual, place))
        if known != actual:
            self.fail(f"{dimension.name} is {known} at {where} and {actual} at {place}", "Use two letters for two sizes.")

    def check_derived(self) -> None:
        """Sizes written as expressions agree with their letters, where those are sizes of inputs too."""
        known = {Symbol(name): size for name, (size, _) in self.sizes.items()}
        for name, actual, place in self.derived:
            value = substitute(parse(name), known)
            if isinstance(value, Integer) and value.value != actual:
                self.fail(f"{place} is {actual} in the example, {name} is {value.value}")


def _by_index(spec: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Items with keys as integers: TOML has strings only."""
    for key, value in spec.items():
        yield int(key) if isinstance(key, str) and key.lstrip("-").isdigit() else key, value


def _own_letter(place: str) -> str:
    """A letter for a size that nothing else shares: ``states[0].shape[1]`` gives ``states_0_1``."""
    return re.sub(r"\W+", "_", place.replace(".shape", "")).strip("_")
