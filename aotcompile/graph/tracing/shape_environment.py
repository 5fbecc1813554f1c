"""Size symbols while tracing: which questions about sizes become guards.

Torch's operators ask whether a size is 0 or 1 all the time (broadcasting, contiguity, early exits). For most the answer changes how the
result is computed in eager, not what it is, and so no guard is wanted: the question is answered for a size of 2 or more, and the graph is
right for 0 and 1 too.
A guard is made where the answer does matter:

    squeeze(dim)              the result's rank depends on it
    an explicit check         eager raises for that size (``torch._check``, ``if size_prods == 1: raise`` in torch.nn.functional)
    Python code of the user   an ``if x.shape[0] == 1`` in a function called by the graph
"""
from __future__ import annotations

import itertools
import sys
from types import FrameType
from typing import Any, Callable

import sympy
import torch

from aotcompile.graph.torch_private import ShapeEnv, ValueRanges, bound_sympy, hints_of

# Base names (without overload) of operators whose result depends on a size being 1; being 0 (batch_norm: no update of the statistics);
# on comparisons of sizes (where a slice is cut off).
ONE_DEPENDENT = frozenset({"squeeze", "squeeze_", "squeeze_copy", "atleast_1d"})
EMPTY_DEPENDENT = frozenset({"batch_norm", "instance_norm"})
ORDER_DEPENDENT = frozenset({"slice", "narrow", "select", "split", "split_with_sizes", "chunk", "tensor_split", "getitem", "slice_scatter",
                             "select_scatter", "unfold", "as_strided", "unsafe_chunk", "unsafe_split", "diagonal", "tril", "triu"})
# Python code in torch that only chooses an order of evaluation by size.
CHOOSES_ORDER = frozenset({"einsum"})
# Questions about the layout of a tensor: a dimension of size 0 or 1 has no layout.
LAYOUT_QUESTIONS = frozenset({"is_contiguous", "is_contiguous_for_memory_format", "is_contiguous_or_false", "is_channels_last_contiguous_2d",
                              "is_channels_last_contiguous_3d", "suggest_memory_format", "are_strides_like_channels_last_or_false",
                              "are_strides_like_channels_last", "compute_elementwise_output_logical_to_physical_perm",
                              "_reshape_view_helper_core_alg", "meta_copy_", "run_and_return_new_tensor_of_input_device",
                              "is_non_overlapping_and_dense", "is_non_overlapping_and_dense_or_false",
                              "_is_non_overlapping_and_dense_or_false", "extract_tensor_metadata", "_extract_tensor_metadata"})
DESCRIPTIONS = frozenset({"extract_tensor_metadata", "_extract_tensor_metadata"})
# Operators that cannot reduce an empty dimension: `passes.required_sizes` finds those that are left.
CHECKED_AFTERWARDS = frozenset({"amax", "amin", "argmax", "argmin", "max", "min"})
# Library calls that choose an algorithm, and with it at most the strides of a result, by size.
CHOOSES_ALGORITHM = frozenset({"convolution", "_convolution", "convolution_backward", "convolution_overrideable"})
DATA_HINT = sympy.Integer(4099)  # stands for a size that is data (`nonzero`)
_MACHINERY = ("torch/fx/experimental/sym_node.py", "torch/fx/experimental/symbolic_shapes.py", "torch/fx/experimental/recording.py",
              "torch/__init__.py")
_PYTHON_BRANCHES = ("torch/nn/", "torch/functional.py", "torch/amp/", "torch/autograd/function.py")


