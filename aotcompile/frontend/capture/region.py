"""Capture of one region in one situation: interpret its eager body on stand-ins for real arguments; give a `CapturedVariant`, or the break."""
from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any, Callable

import torch
import torch.fx

from aotcompile.base.diagnostic import Diagnostic
from aotcompile.base.span import Span
from aotcompile.frontend.capture.counters import counted, counts_item, last_name
from aotcompile.frontend.capture.epilogue import EpilogueBuilder
from aotcompile.frontend.interpret.interpreter import BreakPoint, Interpreter
from aotcompile.frontend.capture.outside import Outside
from aotcompile.frontend.capture.graph import GraphRecorder
from aotcompile.frontend.capture.signals import GraphBreak, RegionRefused, UserException, internal_error
from aotcompile.frontend.capture.symbolic import SYMBOLIC, Symbol, SymbolTable
from aotcompile.frontend.library import is_compared_at_load
from aotcompile.frontend.torch_private import (
    FakeTensor,
    is_data_dependent,
    is_parameter,
    new_fake_mode,
    own_symbol,
    quiet_shape_rules,
    symbol_expression,
)
from aotcompile.frontend.types import CapturedVariant, GraphInput, NodeRecord, SymbolFacts
from aotcompile.ir.dtypes import BY_TORCH_NAME
from aotcompile.ir.guards import Guard, TensorFacts, constant_json
from aotcompile.ir.paths import Path


@dataclass(frozen=True)
class DimensionSpec:
    """A dynamic dimension: equal names are equal sizes."""

    name: str
    minimum: int = 0
    maximum: int | None = None


Dimensions = dict[int, dict[int, DimensionSpec]]      # id(tensor) -> dimension -> spec


@dataclass
class DynamicNumbers:
    """Which Python ints and floats that come into a region may be others next time, also where they are sizes or positions: all (``everything``),
    or those in ``values``. A number has no identity: on its way through the program it is known again by its type and value."""

    values: set[tuple[type, int | float]] = field(default_factory=set)
    everything: bool = False

    def has(self, value: int | float) -> bool:
        return self.everything or (type(value), value) in self.values

    def add(self, value: int | float) -> None:
        self.values.add((type(value), value))


@dataclass
class BreakFound:
    signal: GraphBreak
    chain: list[BreakPoint]


@dataclass
class Refused:
    code: str
    reason: str
    hint: str


@dataclass
class Captured:
    """``result`` is what the region returned on stand-ins (same structure as the real result, for following dynamic sizes). ``changed``: the
    roots of the paths of Python objects that the region changes. ``numbers``: names (or keys) that it writes numbers to. ``wants_run``: captured
    anew where the program's functions may be run, more is known. ``filled``: roots of what held None in an attribute, and holds something now."""

    variant: CapturedVariant
    result: Any
    symbols: SymbolTable
    notes: tuple[Diagnostic, ...] = ()
    changed: frozenset[tuple[str, ...]] = frozenset()
    numbers: frozenset[object] = frozenset()
    wants_run: bool = False
    filled: frozenset[tuple[str, ...]] = frozenset()


