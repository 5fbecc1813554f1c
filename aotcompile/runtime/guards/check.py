"""Guard records to a check: `Guards` follows access paths and compares, in the order of the records.

A check is a list of small operations over a *frame*: a list whose first slot is the dict of size symbols, then the region's arguments, then one
slot per distinct access path, so that ``self.layer1.weight`` and ``self.layer1.bias`` follow ``self.layer1`` once. An operation that returns False,
or raises, fails the guard it belongs to. The order of records is kept: a `type` guard comes before the attribute paths that rely on it.

The contract of records and paths is written in `aotcompile.ir.guards` and `aotcompile.ir.paths`; this module knows only their JSON.
"""
from __future__ import annotations

import sys
from types import CodeType
from typing import Any, Callable, Sequence

from aotcompile.runtime.guards.expressions import free_symbols
from aotcompile.runtime.guards.kinds import BUILDERS
from aotcompile.runtime.guards.names import Context, UnsupportedPlan
from aotcompile.runtime.guards.paths import step_access, step_key

Frame = list[Any]
Operation = Callable[[Frame], Any]


class Guards:
    """The guards of one variant. ``fetch``: paths whose values a successful check returns, in order.

    Raises UnsupportedPlan for an unknown kind or step; ``lazy`` (the native twin checks, this one is for messages) puts that off to the first use."""

    def __init__(self, records: Sequence[dict[str, Any]], fetch: Sequence[Any], context: Context, *, lazy: bool = False) -> None:
        self.records, self.context, self._paths = records, context, fetch
        self._built = False
        if not lazy:
            self._build()

    def _build(self) -> None:
        self._slots: dict[tuple[Any, ...], int] = {}             # (slot of the object, step) -> slot; roots: (kind, name)
        self._operations: list[Operation] = []
        self._owners: list[int] = []                             # operation -> index of its guard; len(records) for fetches
        self._defined: set[str] = set()
        self._pending: list[tuple[int, Operation]] = []          # expressions whose symbols were not all defined yet
        self._size = 1 + len(self.context.parameters)
        for index, record in enumerate(self.records):
            self._owner = index
            try:
                builder = BUILDERS[record["kind"]]
            except KeyError:
                raise UnsupportedPlan(f"guard kind {record.get('kind')!r}") from None
            builder(self, record)
        for owner, operation in self._pending:
            self._operations.append(operation)
            self._owners.append(owner)
        self._owner = len(self.records)
        self._fetch = [self.slot(path) for path in self._paths]
        self._built = True

    def add(self, operation: Operation) -> None:
        self._operations.append(operation)
        self._owners.append(self._owner)

    def add_expression(self, code: CodeType, operation: Operation) -> None:
        if free_symbols(code) <= self._defined:
            self.add(operation)
        else:
            self._pending.append((self._owner, operation))

    def slot(self, path: Sequence[Any]) -> int:
        """The frame slot of a path, with the operations that fill it."""
        root, steps = path
        slot = self._root_slot(*root)
        for step in steps:
            key = (slot, step_key(step))
            known = self._slots.get(key)
            slot = self._follow(slot, step_access(step, self.context), self._new_slot(key)) if known is None else known
        return slot

    def _root_slot(self, kind: str, name: str) -> int:
        known = self._slots.get((kind, name))
        if known is not None:
            return known
        if kind == "argument":
            if name not in self.context.parameters:
                raise UnsupportedPlan(f"argument {name!r} is no parameter of the region")
            slot = self._slots[kind, name] = 1 + self.context.parameters.index(name)
            return slot
        slot = self._new_slot((kind, name))
        self.add(self._root(kind, name, slot))
        return slot

    def _follow(self, parent: int, access: Callable[[Any], Any], slot: int) -> int:
        def follow(frame: Frame) -> None:
            frame[slot] = access(frame[parent])
        self.add(follow)
        return slot

    def _new_slot(self, key: tuple[Any, ...]) -> int:
        slot = self._slots[key] = self._size
        self._size += 1
        return slot

    def _root(self, kind: str, name: str, slot: int) -> Operation:
        if kind == "global":
            variables = self.context.globals

            def read_global(frame: Frame) -> None:
                value = variables.get(name, variables)
                if value is variables:
                    builtins = variables["__builtins__"]
                    value = (builtins if isinstance(builtins, dict) else builtins.__dict__)[name]
                frame[slot] = value
            return read_global
        if kind == "closure":
            cell = self.context.closure.get(name)
            if cell is None:
                raise UnsupportedPlan(f"free variable {name!r} is not in the region's closure")

            def read_cell(frame: Frame) -> None:
                frame[slot] = cell.cell_contents
            return read_cell
        if kind == "module":
            module = self.context.module_name(name)

            def read_module(frame: Frame) -> None:
                frame[slot] = sys.modules[module]
            return read_module
        raise UnsupportedPlan(f"path root {kind!r}")

    def check(self, arguments: tuple[Any, ...]) -> tuple[Any, ...] | int:
        """The fetched values if every guard holds, else the index of the first that does not (``len(records)`` for a fetch)."""
        if not self._built:
            self._build()
        frame: Frame = [{}, *arguments]
        if len(frame) != 1 + len(self.context.parameters):
            return 0
        frame.extend([None] * (self._size - len(frame)))
        position = -1
        try:
            for position, operation in enumerate(self._operations):
                if operation(frame) is False:
                    return self._owners[position]
        except Exception:  # noqa: BLE001  whatever a property or a mapping raises: the guard does not hold
            return self._owners[position]
        return tuple([frame[slot] for slot in self._fetch])

    def value_at(self, path: Sequence[Any], arguments: tuple[Any, ...]) -> Any:
        """The value of a path, for messages. Raises whatever following it raises."""
        fetched = Guards([], [path], self.context)
        frame: Frame = [{}, *arguments, *([None] * fetched._size)]
        for operation in fetched._operations:
            operation(frame)
        return frame[fetched._fetch[0]]

    def symbols_of(self, arguments: tuple[Any, ...]) -> dict[str, int]:
        """The size symbols as far as the check gets, for messages."""
        if not self._built:
            self._build()
        frame: Frame = [{}, *arguments, *([None] * self._size)]
        try:
            for operation in self._operations:
                operation(frame)
        except Exception:  # noqa: BLE001  as in `check`
            return dict(frame[0])
        return dict(frame[0])


def single(record: dict[str, Any], context: Any) -> Callable[..., bool]:
    """One record as ``check(value)``, for the native extension; ``check(value, arguments)`` for those that compare paths.
    ``context``: `Context` or its dict."""
    where = context if isinstance(context, Context) else Context(**context)
    if record["kind"] in ("same", "different", "distinct", "position"):
        whole = Guards([record], [], where)
        return lambda value, arguments: not isinstance(whole.check(arguments), int)
    inner = Context(("value",), where.globals, where.closure, where.package, where.import_name)
    alone = Guards([{**record, "path": None if record["path"] is None else [["argument", "value"], []]}], [], inner)
    return lambda value: not isinstance(alone.check((value,)), int)
