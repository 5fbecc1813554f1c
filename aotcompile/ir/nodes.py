"""The loop-level IR: what one element of a result is, as a tree of scalar values over loop variables.

::

    operation = Compute(result, loops, body, reduction?, store)     our kernels
              | LibraryCall(op, arguments, results)                 an ATen or custom operator through the dispatcher
              | View(result, base, sizes, strides, offset)          another name for the same memory
              | ReadScalar(symbol, buffer)                          a one-element integer buffer becomes a size symbol
              | Check(alternatives)                                 what sizes read at run time must satisfy
    value     = Constant | IndexValue | Load | Apply | Cast | Masked
    loop      = Loop(variable, size)

A `Compute` means (``y`` its result, ``p`` the parallel loops, ``r`` the reduction loops)::

    for p in loops:                       for p in loops:
        y[store(p)] = body(p)                 acc = identity
                                              for r in reduction.loops: acc = combine(acc, body(p, r))
                                              y[store(p)] = acc

All nodes are frozen and hashable: equal trees are equal values, so common subexpressions are found by equality.
Index arithmetic is exact (64 bit); value arithmetic follows each node's dtype. f16/bf16 values are rounded where a node of that dtype is made
(an `Apply` of dtype bf16 computes in f32 and rounds), exactly as eager does op by op: there is no hidden higher precision across ops.
"""
from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, Union

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import Expression, Symbol


@dataclass(frozen=True)
class Origin:
    """Where an operation comes from: the ATen operator and the user's source line (both only for names and comments)."""

    operator: str
    place: str = ""


@dataclass(frozen=True)
class Loop:
    variable: Symbol
    size: Expression


# ---- values -------------------------------------------------------------------------------------------------------------------------------

class _Shared:
    """Values share parts: without a remembered hash, hashing would walk the tree and not the graph, which is exponential in the worst case."""

    def _hash(self) -> int:
        known: int | None = self.__dict__.get("_hash_value")
        if known is None:
            known = hash((type(self).__name__, *(getattr(self, part.name) for part in fields(self))))  # type: ignore[arg-type]
            object.__setattr__(self, "_hash_value", known)
        return known

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in self.__dict__.items() if name != "_hash_value"}   # string hashes differ between processes


@dataclass(frozen=True)
class Constant:
    """A literal. Floats may be inf, -inf, nan (NaN constants compare equal through ``text``)."""

    dtype: DType
    value: bool | int | float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.dtype == other.dtype and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((self.dtype, repr(self.value)))


@dataclass(frozen=True)
class IndexValue:
    """An integer index expression as data (``arange``, position masks)."""

    dtype: DType
    expression: Expression


@dataclass(frozen=True)
class Load(_Shared):
    """``buffer[index]`` (index in elements from the buffer's first element).

    ``bindings`` names the symbols of ``index`` whose value is data (gather, embedding): each is computed before the load. A binding is already
    wrapped (negative indices made positive) by the lowering; ``checks`` then says which symbols must lie in ``[0, size)``; a kernel that
    finds one outside stops with status 1 (the runtime then runs the eager body, which raises eager's exception).
    """

    dtype: DType
    buffer: str
    index: Expression
    bindings: tuple[tuple[Symbol, "Value"], ...] = ()
    checks: tuple[tuple[Symbol, Expression], ...] = ()
    __hash__ = _Shared._hash


@dataclass(frozen=True)
class Apply(_Shared):
    """``operator(*arguments)``; the operators, their arity and dtype rules are in `ir.operators`."""

    dtype: DType
    operator: str
    arguments: tuple["Value", ...]
    __hash__ = _Shared._hash


@dataclass(frozen=True)
class Cast(_Shared):
    """Conversion with C++/torch semantics (float to int truncates; to bool is ``!= 0``)."""

    dtype: DType
    argument: "Value"
    __hash__ = _Shared._hash


@dataclass(frozen=True)
class Masked(_Shared):
    """``body if mask else other``, where loads inside ``body`` happen only under the mask (pad, cat: they would be out of bounds)."""

    dtype: DType
    mask: "Value"
    body: "Value"
    other: "Value"
    __hash__ = _Shared._hash


Value = Union[Constant, IndexValue, Load, Apply, Cast, Masked]

# ---- operations ---------------------------------------------------------------------------------------------------------------------------

ReductionKind = Literal["sum", "product", "maximum", "minimum", "argmax", "argmin", "any", "all", "xor_sum"]


@dataclass(frozen=True)
class Reduction:
    """How the body's values over ``loops`` become one. ``accumulate`` is the accumulator's dtype (f32 for f16/bf16 sums, i64 for argmax:
    the flat position over ``loops``; the first extreme wins, NaN is the greatest and, for minimum, the smallest, as in torch).
    The result's dtype is ``accumulate``, and so is the body's (argmax and argmin: any but b8); rounding to bf16 after is an operation of its own."""

    kind: ReductionKind
    loops: tuple[Loop, ...]
    accumulate: DType