class SizeEnvironment(ShapeEnv):
    """A ShapeEnv that follows the rule above. ``running`` gives the operator name of the FX node being traced."""

    def __init__(self, running: Callable[[], str]) -> None:
        super().__init__(specialize_zero_one=False, duck_shape=False)
        self._running = running

    def evaluate_expr(self, orig_expr: Any, *arguments: Any, **keywords: Any) -> Any:
        answer = self._answer_for_large_sizes(orig_expr)
        if answer is None:
            answer = self._answer_for_library(orig_expr)
            if answer is None:
                answer = self._answer_for_layout(orig_expr)
        elif _matters(sys._getframe(1), self._running(), orig_expr) and not self._holds_for_all_sizes(orig_expr, answer):
            answer = None
        return super().evaluate_expr(orig_expr, *arguments, **keywords) if answer is None else answer

    def _holds_for_all_sizes(self, relation: Any, answer: Any) -> bool:
        """Whether the answer for large sizes is also that for 0 and 1, in all combinations (``max(1, s0) == s0 or 12*s0 == 0``)."""
        symbols = sorted(relation.free_symbols, key=str)
        if len(symbols) > 3:
            return False
        choices = [[None, *(value for value in (0, 1) if self.var_to_range[symbol].lower <= value)] for symbol in symbols]
        for values in itertools.product(*choices):
            given = {symbol: sympy.Integer(value) for symbol, value in zip(symbols, values, strict=True) if value is not None}
            try:
                case = relation.xreplace(given)
            except ZeroDivisionError:
                return False
            if (case if case in (sympy.true, sympy.false) else self._answer_for_large_sizes(case)) is not answer:
                return False
        return True

    def _answer_for_library(self, expression: Any) -> Any:
        """Thresholds by which a library call chooses its algorithm ("is the batch below 16?"): answered for the size while tracing."""
        if not isinstance(expression, (sympy.StrictLessThan, sympy.LessThan, sympy.StrictGreaterThan, sympy.GreaterThan)):
            return None
        sizes = [side for side in expression.args if not side.is_Integer]
        if len(sizes) != 1 or not all(symbol in hints_of(self) for symbol in sizes[0].free_symbols):
            return None
        operator = _operator_of(sys._getframe(2))
        return expression.xreplace(hints_of(self)) if operator in CHOOSES_ALGORITHM else None

    def _answer_for_layout(self, relation: Any) -> Any:
        """``x[:, :n]`` is contiguous where ``n`` is the whole size, to name one: equal sizes and strides are a special case that is answered like
        the general one. Where torch describes a result for its cache, any answer will do."""
        hints = hints_of(self)
        if not relation.free_symbols <= hints.keys() or (asker := _layout_question(sys._getframe(2))) is None:
            return None
        answer = relation.xreplace(hints)
        return answer if asker in DESCRIPTIONS or answer == _general_answer(relation) else None

    def _answer_for_large_sizes(self, expression: Any) -> Any:
        """The truth of a relation if it is the same for all sizes of 2 or more and not for all allowed ones; None otherwise."""
        if isinstance(expression, (sympy.And, sympy.Or)):
            parts = [self._answer_for_large_sizes(part) for part in expression.args]
            decisive = sympy.true if isinstance(expression, sympy.Or) else sympy.false
            return decisive if decisive in parts else None if None in parts else sympy.Not(decisive)
        if not isinstance(expression, sympy.core.relational.Relational):
            return None
        symbols = expression.free_symbols
        hints = {symbol: hints_of(self).get(symbol, DATA_HINT if symbol in self.size_like else None) for symbol in symbols}
        if not symbols or any(hint is None or int(hint) < 2 for hint in hints.values()):
            return None
        if isinstance(expression, (sympy.Eq, sympy.Ne)) and expression.rhs in (0, 1) and int(expression.lhs.xreplace(hints)) >= 2:
            return sympy.sympify(isinstance(expression, sympy.Ne))                # also for sizes of intermediate results, s0 - 1 == 1
        ranges = {symbol: self.var_to_range[symbol] for symbol in symbols}
        if all(r.lower >= 2 for r in ranges.values()) or any(r.upper < 2 for r in ranges.values()):
            return None
        # size = 2 + t, t >= 0: sympy then sees through max(1, size) == size
        beyond = {symbol: sympy.Symbol(f"{symbol.name}_beyond", integer=True, nonnegative=True) for symbol in symbols}
        large = {beyond[symbol]: ValueRanges(max(sympy.Integer(0), r.lower - 2), r.upper - 2) for symbol, r in ranges.items()}
        return _truth(expression, {symbol: beyond[symbol] + 2 for symbol in symbols}, large)


def _general_answer(relation: Any) -> Any:
    """Two sizes or strides differ, and a tensor has two elements or more; None for other relations."""
    if isinstance(relation, (sympy.Eq, sympy.Ne)):
        return sympy.sympify(isinstance(relation, sympy.Ne))
    if isinstance(relation, sympy.core.relational.Relational) and relation.rhs in (1, 2):
        return sympy.sympify(isinstance(relation, (sympy.GreaterThan, sympy.StrictGreaterThan)))
    return None