class Capture:
    """One run. ``nodes_of`` turns an FX graph into records (the graph stage's encoding, handed in); ``plain_form`` gives the ordinary Python that a
    control flow operator of torch's, or a module with ``hooks``, stands for (the runtime's, handed in); ``is_another``: whether a number is not
    what it was at the last arrival; ``given_cells``: ids of the cells whose content the region gets as arguments; ``may_run``: whether
    this process may run the program's functions."""

    def __init__(self, name: str, function: types.FunctionType, dimensions: Dimensions, digest: Callable[[types.CodeType], str],
                 nodes_of: Callable[[torch.fx.Graph], tuple[NodeRecord, ...]],
                 origin: tuple[str, dict[int, int], list[str], int] | None = None, numbers: DynamicNumbers | None = None,
                 plain_form: Callable[..., Any] = lambda function, hooks=None: function,
                 is_another: Callable[[Path, int | float], bool] = lambda path, value: False, given_cells: frozenset[int] = frozenset(),
                 may_run: bool = False) -> None:
        self.name, self.function, self._dimensions, self._nodes_of = name, function, dimensions, nodes_of
        self._dynamic_numbers, self._is_another = numbers or DynamicNumbers(), is_another
        self.fake_mode = new_fake_mode()
        self.symbols = SymbolTable(self.fake_mode.shape_env)
        self.recorder = GraphRecorder(self.fake_mode, self.symbols, lambda: self.interpreter.place(),
                                      lambda: self.interpreter.call_chain())
        self.outside = Outside(self._read_tensor, self._read_number, digest, lambda: self.interpreter.span(short=True))
        self.interpreter = Interpreter(function, self.outside, self.recorder, self.symbols, plain_form, given_cells, may_run)
        self.interpreter.origin = origin
        self._fakes: dict[int, FakeTensor] = {}
        self._inputs: list[tuple[Any, Path, Any]] = []            # (real, path, stand-in)
        self._storages: dict[int, int] = {}
        self._numbers: dict[Path, Any] = {}
        self._versions: list[int] = []
        self._fixed: dict[Any, Span | None] = {}
        self.fake_mode.shape_env.on_fixed = self._note_fixed

    # ---- stand-ins ----------------------------------------------------------------------------------------------------------------------------

    def _read_tensor(self, real: torch.Tensor, path: Path) -> Any:
        with torch._C.DisableTorchFunction(), self.recorder.transforms.aside():          # looking at a tensor is not part of the graph
            return self._stand_in(real, path)

    def _stand_in(self, real: torch.Tensor, path: Path) -> Any:
        if isinstance(real, FakeTensor):
            return real
        known = self._fakes.get(id(real))
        if known is not None:
            first = self.interpreter.tensor_originals[id(known)][1]
            if first != path:
                self.outside.guard("same", path, first.as_json())
            return known
        if type(real) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise GraphBreak("AOT211", f"a {type(real).__name__} (tensor subclass) comes in")
        if real.layout is not torch.strided or real.is_quantized or real.is_nested:
            raise GraphBreak("AOT211", f"a {real.layout if real.layout is not torch.strided else 'quantized or nested'} tensor comes in")
        if real.is_conj() or real.is_neg():
            raise GraphBreak("AOT211", f"a lazily {'conjugated' if real.is_conj() else 'negated'} tensor comes in",
                             "Call .resolve_conj().resolve_neg() on it before.")
        if str(real.dtype).removeprefix("torch.") not in BY_TORCH_NAME:
            raise GraphBreak("AOT211", f"a {real.dtype} tensor comes in")
        number = len(self._inputs)
        fake = self._make_fake(real, number)
        self._fakes[id(real)] = fake
        self._inputs.append((real, path, fake))
        self._versions.append(fake._version)
        self.interpreter.tensor_originals[id(fake)] = (real, path)
        self.recorder.placeholder(f"arg{number}", fake, starts_storage=real.storage_offset() == 0)
        return fake

    def _make_fake(self, real: torch.Tensor, number: int) -> FakeTensor:
        dynamic = {**_marked_dimensions(real, number), **self._dimensions.get(id(real), {})}
        sizes: list[Any] = list(real.shape)
        for dimension, spec in dynamic.items():
            sizes[dimension] = self.symbols.size(spec.name, real.shape[dimension], spec.minimum, spec.maximum)
            self.symbols.define(sizes[dimension], number, dimension)
        strides = _symbolic_strides(sizes, real) if dynamic else list(real.stride())
        mark = self.symbols.begin_operation()
        with torch.no_grad(), self.fake_mode:
            fake = torch.empty_strided(sizes, strides, dtype=real.dtype, device=real.device)
        if isinstance(real, torch.nn.Parameter):
            is_parameter(fake)
        if real.requires_grad:
            fake.requires_grad_(True)
            if not real.is_leaf:
                with self.fake_mode, torch.enable_grad():
                    fake = _computed(fake)
        self.symbols.end_operation(mark, "")
        return fake

    def _read_number(self, value: int | float, path: Path) -> Any:
        """A region's int and float arguments, and attributes that it counts, may change from call to call: they become symbols."""
        if path in self._numbers:
            return self._numbers[path]
        general = self._is_another(path, value) or self._is_counted(path) or self._is_dynamic(value, path)
        unfit = not -2**62 < value < 2**62 if isinstance(value, int) else value != value
        if unfit or not general and (path.root[0] != "argument" or path.steps):
            self.outside.guard("equals", path, constant_json(value))
            return value
        number = len(self._inputs)
        name = f"n{number}"
        symbol = self.symbols.number(value, number, name, general)
        self._inputs.append((value, path, symbol))
        self._versions.append(0)
        self.recorder.placeholder(name, symbol)
        self._numbers[path] = symbol
        return symbol

    def _is_dynamic(self, value: int | float, path: Path) -> bool:
        within_argument = path.root[0] == "argument" and all(step[0] == "item" for step in path.steps)
        return within_argument and self._dynamic_numbers.has(value)

    def _is_counted(self, path: Path) -> bool:
        """Whether the function that reads an attribute, a global or an item with a constant key counts it."""
        frame = self.interpreter.frame
        kind, name = last_name(path)
        if frame is None:
            return False
        if kind == "item":
            return counts_item(frame.code, name)
        if kind == "cell":
            name = dict(enumerate(frame.code.co_freevars)).get(name)         # type: ignore[call-overload]
        return (kind, name) in counted(frame.code)

    # ---- the run ------------------------------------------------------------------------------------------------------------------------------

    def run(self, arguments: tuple[Any, ...]) -> Captured | BreakFound | Refused:
        """Interpret the region on ``arguments`` (real values; they are not touched)."""
        with quiet_shape_rules():
            if not self.recorder.inference_mode:
                return self._run(arguments)
            with torch.inference_mode(False), torch.no_grad():      # stand-ins have a version, and inference tensors have none
                return self._run(arguments)

    def _run(self, arguments: tuple[Any, ...]) -> Captured | BreakFound | Refused:
        names = self.function.__code__.co_varnames[:len(arguments)]
        grad, autocast = torch.is_grad_enabled(), _autocast_state()
        try:
            stand_ins = [self.outside.read(value, Path(("argument", name))) for name, value in zip(names, arguments)]
            with self.recorder:
                self.interpreter.active = True
                result = self.interpreter.run_function(self.function, tuple(stand_ins), {})
                self.interpreter.active = False
            return self._finish(result, grad, autocast)
        except GraphBreak as signal:
            chain = self.interpreter.break_chain or signal.chain
            if not chain:                                       # what comes in cannot be part of a graph: no instruction is to blame
                return Refused(signal.code, signal.reason, signal.hint)
            return BreakFound(signal, chain)
        except UserException as raised:
            return self._exception(raised)
        except RegionRefused as refused:
            return Refused(refused.code, refused.reason, refused.hint)
        except Exception as error:      # noqa: BLE001 - a defect of ours: reported as one, and the region stays eager
            failure = internal_error(error)
            return Refused(failure.code, failure.reason, failure.hint)
        finally:
            self.interpreter.active = False
            torch._C._set_grad_enabled(grad)

    def _exception(self, raised: UserException) -> BreakFound | Refused:
        """The program raises here: what comes before is a region of its own, and the raising expression runs eagerly."""
        text = str(raised.exception).partition("\n")[0][:120]
        reason = f"{type(raised.exception).__name__} is raised: {text}"
        seen, chain = self.interpreter.raised
        if seen is raised.exception and chain:
            return BreakFound(GraphBreak("AOT206", reason), chain)
        return Refused("AOT206", reason, "")

    def _finish(self, result: Any, grad: bool, autocast: dict[str, Any]) -> Captured | Refused:
        self.interpreter.note_compared()
        self.outside.refuse_changes()
        fakes = [fake if isinstance(fake, FakeTensor) else None for _, _, fake in self._inputs]
        builder = EpilogueBuilder(self.outside, self.recorder, self.symbols, fakes)
        builder.grad_enabled = grad
        try:
            epilogue, plain = builder.build(result)
        except (GraphBreak, RegionRefused):
            if self.recorder.operator_count:
                raise
            epilogue, plain = "", None                          # without an operator the region runs as the Python it is
        self.symbols.fix_inexact_conditions()
        mutated = [fake is not None and fake._version != before for fake, before in zip(fakes, self._versions)]
        self._check_aliases([changed or id(fake) in self.recorder.hidden_writes.owners for changed, fake in zip(mutated, fakes)])
        graph = self.recorder.graph
        graph.output(tuple(self.recorder.node_of(fake) for fake in builder.outputs))
        self._insert_fixed_numbers(graph)
        requires_grad = any(fake is not None and fake.requires_grad for fake in fakes)
        kept = self._prune(graph, builder.used_inputs, mutated)
        flags = grad and requires_grad or self._reads_grad_state()
        inputs = tuple(self._graph_input(position, number, mutated[number], flags or not requires_grad) for position, number in enumerate(kept))
        distinct = [Guard("different", path, [other.as_json() for other in others]) for path, others in self.outside.distinct()]
        guards = [*self.outside.guards.values(), *distinct, *self._tensor_guards(kept, flags or not requires_grad), *self._expressions(),
                  *self._state(grad, autocast, requires_grad)]
        renumber = {number: position for position, number in enumerate(kept)}
        epilogue = _renumber(epilogue, renumber)
        symbols = tuple(SymbolFacts(s.name, renumber[s.input], s.dimension, int(s.hint), *self._range(key, s))
                        for key, s in self.symbols.symbols.items() if s.input in renumber and self._is_size(key, s))
        variant = CapturedVariant(
            self.name, self._nodes_of(graph), inputs, symbols, tuple(guards), tuple(builder.fetches), epilogue, dict(builder.imports), plain,
            grad, tuple(fake.requires_grad for fake in builder.outputs), self.recorder.operator_count,
            tuple(self._strides_text(fake) for fake in builder.outputs),
            tuple(sorted(name for name in self.interpreter.modules if isinstance(name, str) and is_compared_at_load(name))))
        return Captured(variant, result, self.symbols, self._fixed_sizes(), self._changed(), self._written_numbers(),
                        self.interpreter.wants_run, self._filled())

    def _changed(self) -> frozenset[tuple[str, ...]]:
        """The roots of what has attributes or items that are others after the call: one that is put back (a flag that is set meanwhile) is not."""
        last = {(id(owner), name): (owner, name, value) for _, owner, name, value in self.outside.effects}
        owners = [owner for owner, name, value in last.values() if not _is_put_back(owner, name, value)]
        owners += [container for container, _ in self.outside.put_items()]
        owners += [container for container, _, _ in self.outside.changed_containers()]
        return frozenset(path.root for path in map(self.outside.path_of, owners) if path is not None)

    def _filled(self) -> frozenset[tuple[str, ...]]:
        """The roots of what has an attribute that held None and holds something after the call."""
        owners = [owner for _, owner, name, value in self.outside.effects
                  if value is not None and getattr(owner, "__dict__", {}).get(name, 0) is None]
        return frozenset(path.root for path in map(self.outside.path_of, owners) if path is not None)

    def _written_numbers(self) -> frozenset[object]:
        written = [(self._place_in(owner, name), value) for _, owner, name, value in self.outside.effects]
        written += [entry for _, added in self.outside.put_items() if isinstance(added, dict) for entry in added.items()]
        return frozenset(name for name, value in written if isinstance(value, (int, float, *SYMBOLIC)) and type(value) is not bool)

    def _place_in(self, owner: Any, name: str) -> object:
        """An attribute's name, or of a function's cell its number: the last part of the path by which the value is read."""
        path = self.outside.path_of(owner) if isinstance(owner, types.CellType) else None
        return path.steps[-1][1] if path is not None else name

    def _insert_fixed_numbers(self, graph: torch.fx.Graph) -> None:
        """A number that the code has fixed is a constant of the graph."""
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        for (real, _, stand_in), node in zip(self._inputs, placeholders):
            if isinstance(stand_in, SYMBOLIC) and symbol_expression(stand_in).is_number:
                for user in list(node.users):
                    user.args = torch.fx.map_arg(user.args, lambda given, node=node, real=real: real if given is node else given)
                    user.kwargs = torch.fx.map_arg(user.kwargs, lambda given, node=node, real=real: real if given is node else given)

    def _is_size(self, key: Any, symbol: Symbol) -> bool:
        """Whether the graph stage is to trace it as a size: sizes, and Python ints that stood where one may stand."""
        return symbol.kind == "size" or symbol.kind == "number" and symbol.as_size and type(symbol.hint) is int \
            and not self.symbols.environment.replace(key).is_number

    def _range(self, key: Any, symbol: Symbol) -> tuple[int | None, int | None]:
        """What is known of it when the guards hold."""
        if symbol.kind == "size":
            return symbol.minimum, symbol.maximum
        lower = self.symbols.environment.var_to_range[key].lower
        return (int(lower) if lower >= 0 else None), None

    def _note_fixed(self, symbol: Any, value: Any) -> None:
        self._fixed.setdefault(symbol, self.interpreter.span())

    def _fixed_sizes(self) -> tuple[Diagnostic, ...]:
        """The dynamic sizes that the code has made constants, with the place that did."""
        notes = []
        for key, place in self._fixed.items():
            symbol = self.symbols.symbols.get(key)
            value = self.symbols.environment.replace(key)
            if symbol is None or not value.is_number:
                continue
            path = self._inputs[symbol.input][1]
            if symbol.kind == "size" or symbol.general and all(step[0] == "item" for step in path.steps):     # not a counter, which no one asked for
                what = f"size {path}.shape[{symbol.dimension}]" if symbol.kind == "size" else f"number {path}"
                notes.append(Diagnostic("AOT216", "note", f"the dynamic {what} is fixed to {value}: this needs its value.", place,
                                        "Give another example input for each size that matters, or write it with tensor operations."))
        return tuple(notes)

    def _reads_grad_state(self) -> bool:
        return self.recorder.reads_requires_grad or any(
            node.op == "call_function" and node.target is torch._C._set_grad_enabled and node.args[0] for node in self.recorder.graph.nodes)

    def _check_aliases(self, mutated: list[bool]) -> None:
        """Inputs that share memory with an input that is changed cannot be told apart by the graph."""
        seen: dict[int, int] = {}
        for number, (real, _, fake) in enumerate(self._inputs):
            if not isinstance(fake, FakeTensor) or real.numel() == 0:
                continue
            key = real.untyped_storage().data_ptr()
            if key in seen and (mutated[number] or mutated[seen[key]]):
                raise RegionRefused("AOT301", "two inputs share memory and one of them is changed")
            seen.setdefault(key, number)

    def _prune(self, graph: torch.fx.Graph, used: set[int], mutated: list[bool]) -> list[int]:
        """Drop graph inputs that neither the graph nor the epilogue uses; gives the numbers of those kept, in order."""
        needed = {symbol.input for symbol in self.symbols.symbols.values() if symbol.kind == "size"}
        kept = []
        for number, node in enumerate([n for n in graph.nodes if n.op == "placeholder"]):
            if node.users or number in used or mutated[number] or number in needed:
                kept.append(number)
            else:
                graph.erase_node(node)
        return kept

    def _graph_input(self, position: int, number: int, mutated: bool, flags: bool) -> GraphInput:
        real, path, stand_in = self._inputs[number]
        if isinstance(stand_in, FakeTensor):
            return GraphInput(f"arg{number}", "tensor", path, self._facts(real, stand_in, flags), mutated=mutated)
        return GraphInput(f"n{number}", "number", path, number=type(real).__name__, hint=real)

    def _strides_text(self, fake: FakeTensor) -> tuple[int | str, ...]:
        """The strides of an output; () where they are not relied on (no strides, sizes that are data or computed in floats)."""
        if fake.layout is not torch.strided or is_data_dependent(fake) or not all(map(self.symbols.is_exact, fake.stride())):
            return ()
        return tuple(map(self._number_text, fake.stride()))

    def _number_text(self, value: Any) -> int | str:
        """A size or stride: a number, or the text of an expression over size symbols."""
        if isinstance(value, SYMBOLIC):
            text = self.symbols.text(value)
            return int(text) if text.lstrip("-").isdigit() else text
        return int(value)

    def _facts(self, real: torch.Tensor, fake: FakeTensor, flags: bool) -> TensorFacts:
        kind = "torch.nn.parameter:Parameter" if isinstance(real, torch.nn.Parameter) else "torch:Tensor"
        return TensorFacts(BY_TORCH_NAME[str(real.dtype).removeprefix("torch.")].value, tuple(map(self._number_text, fake.shape)),
                           tuple(map(self._number_text, fake.stride())), real.device.type, bool(real.requires_grad) if flags else None, kind,
                           storage_offset=0 if id(fake) in self.recorder.at_storage_start else None)

    # ---- guards -------------------------------------------------------------------------------------------------------------------------------

    def _tensor_guards(self, kept: list[int], flags: bool) -> list[Guard]:
        """Every tensor that was looked at is guarded, also those the graph does not need; numbers by type, or by value once they are fixed.
        Numbers come first: a tensor's size may be one of them."""
        guards = [self._number_guard(real, path, stand_in) for real, path, stand_in in self._inputs if not isinstance(stand_in, FakeTensor)]
        storages = []
        for number, (real, path, stand_in) in enumerate(self._inputs):
            if isinstance(stand_in, FakeTensor):
                guards.append(Guard("tensor", path, self._facts(real, stand_in, flags).as_json()))
                storages.append((number, path, stand_in))
        changed = [(n, p) for n, p, fake in storages if fake._version != self._versions[n] or id(fake) in self.recorder.hidden_writes.owners]
        for number, path in changed:
            others = [p.as_json() for n, p, _ in storages if n != number]
            if others:
                guards.append(Guard("different", path, others))
        return guards

    def _number_guard(self, real: int | float, path: Path, stand_in: Any) -> Guard:
        """By type; by value once the code has fixed it; with a name where an expression guard speaks of it, which for ints may be one that the graph
        adds (``1 / n`` is refused for 0)."""
        expression = symbol_expression(stand_in)
        if not expression.free_symbols:
            return Guard("equals", path, constant_json(real))
        key = own_symbol(stand_in)
        symbol = self.symbols.symbols[key]
        if type(real) is int or any(key in entry.expr.free_symbols for entry in self.symbols.environment.guards):
            return Guard("number", path, {"kind": type(real).__name__, "symbol": symbol.name})
        return Guard("number", path, type(real).__name__)

    def _expressions(self) -> list[Guard]:
        environment = self.symbols.environment
        guards, seen = [], set()
        for entry in environment.guards:
            expression = environment.replace(entry.expr)
            known = {symbol for symbol, facts in self.symbols.symbols.items() if facts.kind in ("size", "number")}
            if not expression.free_symbols or not expression.free_symbols <= known:
                continue
            text = self.symbols.text(expression)
            if text not in seen:
                seen.add(text)
                guards.append(Guard("expression", None, text))
        for key, symbol in self.symbols.symbols.items():
            size = environment.replace(key)
            if symbol.kind == "number" and size != key and not size.is_number:       # equal to a size: no tensor is guarded by its name
                guards.append(Guard("expression", None, f"{symbol.name} == {self.symbols.text(size)}"))
            # A size that the code has fixed is no symbol any more.
            if symbol.kind == "size" and not size.is_number and (symbol.minimum > 0 or symbol.maximum is not None):
                name = self.symbols.text(size)
                low = f"{name} >= {symbol.minimum}"
                guards.append(Guard("expression", None, low if symbol.maximum is None else f"{low} and {name} <= {symbol.maximum}"))
        return guards

    def _state(self, grad: bool, autocast: dict[str, Any], requires_grad: bool) -> list[Guard]:
        state: dict[str, Any] = dict(autocast)
        if requires_grad or self._reads_grad_state():
            state["grad_enabled"] = grad
        state["default_dtype"] = str(torch.get_default_dtype()).removeprefix("torch.")
        return [Guard("state", None, {name: value}) for name, value in sorted(state.items())]


