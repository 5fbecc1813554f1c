"""What library code does around its tensors: decorators, dict subclasses, loggers, the environment, copies, modules made on the way."""
from __future__ import annotations

import collections
import copy
import functools
import logging
import os
import re
from typing import Any, List, Optional  # noqa: UP035

import pytest
import torch
from torch import nn

import aotcompile
from aotcompile.frontend.interpret.opcodes import table

pytestmark = pytest.mark.filterwarnings("ignore")
LOG = logging.getLogger("tests.library_idioms")


def compiled(function: Any, *arguments: Any) -> Any:
    return aotcompile.compile(function, example_inputs=(arguments, {}), backend="eager")


def counts(function: Any) -> tuple[int, int, int]:
    """(hits, misses, breaks)."""
    info = aotcompile.info(function)
    regions = info.report().regions
    return sum(r.hits for r in regions), sum(r.misses for r in regions), len(info.breaks)


def equal(function: Any, made: Any, *arguments: Any) -> None:
    torch.testing.assert_close(made(*arguments), function(*arguments))


# ---- decorators ---------------------------------------------------------------------------------------------------------------------------


def noisy(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print(end="")
        return function(y) + 1
    return wrapper


@noisy
def decorated(x: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x)
    print(end="")
    return torch.cos(y) * y


def test_wrapper_and_wrapped_function_are_two() -> None:
    """`functools.wraps` gives both one name; both have a break and regions of their own."""
    x = torch.randn(5)
    made = compiled(decorated, x)
    equal(decorated, made, x)
    hits, misses, _ = counts(made)
    assert hits >= 4 and misses == 0
    names = {region.name.partition(":")[0] for region in aotcompile.info(made).report().regions}
    assert names == {"noisy.<locals>.wrapper", "decorated"}


@functools.singledispatch
def doubled(value: Any) -> Any:
    raise TypeError(type(value))


@doubled.register
def _(value: torch.Tensor) -> Any:
    return value * 2


@doubled.register(list)
@doubled.register(tuple)
def _(value: Any) -> Any:
    return [doubled(each) for each in value]


def test_single_dispatch_chooses_now_and_notices_another_implementation() -> None:
    def function(x: torch.Tensor) -> Any:
        return doubled([x, (x + 1, x)])

    x = torch.randn(3)
    made = compiled(function, x)
    equal(function, made, x)
    assert counts(made) == (1, 0, 0)
    doubled.register(nn.Module, lambda value: value)
    equal(function, made, x)
    assert counts(made) == (1, 1, 0)


class Twice:
    """A getter and a setter share one qualified name."""

    def __init__(self) -> None:
        self.kept = torch.zeros(3)

    @property
    def value(self) -> torch.Tensor:
        y = self.kept * 3
        print(end="")
        return y + 1

    @value.setter
    def value(self, x: torch.Tensor) -> None:
        y = torch.exp(x)
        print(end="")
        self.kept = y * 2


def test_two_functions_of_one_name() -> None:
    def program(holder: Twice, x: torch.Tensor) -> torch.Tensor:
        holder.value = x
        return holder.value

    x = torch.randn(3)
    made = compiled(program, Twice(), x)
    torch.testing.assert_close(made(Twice(), x), program(Twice(), x))


# ---- outside objects ----------------------------------------------------------------------------------------------------------------------


class Registry(dict):  # type: ignore[type-arg]
    def get(self, key: str) -> int:
        return super().get(key) or 3


class Settings:
    def __init__(self) -> None:
        self.width = 2

    def __getattribute__(self, name: str) -> Any:
        if name == "size":
            return super().__getattribute__("width") * 10
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> int:
        return 7


def test_methods_by_super_of_an_outside_dict() -> None:
    registry = Registry(a=5)

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * registry.get("a") + registry.get("b")

    x = torch.randn(3)
    made = compiled(program, x)
    equal(program, made, x)
    assert counts(made) == (1, 0, 0)
    registry["b"] = 9
    equal(program, made, x)
    assert counts(made)[1] == 1


class Instances(dict):  # type: ignore[type-arg]
    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)()


def test_item_past_an_own_getitem_never_misses() -> None:
    """A table of classes whose ``[key]`` makes an instance: the class is read below the table's own look-up, and another one is noticed."""
    table_of_classes = Instances(relu=torch.nn.ReLU)

    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        layer = table_of_classes["relu"]
        return layer(y) + 1

    x = torch.randn(3)
    made = compiled(program, x)
    equal(program, made, x)
    hits, misses, _ = counts(made)
    assert hits >= 1 and misses == 0
    table_of_classes["relu"] = torch.nn.Tanh
    equal(program, made, x)


