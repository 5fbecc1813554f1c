"""Recording torch calls: a function mode that runs each call on fake tensors and writes it down as an FX node.

The interpreter decides what runs; this mode sees every torch call it makes, also those made from inside C code (``sum(tensors)``, ``sorted``), so no
tensor operation of a region can escape the graph.
"""
from __future__ import annotations

import operator
import types
from contextlib import nullcontext
from typing import Any, Callable, Iterator

import torch
import torch.fx
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from aotcompile.frontend.capture.operators.composed import composed
from aotcompile.frontend.capture.operators.hidden_writes import HiddenWrites, writes_elements_twice
from aotcompile.frontend.capture.operators.repeated import RepeatedResults, with_history
from aotcompile.frontend.capture.operators.trials import Look, outcome_of, raises
from aotcompile.frontend.capture.signals import GraphBreak, branch_on_value, internal_error, number_needed, value_needed
from aotcompile.frontend.capture.symbolic import SymbolTable, SYMBOLIC
from aotcompile.frontend.capture.operators.transforms import TransformRecorder
from aotcompile.frontend.torch_private import (
    NO_FAKE_KERNEL,
    SHAPE_NEEDS_VALUE,
    VALUE_NEEDED,
    FakeTensor,
    MAY_SHARE_MEMORY,
    FakeTensorMode,
    empty_fake,
    is_data_dependent,
    is_view_unseen,
    reads_fake_memory,
    same_size,
    size_hint,
    symbolic_dispatch,
)

_T = torch.Tensor

MOST_NUMBERS = 16             # of a tensor whose elements are read as Python numbers inside a region
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
READS_VALUE = {
    _T.item: ".item()", _T.tolist: ".tolist()", _T.numpy: ".numpy()", _T.__float__: "float()", _T.__int__: "int()", _T.__complex__: "complex()",
    _T.__index__: "an index", _T.__array__: "numpy", _T.__repr__: "repr()", _T.__format__: "formatting", torch.equal: "torch.equal",
    _T.equal: ".equal()",
    torch.allclose: "torch.allclose", _T.allclose: ".allclose()", torch.is_nonzero: "torch.is_nonzero", _T.is_nonzero: ".is_nonzero()",
    _T.__contains__: "in", _T.data_ptr: ".data_ptr()", _T.__dlpack__: "dlpack", _T.storage: ".storage()", _T.untyped_storage: ".untyped_storage()",
}
NOT_IN_GRAPH = {
    _T.is_inference: ".is_inference()", torch.is_inference: "torch.is_inference",
    _T.backward: ".backward()", torch.autograd.backward: "torch.autograd.backward", _T.register_hook: "a tensor hook",
    torch.autograd.grad: "torch.autograd.grad", _T.register_post_accumulate_grad_hook: "a tensor hook", _T.set_: ".set_()", _T.resize_: ".resize_()",
    _T.retain_grad: ".retain_grad()", _T.share_memory_: ".share_memory_()", _T.pin_memory: ".pin_memory()", torch.compile: "torch.compile",
    _T.requires_grad_: ".requires_grad_()", _T.detach_: ".detach_()", _T.t_: "a metadata mutation", _T.transpose_: "a metadata mutation",
    _T.squeeze_: "a metadata mutation", _T.unsqueeze_: "a metadata mutation", _T.swapaxes_: "a metadata mutation",
    _T.swapdims_: "a metadata mutation",
    _T.as_strided_: "a metadata mutation", _T.resize_as_: "a metadata mutation", torch.manual_seed: "torch.manual_seed", torch.seed: "torch.seed",
    torch.get_rng_state: "torch.get_rng_state", torch.set_rng_state: "torch.set_rng_state", torch.save: "torch.save", torch.load: "torch.load",
}
_TENSOR_PROPERTIES = {"T", "mT", "H", "mH", "real", "imag", "data"}
# Operators with an offset into the whole storage -> its position among the arguments.
_ABSOLUTE_OFFSET = {"as_strided": 3, "as_strided_copy": 3, "as_strided_scatter": 4}
# A Python number as an operand of these stays a number that may change from call to call; any other use fixes its value.
_ARITHMETIC = {
    "add", "sub", "mul", "div", "true_divide", "pow", "rsub", "remainder", "fmod", "floor_divide", "lt", "le", "gt", "ge", "eq", "ne", "maximum",
    "minimum", "add_", "sub_", "mul_", "div_", "pow_", "where", "clamp", "clamp_", "clamp_min", "clamp_max", "masked_fill", "fill_", "full_like",
    "addcmul", "addcdiv", "lerp",
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__rdiv__", "__div__", "__pow__", "__rpow__",
    "__mod__", "__rmod__", "__floordiv__", "__rfloordiv__", "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__iadd__", "__isub__",
    "__imul__", "__itruediv__", "__idiv__",
}


