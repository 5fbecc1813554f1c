"""Private torch APIs of the frontend, in one place. Checked on torch 2.11 to 2.14."""
from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch.predispatch import lazy_load_decompositions
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._guards import Source
from torch._higher_order_ops.associative_scan import associative_scan_op, generic_associative_scan
from torch._higher_order_ops.utils import _maybe_compile_and_run_fn as compile_and_run
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch._subclasses.fake_tensor import log as fake_tensor_log
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._sympy.functions import FloorDiv, IntTrueDiv, Max, Mod
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

VALUE_NEEDED = (DataDependentOutputException, GuardOnDataDependentSymNode)
SHAPE_NEEDS_VALUE = (DynamicOutputShapeException,)
NO_FAKE_KERNEL = (UnsupportedOperatorException,)

__all__ = [
    "FakeTensor", "FakeTensorMode", "FloorDiv", "IntTrueDiv", "Known", "Mod", "NO_FAKE_KERNEL", "SHAPE_NEEDS_VALUE", "ShapeEnv", "VALUE_NEEDED",
    "WatchedShapeEnv", "always_holds", "associative_scan_op", "autograd_engine", "compile_and_run", "compiling", "empty_fake", "fitted",
    "forget_guards", "generic_associative_scan", "in_transform", "is_data_dependent", "is_parameter", "is_stand_in", "is_view_unseen", "known",
    "load_batching_rules", "new_fake_mode", "new_float", "new_int", "new_size", "outside_transforms", "own_symbol", "put_autograd_engine",
    "reads_fake_memory", "result_count", "same_size", "sequence_number", "size_hint", "symbol_expression", "symbolic_dispatch", "undefined_as_zeros",
    "unset_fake_temporarily", "was_view", "with_hints",
]


@contextmanager
def compiling() -> Iterator[None]:
    """`torch.compiler.is_compiling` says True, as it does during capture."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


@contextmanager
def quiet_shape_rules() -> Iterator[None]:
    """torch logs an error with its traceback where a shape rule raises: here the program's exception, or a situation that was only tried."""
    before = fake_tensor_log.disabled
    fake_tensor_log.disabled = True
    try:
        yield
    finally:
        fake_tensor_log.disabled = before


class NamedSource(Source):
    """A source that is only a name: our guards carry their own paths."""

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def _name_template(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSource) and other.text == self.text


# Functions of torch that look at the layout of a tensor, and the functions of tensors by which "contiguous or not" is "shared memory or a copy".
_LAYOUT_QUESTIONS = frozenset({"is_contiguous", "is_contiguous_for_memory_format", "check_contiguous_sizes_strides", "is_channels_last_contiguous_2d",
                               "is_channels_last_contiguous_3d", "is_non_overlapping_and_dense", "suggest_memory_format",
                               "are_strides_like_channels_last_or_false", "compute_elementwise_output_logical_to_physical_perm",
                               "_reshape_view_helper_core_alg", "meta_copy_"})
MAY_SHARE_MEMORY = frozenset({"reshape", "reshape_as", "contiguous", "flatten", "ravel", "to"})
# Where torch writes down what a result looks like, for its cache of fake results: any answer will do.
_DESCRIPTIONS = frozenset({"extract_tensor_metadata"})
_DEPTH = 16                                    # frames between such a function and the question


