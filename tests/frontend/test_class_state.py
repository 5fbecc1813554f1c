"""What a class from outside holds, reached through instances that are made in the region, through ``super()`` and through decorators."""
from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
import torch

import aotcompile

pytestmark = pytest.mark.filterwarnings("ignore")


def compiled(function: Any, *arguments: Any) -> Any:
    return aotcompile.compile(function, example_inputs=(arguments, {}), backend="eager")


def hits(function: Any) -> int:
    return sum(region.hits for region in aotcompile.info(function).report().regions)


@pytest.mark.parametrize("kind", ["item", "append"])
def test_method_of_a_local_class_changes_what_its_closure_holds(kind: str) -> None:
    state: Any = {"n": 0} if kind == "item" else []

    def f(x: torch.Tensor) -> torch.Tensor:
        class Helper:
            def touch(self) -> None:
                if kind == "item":
                    state["n"] += 1
                else:
                    state.append(tuple(x.shape))

        helper = Helper()
        helper.touch()
        helper.touch()
        return x + 1

    made = compiled(f, torch.ones(2))
    for calls in (1, 2):
        torch.testing.assert_close(made(torch.ones(2)), torch.full((2,), 2.0))
        assert state == ({"n": 2 * calls} if kind == "item" else [(2,)] * 2 * calls)
    assert hits(made)


def test_method_of_a_local_class_assigns_a_nonlocal() -> None:
    count = 0

    def f(x: torch.Tensor) -> torch.Tensor:
        class Helper:
            def touch(self) -> None:
                nonlocal count
                count += 1

        Helper().touch()
        return x + count

    made = compiled(f, torch.ones(2))
    for calls in (1, 2):
        torch.testing.assert_close(made(torch.ones(2)), torch.ones(2) + calls)
        assert count == calls


def counted(function: Any) -> Any:
    calls = 0
    seen: list[int] = []

    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        seen.append(calls)
        return function(*arguments)

    wrapper.seen = seen                                      # type: ignore[attr-defined]
    return wrapper


def noted(function: Any) -> Any:
    seen: list[int] = []

    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        seen.append(len(seen))
        return function(*arguments)

    wrapper.seen = seen                                      # type: ignore[attr-defined]
    return wrapper


