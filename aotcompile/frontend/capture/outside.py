"""What comes from outside a region: where each object was found, the guards that reading it made necessary, and shadow copies of what is changed.

The interpreter computes on ordinary Python objects. An object from outside is known by identity and remembers the `Path` it was first reached by.
Immutable constants have no identity worth keeping: reading one records an equality guard at once. Tensors are replaced by fake tensors (the recorder
makes them graph inputs). A container from outside is read in place as long as single items with constant keys are asked for; code that needs the
whole of it, or changes it, gets a *shadow*: a copy with tensors replaced, so that capturing never touches the user's objects. What differs between a
shadow and its original at the end is a side effect, replayed by the epilogue.
"""
from __future__ import annotations

import collections
import contextvars
import enum
import gc
import re
import functools
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import torch
from torch.utils.hooks import RemovableHandle

from aotcompile.base.span import Span
from aotcompile.frontend.library import is_library_module
from aotcompile.frontend.capture.hook_tables import HookNumber, is_hook_table
from aotcompile.frontend.capture.containers import (
    CONTAINERS,
    MAPPINGS,
    SEQUENCES,
    SETS,
    base_of,
    empty_copy,
    held_item,
    held_items,
    holds,
    is_derived,
    overrides,
)
from aotcompile.frontend.capture.signals import GraphBreak
from aotcompile.ir.guards import Guard, constant_json
from aotcompile.ir.paths import Path, is_key, key_json

_SMALLEST_ADDRESS = 1 << 20                 # no object of a running program lies below it
DELETED = type("Deleted", (), {"__repr__": lambda self: "<deleted>"})()

CONSTANT_TYPES = (
    bool, str, bytes, complex, type(None), type(Ellipsis), type(NotImplemented), torch.dtype, torch.device, torch.layout, torch.memory_format, range,
    slice,
)
_CALLABLES = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
              types.MethodWrapperType)
# Native types whose objects are guarded as what they are (by name, code digest, items), or that torch is given as they are.
_TRANSPARENT = (*CONTAINERS, dict, list, set, tuple, type, types.FunctionType, types.ModuleType, types.MethodType, *_CALLABLES,
                contextvars.ContextVar, re.Pattern, functools.partial, property, staticmethod, classmethod, enum.Enum, torch.Tensor, torch.Generator,
                BaseException, types.GenericAlias, types.MappingProxyType, types.CodeType, types.CellType, weakref.ref)