def _layout_question(frame: FrameType | None) -> str | None:
    """The name of the outermost function of torch that looks at a layout, within the operator that asks."""
    found = None
    while frame is not None and _dispatched(frame, file := frame.f_code.co_filename.replace("\\", "/")) is None:
        if frame.f_code.co_name in LAYOUT_QUESTIONS and "/torch/" in file:
            found = frame.f_code.co_name
        frame = frame.f_back
    return found


def _truth(relation: Any, replacements: dict[Any, Any], ranges: dict[Any, Any]) -> Any:
    difference = sympy.expand((relation.lhs - relation.rhs).xreplace(replacements))
    bound = bound_sympy(difference, ranges)
    lower, upper = bound.lower, bound.upper
    match relation:
        case sympy.Eq():
            return sympy.false if lower > 0 or upper < 0 else sympy.true if lower == upper == 0 else None
        case sympy.Ne():
            return sympy.true if lower > 0 or upper < 0 else sympy.false if lower == upper == 0 else None
        case sympy.StrictLessThan():
            return sympy.true if upper < 0 else sympy.false if lower >= 0 else None
        case sympy.LessThan():
            return sympy.true if upper <= 0 else sympy.false if lower > 0 else None
        case sympy.StrictGreaterThan():
            return sympy.true if lower > 0 else sympy.false if upper <= 0 else None
        case sympy.GreaterThan():
            return sympy.true if lower >= 0 else sympy.false if upper < 0 else None
    return None


def _matters(frame: FrameType | None, running: str, relation: Any) -> bool:
    """Whether the code that asks (``frame`` outward) gives another result, or an exception, for another answer."""
    if running in CHOOSES_ORDER:
        return False
    python_asks = checked = asked = False
    while frame is not None:
        code = frame.f_code
        file = code.co_filename.replace("\\", "/")
        if file.endswith(_MACHINERY):
            python_asks |= code.co_name in ("__bool__", "__int__", "__index__")
            checked |= code.co_name in ("expect_true", "_check_with", "_check", "_check_value", "_check_index", "_check_type", "expect_size")
        elif code.co_name in LAYOUT_QUESTIONS and file.endswith(("torch/_prims_common/__init__.py", "torch/_subclasses/fake_tensor.py")):
            return False
        elif not asked and not file.endswith(("shape_environment.py", "/sympy/core/cache.py")):
            asked = True
            normalizes = code.co_name in EMPTY_DEPENDENT or running in EMPTY_DEPENDENT and file.endswith("torch/fx/interpreter.py")
            if normalizes and _is_emptiness(relation):
                # The C++ part of batch_norm, which updates no statistics for an empty input; with stored statistics it is elementwise.
                return bool(frame.f_locals.get("training", frame.f_locals.get("use_input_stats", True)))
            if python_asks and (any(part in file for part in _PYTHON_BRANCHES) or not _inside_torch(file)):
                return True
        if (operator := _dispatched(frame, file)) is not None:
            if checked and operator not in CHECKED_AFTERWARDS:
                return True
            return _depends(operator, relation) or _depends(running, relation)
        frame = frame.f_back
    return checked or _depends(running, relation)


def _depends(operator: str, relation: Any) -> bool:
    if isinstance(relation, (sympy.And, sympy.Or)):
        return False                                             # contiguity, which asks about all dimensions at once
    if operator in ONE_DEPENDENT:
        return not _is_emptiness(relation)
    return operator in ORDER_DEPENDENT and not isinstance(relation, (sympy.Eq, sympy.Ne))


def _is_emptiness(relation: Any) -> bool:
    return isinstance(relation, (sympy.Eq, sympy.Ne)) and bool(relation.rhs == 0)


def _dispatched(frame: FrameType, file: str) -> str | None:
    """Base name of the operator whose fake result this frame computes."""
    if file.endswith("torch/_subclasses/fake_tensor.py") and isinstance(function := frame.f_locals.get("func"), torch._ops.OpOverload):
        return function._schema.name.partition("::")[2]
    return None


def _operator_of(frame: FrameType | None) -> str | None:
    while frame is not None:
        operator = _dispatched(frame, frame.f_code.co_filename.replace("\\", "/"))
        if operator is not None:
            return operator
        frame = frame.f_back
    return None


def _inside_torch(file: str) -> bool:
    return "/torch/" in file or file.startswith("<") or "/torchgen/" in file
