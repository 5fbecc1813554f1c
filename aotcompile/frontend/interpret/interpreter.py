"""The interpreter's state and its services to the opcode handlers. How each kind of access works is in `attributes`, `operations` and `calls`."""
from __future__ import annotations

import operator
import sys
import types
from typing import Any, Callable, Iterable

import torch

from aotcompile.base.span import Span
from aotcompile.frontend.interpret import attributes, calls, classes, operations
from aotcompile.frontend.interpret.frame import Frame, InterpretedGenerator
from aotcompile.frontend.interpret.special_methods import SpecialMethods
from aotcompile.frontend.interpret.opcodes import data, flow  # noqa: F401  (they register their opcodes)
from aotcompile.frontend.interpret.opcodes.table import HANDLERS
from aotcompile.frontend.library import file_label, is_library_module
from aotcompile.frontend.capture.hook_tables import HookNumber
from aotcompile.frontend.capture.identities import Identity
from aotcompile.frontend.capture.outside import DELETED, Outside
from aotcompile.frontend.capture.graph import GraphRecorder
from aotcompile.frontend.capture.signals import GraphBreak, RegionRefused, UserException, internal_error, number_needed
from aotcompile.frontend.capture.symbolic import SymbolTable
from aotcompile.frontend.torch_private import VALUE_NEEDED, FakeTensor
from aotcompile.ir.paths import Path

STEP_LIMIT = 5_000_000
DEPTH_LIMIT = 150
# C functions that do not look into the object they are given, only at its type, its identity or a named attribute (which is guarded by itself).
_LOOKS_AT_TYPE = (isinstance, issubclass, super, getattr, object.__getattribute__, object.__setattr__, object.__delattr__, id, type, callable,
                  hasattr, operator.is_, operator.is_not, __import__, object.__new__)
_STANDS_FOR = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool, HookNumber: int, Identity: int}
UNBOUND = "_unbound"          # the splitter's marker for a variable without a value; ours, so it needs no guard


class BreakPoint:
    """Where a break happened, in one frame of the call chain."""

    def __init__(self, frame: Frame) -> None:
        self.function, self.position, self.splittable = frame.function, frame.position, frame.can_be_split()
        self.instruction = frame.current          # as `decode` counts
        self.entered_natively = frame.entered_natively


