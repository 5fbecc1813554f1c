"""The epilogue: Python source that replays a region's side effects and rebuilds its result from the graph's outputs.

    log.append(y); return {"y": y, "n": 3}      ->      def epilogue(inputs, outputs, symbols, fetched):
                                                            fetched[0].append(outputs[0])
                                                            return {'y': outputs[0], 'n': 3}

Tensors that share memory with an input or with another output are not outputs of the graph: they are made again as views (`torch.as_strided`).
"""
from __future__ import annotations

import builtins
import collections
import decimal
import enum
import functools
import re
import types
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from aotcompile.frontend.capture.containers import CONTAINERS, SEQUENCES, ContainerChanges, base_of, held_items, is_derived
from aotcompile.frontend.capture.hook_tables import HookNumber
from aotcompile.frontend.capture.identities import Identity
from aotcompile.frontend.capture.operators.hidden_writes import elements_overlap
from aotcompile.frontend.capture.outside import DELETED, Outside
from aotcompile.frontend.capture.graph import GraphRecorder
from aotcompile.frontend.capture.signals import RegionRefused
from aotcompile.frontend.capture.symbolic import SYMBOLIC, Symbol, SymbolTable
from aotcompile.frontend.interpret.attributes import MODULE_TABLES, static_lookup
from aotcompile.frontend.torch_private import FakeTensor, same_size, size_hint
from aotcompile.ir.paths import Path

_LITERALS = (bool, int, str, bytes, type(None), type(Ellipsis))