def _marked_dimensions(real: torch.Tensor, number: int) -> dict[int, DimensionSpec]:
    """What `torch._dynamo.mark_dynamic`, ``maybe_mark_dynamic`` and ``mark_unbacked`` say of a tensor."""
    ranges = {found.dim % real.dim(): found for found in getattr(real, "_dynamo_dynamic_range", ())}
    marked = {dimension % real.dim() for name in _DYNAMIC_MARKS for dimension in getattr(real, name, ())}
    specs = {}
    for dimension in sorted(marked):
        known = ranges.get(dimension)
        low, high = (known.min or 0, known.max) if known is not None else (0, None)
        specs[dimension] = DimensionSpec(f"arg{number}_{dimension}", low, high)
    return specs


_DYNAMIC_MARKS = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices")


def _autocast_state() -> dict[str, Any]:
    state: dict[str, Any] = {}
    for device in ("cpu", "cuda"):
        enabled = torch.is_autocast_enabled(device)
        state[f"autocast_{device}"] = str(torch.get_autocast_dtype(device)).removeprefix("torch.") if enabled else None
    return state


_CONSTANTS = (bool, int, float, str, bytes, type(None))


def _is_put_back(owner: Any, name: str, value: Any) -> bool:
    """Whether the last value written to an attribute (or a global) is the one it has outside, which no capture changes."""
    table = owner if type(owner) is dict else getattr(owner, "__dict__", {})
    if name not in table:
        return False
    before = table[name]
    return value is before or type(value) in _CONSTANTS and type(value) is type(before) and value == before