class WatchedShapeEnv(ShapeEnv):
    """A ShapeEnv that tells when the code makes a symbol a constant (``on_fixed(symbol, value)``), and that knows questions about layouts.

    A slice ``x[:, :n]`` is contiguous where ``n`` is the whole size. An elementwise operator asks, and it makes no difference: the strides of its
    result are those of the general case; what can be viewed for all sizes can be viewed for equal ones. So no guard says ``n != x.shape[1]``.
    ``running``: the function of torch that is run; ``layout_guards``: the guards that its questions about layouts made nonetheless."""

    on_fixed: Any = None
    running: str = ""
    layout_guards: tuple[Any, ...] = ()

    def evaluate_expr(self, orig_expr: Any, *arguments: Any, **keywords: Any) -> Any:
        hints = hints_of(self)
        answer = different(orig_expr, hints)
        if answer is not None and self.running not in MAY_SHARE_MEMORY and _is_asked_by(_LAYOUT_QUESTIONS, sys._getframe(1)):
            return answer
        if orig_expr.free_symbols <= hints.keys() and _is_asked_by(_DESCRIPTIONS, sys._getframe(1)):
            return orig_expr.xreplace(hints)
        count = len(self.guards)
        result = super().evaluate_expr(orig_expr, *arguments, **keywords)
        if len(self.guards) > count and _is_asked_by(_LAYOUT_QUESTIONS, sys._getframe(1)):
            self.layout_guards += tuple(self.guards[count:])
        return result

    def _set_replacement(self, a: Any, tgt: Any, msg: str) -> None:
        before = a in self.replacements
        super()._set_replacement(a, tgt, msg)
        if self.on_fixed is not None and not before and a in self.replacements and self.replacements[a].is_number:
            self.on_fixed(a, self.replacements[a])


def different(relation: Any, hints: Mapping[Any, Any]) -> Any:
    """The truth of ``a == b`` or ``a != b`` where the example values differ; None for other relations."""
    if not isinstance(relation, (sympy.Eq, sympy.Ne)) or not relation.free_symbols <= hints.keys():
        return None
    equal = relation.lhs.xreplace(hints) == relation.rhs.xreplace(hints)
    return None if equal else sympy.sympify(isinstance(relation, sympy.Ne))


def _is_asked_by(names: frozenset[str], frame: FrameType | None) -> bool:
    """Whether a function of torch with one of these names asks."""
    for _ in range(_DEPTH):
        if frame is None:
            return False
        if frame.f_code.co_name in names and "torch" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def hints_of(environment: ShapeEnv) -> Mapping[Any, Any]:
    """Symbol -> example value (before torch 2.12 the table is called ``var_to_val``)."""
    return environment.backed_var_to_val if hasattr(environment, "backed_var_to_val") else environment.var_to_val


def new_fake_mode() -> FakeTensorMode:
    """A fake tensor mode whose sizes may be 0 or 1 like any other."""
    return FakeTensorMode(shape_env=WatchedShapeEnv(specialize_zero_one=False, duck_shape=False), allow_non_fake_inputs=False, static_shapes=False)


def new_size(environment: ShapeEnv, name: str, hint: int, minimum: int, maximum: int | None) -> torch.SymInt:
    """A symbolic size with example value ``hint`` and an inclusive range."""
    import sympy

    # positive=None: with sympy's "positive" a size could not be 0, and max(size, 1) would fold to the size
    symbol = environment.create_symbol(hint, NamedSource(name), DimDynamic.DYNAMIC, positive=None, do_not_specialize_zero_one=True)
    environment.constrain_symbol_range(symbol, compiler_min=minimum, compiler_max=maximum if maximum is not None else int(sympy.S(2**62)))
    return environment.create_symintnode(symbol, hint=hint, source=NamedSource(name))


def new_int(environment: ShapeEnv, name: str, hint: int) -> torch.SymInt:
    """A Python int taken as a symbol of any sign."""
    symbol = environment.create_unspecified_symbol(hint, NamedSource(name), DimDynamic.DYNAMIC)
    return environment.create_symintnode(symbol, hint=hint, source=NamedSource(name))


def new_float(environment: ShapeEnv, name: str, hint: float) -> torch.SymFloat:
    symbol = environment.create_unspecified_symbol(hint, NamedSource(name), DimDynamic.DYNAMIC)
    return environment.create_symfloatnode(symbol, hint=hint, source=NamedSource(name))


def symbol_expression(value: torch.SymInt | torch.SymFloat | torch.SymBool) -> Any:
    """The sympy expression behind a symbolic number, with what is known by now filled in."""
    return value.node.shape_env.replace(value.node.expr)