class EpilogueBuilder:
    """Writes one epilogue. ``inputs`` are the graph inputs' fakes in order; afterwards `outputs` holds the fakes the graph must return."""

    def __init__(self, outside: Outside, recorder: GraphRecorder, symbols: SymbolTable, inputs: list[FakeTensor | None]) -> None:
        self._outside, self._recorder, self._symbols = outside, recorder, symbols
        self._inputs = {id(fake): index for index, fake in enumerate(inputs) if fake is not None}
        self._input_storage = {_storage(fake): (index, fake) for index, fake in enumerate(inputs) if fake is not None}
        self.grad_enabled = torch.is_grad_enabled()                        # as it was when the region was entered
        self.outputs: list[FakeTensor] = []
        self._output_storage: dict[int, tuple[int, FakeTensor]] = {}
        self.fetches: list[Path] = []
        self.imports: dict[str, str] = {}
        self._lines: list[str] = []
        self._names: dict[int, str] = {}
        self._name_count = 0
        self._kept: list[Any] = []
        self._open: set[int] = set()
        self.used_inputs: set[int] = set()
        self._class_paths: dict[int, Path] | None = None

    # ---- whole ------------------------------------------------------------------------------------------------------------------------------

    def build(self, result: Any) -> tuple[str, int | tuple[int, ...] | None]:
        """(source, plain result). Raises RegionRefused for what cannot be rebuilt."""
        mark = self._symbols.begin_operation()
        try:
            return self._build_all(result)
        finally:
            self._symbols.end_operation(mark, "")           # which outputs are contiguous: for sizes 0 and 1 it makes no difference

    def _build_all(self, result: Any) -> tuple[str, int | tuple[int, ...] | None]:
        self._claim_outputs(result)
        for handle in self._outside.made_handles:
            self.expression(handle)                            # each counts, also one that is removed again
        for _, owner, name, value in _last_writes(self._outside.effects):
            self._write_attribute(owner, name, value)
        for container, shadow, snapshot in self._outside.changed_containers():
            base = self._import(base_of(type(container))) if is_derived(container) else ""
            self._lines.extend(ContainerChanges(self.expression(container), base, self.expression).lines(shadow, snapshot))
        for container, added in self._outside.put_items():
            self._put_items(self.expression(container), container, added)
        if torch.is_grad_enabled() is not self.grad_enabled:
            self._lines.append(f"{self._import(torch._C._set_grad_enabled)}({torch.is_grad_enabled()})")
        effects = bool(self._lines)
        expression = self.expression(result)
        plain = self._plain_result(result) if not effects and not self._lines else None
        body = "\n".join(f"    {line}" for line in [*self._used_names(expression), *self._lines, f"return {expression}"])
        return f"def epilogue(inputs, outputs, symbols, fetched):\n{body}\n", plain

    def _claim_outputs(self, result: Any) -> None:
        """The result's own tensors come first, in order: a tensor whose memory another one views is the base."""
        tensors = [result] if isinstance(result, torch.Tensor) else list(result) if type(result) in (tuple, list) else []
        for tensor in tensors:
            if isinstance(tensor, FakeTensor) and tensor.layout is torch.strided and _storage(tensor) not in self._input_storage \
                    and _covers_storage(tensor) and not _lazy_bits(tensor):
                self._output(tensor)

    def _plain_result(self, result: Any) -> int | tuple[int, ...] | None:
        def index(value: Any) -> int | None:
            text = self.expression(value) if isinstance(value, FakeTensor) else ""
            found = re.fullmatch(r"outputs\[(\d+)\]", text)
            return int(found.group(1)) if found else None

        if isinstance(result, FakeTensor):
            return index(result)
        if type(result) is tuple and result:
            indices = [index(value) for value in result]
            return tuple(k for k in indices if k is not None) if None not in indices else None
        return None

    def _used_names(self, expression: str) -> list[str]:
        text = "\n".join([*self._lines, expression])
        lines = []
        for key, symbol in self._symbols.symbols.items():
            if re.search(rf"\b{re.escape(symbol.name)}\b", text):
                if symbol.kind == "item":
                    self._symbols.refuse_item_symbols({key})
                    lines.append(f"{symbol.name} = {self._holder(symbol)}.item()")
                    continue
                if symbol.kind == "data":
                    lines.append(f"{symbol.name} = {self._data_size(symbol)}")
                    continue
                source = f"symbols[{symbol.name!r}]" if symbol.kind == "size" else f"inputs[{symbol.input}]"
                if symbol.kind == "number":
                    self.used_inputs.add(symbol.input)
                lines.append(f"{symbol.name} = {source}")
        return lines

    def _data_size(self, symbol: Symbol) -> str:
        """A size that is data: of the output that has it, or, where only views of that leave the region, an output of its own."""
        assert symbol.tensor is not None
        text = self._tensor(symbol.tensor)
        if text.startswith(("outputs[", "inputs[")):
            return f"{text}.shape[{symbol.dimension}]"
        size = self._recorder.call(torch.scalar_tensor, (symbol.tensor.shape[symbol.dimension],), {"dtype": torch.int64})
        return f"{self._tensor(size)}.item()"

    def _holder(self, symbol: Symbol) -> str:
        """The output whose truth is data."""
        assert symbol.tensor is not None
        text = self._tensor(symbol.tensor)
        if not text.startswith(("outputs[", "inputs[")):       # a view, made with that size
            self._symbols.refuse_last_item()
            raise RegionRefused("AOT209", "a size that depends on values leaves the region")
        return text

    # ---- effects ----------------------------------------------------------------------------------------------------------------------------

    def _write_attribute(self, owner: Any, name: str, value: Any) -> None:
        """Python code that ran for the assignment (``__setattr__``, a property) is in the effects already, and does not run again."""
        target, deleted = self.expression(owner), value is DELETED
        text = "" if deleted else self.expression(value)
        if type(owner) is dict:                     # a module's globals
            self._lines.append(f"{target}[{name!r}] = {text}")
        elif not isinstance(owner, type) and _runs_python(type(owner), name):
            self._lines.append(f"del {target}.__dict__[{name!r}]" if deleted else f"{target}.__dict__[{name!r}] = {text}")
        elif not name.isidentifier() or _assigns_itself(type(owner), "__delattr__" if deleted else "__setattr__"):
            base = self._import(torch.nn.Module) if isinstance(owner, torch.nn.Module) else "type" if isinstance(owner, type) else "object"
            self._lines.append(f"{base}.__delattr__({target}, {name!r})" if deleted else f"{base}.__setattr__({target}, {name!r}, {text})")
        else:
            self._lines.append(f"del {target}.{name}" if deleted else f"{target}.{name} = {text}")

    def _put_items(self, target: str, container: Any, added: Any) -> None:
        if isinstance(added, dict):
            self._lines.extend(f"{target}[{self.expression(key)}] = {self.expression(value)}" for key, value in added.items())
        else:
            method = "add" if isinstance(container, set) else "append"
            self._lines.extend(f"{target}.{method}({self.expression(value)})" for value in added)

    # ---- values -----------------------------------------------------------------------------------------------------------------------------

    def expression(self, value: Any) -> str:
        """Source that gives ``value``. The same object is built once."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, SYMBOLIC):
            try:
                return self._symbols.text(value)
            except NotImplementedError:
                self._symbols.refuse_item_symbols(value.node.expr.free_symbols)
                if self._symbols.is_data(value):
                    raise RegionRefused("AOT209", "a size that depends on values leaves the region") from None
                self._symbols.fix_symbols(value.node.expr)
                value = self._symbols.fix(value)
        if type(value) in _LITERALS:
            return repr(value)
        if type(value) is float:
            return repr(value) if value == value and abs(value) != float("inf") else f"float({str(value)!r})"
        if type(value) is complex:
            return repr(value)
        known = self._names.get(id(value))
        if known is not None:
            return known
        if type(value) is Identity:
            return f"id({self.expression(value.of)})"
        if type(value) is HookNumber and value.handle is not None:
            return f"{self.expression(value.handle)}.id"
        path = self._outside.path_of(value)
        if path is not None:
            return self._named(value, self._fetch(path))
        if id(value) in self._open:
            raise RegionRefused("AOT208", "a result that contains itself")
        self._outside.refuse_to_leave(value)
        self._open.add(id(value))
        text = self._build(value)
        self._open.discard(id(value))
        if id(value) in self._names:                           # an object that was made in several lines
            return self._names[id(value)]
        if type(value) in (tuple, torch.Size, slice) or text.startswith(("torch.", "_i")) and "(" not in text:
            return text
        return self._named(value, self._named_line(text))

    def _fresh_name(self) -> str:
        self._name_count += 1
        return f"v{self._name_count - 1}"

    def _named(self, value: Any, text: str) -> str:
        self._names[id(value)] = text
        self._kept.append(value)
        return text

    def _fetch(self, path: Path) -> str:
        if path not in self.fetches:
            self.fetches.append(path)
        return f"fetched[{self.fetches.index(path)}]"

    def _items(self, values: Any) -> str:
        return ", ".join(map(self.expression, values))

    def _build(self, value: Any) -> str:
        kind = type(value)
        if kind is tuple:
            return f"({self._items(value)},)" if len(value) == 1 else f"({self._items(value)})"
        if kind is torch.Size:
            return f"{self._import(torch.Size)}([{self._items(value)}])"
        if kind is list:
            return f"[{self._items(value)}]"
        if kind is dict:
            return "{" + ", ".join(f"{self.expression(k)}: {self.expression(v)}" for k, v in value.items()) + "}"
        if kind in (set, frozenset):
            items = ", ".join(map(self.expression, sorted(value, key=repr)))
            return f"{kind.__name__}([{items}])"
        if kind in (slice, range):
            parts = (value.start, value.stop, value.step)
            return f"{kind.__name__}({self._items(parts)})"
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, enum.Enum):
            return f"{self._class(kind)}({self.expression(value.value)})" if isinstance(value, enum.Flag) else f"{self._class(kind)}[{value.name!r}]"
        if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)):
            callback, original = getattr(value, "interpreted", (None, None))          # what native code was given for a function of the program's
            return self.expression(original) if callback is value else self._import(value)
        if isinstance(value, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return f"{self._class(value.__objclass__)}.{value.__name__}"
        if isinstance(value, types.MethodType):
            if static_lookup(type(value.__self__), value.__func__.__name__) is value.__func__:
                return f"{self.expression(value.__self__)}.{value.__func__.__name__}"
            self.imports.setdefault("types", "types:")
            return f"types.MethodType({self.expression(value.__func__)}, {self.expression(value.__self__)})"
        if kind is decimal.Decimal:
            return f"{self._import(kind)}({str(value)!r})"
        if kind is functools.partial:
            keywords = "".join(f", **{{{k!r}: {self.expression(v)}}}" for k, v in value.keywords.items())
            given = "".join(f", {self.expression(a)}" for a in value.args)
            return f"{self._import(functools.partial)}({self.expression(value.func)}{given}{keywords})"
        return self._build_object(value, kind)

    def _build_object(self, value: Any, kind: type) -> str:
        """An instance made inside the region: by its built-in base's content and its attributes, without running its constructor again."""
        if isinstance(value, BaseException):
            return self._build_exception(value, kind)
        if kind is RemovableHandle:
            others = [reference() for reference in value.extra_dict_ref]
            return f"{self._import(kind)}({self.expression(value.hooks_dict_ref())}, extra_dict=[{self._items(others)}])"
        if isinstance(value, tuple):
            if hasattr(kind, "_make"):
                return f"{self._class(kind)}._make([{self._items(value)}])"
            if hasattr(value, "n_sequence_fields"):
                return f"{self._class(kind)}([{self._items(value)}])"
            raise RegionRefused("AOT208", f"a result of type {kind.__qualname__}")
        name = self._fresh_name()
        if kind is collections.defaultdict:
            self._lines.append(f"{name} = {self._class(kind)}({self.expression(value.default_factory)})")
        elif kind is collections.deque:
            self._lines.append(f"{name} = {self._class(kind)}((), {value.maxlen!r})")
        else:
            reason = _unbuildable(value, kind)
            if reason:
                raise RegionRefused("AOT208", reason)
            self._lines.append(f"{name} = {self._import(_native_base(kind))}.__new__({self._class(kind)})")
        self._named(value, name)
        if isinstance(value, collections.defaultdict) and kind is not collections.defaultdict:
            self._lines.append(f"{name}.default_factory = {self.expression(value.default_factory)}")
        elif isinstance(value, collections.deque) and kind is not collections.deque:
            self._lines.append(f"{self._import(collections.deque)}.__init__({name}, (), {value.maxlen!r})")
        if isinstance(value, dict):
            base = self._import(base_of(kind))
            for key, item in held_items(value):
                self._lines.append(f"{base}.__setitem__({name}, {self.expression(key)}, {self.expression(item)})")
        elif isinstance(value, SEQUENCES):
            self._lines.append(f"{self._import(base_of(kind))}.extend({name}, [{', '.join(self.expression(item) for _, item in held_items(value))}])")
        elif isinstance(value, set):
            self._lines.append(f"set.update({name}, [{self._items(sorted(set.__iter__(value), key=repr))}])")
        for attribute, item in _attributes(value, kind):
            self._lines.append(f"object.__setattr__({name}, {attribute!r}, {self.expression(item)})")
        return name

    def _build_exception(self, value: BaseException, kind: type) -> str:
        """``BaseException.__new__`` keeps the arguments; an ``__init__`` of its own would be given them once more."""
        if not hasattr(kind, "__weakref__"):
            return f"{self._class(kind)}({self._items(value.args)})"
        given = ", ".join([self._class(kind), *map(self.expression, value.args)])
        name = self._named(value, self._named_line(f"{self._import(_native_base(kind))}.__new__({given})"))
        self._lines.extend(f"{name}.{attribute} = {self.expression(item)}" for attribute, item in value.__dict__.items())
        if value.__cause__ is not None or value.__suppress_context__:
            self._lines.append(f"{name}.__cause__ = {self.expression(value.__cause__)}")
        return name

    def _class(self, kind: type) -> str:
        """A class: by name, or, for one made inside a function, by where it or an instance of it came from."""
        if _leads_to(kind.__module__, kind.__qualname__, kind):
            return self._import(kind)
        if self._class_paths is None:
            self._class_paths = self._outside.class_paths()
        path = self._class_paths.get(id(kind))
        return self._fetch(path) if path is not None else self._import(kind)

    def _import(self, value: Any) -> str:
        if isinstance(value, types.ModuleType):
            target = value.__name__ + ":"
        else:
            module, name = getattr(value, "__module__", None) or "builtins", getattr(value, "__qualname__", "")
            if module == "builtins" and getattr(builtins, name, None) is value:
                return name
            if "<" in name or not _leads_to(module, name, value):
                raise RegionRefused("AOT208", f"a {type(value).__name__} made inside the region ({name or value!r}) leaves it")
            target = f"{module}:{name}"
        for alias, known in self.imports.items():
            if known == target:
                return alias
        alias = f"_i{len(self.imports)}"
        self.imports[alias] = target
        return alias

    # ---- tensors ----------------------------------------------------------------------------------------------------------------------------

    def _tensor(self, fake: torch.Tensor) -> str:
        if not isinstance(fake, FakeTensor):
            raise RegionRefused("AOT211", f"a {type(fake).__name__} that the capture has not seen leaves the region")
        if id(fake) in self._inputs:
            self.used_inputs.add(self._inputs[id(fake)])
            return f"inputs[{self._inputs[id(fake)]}]"
        known = self._names.get(id(fake))
        if known is not None:
            return known
        if fake.layout is not torch.strided:
            raise RegionRefused("AOT211", f"a {fake.layout} tensor leaves the region")
        for bit in _lazy_bits(fake):
            return self._lazy_view(fake, bit)
        base = self._input_storage.get(_storage(fake))
        if base is not None:
            self.used_inputs.add(base[0])
            return self._view(fake, f"inputs[{base[0]}]", base[1])
        shared = self._output_storage.get(_storage(fake))
        if shared is not None:
            return f"outputs[{shared[0]}]" if shared[1] is fake else self._view(fake, f"outputs[{shared[0]}]", shared[1])
        if not _covers_storage(fake):
            whole = self._recorder.storage_owner(fake)
            if whole is not None:
                self._output(whole)
                return self._view(fake, f"outputs[{len(self.outputs) - 1}]", whole)
        return self._output(fake)

    def _output(self, fake: FakeTensor) -> str:
        known = self._output_storage.get(_storage(fake))
        if known is not None:
            return f"outputs[{known[0]}]" if known[1] is fake else self._tensor(fake)
        self._outside.refuse_to_leave(fake)
        self.outputs.append(fake)
        self._output_storage[_storage(fake)] = (len(self.outputs) - 1, fake)
        return f"outputs[{len(self.outputs) - 1}]"

    def _lazy_view(self, fake: FakeTensor, function: Any) -> str:
        """A view that torch reads as conjugate or negative: the memory as it is, under the same view."""
        plain = self._recorder.call(function, (fake,), {})
        source = self._tensor(plain)
        self.imports.setdefault("torch", "torch:")
        return self._named(fake, self._named_line(f"torch.{function.__name__}({source})"))

    def _view(self, fake: FakeTensor, base: str, base_fake: FakeTensor) -> str:
        if not all(map(self._symbols.is_known, (*fake.shape, *fake.stride(), fake.storage_offset()))):
            self._symbols.refuse_item_symbols(self._symbols.symbols)            # where the view begins is data: what it is made from is read outside
            raise RegionRefused("AOT209", "where a view starts, or its size, is a tensor's value")
        if fake.requires_grad and elements_overlap(base_fake):  # as_strided shares a gradient among elements that are one in memory
            raise RegionRefused("AOT205", "a view of an expanded tensor that requires grad leaves the region")
        self.imports.setdefault("torch", "torch:")
        source = f"{base}.detach()" if base_fake.requires_grad and not fake.requires_grad else base
        sizes, strides, offset = list(fake.shape), list(fake.stride()), fake.storage_offset()
        name = self._fresh_name()
        if fake.dtype.is_complex and fake.dtype.to_real() == base_fake.dtype:
            strides, offset = [stride * 2 for stride in strides], offset * 2
            real = f"torch.as_strided({source}, {self._numbers([*sizes, 2])}, {self._numbers([*strides, 1])}, " \
                   f"{base}.storage_offset() + {self._number(offset)})"
            self._lines.append(f"{name} = torch.view_as_complex({real})")
            return self._named(fake, name)
        if base_fake.dtype.is_complex and base_fake.dtype.to_real() == fake.dtype:
            source = base = self._named_line(f"torch.view_as_real({source})")
        elif fake.element_size() != base_fake.element_size():
            return self._resized_view(fake, base, base_fake, source)
        elif fake.dtype != base_fake.dtype:
            source = f"{source}.view({fake.dtype})"
        # A view made in no_grad mode requires grad like its base, but has no history.
        mode = "with torch.no_grad(): " if fake.requires_grad and fake.grad_fn is None else ""
        self._lines.append(f"{mode}{name} = torch.as_strided({source}, {self._numbers(sizes)}, {self._numbers(strides)}, "
                           f"{base}.storage_offset() + {self._number(offset)})")
        return self._named(fake, name)

    def _resized_view(self, fake: FakeTensor, base: str, base_fake: FakeTensor, source: str) -> str:
        """A view with elements of another size: of the whole memory as a vector of those."""
        if fake.requires_grad:
            raise RegionRefused("AOT205", "a view of another element size that requires grad leaves the region")
        old, new = base_fake.element_size(), fake.element_size()
        if new > old:
            self._recorder.at_storage_start.add(id(base_fake))                  # elsewhere eager may refuse
        count = f"{base}.untyped_storage().nbytes() // {max(old, new)}" + (f" * {new // old}" if new > old else "")
        memory = self._named_line(f"torch.as_strided({source}, ({count},), (1,), 0).view({fake.dtype})")
        start = f"{base}.storage_offset() * {old} // {new} + {self._number(fake.storage_offset())}"
        return self._named(fake, self._named_line(
            f"torch.as_strided({memory}, {self._numbers(list(fake.shape))}, {self._numbers(list(fake.stride()))}, {start})"))

    def _named_line(self, expression: str) -> str:
        name = self._fresh_name()
        self._lines.append(f"{name} = {expression}")
        return name

    def _numbers(self, values: list[Any]) -> str:
        return f"({''.join(self._number(v) + ', ' for v in values)})"

    def _number(self, value: Any) -> str:
        return self._symbols.text(value) if isinstance(value, SYMBOLIC) else str(int(value))