def _symbolic_strides(sizes: list[Any], real: torch.Tensor) -> list[Any]:
    """Strides of a tensor with symbolic sizes: where a stride is the product of the inner sizes it stays so, else it is the number seen."""
    order = sorted(range(real.dim()), key=lambda d: (real.stride(d), real.shape[d] if real.stride(d) else 0, -d))
    strides: list[Any] = [0] * real.dim()
    expected: Any = 1
    hint = 1
    for dimension in order:
        if real.stride(dimension) == hint or real.shape[dimension] in (0, 1):
            strides[dimension] = expected
            expected = expected * sizes[dimension]
            hint = hint * real.shape[dimension]
        else:
            strides[dimension] = real.stride(dimension)
            expected = real.stride(dimension) * sizes[dimension]
            hint = real.stride(dimension) * real.shape[dimension]
    return strides


def _computed(fake: FakeTensor) -> FakeTensor:
    """A tensor with a history, of the same sizes and strides; `torch.clone` alone would close the gaps of a part of a larger tensor."""
    clone = torch.clone(fake)
    if all(a is b or a == b for a, b in zip(clone.stride(), fake.stride())):
        return clone
    extent = 1 + sum((size - 1) * stride for size, stride in zip(fake.shape, fake.stride()))
    flat = torch.empty([extent], dtype=fake.dtype, device=fake.device).requires_grad_(True)
    return torch.as_strided(torch.clone(flat), fake.shape, fake.stride())


