"""What the frontend hands on: entries, breaks, regions, captured variants. Plain data (picklable between build processes; text on disk)."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from aotcompile.base.diagnostic import Diagnostic
from aotcompile.base.span import Span
from aotcompile.ir.guards import Guard, TensorFacts
from aotcompile.ir.paths import Path

# ---- splitting ----------------------------------------------------------------------------------------------------------------------------

BreakKind = Literal["call", "branch", "loop", "statement", "call_split"]


@dataclass(frozen=True)
class Break:
    """An instruction that cannot be part of a region.

    ``span`` is the expression in the function's source (from ``co_positions``). kind ``call``: the expression at ``span`` is evaluated outside;
    ``branch``: a truth test on a tensor's value (the test of an if/while/ternary/and/or/assert/comprehension condition at ``span``); ``statement``:
    the whole statement stays outside; ``call_split``: a call whose callee is a split function of its own (named by ``callee``)."""

    span: Span
    kind: BreakKind
    code: str
    reason: str
    hint: str = ""
    callee: str | None = None

    def diagnostic(self, region: int) -> Diagnostic:
        return Diagnostic(self.code, "note", f"graph break: {self.reason}. Region {region} ends here.", self.span, self.hint)


@dataclass(frozen=True)
class RegionSource:
    """A region cut out of a function: ``text`` is the eager body, a complete function definition called ``name`` with ``parameters``.

    ``identity`` is stable while the text is: a digest of the eager body. ``lines`` are the user's lines it covers."""

    name: str                              # "_r0_eager"
    index: int
    parameters: tuple[str, ...]
    text: str
    lines: tuple[int, int]
    identity: str


@dataclass(frozen=True)
class SplitSource:
    """A function after splitting: ``text`` defines the eager bodies and the rewritten function and uses the names ``_r<N>`` for the region stubs and
    ``_call_<N>`` for calls into split callees (``calls``: number -> callee name). ``line_map``: line of ``text`` -> line of the user's file."""

    function: str
    text: str
    regions: tuple[RegionSource, ...]
    calls: dict[int, str]
    line_map: dict[int, int]
    eager: tuple[Diagnostic, ...] = ()     # spans that could not be cut and stay as they are
    form: Literal["source", "bytecode"] = "source"         # "bytecode": ``text`` is what `runtime.twins.bytecode_twin` reads


# ---- captured graphs ----------------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Reference:
    """An argument of a graph node that is another node's value."""

    name: str


@dataclass(frozen=True)
class NodeRecord:
    """One FX node as data. ``operation``: placeholder, call_function, call_method, output. ``target`` of call_function: "module:qualname"
    ("torch:relu", "torch.nn.functional:dropout", "_operator:getitem", "torch.ops:aten.add.Tensor"), of call_method the method's name.
    ``arguments``/``keywords`` nest tuples, lists, dicts, slices, `Reference`s, constants, torch.dtype/device/memory_format/layout objects."""

    name: str
    operation: Literal["placeholder", "call_function", "call_method", "output"]
    target: str
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    place: str = ""                        # "model.py:14" of the user
    source: str = ""                       # that line's text


@dataclass(frozen=True)
class GraphInput:
    """An input of the captured graph, in placeholder order.

    kind ``tensor``: ``facts`` describe it (symbolic sizes by name), ``path`` fetches it. kind ``number``: a Python int or float taken as a scalar
    ("int"/"float" in ``number``); in the FX graph the placeholder *is* that Python number (a SymInt/SymFloat while tracing); ``hint`` its example
    value."""

    name: str
    kind: Literal["tensor", "number"]
    path: Path
    facts: TensorFacts | None = None
    number: Literal["int", "float", ""] = ""
    hint: int | float | None = field(default=None, compare=False)
    mutated: bool = False


@dataclass(frozen=True)
class SymbolFacts:
    """A size symbol: defined by ``sizes[dimension]`` of graph input number ``input``, or (``dimension`` -1) that input itself, a Python int. ``hint``
    is the example's size; inclusive range, ``minimum`` None: it may be negative."""

    name: str
    input: int
    dimension: int
    hint: int = field(compare=False)
    minimum: int | None = 0
    maximum: int | None = None


@dataclass(frozen=True)
class Alias:
    """An output that shares memory with an input or another output: rebuilt in the epilogue as ``as_strided`` of ``base``.

    ``base``: ("input", i) or ("output", i); sizes/strides/offset: ints or expression text."""

    base: tuple[str, int]
    sizes: tuple[int | str, ...]
    strides: tuple[int | str, ...]
    offset: int | str
    dtype: str


@dataclass(frozen=True)
class CapturedVariant:
    """One region captured in one situation.

    ``nodes`` is the torch-level graph; its outputs are fresh tensors only (no input, no two sharing memory): aliases and inputs that are returned
    are rebuilt by the ``epilogue``, Python source of

        def epilogue(inputs, outputs, symbols, fetched): ...

    with ``inputs`` the graph inputs as fetched, ``outputs`` the graph's outputs, ``symbols`` a dict of size symbols (ints), ``fetched`` the values of
    ``fetches`` (other objects it needs, by path, read in the prologue). It replays the side effects in order and returns the region's result.
    ``epilogue_imports`` maps the global names it uses to "module:qualname". ``result`` is set when the epilogue does nothing but
    return graph outputs: a single index, or a tuple of indices (then the native path needs no Python epilogue).
    Mutated graph inputs are mutated by the graph itself (in-place nodes). ``libraries``: modules of other distributions whose code was compiled in;
    no guard speaks of that code, the runtime compares the modules' files when it loads the variant."""

    region: str                                        # "Net.forward:r0"
    nodes: tuple[NodeRecord, ...]
    inputs: tuple[GraphInput, ...]
    symbols: tuple[SymbolFacts, ...]
    guards: tuple[Guard, ...]
    fetches: tuple[Path, ...]
    epilogue: str
    epilogue_imports: dict[str, str]
    result: int | tuple[int, ...] | None
    grad_enabled: bool
    output_requires_grad: tuple[bool, ...]
    operator_count: int
    output_strides: tuple[tuple[int | str, ...], ...] = ()     # of the graph's outputs, as eager has them; a text where symbolic
    libraries: tuple[str, ...] = ()


# ---- what the frontend returns ------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class FunctionResult:
    """One function of the user's program after analysis: the entry, or a callee with a break that became a split function of its own.

    ``split`` None: nothing of it is compiled, it stays as it is (``eager`` says why). ``variants``: region index -> captured variants, in the order
    in which they are to be tried; a region without any stays eager and says so in ``eager``."""

    module: str                                        # "mypkg.model"
    qualname: str                                      # "Net.forward"
    file: str
    lines: tuple[int, int]
    split: SplitSource | None
    variants: dict[int, tuple[CapturedVariant, ...]]
    breaks: tuple[Break, ...]
    eager: tuple[Diagnostic, ...] = ()
    notes: tuple[Diagnostic, ...] = ()                 # what is compiled, but not as general as was asked for


@dataclass(frozen=True)
class FrontendResult:
    functions: tuple[FunctionResult, ...]              # the entry first