class Outside:
    """The provenance table of one capture."""

    def __init__(self, tensor: Callable[[torch.Tensor, Path], Any], number: Callable[[Any, Path], Any], digest: Callable[[types.CodeType], str],
                 place: Callable[[], Span | None]) -> None:
        self._tensor, self._number, self._digest, self._place = tensor, number, digest, place
        self.paths: dict[int, Path] = {}
        self._kept: dict[int, object] = {}
        self.guards: dict[tuple[str, Path | None, str], Guard] = {}
        self.shadows: dict[int, Any] = {}                                   # id(original) -> shadow
        self.originals: dict[int, tuple[Any, Any]] = {}                     # id(shadow) -> (original, snapshot of the shadow when made)
        self.writes: dict[int, dict[str, Any]] = {}                         # id(object) -> attribute writes seen so far
        self.effects: list[tuple[Any, ...]] = []                            # attribute writes in order
        self.pending: dict[int, Any] = {}                                   # id(container) -> items put into a container that was not read as a whole
        self.dictionaries: dict[int, Any] = {}                              # id(object.__dict__) -> object
        self._bound: dict[int, tuple[Any, str, Any, int]] = {}              # what cannot leave, why, the calls where it was made, a tensor's version

        self.made_handles: list[RemovableHandle] = []                       # handles of hooks that the region registers, in order
        self._hook_numbers: dict[Path, HookNumber] = {}

    # ---- guards -------------------------------------------------------------------------------------------------------------------------

    def guard(self, kind: str, path: Path | None, expected: Any) -> None:
        key = (kind, path, repr(expected))
        if key not in self.guards:
            self.guards[key] = Guard(kind, path, expected, self._place())

    def bind(self, value: Any, reason: str, chain: Any, *, weakly: bool = False) -> None:
        """``value``, made by the last instruction of ``chain``, is not to leave the region: nothing can make it again. Of a tensor, its memory."""
        key = _identity(value)
        kept = weakref.ref(value, lambda _: self._bound.pop(key, None)) if weakly else value          # what runs code when it is dropped
        self._bound.setdefault(key, (kept, reason, chain, _version(value)))

    def bind_iterator(self, iterator: Any, reason: str, chain: Any) -> None:
        """As `bind`; not one that iterates a generator of the program, which is bound itself, and is closed as soon as nobody holds it any more."""
        if not any(isinstance(self._bound.get(id(each), (None,))[0], weakref.ref) for each in _iterated(iterator)):
            self.bind(iterator, reason, chain)

    def refuse_to_leave(self, value: Any) -> None:
        """Raises a break at the instruction that made ``value``, or what it iterates, where that is bound."""
        for each in (value, *_iterated(value)):
            _, reason, chain, _ = self._bound.get(_identity(each), (None, "", None, 0))
            if chain is not None:
                raise GraphBreak("AOT208", reason, chain=chain)

    def refuse_changes(self) -> None:
        """Raises a break at the instruction that made a tensor which is bound and has been changed in place."""
        for value, _, _, version in self._bound.values():
            if _version(value) != version:
                self.refuse_to_leave(value)

    def path_of(self, value: object) -> Path | None:
        return self.paths.get(id(value))

    def classes(self) -> list[type]:
        """The classes from outside seen so far: themselves, or as types of objects."""
        found = {id(cls): cls for value in self._kept.values() for cls in (value if isinstance(value, type) else type(value),)}
        return list(found.values())

    def class_paths(self) -> dict[int, Path]:
        """Where each class was found: itself, or through an object of it."""
        found = {id(value): self.paths[id(value)] for value in self._kept.values() if isinstance(value, type) and id(value) in self.paths}
        for value in self._kept.values():
            if not isinstance(value, type) and id(value) in self.paths:
                found.setdefault(id(type(value)), self.paths[id(value)].then("type"))
        return found

    def is_opaque(self, value: object) -> bool:
        """Whether ``value`` is an object from outside whose content no guard can speak of: a number of numpy, a date, a compiled pattern, an
        iterator. Its type is guarded; native code that looks into it would make what it holds now a constant."""
        if type(value) in CONSTANT_TYPES or type(value) in (int, float, HookNumber):
            return False                             # guarded by value when it was read
        return id(value) in self._kept and not isinstance(value, _TRANSPARENT) \
            and _has_native_state(type(value))

    def remember(self, value: object, path: Path) -> None:
        known = self.paths.get(id(value))
        if known is None:
            self.paths[id(value)], self._kept[id(value)] = path, value
        elif known != path and not isinstance(value, (types.ModuleType, type, types.FunctionType)):
            self.guard("same", path, known.as_json())

    # ---- reading ------------------------------------------------------------------------------------------------------------------------

    def read(self, value: Any, path: Path) -> Any:
        """The stand-in for ``value``, found at ``path``; records what must hold for it to be the same next time.

        Raises GraphBreak for what has no stand-in (tensor subclasses)."""
        kind = type(value)
        if _claims_a_class(kind):
            raise GraphBreak("AOT211", f"a {kind.__qualname__} comes in, whose __class__ is computed")
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if kind is int or kind is float:
            return self._number(value, path)
        if kind in CONSTANT_TYPES or isinstance(value, (enum.Enum, torch.Size)):
            self.guard("equals", path, constant_json(value))
            return value
        if isinstance(value, tuple):
            return self._read_tuple(value, path)
        if kind is frozenset:
            self.guard("equals", path, constant_json(value))
            return value
        if id(value) in self.shadows and not is_derived(value):
            return self.shadows[id(value)]
        if isinstance(value, (types.FunctionType, types.ModuleType, type, *_CALLABLES)):
            self._read_callable(value, path)
        elif isinstance(value, types.MethodType):
            owner = self.read(value.__self__, path.attribute("__self__"))
            function = self.read(value.__func__, path.attribute("__func__"))
            return types.MethodType(function, owner)
        elif isinstance(value, contextvars.ContextVar):
            self.guard("type", path, "_contextvars:ContextVar")
        elif kind is re.Pattern:
            self.guard("equals", path.attribute("pattern"), constant_json(value.pattern))
            self.guard("equals", path.attribute("flags"), constant_json(value.flags))
        else:
            self.guard("type", path, f"{kind.__module__}:{kind.__qualname__}")
        self.remember(value, path)
        return self.shadow(value) if is_hook_table(value, path) else value

    def hook_number(self, value: int, path: Path) -> HookNumber:
        """The number of a hook from outside."""
        number = self._hook_numbers.setdefault(path, HookNumber(value))
        self.remember(number, path)
        return number

    def note_position(self, number: HookNumber, table: Any) -> None:
        """A guard on where in a table from outside a hook's number stands, which tells whether it is in it."""
        original = self.originals.get(id(table), (None, None))[0]
        path = self.paths.get(id(number))
        if not original or path is None or not is_hook_table(original, self.paths[id(original)]):
            return                              # one that the region has given out is in no such table, and its length says that it is empty
        keys = list(original)
        position = keys.index(number) if number in keys else None
        if position is None or path != self._key_path(original, position):
            self.guard("position", path, {"table": self.paths[id(original)].as_json(), "position": position})

    def _key_path(self, table: Any, position: int) -> Path:
        return self.paths[id(table)].then("keys").item(position)

    def _hook_table_shadow(self, container: Any, path: Path) -> Any:
        self.guard("length", path, {"type": "collections:OrderedDict", "length": len(container)})
        copy: Any = collections.OrderedDict()
        self._link(container, copy)
        for position, (key, value) in enumerate(container.items()):
            copy[self.hook_number(key, self._key_path(container, position))] = self.read(value, path.then("values").item(position))
        self.originals[id(copy)] = (container, copy.copy())
        return copy

    def _read_tuple(self, value: tuple[Any, ...], path: Path) -> Any:
        kind = type(value)
        self.guard("length", path, {"type": f"{kind.__module__}:{kind.__qualname__}", "length": len(value)})
        own = overrides(kind, "__getitem__")
        items = [self.read(item, path.then("own_item", "tuple", index) if own else path.item(index))
                 for index, item in enumerate(tuple.__iter__(value))]
        same = all(a is b for a, b in zip(items, tuple.__iter__(value)))
        found = value if same else tuple(items) if kind is tuple else tuple.__new__(kind, items)
        has_attributes = any("__dict__" in base.__dict__ for base in kind.__mro__)
        if found is not value and has_attributes:
            found.__dict__.update(value.__dict__)                # they are read, with guards, where the code asks for them
        if same or kind is tuple or has_attributes:
            self.remember(found, path)
        return found

    def _read_callable(self, value: Any, path: Path) -> None:
        if isinstance(value, types.FunctionType):
            if is_library_module(value.__module__):
                # Another release of the library may have other code: what is noticed is that the function was replaced.
                defined = value.__globals__.get("__name__") or value.__module__
                self.guard("function", path, {"name": f"{defined}:{value.__code__.co_qualname}", "digest": ""})
            else:
                self.guard("function", path, {"name": f"{value.__module__}:{value.__qualname__}", "digest": self._digest(value.__code__)})
        elif isinstance(value, types.ModuleType):
            return
        elif path.root[0] == "module" and is_library_module(path.root[1]) and not isinstance(value, types.BuiltinFunctionType):
            return
        else:
            self.guard("builtin", path, qualified_name(value))

    # ---- containers ---------------------------------------------------------------------------------------------------------------------

    def is_container(self, value: object) -> bool:
        """Whether ``value`` is a container from outside (a shadow or a new container is an ordinary object)."""
        return type(value) in CONTAINERS and id(value) in self.paths and id(value) not in self.originals

    def is_derived(self, value: object) -> bool:
        """Whether ``value`` comes from outside and is of a class derived from a container's. It keeps its identity; its shadow is of the base."""
        return is_derived(value) and id(value) in self.paths

    def holds_items(self, value: object) -> bool:
        return self.is_container(value) or self.is_derived(value)

    def _item_path(self, container: Any, key: Any) -> Path:
        path, base = self.paths[id(container)], base_of(type(container))
        return path.then("own_item", base.__name__, _checked(key)) if overrides(type(container), "__getitem__") else path.item(_checked(key))

    def item(self, container: Any, key: Any) -> Any:
        """``container[key]`` with a constant key: of its shadow if there is one, else that item alone is read. Raises KeyError or IndexError."""
        if id(container) in self.shadows:
            return self.shadows[id(container)][key]
        if overrides(type(container), "__contains__"):
            return self.shadow(container)[key]
        path = self.paths[id(container)]
        found, value = self._written_item(container, key)
        if found:
            if value is DELETED:
                raise KeyError(key)
            return value
        added = self.pending.get(id(container))
        if added is not None:
            if isinstance(container, MAPPINGS):
                if key in added:
                    return added[key]
            else:
                return self.shadow(container)[key]
        if isinstance(container, MAPPINGS) and not holds(container, key):
            self.guard("contains", path, {"key": _key_json(key), "present": False})
        value = held_item(container, key)
        return self.read(value, self._item_path(container, key))

    def contains(self, container: Any, key: Any) -> bool:
        if id(container) in self.shadows:
            return key in self.shadows[id(container)]
        found, value = self._written_item(container, key)
        if found:
            return value is not DELETED
        if key in self.pending.get(id(container), ()):
            return True
        if overrides(type(container), "__contains__"):
            return key in self.shadow(container)
        present = holds(container, key)
        self.guard("contains", self.paths[id(container)], {"key": _key_json(key), "present": present})
        return present

    def length(self, container: Any) -> int:
        changed = id(container) in self.pending and not isinstance(container, SEQUENCES) or self.writes.get(id(self.dictionaries.get(id(container))))
        if changed or id(container) in self.shadows or overrides(type(container), "__len__"):
            return len(self.shadow(container))
        kind = type(container)
        self.guard("length", self.paths[id(container)], {"type": f"{kind.__module__}:{kind.__qualname__}", "length": len(container)})
        return len(container) + len(self.pending.get(id(container), ()))

    def entry(self, table: Any, name: str, path: Path) -> tuple[bool, Any]:
        """(whether it is there, ``table[name]``) of a dict from outside, with what the region has put into it. Without a guard where it is not."""
        if id(table) in self.shadows:
            shadow = self.shadows[id(table)]
            return name in shadow, shadow.get(name)
        added = self.pending.get(id(table), {})
        if name in added:
            return True, added[name]
        return (True, self.read(table[name], path.item(name))) if name in table else (False, None)

    def take_back(self, container: Any, key: Any) -> None:
        """``container[key]`` is again what it was when the region began."""
        added = self.pending.get(id(container), {})
        added.pop(key, None)
        if not added:
            self.pending.pop(id(container), None)

    def take_writes(self, owner: Any, names: Iterable[str]) -> dict[str, Any]:
        """The attribute writes to these names of an object, which are no longer effects of their own."""
        writes = self.writes.get(id(owner), {})
        taken = {name: writes.pop(name) for name in names if name in writes}
        self.effects = [effect for effect in self.effects if effect[1] is not owner or effect[2] not in taken]
        return taken

    def put(self, container: Any, key: Any, value: Any) -> None:
        """``container[key] = value`` on a mapping, or an append (``key`` None) on a sequence or set, without reading the rest of it."""
        if id(container) in self.dictionaries:
            self.write_attribute(self.dictionaries[id(container)], key, value)
            return
        if isinstance(container, MAPPINGS):
            self.pending.setdefault(id(container), {})[key] = value
        else:
            self.pending.setdefault(id(container), []).append(value)
        self._kept[id(container)] = container

    def shadow(self, container: Any) -> Any:
        """A copy of an outside container with everything in it read; the same one each time."""
        if id(container) in self.shadows:
            return self.shadows[id(container)]
        path, kind, base = self.paths[id(container)], type(container), base_of(type(container))
        if is_hook_table(container, path):
            return self._hook_table_shadow(container, path)
        name = f"{kind.__module__}:{kind.__qualname__}"
        own = overrides(kind, "__iter__", *(("keys",) if issubclass(base, dict) else ("__len__", "__contains__") if base is set else ("__len__",)))
        if own:
            raise GraphBreak("AOT205", f"a {kind.__name__}, which has its own {own}(), is used as a whole")
        copy: Any = empty_copy(container)
        if isinstance(container, MAPPINGS):
            entries = held_items(container)
            for key, _ in entries:
                _refuse_address(key)
                if not _is_constant_key(key):
                    raise GraphBreak("AOT205", f"a dict with keys of type {type(key).__name__} from outside is used as a whole")
            self.guard("keys", path, {"type": name, "keys": [constant_json(key) for key, _ in entries]})
            self._link(container, copy)
            for key, value in entries:
                copy[key] = self._deep(value, self._item_path(container, key))
            for key, value in self.writes.pop(id(self.dictionaries.get(id(container))), {}).items():
                copy.pop(key, None) if value is DELETED else copy.__setitem__(key, value)
        elif isinstance(container, SETS):
            elements = set(set.__iter__(container))
            if not all(map(_is_constant_key, elements)):
                raise GraphBreak("AOT205", "a set of objects from outside is used as a whole")
            if kind is set:
                self.guard("equals", path, constant_json(frozenset(elements)) | {"type": name})
            else:
                self.guard("length", path, {"type": name, "length": len(elements)})
                for element in sorted(elements, key=repr):
                    self.guard("contains", path, {"key": _key_json(element), "present": True})
            copy |= elements
            self._link(container, copy)
        else:
            entries = held_items(container)
            self.guard("length", path, {"type": name, "length": len(entries)})
            self._link(container, copy)
            copy.extend(self._deep(value, self._item_path(container, index)) for index, value in entries)
        self.originals[id(copy)] = (container, copy.copy())
        added = self.pending.pop(id(container), None)
        if added:
            copy.extend(added) if isinstance(container, SEQUENCES) else copy.update(added)
        return copy

    def _link(self, container: Any, copy: Any) -> None:
        self.shadows[id(container)] = copy
        self._kept[id(copy)] = copy
        self.originals[id(copy)] = (container, copy.copy())
        self.paths[id(copy)] = self.paths[id(container)]

    def _deep(self, value: Any, path: Path) -> Any:
        inner = self.read(value, path)
        return self.shadow(inner) if self.is_container(inner) else inner

    def changed_containers(self) -> list[tuple[Any, Any, Any]]:
        """(container, its shadow, what the shadow was when it was made) for those whose shadow is another by now."""
        changed = []
        for key, (container, snapshot) in self.originals.items():
            shadow = self.shadows[id(container)]
            if id(shadow) == key and not _same_content(shadow, snapshot):
                changed.append((container, shadow, snapshot))
        return changed

    def changes(self) -> tuple[int, ...]:
        """A measure of what the region has changed outside so far: it differs after a change."""
        contents = (shadow.values() if isinstance(shadow, MAPPINGS) else shadow for _, shadow, _ in self.changed_containers())
        return (len(self.effects), sum(map(len, self.pending.values())), *(number for each in contents for number in (len(each), *map(id, each))))

    def distinct(self) -> list[tuple[Path, list[Path]]]:
        """Changed objects, each with those of its type that must not be the same object; only where one of the two is an argument itself."""
        changed = {id(owner): owner for _, owner, _, _ in self.effects} | {key: self._kept[key] for key in self.pending}
        changed |= {id(container): container for container, _, _ in self.changed_containers()}
        found = []
        for owner in changed.values():
            path = self.paths.get(id(owner))
            others = [other for key, value in self._kept.items() if type(value) is type(owner) and value is not owner and key not in self.originals
                      and path is not None and (other := self.paths.get(key)) is not None
                      and any(each.root[0] == "argument" and not each.steps for each in (path, other))]
            if path is not None and others:
                found.append((path, others))
        return found

    def put_items(self) -> list[tuple[Any, Any]]:
        """(container, what was put into it) for containers that have no shadow."""
        return [(self._kept[key], added) for key, added in self.pending.items()]

    def whole(self, value: Any) -> Any:
        """``value`` fit to be handed to native code: outside containers become shadows; new lists and tuples hold them already."""
        return self.shadow(value) if self.holds_items(value) else value

    def identity(self, value: Any) -> Any:
        """What the program is given for what native code gave: not the shadow of a derived container."""
        original, _ = self.originals.get(id(value), (None, None))
        return original if is_derived(original) else value

    def whole_inside(self, value: Any) -> Any:
        """As `whole`, also for what tuples, lists and dicts hold (native code may look into them): those that hold an outside container are
        copied."""
        value = self.whole(value)
        kind = type(value)
        if kind in (tuple, list):
            items = [self.whole_inside(item) for item in value]
            return value if all(a is b for a, b in zip(items, value)) else kind(items)
        if kind is dict:
            entries = {key: self.whole_inside(item) for key, item in value.items()}
            return value if all(entries[key] is value[key] for key in value) else entries
        return value

    # ---- writing ------------------------------------------------------------------------------------------------------------------------

    def write_attribute(self, owner: Any, name: str, value: Any) -> None:
        """Note ``owner.name = value`` (or deletion) on an object from outside; reads see it, the object does not."""
        shadow = self.dictionary_shadow(owner)
        if shadow is not None:
            shadow.pop(name, None) if value is DELETED else shadow.__setitem__(name, value)
            return
        self.writes.setdefault(id(owner), {})[name] = value
        self.effects.append(("attribute", owner, name, value))

    def dictionary_shadow(self, owner: Any) -> dict[str, Any] | None:
        """The shadow of ``owner.__dict__`` where the code has used it as a whole: then it is what the object's attributes are."""
        return self.shadows.get(id(getattr(owner, "__dict__", None))) if self.dictionaries else None

    def _written_item(self, container: Any, key: Any) -> tuple[bool, Any]:
        return self.written(self.dictionaries[id(container)], key) if id(container) in self.dictionaries else (False, None)

    def written(self, owner: Any, name: str) -> tuple[bool, Any]:
        found = self.writes.get(id(owner))
        return (True, found[name]) if found and name in found else (False, None)