class Interpreter:
    """Interprets functions for one capture. ``home`` is the region's function: its module's globals are the region's globals. ``given_cells``: ids
    of the cells whose content it gets as arguments; ``may_run``: whether this process may run the program's functions."""

    def __init__(self, home: types.FunctionType, outside: Outside, recorder: GraphRecorder, symbols: SymbolTable,
                 plain_form: Callable[..., Any], given_cells: frozenset[int] = frozenset(), may_run: bool = False) -> None:
        self.home, self.outside, self.recorder, self.symbols = home, outside, recorder, symbols
        self.plain_form, self.given_cells, self.may_run = plain_form, given_cells, may_run
        self.wants_run = False                   # more would be known if the program's functions could be run
        self.handlers = HANDLERS
        self.version = sys.version_info[:2]
        self.null_after_callable = self.version >= (3, 13)
        self.frame: Frame | None = None
        self.break_chain: list[BreakPoint] | None = None
        self.raised: tuple[BaseException | None, list[BreakPoint]] = (None, [])
        self.made_functions: dict[int, types.FunctionType] = {}
        self.remembered: dict[Any, tuple[tuple[Any, ...], Any]] = {}          # a call that remembers its results -> (its arguments, the result)
        self.modules: set[object] = set()              # names of the modules whose functions were interpreted
        self.without_path: dict[int, types.FunctionType] = {}          # functions from outside that nothing leads to
        self.tensor_originals: dict[int, tuple[torch.Tensor, Path]] = {}
        self.special_methods = SpecialMethods(self)
        self.steps = 0
        self.depth = 0
        self.active = False                      # the program is running
        self.dropped: GraphBreak | None = None   # a break in a generator that nobody holds any more
        self.compared: dict[int, tuple[Any, dict[int, Any]]] = {}          # id(dict or set) -> (it, objects compared in it)
        self.entering = False                    # the next function interpreted is called by native code
        # The user's file; line of the home's text -> user's line; the user's lines from a line on.
        self.origin: tuple[str, dict[int, int], list[str], int] | None = None

    # ---- bookkeeping ------------------------------------------------------------------------------------------------------------------------

    def count_step(self) -> None:
        if self.dropped is not None:
            raise self.dropped
        self.steps += 1
        if self.steps > STEP_LIMIT:
            raise RegionRefused("AOT212", f"more than {STEP_LIMIT:,} instructions", "Mark the long-running part with torch.compiler.disable.")

    def note_break(self, signal: GraphBreak) -> None:
        """Remember the call chain at the moment a break is first seen (innermost last)."""
        if self.break_chain is None:
            self.break_chain = signal.chain or self.call_chain()

    def note_raise(self, raised: UserException) -> None:
        """Remember the call chain at the moment an exception of the program is first seen: where it is not caught, the region breaks there."""
        if self.raised[0] is not raised.exception:
            self.raised = raised.exception, self.call_chain()

    def call_chain(self) -> list[BreakPoint]:
        """The calls being interpreted, innermost last."""
        chain: list[BreakPoint] = []
        frame = self.frame
        while frame is not None:
            chain.append(BreakPoint(frame))
            frame = frame.caller
        return chain[::-1]

    def place(self) -> tuple[str, str]:
        """The user's file:line that is being interpreted (innermost frame that is not a library's) and that line's text."""
        file, line, text = self._position()
        return (f"{file.rpartition('/')[2]}:{line}", text) if file else ("", "")

    def span(self, short: bool = False) -> Span | None:
        """The same place, with the path from the top package down, or the file's name alone."""
        file, line, _ = self._position()
        return Span(file.rpartition("/")[2] if short else file, line) if file else None

    def _position(self) -> tuple[str, int, str]:
        import linecache

        chosen = self.frame
        while chosen is not None and is_library_module(chosen.function.__module__) and chosen.caller is not None:
            chosen = chosen.caller
        if chosen is None:
            return "", 0, ""
        line = chosen.position.line
        if chosen.function is self.home and self.origin is not None:
            file, lines, text, first = self.origin
            line = lines.get(line, line)
            return file, line, text[line - first].strip() if 0 <= line - first < len(text) else ""
        filename = chosen.code.co_filename
        return file_label(filename, chosen.function.__module__), line, linecache.getline(filename, line).strip()

    # ---- calls and natives --------------------------------------------------------------------------------------------------------------------

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return calls.call(self, function, arguments, keywords)

    def native(self, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Run C code. Outside containers among the arguments become shadows."""
        return self.outside.identity(
            self.plain(function, *map(self.outside.whole, arguments), **{k: self.outside.whole(v) for k, v in keywords.items()}))

    def plain(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Run C code on just these values; its exceptions are the program's."""
        if not any(function is harmless for harmless in _LOOKS_AT_TYPE):
            self._refuse_opaque(function, (getattr(function, "__self__", None), *arguments, *keywords.values()))
            if called := self.special_methods.called_by(function, arguments, keywords):
                with self.special_methods.interpreted(called):
                    return self._run_native(function, arguments, keywords)
        return self._run_native(function, arguments, keywords)

    def _run_native(self, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        try:
            return function(*arguments, **keywords)
        except VALUE_NEEDED:
            raise number_needed(f"{getattr(function, '__name__', type(function).__name__)}()") from None
        except Exception as error:      # noqa: BLE001 - handed on as the program's own
            raise UserException(error) from None

    def _refuse_opaque(self, function: Callable[..., Any], values: Iterable[Any]) -> None:
        for value in values:
            if self.outside.is_opaque(value) or self.outside.is_derived(value):
                name = getattr(function, "__name__", type(function).__name__)
                raise GraphBreak("AOT204", f"{name}() looks into a {type(value).__module__}.{type(value).__qualname__} from outside",
                                 "Pass a plain Python number or text in.")
            if type(value) in (list, tuple):
                self._refuse_opaque(function, value)

    def run_function(self, function: types.FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Interpret a Python function's body (or make its generator)."""
        if function is not self.home:
            classes.function_path(self, function)                # that it is still where it was found, also one that only a class leads to
        local = calls.bind(self, function, arguments, keywords)
        self.modules.add(function.__globals__.get("__name__"))
        entered_natively, self.entering = self.entering, False
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        frame = Frame(self, function, function.__code__, local, cells, self.frame, entered_natively)
        if frame.is_generator:
            generator = InterpretedGenerator(frame)
            self.outside.bind(generator, "a generator leaves the region", self.call_chain(), weakly=True)
            return generator
        self.depth += 1
        if self.depth > DEPTH_LIMIT:
            self.depth = 0
            raise GraphBreak("AOT212", f"calls nested deeper than {DEPTH_LIMIT}")
        try:
            result = frame.run().value
            frame.locals.clear()                 # a generator that is held by nothing else is closed now
            return result
        finally:
            self.depth -= 1

    def callback(self, function: Any) -> Any:
        """A real callable that native code may call: it comes back into the interpreter."""
        def enter(*arguments: Any, **keywords: Any) -> Any:
            self.entering = True
            try:
                return self.call(function, arguments, keywords)
            except UserException as raised:
                raise raised.exception from None
            except Exception as error:
                raise internal_error(error) from error
            finally:
                self.entering = False

        enter.interpreted = (enter, function)  # type: ignore[attr-defined]
        return enter

    # ---- names --------------------------------------------------------------------------------------------------------------------------------

    def load_global(self, frame: Frame, name: str) -> Any:
        module = frame.globals.get("__name__", "")
        found, value = self.outside.written(frame.globals, name)
        if found and value is not DELETED:
            return value
        if name in frame.globals and not (found and value is DELETED):
            if frame.globals is self.home.__globals__:
                return self.read_global(None, name, frame.globals[name])
            if sys.modules.get(module) is not None and sys.modules[module].__dict__ is frame.globals:
                return self.read_global(module, name, frame.globals[name])
            path = self.outside.path_of(frame.function)
            return self.outside.read(frame.globals[name], path.attribute("__globals__").item(name)) if path else frame.globals[name]
        builtins = frame.globals.get("__builtins__", __builtins__)
        table = builtins if isinstance(builtins, dict) else builtins.__dict__
        if name in table:
            return table[name]
        raise UserException(NameError(f"name '{name}' is not defined"))

    def read_global(self, module: str | None, name: str, value: Any) -> Any:
        """A module's global; ``module`` None is the region's own module. Classes, operators and modules of libraries carry no guards; their
        functions only one that says whether they were replaced."""
        if module is not None and is_library_module(module):
            if isinstance(value, (type, types.ModuleType, torch._ops.OpOverloadPacket, torch._ops.OpOverload)):
                return value
            if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)) \
                    and vars(sys.modules.get(module, types)).get(name) is not value:
                return value                    # made by the module when it was asked for
        path = Path(("global", name)) if module is None else Path(("module", module)).attribute(name)
        return self.outside.read(value, path)

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        if frame.globals is not self.home.__globals__:
            raise GraphBreak("AOT208", f"global {name} of another module is assigned", kind="statement")
        module = str(frame.globals.get("__name__", ""))
        if getattr(sys.modules.get(module), "__dict__", None) is not frame.globals:
            raise GraphBreak("AOT208", f"global {name} is assigned in a namespace that is no module's", kind="statement")
        self.outside.remember(frame.globals, Path(("module", module)).attribute("__dict__"))
        self.outside.write_attribute(frame.globals, name, value)

    def delete_global(self, frame: Frame, name: str) -> None:
        raise GraphBreak("AOT208", f"global {name} is deleted", kind="statement")

    def read_cell(self, frame: Frame, name: str) -> Any:
        """A cell's content; ValueError when it is empty."""
        cell = frame.cells[name]
        found, value = self.outside.written(cell, "cell_contents")
        if found:
            if value is DELETED:
                raise ValueError
            return value
        content = cell.cell_contents
        if name in frame.code.co_freevars:
            if frame.function is self.home and name == UNBOUND:
                self.outside.remember(content, Path(("closure", name)))
                return content
            if frame.function is self.home:
                return self.outside.read(content, Path(("closure", name)))
            path = classes.function_path(self, frame.function)
            if path is not None:
                return self.outside.read(content, path.then("cell", frame.code.co_freevars.index(name)))
        return content

    def write_cell(self, frame: Frame, name: str, value: Any) -> None:
        cell = frame.cells[name]
        if name in frame.code.co_freevars:
            if frame.function is self.home:
                raise GraphBreak("AOT208", f"nonlocal {name} is assigned", kind="statement")
            path = classes.function_path(self, frame.function)
            if id(cell) in self.given_cells:
                raise GraphBreak("AOT208", f"nonlocal {name} is assigned, whose value the region was given", kind="statement")
            if path is not None:
                self.outside.remember(cell, path.attribute("__closure__").item(frame.code.co_freevars.index(name)))
                self.outside.write_attribute(cell, "cell_contents", value)
                return
        cell.cell_contents = value

    def delete_cell(self, frame: Frame, name: str) -> None:
        del frame.cells[name].cell_contents

    def import_name(self, frame: Frame, name: str, level: int, names: Any) -> Any:
        package = frame.globals.get("__package__") or ""
        absolute = name if not level else ".".join([*package.split(".")[:len(package.split(".")) - level + 1], *([name] if name else [])])
        if absolute not in sys.modules:
            raise GraphBreak("AOT210", f"import {absolute} for the first time", kind="statement")
        return self.plain(__import__, name, frame.globals, None, names, level)

    def importable(self, cls: type) -> Path | None:
        """The path of a class by its module and qualified name, if that leads to it."""
        module = sys.modules.get(cls.__module__)
        if module is None or "<locals>" in cls.__qualname__:
            return None
        value: Any = module
        for part in cls.__qualname__.split("."):
            value = getattr(value, part, None)
        if value is not cls:
            return None
        path = Path(("module", cls.__module__))
        for part in cls.__qualname__.split("."):
            path = path.attribute(part)
        return path

    def is_outside(self, owner: Any) -> bool:
        return id(owner) in self.outside.paths

    def original_tensor(self, fake: torch.Tensor) -> tuple[torch.Tensor, Path] | None:
        return self.tensor_originals.get(id(fake))

    # ---- small semantics --------------------------------------------------------------------------------------------------------------------------

    def same(self, left: Any, right: Any) -> bool:
        """``left is right``; a container and its shadow are one object, as are equal symbolic numbers and constants."""
        for side, other in ((left, right), (right, left)):
            if id(side) in self.outside.originals and self.outside.originals[id(side)][0] is other:
                return True
            if isinstance(side, torch.SymBool) and isinstance(other, (bool, torch.SymBool)):
                return self.symbols.truth(left) is self.symbols.truth(right)
        if left is not right and self.type_of(left) is self.type_of(right):
            self.note_different(left, right)
        return left is right

    def note_different(self, *values: Any) -> None:
        """A guard that objects from outside, which the program has compared by identity, are all different ones."""
        found = [self.tensor_originals.get(id(value)) or (value, self.outside.path_of(value)) for value in values]
        paths = [path for value, path in found if path is not None and not isinstance(value, (type, types.FunctionType))]
        if len(paths) > 1:
            self.outside.guard("distinct", paths[0], [path.as_json() for path in paths[1:]])

    def compare_keys(self, container: Iterable[Any], *keys: Any) -> None:
        """What a dict or set has compared when it was asked for tensors, which are hashed by identity, or for what `id` gives: they and its own are
        all different ones."""
        given = keys if keys and id(container) in self.compared else (*container, *keys)
        objects = [key.of if type(key) is Identity else key for key in given if isinstance(key, torch.Tensor) or type(key) is Identity]
        if objects:
            self.compared.setdefault(id(container), (container, {}))[1].update((id(each), each) for each in objects)

    def note_compared(self) -> None:
        """The guards for `compare_keys`, once it is known what was compared."""
        for _, compared in self.compared.values():
            self.note_different(*compared.values())

    def type_of(self, value: Any) -> type:
        if isinstance(value, FakeTensor):
            return torch.nn.Parameter if getattr(value, "_is_param", False) else torch.Tensor
        if isinstance(value, InterpretedGenerator):
            return types.GeneratorType
        return _STANDS_FOR.get(type(value), type(value))

    def handled_above(self, frame: Frame) -> BaseException:
        above = frame.caller
        while above is not None:
            if above.handled is not None:
                return above.handled
            above = above.caller
        return RuntimeError("No active exception to reraise")

    def close_dropped(self, generator: InterpretedGenerator) -> None:
        """A generator that nobody holds any more is closed at once, as by CPython; what its ``finally`` raises is ignored."""
        if not self.active:
            return
        try:
            generator.close()
        except GraphBreak as signal:
            self.dropped = signal
        except Exception:  # noqa: BLE001 - CPython prints it
            return

    def is_interpreted_generator(self, value: Any) -> bool:
        return isinstance(value, InterpretedGenerator)

    def sequence_iterator(self, value: Any) -> Any:
        """Iteration by ``__getitem__`` with 0, 1, 2, ... until IndexError."""
        index = 0
        while True:
            try:
                item = operations.get_item(self, value, index)
            except UserException as raised:
                if isinstance(raised.exception, (IndexError, StopIteration)):
                    return
                raise raised.exception from None
            yield item
            index += 1

    def native_iterator(self, value: Any) -> Any:
        """An iterator whose ``__next__`` is written in Python by the user is driven through the interpreter."""
        if operations.python_method(value, "__next__") is None or isinstance(value, InterpretedGenerator):
            return value

        def drive() -> Any:
            while True:
                found, item = operations.advance(self, value)
                if not found:
                    return
                yield item
        return drive()

    def load_special(self, owner: Any, name: str) -> Any:
        """``type(owner).name`` bound to ``owner`` (context managers)."""
        found = attributes.static_lookup(type(owner), name)
        if isinstance(found, types.FunctionType):
            return types.MethodType(found, owner)
        if not hasattr(type(owner), name):
            raise UserException(TypeError(f"'{type(owner).__name__}' object does not support the context manager protocol"))
        return self.plain(getattr, owner, name)

    load_attribute = attributes.load_attribute
    store_attribute = attributes.store_attribute
    delete_attribute = attributes.delete_attribute
    operate = operations.operate
    truth = operations.truth
    get_item = operations.get_item
    set_item = operations.set_item
    delete_item = operations.delete_item
    as_key = operations.as_key
    contains = operations.contains
    iterator = operations.iterator
    iterate = operations.iterate
    advance = operations.advance
    take = operations.take
    as_mapping = operations.as_mapping
    format = operations.format_value