class Base:
    made: list[str] = []
    factor = 2

    @noted
    def apply(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor

    @counted
    def count(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def remember(self, x: torch.Tensor, seen: list[int] = []) -> int:            # noqa: B006 - a default that is shared is what is tested
        seen.append(len(seen))
        return len(seen)

    @property
    @noted
    def doubled(self) -> int:
        return self.factor * 2


class Derived(Base):
    def __init__(self) -> None:
        self.made.append(type(self).__name__)

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        super().made.append("super")
        return super().apply(x) + super().count(x) + self.remember(x) + self.doubled


def through_new_instance(x: torch.Tensor) -> torch.Tensor:
    return Derived().apply(x)


def test_class_state_is_changed_at_every_call() -> None:
    x = torch.ones(2)

    def state() -> list[Any]:
        doubled = Base.__dict__["doubled"].fget
        return [list(Base.made), list(Base.apply.seen), list(Base.count.seen), list(Base.remember.__defaults__[0]), list(doubled.seen)]

    def cleared() -> None:
        for each in (Base.made, Base.apply.seen, Base.remember.__defaults__[0], Base.__dict__["doubled"].fget.seen):
            each.clear()

    cleared()
    want = [through_new_instance(x), through_new_instance(x)]
    wanted = state()
    cleared()
    before = len(Base.count.seen)
    made = compiled(through_new_instance, x)
    assert [len(each) for each in state()] == [0, 0, before, 0, 0]                # building changes nothing
    got = [made(x), made(x)]
    torch.testing.assert_close(got, want)
    found = state()
    assert [found[k] for k in (0, 1, 3, 4)] == [wanted[k] for k in (0, 1, 3, 4)]
    assert len(found[2]) == before + 2


def test_class_attribute_of_a_new_instance_is_guarded() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return Plain().apply(x)

    made = compiled(f, torch.ones(2))
    torch.testing.assert_close(made(torch.ones(2)), torch.ones(2) * 3)
    Plain.factor = 5
    try:
        torch.testing.assert_close(made(torch.ones(2)), torch.ones(2) * 5)
    finally:
        del Plain.factor


class Parent:
    factor = 3


class Plain(Parent):
    def apply(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


asked: list[int] = []


@functools.cache
def table(count: int) -> tuple[int, ...]:
    asked.append(count)
    return tuple(range(count))


def test_a_cached_function_has_its_effects_once() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + len(table(3)) + len(table(3))

    made = compiled(f, torch.ones(2))
    table.cache_clear()
    asked.clear()
    for _ in range(2):
        torch.testing.assert_close(made(torch.ones(2)), torch.full((2,), 8.0))
    assert asked == [3]


def test_a_counter_in_a_dict_is_data() -> None:
    state = {"step": 0}

    def f(x: torch.Tensor) -> torch.Tensor:
        state["step"] += 1
        return x * state["step"]

    made = compiled(f, torch.ones(2))
    for step in (1, 2, 3):
        torch.testing.assert_close(made(torch.ones(2)), torch.full((2,), float(step)))
    assert hits(made) == 3


class Pretender:
    scale = 2.0

    @property
    def __class__(self) -> Any:                                          # type: ignore[override]
        return torch.Tensor


def test_an_object_that_claims_another_class() -> None:
    pretender = Pretender()

    def f(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        y = x.sin() + 1
        return y * pretender.scale, isinstance(pretender, torch.Tensor)

    made = compiled(f, torch.ones(2))
    result, answer = made(torch.ones(2))
    torch.testing.assert_close(result, f(torch.ones(2))[0])
    assert answer


class Careful:
    """Assignments are noted, deletions too; ``limit`` is a property with a setter that clamps."""

    def __init__(self) -> None:
        self.__dict__["log"] = []
        self.__dict__["_limit"] = 0
        self.__dict__["limit"] = "hidden by the property"

    def __setattr__(self, name: str, value: Any) -> None:
        self.log.append((name, value))
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self.log.append(name)
        object.__delattr__(self, name)

    @property
    def limit(self) -> int:
        return int(self._limit)

    @limit.setter
    def limit(self, value: int) -> None:
        self._limit = min(value, 10)


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float = 1.0


def test_python_code_of_an_assignment_runs_once() -> None:
    def change(owner: Careful, frozen: Frozen, x: torch.Tensor) -> torch.Tensor:
        owner.a = 1
        owner.b = 2
        del owner.a
        owner.a = 3
        owner.limit = 20
        owner.__dict__["limit"] = "still hidden"
        setattr(owner, "no name", 4)
        object.__setattr__(frozen, "scale", 2.0)
        return x * frozen.scale + owner.limit

    want, want_frozen = Careful(), Frozen()
    result = change(want, want_frozen, torch.ones(2))
    got, got_frozen = Careful(), Frozen()
    made = compiled(change, Careful(), Frozen(), torch.ones(2))
    torch.testing.assert_close(made(got, got_frozen, torch.ones(2)), result)
    assert (vars(got), got_frozen.scale) == (vars(want), want_frozen.scale)
    assert hits(made) == 1


class Private:
    __factor = 2.0

    def __init__(self) -> None:
        self.__calls = 0

    @property
    def __noisy(self) -> float:
        print(end="")
        return self.__factor

    def __apply(self, x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return x.cos() * self.__factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        __local = x.sin()
        print(end="")
        self.__calls += 1
        x = self.__apply(__local + self.__noisy)
        return (lambda y, factor=self.__factor: y * factor)(x) + dict(__calls=1)["__calls"]


def test_private_names_in_a_function_with_breaks() -> None:
    want = Private().forward(torch.ones(2))
    owner = Private()
    made = compiled(owner.forward, torch.ones(2))
    torch.testing.assert_close(made(torch.ones(2)), want)
    assert vars(owner) == {"_Private__calls": 1}
    assert {"Private.forward:r0", "Private.forward:r1", "Private.__apply:r0"} <= {
        region.name for region in aotcompile.info(made).report().regions if region.hits}


class Parent(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print("parent")
        return y + 1


class Child(Parent):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 3
        return super().forward(y) * 2


def test_a_break_in_the_method_of_the_base_class(capsys: pytest.CaptureFixture[str]) -> None:
    made = aotcompile.compile(Child(), example_inputs=((torch.ones(2),), {}), backend="eager")
    assert made(torch.ones(2)).tolist() == [18.0, 18.0]
    assert len(hits := [region.hits for region in aotcompile.info(made).report().regions]) == 4 and set(hits) == {1}


class Valued:
    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def get(self) -> torch.Tensor:
        return self.value


class Doubling(Valued):
    def get(self) -> torch.Tensor:
        return self.value * 2


def changes_a_class(x: torch.Tensor, found: Any) -> Any:
    y = x.sin()
    found.__class__ = Doubling
    return y * found.get(), type(found) is Doubling


def test_the_class_of_an_object_is_changed() -> None:
    made = aotcompile.compile(changes_a_class, example_inputs=((torch.ones(2), Valued(torch.ones(2))), {}), backend="eager")
    for _ in range(2):
        found = Valued(torch.ones(2))
        torch.testing.assert_close(made(torch.ones(2), found), changes_a_class(torch.ones(2), Valued(torch.ones(2))))
        assert type(found) is Doubling


REPLACED = {
    "property": ("value", property(lambda self: 2), property(lambda self: 5), lambda x, a, cls: x * a.value),
    "static": ("value", staticmethod(lambda: 2), staticmethod(lambda: 5), lambda x, a, cls: x * cls.value()),
    "class_method": ("value", classmethod(lambda cls: 2), classmethod(lambda cls: 5), lambda x, a, cls: x * cls.value()),
    "len": ("__len__", lambda self: 2, lambda self: 5, lambda x, a, cls: x * len(a)),
    "add": ("__add__", lambda self, x: x + 2, lambda self, x: x + 5, lambda x, a, cls: a + x),
    "iter": ("__iter__", lambda self: iter([2]), lambda self: iter([5]), lambda x, a, cls: x * sum(a)),
    "getattr": ("__getattr__", lambda self, name: 2, lambda self, name: 5, lambda x, a, cls: x * a.nothing),
    "new": ("__init__", lambda self: setattr(self, "n", 2), lambda self: setattr(self, "n", 5), lambda x, a, cls: x * cls().n),
    "less": ("__lt__", lambda self, other: True, lambda self, other: False, lambda x, a, cls: x * (sorted([a, a.other])[0] is a)),
    "made": ("get", lambda self: 2, lambda self: 5, lambda x, a, cls: x * cls().get()),
    "base": ("get", lambda self: 2, lambda self: 5, lambda x, a, cls: x * a.child.get()),
}


@pytest.mark.parametrize("kind", REPLACED)
def test_a_method_that_is_replaced_on_its_class(kind: str) -> None:
    name, before, after, use = REPLACED[kind]

    class Changing:
        pass

    class Child(Changing):
        def get(self) -> Any:
            return super().get() + 1  # type: ignore[misc]

    setattr(Changing, name, before)
    a = Changing()
    vars(a).update(other=Changing(), child=Child())

    def function(x: torch.Tensor) -> Any:
        return use(x, a, Changing)

    made = aotcompile.compile(function, example_inputs=((torch.ones(2),), {}), backend="eager")
    torch.testing.assert_close(made(torch.ones(2)), function(torch.ones(2)))
    setattr(Changing, name, after)
    torch.testing.assert_close(made(torch.ones(2)), function(torch.ones(2)))
    [region] = aotcompile.info(made).report().regions
    assert (region.hits, region.misses) == (1, 1)