def _iterated(value: object) -> Iterator[Any]:
    """The iterators that an iterator in C takes its items from (``zip(a, b)``), and those that these take theirs from."""
    waiting = [value] if isinstance(value, Iterator) else []
    while waiting:
        for held in gc.get_referents(waiting.pop()):
            if isinstance(held, Iterator):
                yield held
            if type(held) is tuple or isinstance(held, Iterator) and not hasattr(held, "__dict__"):
                waiting.append(held)


def _identity(value: object) -> int:
    with torch._C.DisableTorchFunction():
        return int(value.untyped_storage()._cdata) if isinstance(value, torch.Tensor) and value.layout is torch.strided else id(value)


def _version(value: object) -> int:
    with torch._C.DisableTorchFunction():
        return value._version if isinstance(value, torch.Tensor) else 0


def _same_content(shadow: Any, snapshot: Any) -> bool:
    if isinstance(shadow, MAPPINGS):
        return list(shadow) == list(snapshot) and all(shadow[key] is snapshot[key] for key in shadow)
    if isinstance(shadow, set):
        return shadow == snapshot
    return len(shadow) == len(snapshot) and all(a is b for a, b in zip(shadow, snapshot))


@functools.cache
def _claims_a_class(kind: type) -> bool:
    """Whether ``isinstance`` may be told another class than the objects' own: proxies and mocks do that."""
    return next(base for base in kind.__mro__ if "__class__" in base.__dict__) is not object