def _lazy_bits(fake: torch.Tensor) -> list[Any]:
    """The views that ``fake`` is in, beyond sizes and strides: ``conj``, ``_neg_view``; each is its own inverse."""
    return [torch.conj] * fake.is_conj() + [torch._neg_view] * fake.is_neg()  # type: ignore[list-item]


def _storage(fake: torch.Tensor) -> int:
    return int(fake.untyped_storage()._cdata)


def _covers_storage(fake: torch.Tensor) -> bool:
    """Whether the tensor is the whole of its memory, without gaps or overlap."""
    if not same_size(fake.storage_offset(), 0):
        return False
    expected: Any = 1
    for size, stride in sorted(zip(fake.shape, fake.stride()), key=lambda pair: (size_hint(pair[1]), size_hint(pair[0]))):
        if not same_size(stride, expected) and not same_size(size, 1):
            return False
        expected = expected * size
    return True


def _last_writes(effects: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The effects that are seen at the end: the last one on each attribute, unless it takes away what was not there before."""
    last = {(id(owner), name): index for index, (_, owner, name, _) in enumerate(effects)}
    return [effect for index, effect in enumerate(effects) if last[(id(effect[1]), effect[2])] == index
            and (effect[3] is not DELETED or _holds(effect[1], effect[2]))]


def _holds(owner: Any, name: str) -> bool:
    """Whether an object from outside has an attribute of its own, in its ``__dict__`` or a slot."""
    if name in getattr(owner, "__dict__", ()):
        return True
    slot = next((base.__dict__[name] for base in type(owner).__mro__ if name in base.__dict__), None)
    if not isinstance(slot, types.MemberDescriptorType):
        return isinstance(owner, torch.nn.Module) and any(name in owner.__dict__.get(table, ()) for table in MODULE_TABLES)
    try:
        slot.__get__(owner)
    except AttributeError:
        return False
    return True



def _assigns_itself(cls: type, method: str) -> bool:
    """Whether a class has Python code of its own for assignments (or deletions)."""
    found = static_lookup(cls, method)
    return isinstance(found, types.FunctionType) and found is not getattr(torch.nn.Module, method)


def _runs_python(cls: type, name: str) -> bool:
    """Whether assigning the attribute calls a property or another descriptor written in Python."""
    found = static_lookup(cls, name)
    return isinstance(found, property) or isinstance(static_lookup(type(found), "__set__"), types.FunctionType)


def _native_base(kind: type) -> type:
    """The first class of the method resolution order that is not written in Python: its ``__new__`` runs no code of the program's."""
    return next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE or base.__flags__ & _IMMUTABLE_TYPE)


_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8          # the second: of types in C that are on the heap, as deque is from CPython 3.12 on


def _leads_to(module: str, name: str, value: Any) -> bool:
    import sys

    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


def _unbuildable(value: Any, kind: type) -> str:
    """Why an instance cannot be made without its constructor, or ""."""
    if kind.__module__ == "builtins":
        return f"a {kind.__name__} leaves the region"
    for base in kind.__mro__:
        if base is object or base in CONTAINERS:
            continue
        if base.__module__ not in ("typing", "abc", "collections.abc") and not base.__flags__ & _HEAP_TYPE:
            return f"a {kind.__qualname__} leaves the region"
    return ""


def _attributes(value: Any, kind: type) -> list[tuple[str, Any]]:
    found = list(getattr(value, "__dict__", {}).items())
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in [slots] if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                found.append((slot, getattr(value, slot)))
    return found