def own_symbol(value: torch.SymInt | torch.SymFloat) -> Any:
    """The symbol that a number was made as, whatever has been found to be equal to it since."""
    return value.node._expr


DATA_DEPENDENT_HINT = 4099  # stands for a size that is data (`nonzero`) where sizes are put in order


def size_hint(value: Any) -> int:
    """The example value of a size, symbolic or not; nothing is fixed."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    if value.node.hint is not None:
        return int(value.node.hint)
    hints = hints_of(value.node.shape_env)
    expression = symbol_expression(value)
    return int(expression.xreplace({symbol: hints.get(symbol, DATA_DEPENDENT_HINT) for symbol in expression.free_symbols}))


def with_hints(value: Any, hints: Mapping[Any, Any]) -> Any:
    """The value of a number without data in it, for ``hints`` of some symbols and the example's of the rest; nothing is fixed."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    found = symbol_expression(value).xreplace({**hints_of(value.node.shape_env), **hints})
    return bool(found) if isinstance(value, torch.SymBool) else float(found) if isinstance(value, torch.SymFloat) else int(found)


def is_data_dependent(fake: torch.Tensor) -> bool:
    """Whether a size of the tensor, or a stride or offset (``nonzero()[0]``: as many as there are rows), is known at run time only."""
    layout = (*fake.shape, *fake.stride(), fake.storage_offset()) if fake.layout is torch.strided else fake.shape
    return any(isinstance(size, torch.SymInt) and size.node.hint is None for size in layout)


def same_size(first: Any, second: Any) -> bool:
    """Whether two sizes are equal. Equal expressions are, for all sizes; where only the example values are equal, that becomes a guard."""
    if size_hint(first) != size_hint(second):
        return False
    if any(isinstance(size, torch.SymInt) and size.node.hint is None for size in (first, second)):
        # A size that is data has no example value to guard on. Strides have Max(1, size) in them: they differ for tensors without elements only.
        both = [symbol_expression(size) if isinstance(size, torch.SymInt) else sympy.Integer(size) for size in (first, second)]
        found = [size.replace(Max, lambda *parts: parts[1] if len(parts) == 2 and parts[0] == 1 else Max(*parts)) for size in both]
        return bool(found[0] == found[1])
    return not isinstance(first == second, torch.SymBool) or bool(first == second)