@functools.cache
def _has_native_state(kind: type) -> bool:
    """Whether objects of the type hold more than Python attributes: their memory is larger than that of the base class by more than the slots that
    a class statement adds."""
    for base in kind.__mro__[:-1]:
        parent = base.__base__ or object
        slots = sum(isinstance(value, types.MemberDescriptorType) for value in base.__dict__.values()) if "__slots__" in base.__dict__ else 0
        added = 8 * (slots + ("__dict__" in base.__dict__) + ("__weakref__" in base.__dict__))
        if base.__basicsize__ - parent.__basicsize__ > added or base.__itemsize__ != parent.__itemsize__:
            return True
    return False


def _is_constant_key(key: object) -> bool:
    return isinstance(key, (str, int, float, bool, type(None), bytes, enum.Enum, torch.dtype, torch.device)) or (
        isinstance(key, tuple) and all(map(_is_constant_key, key)))


def _refuse_address(key: object) -> None:
    """GraphBreak for the ``id()`` of an object as a key: another one in every process, and after a while another object's."""
    if type(key) is int and key > _SMALLEST_ADDRESS and any(id(each) == key for each in gc.get_objects()):
        raise GraphBreak("AOT205", "a dict with ids of objects as keys is read", "Use the objects themselves as keys, or attributes of theirs.")


def qualified_name(value: Any) -> str:
    """"module:QualName" of a class, C function or descriptor; for a bound C method, its owner's type is used."""
    owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", getattr(value, "__name__", type(value).__qualname__))
    if module is None and owner is not None:
        module = owner.__name__ if isinstance(owner, types.ModuleType) else (owner if isinstance(owner, type) else type(owner)).__module__
    return f"{module}:{name}"


def _checked(key: Any) -> Any:
    """A container's key as part of a path. GraphBreak for one that no text names, such as an instance."""
    _refuse_address(key)
    if not is_key(key):
        raise GraphBreak("AOT205", f"a dict is looked into at a key of type {type(key).__qualname__}",
                         "Use strings, numbers, classes, functions or enum members as keys.")
    return key


def _key_json(key: Any) -> dict[str, Any]:
    """The key of a ``contains`` guard."""
    named = not isinstance(_checked(key), (tuple, str, int, float, bytes, type(None))) or isinstance(key, enum.Enum)
    return key_json(key) if named else constant_json(key)
