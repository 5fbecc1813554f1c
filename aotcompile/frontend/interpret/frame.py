"""Frames: one function being interpreted. The run loop, unwinding, and generators as resumable frames."""
from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any, Iterator

from aotcompile.frontend.interpret.opcodes.decode import Decoded, Position, decode
from aotcompile.frontend.capture.signals import GraphBreak, UserException, internal_error

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

NULL = type("Null", (), {"__repr__": lambda self: "<NULL>"})()


class Returned:
    """A frame's end (``finished``) or a generator's pause, with the value handed out."""

    __slots__ = ("value", "finished")

    def __init__(self, value: Any, finished: bool = True) -> None:
        self.value, self.finished = value, finished


class Frame:
    """``function`` is what is being run; ``code`` its code; ``entered_natively`` is set where C code called it, so that its caller cannot be split at
    it."""

    def __init__(self, interpreter: "Interpreter", function: types.FunctionType, code: types.CodeType, local: dict[str, Any],
                 cells: dict[str, types.CellType], caller: "Frame | None", entered_natively: bool = False) -> None:
        self.interpreter, self.function, self.code, self.caller = interpreter, function, code, caller
        self.decoded: Decoded = decode(code)
        self.index = self.current = 0
        self.stack: list[Any] = []
        self.locals, self.cells = local, cells
        self.keyword_names: tuple[str, ...] = ()
        self.handled: BaseException | None = None
        self.entered_natively = entered_natively
        self.is_generator = bool(code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))

    def can_be_split(self) -> bool:
        """Whether this frame's function can become a split function of its own: a named function that exists outside the region."""
        return not (self.is_generator or self.code.co_name.startswith("<") or id(self.function) in self.interpreter.made_functions)

    @property
    def globals(self) -> dict[str, Any]:
        return self.function.__globals__

    @property
    def position(self) -> Position:
        return self.decoded.instructions[self.current].position

    def pop(self, count: int) -> list[Any]:
        """The top ``count`` values, deepest first."""
        if not count:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def jump(self, target: int) -> None:
        self.index = target

    def delegates(self) -> bool:
        """Whether a paused frame waits at a ``yield from``; the inner iterator is on top of its stack then."""
        return self.current > 0 and self.decoded.instructions[self.current - 1].name == "SEND"

    def end_delegation(self, value: Any) -> None:
        """The ``yield from`` at which the frame is paused, or whose SEND is being executed, has the value."""
        send = self.decoded.instructions[self.current if self.decoded.instructions[self.current].name == "SEND" else self.current - 1]
        if self.interpreter.version < (3, 12):                   # END_SEND takes the inner iterator away from there on
            self.stack.pop()
        self.stack.append(value)
        self.jump(send.argument)

    def run(self) -> Returned:
        """Execute until the frame returns or yields. Raises UserException, GraphBreak or RegionRefused."""
        interpreter = self.interpreter
        outer, interpreter.frame = interpreter.frame, self
        handlers, instructions = interpreter.handlers, self.decoded.instructions
        try:
            while True:
                self.current = self.index
                instruction = instructions[self.index]
                self.index += 1
                interpreter.count_step()
                try:
                    result = handlers[instruction.name](interpreter, self, instruction.argument)
                except UserException as raised:
                    interpreter.note_raise(raised)
                    self._unwind(raised)
                    continue
                except Exception as error:
                    raise internal_error(error) from error
                if result is not None:
                    return result
        except GraphBreak as signal:
            interpreter.note_break(signal)
            raise
        finally:
            interpreter.frame = outer

    def _unwind(self, raised: UserException) -> None:
        handler = self.decoded.handlers[self.current]
        if handler is None:
            raise raised
        del self.stack[handler.depth:]
        if handler.push_last:
            self.stack.append(self.current)
        exception = raised.exception
        if exception.__context__ is None and self.handled is not None and self.handled is not exception:
            exception.__context__ = self.handled
        self.stack.append(exception)
        self.jump(handler.target)


class InterpretedGenerator(Iterator[Any]):
    """A generator of the interpreted program: a real iterator, so that native code (``list``, ``zip``, ``sum``) can drive it."""

    def __init__(self, frame: Frame) -> None:
        self._frame, self._started, self._done, self._running = frame, False, False, False

    def __iter__(self) -> "InterpretedGenerator":
        return self

    def __del__(self) -> None:
        if self._started and not self._done and not self._running:
            self._frame.interpreter.close_dropped(self)

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Resume; raises StopIteration with the generator's value at its end."""
        if self._started:
            self._frame.stack.append(value)
        self._started = True
        return self._resume(None)

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        exception = kind if isinstance(kind, BaseException) else (value if isinstance(value, BaseException) else kind())
        if not self._started:
            self._done = True
        return self._resume(exception)

    def close(self) -> None:
        if self._done or not self._started:
            self._done = True
            return
        try:
            self.throw(GeneratorExit())
        except (GeneratorExit, StopIteration):
            return
        raise RuntimeError("generator ignored GeneratorExit")

    def _resume(self, exception: BaseException | None) -> Any:
        if self._done:
            if exception is not None:
                raise exception
            raise StopIteration
        if self._running:
            raise ValueError("generator already executing")
        frame = self._frame
        frame.caller = frame.interpreter.frame
        self._running = True
        try:
            if exception is not None and frame.delegates():
                handed_on = self._throw_into_inner(exception)
                if handed_on is not None:
                    return handed_on.value
            elif exception is not None:
                frame._unwind(UserException(exception))
            result = frame.run()
        except UserException as raised:
            self._done = True
            if isinstance(raised.exception, StopIteration):
                raise RuntimeError("generator raised StopIteration") from raised.exception
            raise raised.exception      # noqa: B904 - `from` would overwrite the cause that the program gave it
        except BaseException:
            self._done = True
            raise
        finally:
            self._running = False
        if result.finished:
            self._done = True
            raise StopIteration(result.value)
        return result.value

    def _throw_into_inner(self, exception: BaseException) -> Returned | None:
        """An exception thrown in at a ``yield from`` goes to the inner iterator first: what that yields, or None where the frame goes on."""
        frame = self._frame
        plain, inner = frame.interpreter.plain, frame.stack[-1]
        try:
            if isinstance(exception, GeneratorExit):
                if hasattr(inner, "close"):
                    plain(inner.close)
            elif hasattr(inner, "throw"):
                return Returned(plain(inner.throw, exception), finished=False)
            frame._unwind(UserException(exception))
        except UserException as raised:
            if isinstance(raised.exception, StopIteration) and raised.exception is not exception:
                frame.end_delegation(raised.exception.value)
            else:
                frame._unwind(raised)
        return None