class GraphRecorder(TorchFunctionMode):
    """The graph of one capture. ``nodes`` maps fake tensors (by identity) to their FX node."""

    def __init__(self, mode: FakeTensorMode, symbols: SymbolTable, place: Callable[[], tuple[str, str]], chain: Callable[[], Any]) -> None:
        super().__init__()
        self.graph = torch.fx.Graph()
        self.fake_mode, self.symbols, self._place, self._chain = mode, symbols, place, chain
        self._nodes: dict[int, tuple[FakeTensor, torch.fx.Node]] = {}
        self._repeated = RepeatedResults(mode)
        self.operator_count = 0
        self.transforms = TransformRecorder(self)
        self._symbol_nodes: dict[str, torch.fx.Node] = {}
        self.reads_requires_grad = False
        self.inference_mode = torch.is_inference_mode_enabled()            # around the region; it is not in effect while one is captured
        self._last_placeholder: torch.fx.Node | None = None
        self._may_start_storage: set[int] = set()
        self._composing = False
        self._laid_out: set[torch.fx.Node] = set()
        self._input_storages: set[int] = set()
        self.hidden_writes = HiddenWrites(self._input_of_memory, self.node_of)
        self.at_storage_start: set[int] = set()                  # inputs (by identity) that must be at the start of their storage

    # ---- the mode -------------------------------------------------------------------------------------------------------------------------

    def __torch_function__(self, function: Any, types: Any, arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None) -> Any:
        keywords = keywords or {}
        if self.transforms.active:
            return self._in_transform(function, arguments, keywords)
        if function is _T.__bool__:
            raise branch_on_value()
        if function is _T.item:
            return self.number(arguments[0], ".item()")
        if function is _T.tolist:
            return self.numbers(arguments[0], ".tolist()")
        if function in READS_VALUE:
            raise value_needed(READS_VALUE[function])
        if function in NOT_IN_GRAPH:
            raise GraphBreak("AOT205", f"{NOT_IN_GRAPH[function]} is not part of a graph")
        if function is _T._is_view and is_view_unseen(arguments[0]):
            return True
        if function is _T.__iter__:
            return iter(torch.unbind(arguments[0], 0))
        name = getattr(function, "__name__", "")
        if name in _ABSOLUTE_OFFSET and self._starts_at(arguments[_ABSOLUTE_OFFSET[name]:], keywords):
            return self._from_storage_start(name, function, arguments, keywords)
        if name == "__get__":
            return self._property(function, arguments)
        if name == "__set__":
            raise GraphBreak("AOT208", f"an assignment to a tensor's .{_property_name(function)}", kind="statement")
        if not self._composing and (other := composed(function, arguments, keywords)) is not None:
            return self._compose(other, arguments, keywords)
        return self.call(function, arguments, keywords)

    def _compose(self, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Run ``function``, whose own calls of torch are recorded."""
        self._composing = True
        try:
            with self:
                return function(*arguments, **keywords)
        finally:
            self._composing = False

    def _in_transform(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A torch call of a transformed function (or of torch.func for it): it runs, and what it comes down to is recorded."""
        if function in READS_VALUE or function in (_T.item, _T.tolist, _T.__bool__):
            raise value_needed(READS_VALUE.get(function, f".{getattr(function, '__name__', '')}()"))
        of_functorch = function is torch.autograd.grad or function is _T.requires_grad_ and not isinstance(arguments[0], FakeTensor)
        if function in NOT_IN_GRAPH and not of_functorch:
            raise GraphBreak("AOT205", f"{NOT_IN_GRAPH[function]} is not part of a graph")
        name = getattr(function, "__name__", "")
        if name == "__set__":
            raise GraphBreak("AOT208", f"an assignment to a tensor's .{_property_name(function)}")
        if name == "__get__" and _property_name(function) in ("grad", "grad_fn", "_base", "names"):
            return self._property(function, arguments)
        if name == "__get__" and _property_name(function) == "requires_grad":
            self.reads_requires_grad = True
        return function(*arguments, **keywords)

    def below_transforms(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The operator that a call inside a transform has come down to, on plain stand-ins."""
        name = _base_name(function)
        if name in _ABSOLUTE_OFFSET and self._starts_at(arguments[_ABSOLUTE_OFFSET[name]:], keywords):
            return self._from_storage_start(name, function, arguments, keywords)
        return self.call(function, arguments, keywords)

    @staticmethod
    def _starts_at(rest: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        return (rest[0] if rest else keywords.get("storage_offset")) is not None

    def _from_storage_start(self, name: str, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """An operator that counts from the start of the storage. Of an input, the graph knows the tensor only: it must be at that start (guarded),
        and what is taken must lie within it."""
        owner = self._input_of_memory(arguments[0])
        if owner is None:
            return self.call(function, arguments, keywords)
        if id(owner) not in self._may_start_storage:
            raise GraphBreak("AOT205", f"{name}() with a storage offset, of an input that is not at the start of its storage",
                             "Leave the storage offset out.")
        try:
            result = self.call(function, arguments, keywords)
        except RuntimeError as error:
            raise GraphBreak("AOT205", f"{name}() reaches beyond the input in its storage") from error
        self.at_storage_start.add(id(owner))
        return result

    def _lay_out(self, fake: Any) -> None:
        """What counts in the memory of a result needs it laid out as eager has it; the graph's own shape rules may say otherwise (channels_last, a
        transposed operand). So the result is copied into that layout, where it is made."""
        if not isinstance(fake, FakeTensor) or self._input_of_memory(fake) is not None:
            return
        owner, node = next(((other, made) for other, made in self._nodes.values() if _same_memory(other, fake)), (fake, None))
        plain = all(type(number) is int for number in (*owner.shape, *owner.stride()))
        if node is None or node in self._laid_out or not plain or owner.storage_offset() or owner.is_conj() or owner.is_neg():
            return
        with self.graph.inserting_after(node):
            place = {"dtype": owner.dtype, "device": owner.device}
            memory = self.graph.call_function(torch.empty_strided, (tuple(owner.shape), owner.stride()), place)
        with self.graph.inserting_after(memory):
            copy = self.graph.call_method("copy_", (memory, node))
        for new in (memory, copy):
            new.meta.update({key: node.meta[key] for key in ("place", "source") if key in node.meta})
        node.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)
        self._nodes = {key: (other, copy if made is node else made) for key, (other, made) in self._nodes.items()}
        self._laid_out.add(copy)

    def _input_of_memory(self, fake: Any) -> FakeTensor | None:
        """The input that a tensor shares its memory with."""
        if not isinstance(fake, FakeTensor):
            return None
        memory = fake.untyped_storage()._cdata
        return next((other for other, node in self._nodes.values() if node.op == "placeholder" and other.untyped_storage()._cdata == memory), None)

    def _property(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        name = _property_name(function)
        if name in ("grad", "grad_fn", "_base", "names"):
            value = function(*arguments)
            if value is None and name != "grad" and not (name == "_base" and is_view_unseen(arguments[0])):
                return None
            raise GraphBreak("AOT205", f"a tensor's .{name} is read")
        if name == "requires_grad":
            self.reads_requires_grad = True
        if name in _TENSOR_PROPERTIES:
            return self._record(getattr, (arguments[0], name), {}, run=lambda: function(*arguments))
        return function(*arguments)

    # ---- recording ------------------------------------------------------------------------------------------------------------------------

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Run ``function`` on fakes and write it down."""
        if _changes_arguments(function):
            raise GraphBreak("AOT205", f"the custom operator {function} changes its arguments")
        if function is _T.__getitem__ or function is _T.__setitem__:
            return self._item(function, arguments, keywords)
        if _base_name(function) in _ABSOLUTE_OFFSET:
            self._lay_out(arguments[0])
        if function is torch.tensor and arguments and isinstance(arguments[0], SYMBOLIC):
            return self.call(torch.full, ((), arguments[0]), keywords if "dtype" in keywords else {**keywords, "dtype": _default_dtype(arguments[0])})
        if function is _T.narrow and len(arguments) == 4 and isinstance(arguments[2], FakeTensor):
            arguments = (*arguments[:2], self.number(arguments[2], "narrow()"), arguments[3])
        return self._call(function, arguments, keywords)

    def _item(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """``x[key]`` and ``x[key] = value``. Bounds of slices that are tensors become numbers; positions that are sizes or data become selects, which
        need no value."""
        tensor, key, *rest = arguments
        parts = [self._position(part) for part in key] if type(key) is tuple else [self._position(key)]
        symbolic = [place for place, part in enumerate(parts) if isinstance(part, torch.SymInt) and not self.symbols.is_number(part)]
        simple = all(part is None or part is Ellipsis or type(part) in (int, slice) or place in symbolic for place, part in enumerate(parts))
        if not symbolic or not simple:
            return self._call(function, (tensor, tuple(parts) if type(key) is tuple else parts[0], *rest), keywords)
        ellipsis = next((place for place, part in enumerate(parts) if part is Ellipsis), len(parts))
        for place in reversed(symbolic):
            before = sum(part is not None for part in parts[:place])
            dimension = before if place < ellipsis else -1 - sum(part is not None for part in parts[place + 1:])
            tensor = self._call(_T.select, (tensor, dimension, parts.pop(place)), {})
        whole = all(part is Ellipsis or part == slice(None) for part in parts)
        return tensor if whole and not rest else self._call(function, (tensor, tuple(parts) or Ellipsis, *rest), keywords)

    def _position(self, part: Any) -> Any:
        """A part of an index with 0-dim integer tensors in it as numbers, as torch takes them."""
        if isinstance(part, FakeTensor) and not part.ndim and part.dtype in _INTEGERS:
            return self.number(part, "an index")
        if type(part) is not slice or not any(isinstance(bound, FakeTensor) for bound in (part.start, part.stop, part.step)):
            return part
        return slice(*(self.number(bound, "an index") if isinstance(bound, FakeTensor) else bound for bound in (part.start, part.stop, part.step)))

    def _call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if _base_name(function) not in _ARITHMETIC:
            arguments = self.symbols.fix_numbers(arguments)
            keywords = self.symbols.fix_numbers(keywords)
        return self._record(function, arguments, keywords, lambda: function(*arguments, **keywords), may_repeat=True)

    def call_opaque(self, function: Any, arguments: tuple[Any, ...], run: Callable[..., Any]) -> Any:
        """One node for ``function``, whatever ``run`` (which does the same) calls inside."""
        return self._record(function, arguments, {}, run=lambda: run(*arguments))

    def mark(self) -> tuple[set[torch.fx.Node], int]:
        """For `forget`."""
        return set(self.graph.nodes), self.operator_count

    def forget(self, mark: tuple[set[torch.fx.Node], int]) -> None:
        """Take back what was recorded since `mark`; inputs that were found meanwhile stay."""
        known, self.operator_count = mark
        for node in reversed(list(self.graph.nodes)):
            if node not in known and node.op != "placeholder":
                self.graph.erase_node(node)
        kept = set(self.graph.nodes)
        self._nodes = {key: (fake, node) for key, (fake, node) in self._nodes.items() if node in kept}

    def numbers(self, tensor: Any, what: str) -> Any:
        """``.tolist()`` of a small tensor: symbols that stand for data. Raises a break at this instruction where there are many."""
        if not isinstance(tensor, FakeTensor) or any(isinstance(size, torch.SymInt) for size in tensor.shape) or tensor.numel() > MOST_NUMBERS:
            raise value_needed(what)
        if not tensor.ndim:
            return self.number(tensor, what)
        return [self.numbers(self.call(_T.select, (tensor, 0, position), {}), what) for position in range(tensor.shape[0])]

    def number(self, tensor: Any, what: str) -> Any:
        """``.item()`` of a tensor of ints, floats or bools with one element. Raises a break at this instruction for another."""
        single = isinstance(tensor, FakeTensor) and all(type(size) is int and size == 1 for size in tensor.shape)
        if not single or not tensor.is_floating_point() and tensor.dtype not in (*_INTEGERS, torch.bool):
            raise value_needed(what)
        result = self._record(_T.item, (tensor,), {}, run=lambda: _T.item(tensor))
        if isinstance(result, SYMBOLIC):
            self.symbols.item(result, next(iter(reversed(self.graph.nodes))), tensor, self._chain(), what)
        return result

    def _record(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], run: Callable[[], Any], may_repeat: bool = False) -> Any:
        method = _method_name(function)
        operation, target, node_arguments = ("call_function", function, arguments) if method is None else ("call_method", method, arguments)
        try:
            encoded = self.encode(node_arguments), self.encode(keywords)
        except VALUE_NEEDED:
            raise number_needed(_describe(function)) from None
        except Exception as error:
            raise internal_error(error) from error
        name = _base_name(function)
        mark = self.symbols.begin_operation(name)
        compute = self._tried(function, arguments, keywords, self._in_mode(run)) if may_repeat else self._in_mode(run)
        result = None
        written = self.hidden_writes.watch(name, arguments)
        try:
            result = self._repeated.run(function, arguments, keywords, bool(self.symbols.symbols), compute) if may_repeat else compute()
        except VALUE_NEEDED:
            raise value_needed(_describe(function)) from None
        except SHAPE_NEEDS_VALUE:
            raise GraphBreak("AOT209", f"the shape of {_describe(function)}'s result depends on values",
                             "Use a fixed-size form where there is one.") from None
        except NO_FAKE_KERNEL:
            raise GraphBreak("AOT209", f"{_describe(function)} has no shape rule (fake kernel)",
                             "Register one with torch.library.register_fake.") from None
        except Exception as error:
            if self.symbols.is_data((arguments, keywords)):     # it takes a plain number only, or the number is wrong
                raise number_needed(_describe(function)) from None
            if isinstance(error, RuntimeError) and reads_fake_memory(error):
                raise value_needed(_describe(function)) from None
            raise
        finally:
            given = () if _asks_nothing(name, arguments) else self.symbols.numbers_in([arguments, keywords])
            self.symbols.end_operation(mark, name, given, self._is_copy_of_input(name, arguments, result))
        hidden = written()
        if writes_elements_twice(name, arguments):
            raise GraphBreak("AOT205", f"{_describe(function)} writes to a tensor whose elements share memory")
        if may_repeat and self.symbols.symbols:
            self.symbols.exclude_empty(tensors_in((arguments, keywords)), lambda hints: raises(function, arguments, keywords, result, hints))
        try:
            if hidden:
                self.graph.call_function(torch._C._set_grad_enabled, (False,))
            node = self.graph.create_node(operation, target, *encoded)
            self._annotate(node)
            if hidden:
                self.graph.call_function(torch._C._set_grad_enabled, (True,))
            self.register(result, node)
        except Exception as error:
            raise internal_error(error) from error
        if any(True for _ in tensors_in(result)) or any(True for _ in tensors_in(arguments)):
            self.operator_count += 1
        return result

    def _in_mode(self, run: Callable[[], Any]) -> Callable[[], Any]:
        def compute() -> Any:
            with self.fake_mode, symbolic_dispatch() if self.symbols.symbols else nullcontext():
                return run()
        return compute

    def _tried(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], compute: Callable[[], Any]) -> Callable[[], Any]:
        """``compute``, the fake run of a call, with eager's word on whether the call is right and what its result looks like."""
        def run() -> Any:
            try:
                result = compute()
            except (*VALUE_NEEDED, *SHAPE_NEEDS_VALUE, *NO_FAKE_KERNEL):
                raise
            except Exception as error:
                outcome = None if self.transforms.active else outcome_of(function, arguments, keywords, None)
                if outcome is None:
                    raise
                if outcome.error is not None:
                    raise outcome.error from None
                message = next(iter(str(error).splitlines()), "")
                raise GraphBreak("AOT209", f"torch's shape rule for {_describe(function)} fails where the call does not: {message}") from error
            outcome = None if self.transforms.active else outcome_of(function, arguments, keywords, result)
            if outcome is None:
                return result
            if outcome.error is not None:
                raise outcome.error
            return self._as_eager(function, result, outcome.looks)
        return run

    def _as_eager(self, function: Any, result: Any, looks: tuple[Look, ...]) -> Any:
        """The fake results with the strides that eager gives. Raises a break where they are others altogether."""
        found = [tensor for tensor in tensors_in(result) if tensor.layout is torch.strided]
        if len(found) != len(looks) or any(look.dtype is not tensor.dtype or look.sizes != tuple(map(size_hint, tensor.shape))
                                           for look, tensor in zip(looks, found)):
            raise GraphBreak("AOT209", f"torch's shape rule for {_describe(function)} gives another result than the call")
        laid_out = {id(tensor): self._laid_out_as(tensor, look) for tensor, look in zip(found, looks) if _is_laid_out_otherwise(tensor, look)}
        return pytree.tree_map(lambda leaf: laid_out.get(id(leaf), leaf), result) if laid_out else result

    def _laid_out_as(self, tensor: torch.Tensor, look: Look) -> torch.Tensor:
        if not look.fresh:
            with self.fake_mode:
                return tensor.as_strided(look.sizes, look.strides, tensor.storage_offset())

        def make() -> torch.Tensor:
            fake = empty_fake(self.fake_mode, look.sizes, look.strides, look.dtype, tensor.device)
            return fake.conj() if tensor.is_conj() else fake

        return with_history(tensor, make)

    def _annotate(self, node: torch.fx.Node) -> None:
        node.meta["place"], node.meta["source"] = self._place()

    def register(self, result: Any, node: torch.fx.Node) -> None:
        """Remember which node a result's tensors come from."""
        if isinstance(result, FakeTensor):
            self._nodes.setdefault(id(result), (result, node))
            if is_data_dependent(result):
                self.symbols.data_sizes(result, node)
            self.symbols.fix_inexact(result)
        elif isinstance(result, (tuple, list)) and any(True for _ in tensors_in(result)):
            for index, item in enumerate(result):
                if any(True for _ in tensors_in(item)):
                    self.register(item, self.graph.call_function(operator.getitem, (node, index)))

    def _is_copy_of_input(self, name: str, arguments: tuple[Any, ...], result: Any) -> bool:
        """Whether an operation that gives a view where it can has given a copy of what others see: sizes of 0 and 1 may be where it can."""
        return name in MAY_SHARE_MEMORY and isinstance(result, FakeTensor) and isinstance(arguments[0], FakeTensor) \
            and arguments[0].untyped_storage()._cdata in self._input_storages and result.untyped_storage()._cdata not in self._input_storages

    def placeholder(self, name: str, fake: Any, starts_storage: bool = False) -> torch.fx.Node:
        if self._last_placeholder is None:
            with self.graph.inserting_before(next(iter(self.graph.nodes), None)):
                node = self.graph.placeholder(name)
        else:
            with self.graph.inserting_after(self._last_placeholder):
                node = self.graph.placeholder(name)
        self._last_placeholder = node
        if isinstance(fake, FakeTensor):
            self._nodes[id(fake)] = (fake, node)
            self._input_storages.add(fake.untyped_storage()._cdata)
            if starts_storage:
                self._may_start_storage.add(id(fake))
        return node

    def node_of(self, fake: FakeTensor) -> torch.fx.Node:
        found = self._nodes.get(id(fake))
        if found is None:
            raise GraphBreak("AOT205", "a tensor that the capture has not seen being made")
        return found[1]

    def storage_owner(self, fake: torch.Tensor) -> FakeTensor | None:
        """The recorded tensor that is the whole of the memory ``fake`` is a view of, if there is one."""
        wanted = fake.untyped_storage()._cdata
        for other, _ in self._nodes.values():
            if other.untyped_storage()._cdata == wanted and other.dtype == fake.dtype and not is_data_dependent(other) \
                    and not other.is_conj() and not other.is_neg() and same_size(other.storage_offset(), 0) and other.is_contiguous() \
                    and same_size(other.numel() * other.element_size(), other.untyped_storage().nbytes()):
                return other
        return None

    def has(self, fake: object) -> bool:
        return id(fake) in self._nodes

    def encode(self, value: Any) -> Any:
        """``value`` as an FX argument: tensors and symbolic numbers become nodes."""
        if isinstance(value, FakeTensor):
            return self.node_of(value)
        if isinstance(value, torch.Tensor):
            raise GraphBreak("AOT211", f"a {type(value).__name__} that is not an input")
        if isinstance(value, SYMBOLIC):
            return self.symbols.encode(value, self)
        if isinstance(value, tuple):
            items = [self.encode(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if isinstance(value, list):
            return [self.encode(item) for item in value]
        if isinstance(value, dict):
            return {key: self.encode(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(self.encode(value.start), self.encode(value.stop), self.encode(value.step))
        if isinstance(value, torch.Generator):
            raise GraphBreak("AOT205", "a random generator as an argument")
        return value


# Methods written in Python that carry another method's name: ``Tensor.__pow__.__name__`` is "pow".
_METHODS = {value: name for name, value in vars(_T).items() if isinstance(value, types.FunctionType)}


def _is_laid_out_otherwise(tensor: torch.Tensor, look: Look) -> bool:
    """Whether a result of known sizes has other strides than eager gives it: ``x.view_as(x)`` counts those of dimensions of size 1 anew."""
    plain = type(tensor) is FakeTensor and not tensor.is_neg() and (look.fresh or not tensor.is_conj())
    return plain and all(type(number) is int for number in (*tensor.shape, *tensor.stride())) and tensor.stride() != look.strides


def _same_memory(one: FakeTensor, other: FakeTensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


_OF_TORCH = ("aten", "prims", "prim")


def _asks_nothing(name: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a function of torch does the same for all numbers it is given: it counts with them, or counts up to one."""
    return name in _ARITHMETIC and "pow" not in name or name == "arange" and len(arguments) == 1


def _changes_arguments(function: Any) -> bool:
    """Whether it is an operator of the user's (`torch.library`) that writes to tensors it is given."""
    if isinstance(function, torch._ops.OpOverloadPacket):
        own = function._qualified_op_name.partition("::")[0] not in _OF_TORCH
        return own and any(_changes_arguments(getattr(function, name)) for name in function.overloads())
    return isinstance(function, torch._ops.OpOverload) and function.namespace not in _OF_TORCH and function._schema.is_mutable


def _method_name(function: Any) -> str | None:
    """The name by which ``function`` is a method of tensors."""
    if isinstance(function, torch._ops.OpOverloadPacket):
        return None
    name = getattr(function, "__name__", "")
    if getattr(_T, name, None) is function:
        return str(name)
    return _METHODS.get(function) if isinstance(function, types.FunctionType) else None


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested tuples, lists, dicts and slices."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, slice):
        yield from tensors_in((value.start, value.stop, value.step))


def _default_dtype(number: Any) -> torch.dtype:
    """What ``torch.tensor(number)`` gives."""
    return torch.get_default_dtype() if isinstance(number, torch.SymFloat) else torch.bool if isinstance(number, torch.SymBool) else torch.int64


def _base_name(function: Any) -> str:
    """"add" of ``torch.add`` and of ``torch.ops.aten.add.Tensor``."""
    return str(getattr(function, "__name__", "")).partition(".")[0]


def _property_name(function: Any) -> str:
    return str(getattr(getattr(function, "__self__", None), "__name__", ""))


def _describe(function: Any) -> str:
    name = getattr(function, "__name__", None) or str(function)
    module = getattr(function, "__module__", None) or "torch"
    return f"Tensor.{name}" if hasattr(_T, name) and getattr(_T, name, None) is function else f"{module}.{name}"