@dataclass(frozen=True)
class Store:
    """Where a Compute writes: element ``index`` of the result; ``bindings``/``checks`` as in `Load` (scatter).

    mode ``assign`` overwrites; ``add`` accumulates into what the buffer holds (several loop points may meet in one element: the code
    generator must keep this right with threads, in loop order for floats where torch's CPU order is sequential)."""

    index: Expression
    mode: Literal["assign", "add"] = "assign"
    bindings: tuple[tuple[Symbol, Value], ...] = ()
    checks: tuple[tuple[Symbol, Expression], ...] = ()


@dataclass(frozen=True)
class Compute:
    """One buffer computed by our code. ``loops`` are parallel. ``updates``: name of a buffer whose memory this operation overwrites in part
    (scatter into a copy, slice_scatter, copy_ to a graph input): the result then *is* that buffer after the update."""

    result: str
    loops: tuple[Loop, ...]
    body: Value
    store: Store
    reduction: Reduction | None = None
    updates: str | None = None
    origins: tuple[Origin, ...] = ()


@dataclass(frozen=True)
class BufferReference:
    """A buffer as an argument of a `LibraryCall`. ``number``: its one element is given as a Python number (of the number's type promotion)."""

    name: str
    number: bool = False


@dataclass(frozen=True)
class DTypeReference:
    name: str                 # torch name, "float32"


@dataclass(frozen=True)
class TorchReference:
    """A torch enum-like argument: kind "device", "layout" or "memory_format"; text "cpu", "torch.strided", "torch.channels_last"."""

    kind: Literal["device", "layout", "memory_format"]
    text: str


Argument = Union[BufferReference, DTypeReference, TorchReference, Expression, None, bool, int, float, complex, str, "tuple[Argument, ...]"]


@dataclass(frozen=True)
class LibraryCall:
    """``results = torch.ops.<operator>(*arguments, **keywords)``; operator as ``aten.mm.default``.

    ``results`` has one entry per value that the operator returns, in order (a list is flattened): a buffer's name, or None where it is unused, no
    tensor, or an argument that was written in place.
    The result's actual strides are whatever the operator returns; where later loads rely on the buffer's declared strides, the lowering
    has declared the strides that the fake (meta) run gave, and the runtime checks and, if they differ, copies to the declared ones.
    ``mutates`` names buffers the operator writes in place."""

    operator: str
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...]
    results: tuple[str | None, ...]
    mutates: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()


@dataclass(frozen=True)
class View:
    """``result = as_strided(base, sizes, strides, base_offset + offset)``, optionally reinterpreted as another dtype of equal size."""

    result: str
    base: str
    offset: Expression
    origins: tuple[Origin, ...] = ()


@dataclass(frozen=True)
class ReadScalar:
    """``symbol = int(buffer[0])``: an ``.item()`` whose value is used in sizes or index expressions."""

    symbol: Symbol
    buffer: str


@dataclass(frozen=True)
class Comparison:
    """``left sign right`` of two sizes."""

    left: Expression
    sign: Literal["==", "!=", "<", "<=", ">", ">="]
    right: Expression

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"


@dataclass(frozen=True)
class Check:
    """At least one of ``alternatives`` holds; if none does the graph stops (the runtime then runs the eager body, which raises eager's exception).

    It stands behind the `ReadScalar`s of its symbols; what uses them runs after it."""

    alternatives: tuple[Comparison, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.alternatives))


Operation = Union[Compute, LibraryCall, View, ReadScalar, Check]

# ---- program ------------------------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Buffer:
    """A tensor: sizes and strides in elements. For views, strides are into the base's memory."""

    name: str
    dtype: DType
    sizes: tuple[Expression, ...]
    strides: tuple[Expression, ...]
    device: Literal["cpu", "cuda"] = "cpu"


@dataclass(frozen=True)
class SizeSymbol:
    """Where a size symbol gets its value: ``sizes[dimension]`` of input number ``input``."""

    symbol: Symbol
    input: int
    dimension: int


ProgramOutput = Union[BufferReference, Expression, bool, int, float, None]


@dataclass(frozen=True)
class Program:
    """One ATen graph, lowered. ``inputs`` are buffer names in call order (None for an input that is not a tensor and unused);
    ``operations`` are in a valid execution order; ``buffers`` holds every buffer by name."""

    name: str
    buffers: dict[str, Buffer]
    inputs: tuple[str | None, ...]
    symbols: tuple[SizeSymbol, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[ProgramOutput, ...]
    # integer inputs of the graph that are symbols themselves (saved sizes in a backward graph): input number -> symbol
    scalar_inputs: tuple[tuple[int, Symbol], ...] = ()
    # value ranges known for the symbols, inclusive; None is unbounded (a number read at run time may be negative); one not named is a size, 0 or more
    ranges: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