def _renumber(epilogue: str, numbers: dict[int, int]) -> str:
    import re

    return re.sub(r"\binputs\[(\d+)\]", lambda found: f"inputs[{numbers[int(found.group(1))]}]", epilogue)


def follow_sizes(stand_in: Any, real: Any, symbols: SymbolTable, dimensions: Dimensions, numbers: DynamicNumbers,
                 kept: list[Any], arrival: int | None = None) -> None:
    """Dynamic sizes of a region's results: what is symbolic in the stand-in is dynamic in the real value (``dimensions`` and ``numbers`` are
    extended; ``kept`` keeps ids valid). ``arrival``: a number for these results."""
    arrival = len(kept) if arrival is None else arrival
    if isinstance(stand_in, FakeTensor) and isinstance(real, torch.Tensor):
        found = {}
        for dimension, size in enumerate(stand_in.shape):
            if isinstance(size, torch.SymInt) and symbol_expression(size).free_symbols:
                expression = symbol_expression(size)
                symbol = symbols.symbols.get(expression)
                name = symbols.letters(expression, arrival)
                found[dimension] = DimensionSpec(name, symbol.minimum if symbol else 0, symbol.maximum if symbol else None)
        if found:
            dimensions[id(real)] = found
            kept.append(real)
    elif isinstance(stand_in, SYMBOLIC) and type(real) in (int, float) and symbol_expression(stand_in).free_symbols:
        if not symbols.is_number(stand_in):
            numbers.add(real)
    elif isinstance(stand_in, (tuple, list)) and isinstance(real, (tuple, list)):
        for a, b in zip(stand_in, real):
            follow_sizes(a, b, symbols, dimensions, numbers, kept, arrival)
    elif isinstance(stand_in, dict) and isinstance(real, dict):
        for key in stand_in:
            if key in real:
                follow_sizes(stand_in[key], real[key], symbols, dimensions, numbers, kept, arrival)


__all__ = ["BreakFound", "Capture", "Captured", "DimensionSpec", "Dimensions", "DynamicNumbers", "Refused", "follow_sizes"]