def test_pattern_is_guarded_by_its_text() -> None:
    words = re.compile("a|b")

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * len(words.split("1a2b3"))

    x = torch.randn(3)
    made = compiled(program, x)
    equal(program, made, x)
    assert counts(made) == (1, 0, 0)
    words = re.compile("a")
    equal(program, made, x)


def test_getattribute_then_getattr() -> None:
    settings = Settings()

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * settings.size + settings.missing

    x = torch.randn(3)
    made = compiled(program, x)
    equal(program, made, x)
    assert counts(made) == (1, 0, 0)
    settings.width = 4
    equal(program, made, x)


def test_record_type_over_ordered_dict() -> None:
    class Output(collections.OrderedDict):  # type: ignore[type-arg]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setitem__(name, value)
            super().__setattr__(name, value)

        def total(self) -> Any:
            return sum(super().values())

    def program(x: torch.Tensor) -> torch.Tensor:
        out = Output()
        out.first = x + 1
        out.second = x * 2
        return out.total() + out["second"]

    x = torch.randn(3)
    made = compiled(program, x)
    equal(program, made, x)
    assert counts(made) == (1, 0, 0)


def test_environment_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AOT_TEST_SCALE", raising=False)

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * float(os.environ.get("AOT_TEST_SCALE", "1")) + (1 if os.getenv("AOT_TEST_SCALE") else 0)

    x = torch.randn(3)
    made = compiled(program, x)
    equal(program, made, x)
    assert counts(made) == (1, 0, 0)
    monkeypatch.setenv("AOT_TEST_SCALE", "4")
    equal(program, made, x)
    assert counts(made)[1] == 1


def test_silent_logger_is_no_break() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        LOG.debug("shape %s", x.shape)
        return x + 1

    LOG.setLevel(logging.WARNING)
    x = torch.randn(3)
    made = compiled(program, x)
    equal(program, made, x)
    assert counts(made) == (1, 0, 0)
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    LOG.addHandler(handler)
    try:
        LOG.setLevel(logging.DEBUG)
        made(x)
    finally:
        LOG.setLevel(logging.WARNING)
        LOG.removeHandler(handler)
    assert records == ["shape torch.Size([3])"]


def test_a_tensor_that_is_logged_is_read_outside() -> None:
    """At any level: the regions around the call run compiled whether it writes or not."""
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        LOG.info("mean %.2f", y.mean().item())
        return y + 1

    LOG.setLevel(logging.WARNING)
    x = torch.ones(3)
    made = compiled(program, x)
    equal(program, made, x)
    LOG.setLevel(logging.INFO)
    try:
        equal(program, made, x)
    finally:
        LOG.setLevel(logging.WARNING)
    assert counts(made)[0] == 4 and counts(made)[1] == 0
    assert [found.code for found in aotcompile.info(made).breaks][:1] == ["AOT203"]


def test_what_a_logger_knows_of_its_levels_is_no_guard() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        if LOG.isEnabledFor(logging.DEBUG):
            return x - 1
        return x + 1

    LOG.setLevel(logging.WARNING)
    x = torch.ones(3)
    made = compiled(program, x)
    LOG.manager._clear_cache()                           # as in a new process
    equal(program, made, x)
    assert counts(made) == (1, 0, 0)
    LOG.setLevel(logging.DEBUG)
    try:
        equal(program, made, x)
    finally:
        LOG.setLevel(logging.WARNING)
    assert counts(made)[1] == 1


def test_deep_copy_of_a_configuration() -> None:
    settings = type("Plain", (), {})()
    settings.scale, settings.items = 2, {"a": [1, 2]}

    def program(x: torch.Tensor) -> torch.Tensor:
        mine = copy.deepcopy(settings)
        mine.scale = 5
        mine.items["a"].append(4)
        return x * mine.scale + len(mine.items["a"]) + settings.scale

    x = torch.randn(3)
    made = compiled(program, x)
    equal(program, made, x)
    assert counts(made) == (1, 0, 0) and settings.items == {"a": [1, 2]}