def empty_fake(mode: FakeTensorMode, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> FakeTensor:
    """``torch.empty_strided`` in the mode, without going through its dispatch."""
    return FakeTensor(mode, torch.empty_strided(sizes, strides, dtype=dtype, device="meta"), device)


def autograd_engine() -> Any:
    return torch.autograd.Variable._execution_engine


def put_autograd_engine(engine: Any) -> None:
    """What `torch.autograd.backward` and ``grad`` call from now on, in the whole process."""
    torch.autograd.Variable._execution_engine = engine


def sequence_number(node: Any) -> int:
    """Which of a thread's nodes of autograd this is, in the order in which they were made; those of leaves have the highest number."""
    return int(node._sequence_nr())


def fitted(gradient: torch.Tensor, node: Any, number: int) -> torch.Tensor:
    """A gradient as result ``number`` of a node has to get it: summed over what was broadcast, in its dtype."""
    facts = node._input_metadata[number]
    summed = gradient if facts.is_nested_tensor else gradient.sum_to_size(tuple(facts.shape))
    return summed.to(facts.dtype)


def undefined_as_zeros(node: Any, gradients: Sequence[Any]) -> list[Any]:
    """The gradients of all results of a node, zeros for those that nothing has arrived for."""
    return [torch.zeros(facts.shape, dtype=facts.dtype, device=facts.device) if gradient is None else gradient
            for gradient, facts in zip(gradients, node._input_metadata)]


def result_count(node: Any) -> int:
    return len(node._input_metadata)


def was_view(fake: FakeTensor) -> None:
    """Remember that the operator gives a view of something that nobody else has (linear of a 3-d tensor: of the matrix product)."""
    fake._was_view = True  # type: ignore[attr-defined]


def is_view_unseen(fake: object) -> bool:
    """Whether the tensor is a view in eager, of a base that is not there."""
    return getattr(fake, "_was_view", False)


def in_transform() -> bool:
    """Whether a transform of torch.func, or a mode that sees operators, is running."""
    return torch._C._functorch.peek_interpreter_stack() is not None or torch._C._len_torch_dispatch_stack() > 0


def reads_fake_memory(error: RuntimeError) -> bool:
    """Whether an operator failed because it looks at a tensor's elements itself (``tensor_split`` at a tensor's indices): no error of the program."""
    return "its data is not allocated yet" in str(error)


def is_parameter(fake: torch.Tensor) -> None:
    """Make ``isinstance(fake, torch.nn.Parameter)`` true."""
    fake._is_param = True  # type: ignore[attr-defined]


def is_stand_in(value: object) -> bool:
    """Whether a tensor belongs to the capture: a fake tensor, or one that torch.func's transforms have wrapped."""
    return isinstance(value, FakeTensor) or isinstance(value, torch.Tensor) and bool(torch._C._functorch.is_functorch_wrapped_tensor(value))


def load_batching_rules() -> None:
    """What torch loads at the first vmap, by torch.jit: now, and not while something is recorded."""
    lazy_load_decompositions()


def outside_transforms() -> AbstractContextManager[Any]:
    """As if no transform of torch.func were running."""
    return temporarily_clear_interpreter_stack()


def symbolic_dispatch() -> AbstractContextManager[Any]:
    """Where operators on symbolic sizes run. Some composite ones in C++ (interpolate, pad, LSTM; before torch 2.13 linear without a bias) turn sizes
    into ints, which would fix them; their forms in Python do not."""
    import torch._decomp.decompositions  # noqa: F401  (it registers them)

    return enable_python_dispatcher()


# Methods that remember their answers, which hold as long as no guard is taken back.
_REMEMBERING = ("_inner_evaluate_expr", "_maybe_evaluate_static", "_maybe_guard_rel", "simplify")


@dataclass(frozen=True)
class Known:
    """What a ShapeEnv knew at some moment: how many guards, and what follows from them."""

    guard_count: int
    ranges: dict[Any, Any]
    implications: dict[Any, Any]


def known(environment: ShapeEnv) -> Known:
    return Known(len(environment.guards), dict(environment.var_to_range), dict(environment.axioms))


def forget_guards(environment: ShapeEnv, before: Known, kept: list[Any]) -> None:
    """Take back the guards that were made since ``before`` but those in ``kept``."""
    asked_about = {symbol for guard in environment.guards[before.guard_count:] for symbol in guard.expr.free_symbols}
    environment.guards[before.guard_count:] = kept
    environment.var_to_range.update({symbol: before.ranges[symbol] for symbol in asked_about & before.ranges.keys()})
    environment.axioms = dict(before.implications)
    environment._update_version_counter()
    for name in _REMEMBERING:
        getattr(ShapeEnv, name).cache_clear()
    for guard in kept:
        environment._refine_ranges(guard.expr)
        environment.axioms.update(dict(environment.get_implications(environment.simplify(guard.expr))))


def always_holds(expression: sympy.Basic, minimum: int) -> bool:
    """Whether a condition holds for all values of its symbols from ``minimum``; False where interval arithmetic cannot say."""
    # size = minimum + t, t >= 0: sympy then sees through max(1, size) == size
    beyond = {symbol: sympy.Symbol(f"{symbol.name}_beyond", integer=True, nonnegative=True) for symbol in expression.free_symbols}
    condition = expression.xreplace({symbol: beyond[symbol] + minimum for symbol in beyond})
    if isinstance(condition, sympy.core.relational.Relational):
        condition = condition.func(sympy.expand(condition.lhs - condition.rhs), 0)
    bounds = bound_sympy(condition, {symbol: ValueRanges(0, 2**62) for symbol in condition.free_symbols})
    return bool(bounds.lower is sympy.true)
