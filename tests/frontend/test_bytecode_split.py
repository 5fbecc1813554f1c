"""Splitting in bytecode, without capture: wherever a function is cut, the rewritten function with its eager bodies does what the original does.

Every function is cut at a sample of its instructions one by one (at all of them with AOTCOMPILE_ALL_CUTS=1), and at several pairs of them; calls are
also taken as calls into split callees."""
from __future__ import annotations

import os
import random
import types
from collections.abc import Callable
from typing import Any

import bytecode_samples as samples
import pytest

from aotcompile.frontend.bytecode import BytecodeSource, BytecodeSplit, break_at, bytecode_source, split_bytecode
from aotcompile.frontend.interpret.opcodes.decode import decode
from aotcompile.frontend.types import Break
from aotcompile.runtime.twins.bytecode_twin import code_objects

FUNCTIONS = [
    samples.straight, samples.branches, samples.early, samples.loops, samples.handles, samples.reraises, samples.withs, samples.comprehensions,
    samples.shadowed, samples.restored_unbound, samples.raising_comprehensions, samples.comprehended_closures, samples.merges,
    samples.closures, samples.unpacks, samples.deletes, samples.maybe_unbound, samples.methods, samples.matches, samples.asserts, samples.make_free(7),
    lambda a, b: samples.note(a) + (samples.note(b) if a > 2 else a * b)]
INPUTS = [(3, 2), (0, 0), (1, 0), (4, 2), (5, 3), (2, 2), (8, 1)]


def outcome(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    samples.log.clear()
    try:
        result = function(*arguments, **named)
    except Exception as error:      # noqa: BLE001 - which exception it is gets compared
        result = (type(error), str(error))
    return result, list(samples.log)


def source_of(function: types.FunctionType) -> BytecodeSource:
    source = bytecode_source(function, "digest")
    assert source is not None
    return source


def rewritten(function: types.FunctionType, split: BytecodeSplit, called: list[Any]) -> types.FunctionType:
    """The function that production makes of the text, with eager bodies for stubs."""
    codes = code_objects(split.text, function.__code__)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    for region in split.regions:
        code = codes[region.name]
        assert code.co_varnames[:code.co_argcount] == region.parameters
        eager = types.FunctionType(code, function.__globals__, region.name, None, tuple(cells[name] for name in code.co_freevars))
        cells[f"_r{region.index}"] = types.CellType(eager)
    for number in split.calls:
        def call(target: Any) -> Any:
            called.append(target)
            return target
        cells[f"_call_{number}"] = types.CellType(call)
    twin = types.FunctionType(codes[""], function.__globals__, function.__name__, function.__defaults__, tuple(cells[name] for name in codes[""].co_freevars))
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


def cut(function: types.FunctionType, places: list[int], kind: str = "call") -> BytecodeSplit:
    source = source_of(function)
    breaks = [break_at(source, place, lambda span: Break(span, kind, "AOT201", "a break", "", "callee" if kind == "call_split" else None))  # type: ignore[arg-type]
              for place in places]
    return split_bytecode(source, breaks)


def check(function: types.FunctionType, split: BytecodeSplit, inputs: list[tuple[Any, ...]], expected: list[Any], called: list[Any]) -> None:
    twin = rewritten(function, split, called)
    for arguments, wanted in zip(inputs, expected):
        assert outcome(twin, *arguments) == wanted, f"{arguments}\n{split.text}"


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_every_cut_keeps_what_the_function_does(function: types.FunctionType) -> None:
    expected = [outcome(function, *arguments) for arguments in INPUTS]
    instructions = decode(function.__code__).instructions
    places = [k for k, i in enumerate(instructions) if i.name not in ("RESUME", "MAKE_CELL", "COPY_FREE_VARS", "KW_NAMES", "PRECALL")]
    chooser = random.Random(function.__name__)
    few = [sorted(chooser.sample(places, 2)) for _ in range(4)] + [sorted(chooser.sample(places, 3)) for _ in range(2)]
    if "AOTCOMPILE_ALL_CUTS" not in os.environ:
        places = chooser.sample(places, min(10, len(places)))
    regions = 0
    for chosen in [[], *([place] for place in places), *few]:
        split = cut(function, chosen)
        assert not split.eager, split.eager
        regions += len(split.regions)
        check(function, split, INPUTS, expected, [])
    assert regions > len(places) // 4


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_calls_go_through_their_site(function: types.FunctionType) -> None:
    expected = [outcome(function, *arguments) for arguments in INPUTS]
    for place, instruction in enumerate(decode(function.__code__).instructions):
        if instruction.name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX"):
            called: list[Any] = []
            split = cut(function, [place], "call_split")
            if split.calls:
                check(function, split, INPUTS, expected, called)


def test_a_call_site_gets_the_callee() -> None:
    calls = [k for k, i in enumerate(decode(samples.straight.__code__).instructions) if i.name == "CALL"]
    for place in calls:
        called: list[Any] = []
        split = cut(samples.straight, [place], "call_split")
        assert list(split.calls.values()) == ["callee"]
        rewritten(samples.straight, split, called)(3, 2)
        assert called == [samples.note]


def test_signatures() -> None:
    for places in ([], [k for k, i in enumerate(decode(samples.stars.__code__).instructions) if i.name == "CALL"][:2]):
        twin = rewritten(samples.stars, cut(samples.stars, places), [])
        for arguments, named in [((1,), {}), ((1, 2, 3), {"key": 5}), ((1, 2), {"x": 1}), ((), {}), ((1,), {"a": 2})]:
            mine, real = outcome(twin, *arguments, **named), outcome(samples.stars, *arguments, **named)
            assert mine == real


def test_super_without_arguments() -> None:
    function = samples.Child.scaled
    expected = [outcome(function, samples.Child(), 3)]
    for place, instruction in enumerate(decode(function.__code__).instructions):
        if instruction.name in ("CALL", "BINARY_OP"):
            split = cut(function, [place])
            twin = rewritten(function, split, [])
            assert outcome(twin, samples.Child(), 3) == expected[0]


def test_what_cannot_be_split_says_so() -> None:
    def sees_locals(a: int) -> Any:
        return locals(), a

    def generator(a: int) -> Any:
        yield a

    split = cut(sees_locals, [])
    assert not split.regions and split.eager[0].code == "AOT250"
    assert bytecode_source(generator, "") is None


def test_text_is_deterministic_and_of_one_python() -> None:
    place = next(k for k, i in enumerate(decode(samples.withs.__code__).instructions) if i.name == "CALL")
    text = cut(samples.withs, [place]).text
    assert text == cut(samples.withs, [place]).text
    assert " object at 0x" not in text and __file__ not in text
    wrong = text.replace('CPYTHON = "cp', 'CPYTHON = "cp9', 1)
    with pytest.raises(ValueError, match="this is cp"):
        code_objects(wrong, samples.withs.__code__)
    with pytest.raises(ValueError, match="incomplete"):
        code_objects("", samples.withs.__code__)


def test_tracebacks_have_the_users_lines() -> None:
    def fails(a: int) -> int:
        b = a + 1
        samples.note(b)
        return b // 0

    place = [k for k, i in enumerate(decode(fails.__code__).instructions) if i.name == "CALL"][0]
    twin = rewritten(fails, cut(fails, [place]), [])
    with pytest.raises(ZeroDivisionError) as caught:
        twin(1)
    assert caught.traceback[-1].lineno + 1 == fails.__code__.co_firstlineno + 3