def test_module_made_inside() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.GELU()
            self.loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

        def forward(self, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            return self.loss(self.inner(x), wanted)

    def program(x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return Block()(x, wanted)

    x, wanted = torch.randn(3, 4), torch.tensor([0, 1, 2])
    made = compiled(program, x, wanted)
    equal(program, made, x, wanted)
    assert counts(made)[0] == 1


def test_containers_inside_a_tuple_reach_native_code() -> None:
    def program(pair: Any) -> torch.Tensor:
        flat, _ = torch.utils._pytree.tree_flatten(pair)
        return flat[0] + flat[1]

    pair = ({1: torch.randn(3)}, torch.randn(3))
    made = compiled(program, pair)
    equal(program, made, pair)
    assert counts(made) == (1, 0, 0)


def test_container_changed_after_it_was_read_as_a_whole() -> None:
    """A loop over a dict of lists reads it as a whole; what is written to it afterwards is what later reads see."""
    def program(collected: dict[str, list[torch.Tensor]], x: torch.Tensor) -> tuple[Any, ...]:
        collected["states"].append(x + 1)
        collected["states"].append(x + 2)
        for key in collected:
            collected[key] = collected[key][:-1]
            collected[key].append(x * 3)
        collected["more"] = []
        return len(collected), "more" in collected, tuple(collected["states"])

    x = torch.randn(3)
    made = compiled(program, {"states": []}, x)
    want: dict[str, list[torch.Tensor]] = {"states": []}
    got: dict[str, list[torch.Tensor]] = {"states": []}
    torch.testing.assert_close(made(got, x), program(want, x))
    torch.testing.assert_close(got, want)
    assert counts(made) == (1, 0, 0)


def test_order_of_keys_put_twice() -> None:
    def program(table: dict[str, torch.Tensor], x: torch.Tensor) -> None:
        table["a"] = x + 1
        table["b"] = x + 2
        table["a"] = x + 3

    x = torch.randn(3)
    made = compiled(program, {}, x)
    got: dict[str, torch.Tensor] = {}
    made(got, x)
    assert list(got) == ["a", "b"]
    torch.testing.assert_close(got["a"], x + 3)


def test_part_of_a_computed_tensor_comes_into_a_region() -> None:
    """What is guarded are the strides that the part has, also where gradients are recorded."""
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        part = (x @ w).split(2, dim=-1)[1]
        print(end="")
        return part.sin() * 2

    x, w = torch.randn(3, 4), torch.randn(4, 6, requires_grad=True)
    made = compiled(program, x, w)
    made(x, w).sum().backward()
    got, w.grad = w.grad, None
    program(x, w).sum().backward()
    torch.testing.assert_close(got, w.grad)
    assert counts(made)[:2] == (2, 0)


def test_assumed_constant() -> None:
    @torch.compiler.assume_constant_result
    def number(y: torch.Tensor) -> int:
        return int(y.item())

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * number(y)

    x, y = torch.randn(3), torch.tensor(4)
    made = compiled(program, x, y)
    equal(program, made, x, y)
    assert counts(made) == (1, 0, 0)


# ---- what goes wrong ----------------------------------------------------------------------------------------------------------------------


def test_raising_statement_leaves_the_rest_compiled() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x) * 2
        if x.shape[0] == 3:
            raise ValueError("three")
        return y

    x = torch.randn(3)
    made = compiled(program, x)
    with pytest.raises(ValueError, match="three"):
        made(x)
    assert any(b.code == "AOT206" for b in aotcompile.info(made).breaks)


def test_internal_error_is_a_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of the interpreter fails no build and is no exception of the program, even inside try/except."""
    def fail(*arguments: Any) -> None:
        raise KeyError("a defect")

    monkeypatch.setitem(table.HANDLERS, "IS_OP", fail)

    def program(x: torch.Tensor, flag: object) -> torch.Tensor:
        y = torch.sin(x)
        try:
            same = flag is x
        except KeyError:
            same = True
        return torch.cos(y) + int(same)

    x = torch.randn(3)
    made = compiled(program, x, None)
    equal(program, made, x, None)
    hits, _, breaks = counts(made)
    assert hits >= 1 and breaks == 1
    assert aotcompile.info(made).breaks[0].code == "AOT299"


def annotated(parts: list[torch.Tensor]) -> torch.Tensor:
    kept = torch.jit.annotate(List[torch.Tensor], torch.jit.annotate(Optional[list[torch.Tensor]], []))     # noqa: UP006, UP045
    for part in parts:
        kept.append(part * 2)
    return torch.cat(kept)


def test_types_for_torch_jit() -> None:
    parts = [torch.randn(2), torch.randn(3)]
    made = compiled(annotated, parts)
    equal(annotated, made, parts)
    assert counts(made) == (1, 0, 0)


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(4, 5, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0].sin()


def test_recurrent_modules_are_one_region_and_notice_other_weights() -> None:
    module, x = Recurrent(), torch.randn(2, 3, 4)
    made = compiled(module, x)
    equal(module, made, x)
    assert counts(made) == (1, 0, 0)
    other = {name: torch.randn_like(parameter) for name, parameter in module.named_parameters()}
    torch.testing.assert_close(torch.func.functional_call(made, other, (x,)), torch.func.functional_call(Recurrent(), other, (x,)))
    with torch.no_grad():
        module.lstm.weight_ih_l0 = torch.nn.Parameter(torch.randn(20, 4))
    equal(module, made, x)
