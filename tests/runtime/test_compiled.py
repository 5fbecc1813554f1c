"""Results of ``aotcompile.compile``: functions in the original's globals and cells, modules that share everything with the original, split callees."""
from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import traceback
import weakref
from pathlib import Path
from typing import Any, Callable

import pytest
import torch
from runtime_tests import argument, buffer, call, graph, guard, plan, tensor_input, write_package
from torch import nn

from aotcompile.runtime.twins import compiled as runtime_compiled
from aotcompile.runtime import reporting
from aotcompile.runtime.twins.compiled import SplitFunction, info, load_compiled
from aotcompile.runtime.digest import code_digest

SCALE = 2.0
REGISTERED: list[type] = []
pytestmark = [pytest.mark.filterwarnings("ignore::aotcompile.runtime.reporting.AotCompileWarning"), pytest.mark.usefixtures("runtime_kind")]


def scaled(x: torch.Tensor, k: float = 1.0, *, flip: bool = False) -> torch.Tensor:
    """Scales."""
    y = x * SCALE
    print("between")
    return (y.flip(0) if flip else y) + k


SCALED = '''
def _r0_eager(x):
    y = x * SCALE
    return y
def scaled(x, k=1.0, *, flip=False):
    """Scales."""
    y = _r0(x)
    print("between")
    return (y.flip(0) if flip else y) + k
'''


class Base(nn.Module):
    def __init_subclass__(cls, **keywords: Any) -> None:
        REGISTERED.append(cls)


class Block(Base):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.weight
        print("block")
        return y


BLOCK = '''
def _r0_eager(self, x):
    return x * self.weight
def forward(self, x):
    y = _r0(self, x)
    print("block")
    return y
'''


class Net(Base):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x) + self.shift


NET = '''
def forward(self, x):
    return _call_0(self.block)(x) + self.shift
'''


def name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def split(function: Callable[..., Any], text: str, calls: tuple[int, ...] = (), region: str = "") -> SplitFunction:
    qualname = function.__qualname__
    regions = {f"{qualname}:r0": ("_r0", "_r0_eager")} if "_r0_eager" in text else {}
    return SplitFunction(function.__module__, qualname, text, regions, calls, code_digest(function.__code__))      # type: ignore[attr-defined]


def double_variant(region: str, path: Any, weight: Any = None, guards: tuple[Any, ...] = ()) -> dict[str, Any]:
    inputs = [tensor_input("x", path, [3])] + ([] if weight is None else [tensor_input("w", weight, [3])])
    other = buffer("w") if weight is not None else 2.0
    steps = [call("aten.mul.Tensor", [buffer("x"), other], "y")]
    return {"plan.json": plan(region, inputs, {"inference": graph(["x"] + ["w"] * (weight is not None), steps, ["y"])}, first_guards=list(guards),
                              grad_enabled=False)}


def folder_for(tmp_path: Path, regions: dict[str, list[Any]]) -> str:
    package, _, module = __name__.rpartition(".")
    folder = write_package(tmp_path, package or "alone", {}, {module: regions})
    import json
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["regions"] = {__name__: next(iter(manifest["regions"].values()), {})}
    manifest["package"] = __name__
    manifest["breaks"] = [{"code": "AOT201", "file": "model.py", "line": 4, "column": 5, "function": "f", "reason": "print", "hint": ""}]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return str(folder)


@pytest.fixture
def scaled_folder(tmp_path: Path) -> str:
    constant = guard("equals", [["global", "SCALE"], []], {"type": "builtins:float", "value": (2.0).hex()})
    return folder_for(tmp_path, {"scaled:r0": [double_variant("scaled:r0", argument("x"), guards=(constant,))]})


def test_a_function_is_a_function_with_everything_of_the_original(scaled_folder: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    twin = load_compiled(scaled, folder=scaled_folder, functions=[split(scaled, SCALED)])
    x = torch.arange(3.0)
    assert torch.equal(twin(x, flip=True), torch.tensor([5.0, 3.0, 1.0])) and capsys.readouterr().out == "between\n"
    assert (twin.__name__, twin.__qualname__, twin.__doc__, twin.__module__, twin.__defaults__) == ("scaled", "scaled", "Scales.", __name__, (1.0,))
    assert inspect.signature(twin) == inspect.signature(scaled) and twin.__globals__ is globals() and twin is not scaled
    record, = info(twin).report().regions
    assert (record.name, record.calls, record.hits, record.misses) == ("scaled:r0", 1, 1, 0)
    monkeypatch.setitem(globals(), "SCALE", 3.0)                 # the original's globals are the twin's
    assert torch.equal(twin(x, 0.0), x * 3)
    assert info(twin).report().regions[0].last_miss == "SCALE == 2.0 (got 3.0) model.py:3"
    assert [(b.code, b.file, b.line, b.reason) for b in info(twin).breaks] == [("AOT201", "model.py", 4, "print")] and info(twin).out == scaled_folder
    with pytest.raises(TypeError):
        info(scaled)


def test_tracebacks_show_the_split_source(scaled_folder: str) -> None:
    twin = load_compiled(scaled, folder=scaled_folder, functions=[split(scaled, SCALED)])
    with pytest.raises(TypeError) as caught:
        twin(torch.ones(3), "text")
    assert "return (y.flip(0) if flip else y) + k" in "".join(traceback.format_exception(caught.value))


def test_partials_and_methods(scaled_folder: str) -> None:
    twin = load_compiled(functools.partial(scaled, k=5.0), folder=scaled_folder, functions=[split(scaled, SCALED)])
    assert isinstance(twin, functools.partial) and twin(torch.ones(3)).tolist() == [7.0] * 3
    assert info(twin).report().regions[0].hits == 1


def make(k: float) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def inner(x: torch.Tensor) -> torch.Tensor:
        y = x * k
        return y

    def change(value: float) -> None:
        nonlocal k
        k = value
    return inner, change


INNER = '''
def _r0_eager(x):
    y = x * k
    return y
def inner(x):
    return _r0(x)
'''


def test_closures_keep_their_cells(tmp_path: Path) -> None:
    constant = guard("equals", [["closure", "k"], []], {"type": "builtins:float", "value": (2.0).hex()})
    inner, change = make(2.0)
    folder = folder_for(tmp_path, {"make.<locals>.inner:r0": [double_variant("r", argument("x"), guards=(constant,))]})
    twin = load_compiled(inner, folder=folder, functions=[split(inner, INNER)])
    x = torch.ones(3)
    assert twin(x).tolist() == [2.0] * 3 and info(twin).report().regions[0].hits == 1
    change(5.0)
    assert twin(x).tolist() == [5.0] * 3
    assert info(twin).report().regions[0].last_miss == "k == 2.0 (got 5.0) model.py:3"
    other, _ = make(7.0)
    assert load_compiled(other, folder=folder, functions=[split(other, INNER)])(x).tolist() == [7.0] * 3


@pytest.fixture
def net(tmp_path: Path) -> tuple[Net, Any]:
    original = Net()
    variant = double_variant("Block.forward:r0", argument("x"), argument("self", ("attribute", "weight")), (guard("type", argument("self"), name_of(Block)),))
    folder = folder_for(tmp_path, {"Block.forward:r0": [variant]})
    REGISTERED.clear()
    return original, load_compiled(original, folder=folder, functions=[split(Net.forward, NET, (0,)), split(Block.forward, BLOCK)])


def test_a_module_shares_everything_and_leaves_no_trace(net: tuple[Net, Any]) -> None:
    original, twin = net
    assert isinstance(twin, Net) and type(twin).__name__ == "Net" and repr(twin) == repr(original) and REGISTERED == []
    assert list(twin.state_dict()) == ["shift", "block.weight"] and all(a is b for a, b in zip(twin.parameters(), original.parameters()))
    assert inspect.signature(twin.forward) == inspect.signature(original.forward)
    twin.eval()
    assert not original.training and not original.block.training
    twin.to(torch.float64)
    assert original.shift.dtype is torch.float64
    twin.extra = 3
    assert original.extra == 3 and Net.forward.__qualname__ == "Net.forward" and "forward" not in original.__dict__


def test_split_callees_are_called_directly_as_long_as_they_are_themselves(net: tuple[Net, Any], capsys: pytest.CaptureFixture[str],
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    original, twin = net
    x = torch.arange(3.0)

    def hits() -> int:
        return sum(r.hits for r in info(twin).report().regions)
    with torch.no_grad():
        assert torch.equal(twin(x), x * 2 + 1) and hits() == 1 and capsys.readouterr().out == "block\n"
        seen: list[Any] = []
        handle = original.block.register_forward_hook(lambda module, args, out: (seen.append(module), out * 10)[1])
        assert torch.equal(twin(x), x * 20 + 1) and seen == [original.block] and hits() == 1
        handle.remove()
        handle = twin.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        assert torch.equal(twin(x), (x + 1) * 2 + 1) and hits() == 2
        handle.remove()
        original.block.forward = lambda x: x                     # type: ignore[method-assign]
        assert torch.equal(twin(x), x + 1) and hits() == 2
        del original.block.forward
        monkeypatch.setattr(Block, "forward", lambda self, x: x - 1)
        assert torch.equal(twin(x), x) and hits() == 2
        monkeypatch.undo()
        assert torch.equal(twin(x), x * 2 + 1) and hits() == 3
        monkeypatch.setattr(Net, "forward", lambda self, x: x * 100)
        assert torch.equal(twin(x), x * 100) and hits() == 3


def test_pickles_are_the_originals(net: tuple[Net, Any]) -> None:
    original, twin = net
    copied = pickle.loads(pickle.dumps(twin))
    assert type(copied) is Net and list(copied.state_dict()) == list(original.state_dict())


def test_copies_are_compiled_and_have_parameters_of_their_own(net: tuple[Net, Any]) -> None:
    original, twin = net
    x = torch.ones(3)
    with torch.no_grad():
        for copied in (copy.deepcopy(twin), copy.deepcopy([twin, original])[0], copy.deepcopy(copy.deepcopy(twin))):
            assert isinstance(copied, Net) and list(copied.state_dict()) == list(original.state_dict())
            assert copied.block is not original.block and copied.shift is not original.shift
            copied.shift.add_(5)
            before = info(copied).report().regions[0].hits
            assert torch.equal(copied(x), twin(x) + 5) and info(copied).report().regions[0].hits == before + 2
        shallow = copy.copy(twin)
        assert shallow.block is original.block and torch.equal(shallow(x), twin(x))


def test_replicas_use_their_own_parameters(net: tuple[Net, Any]) -> None:
    _, twin = net
    x = torch.ones(3)
    with torch.no_grad():
        replica = twin._replicate_for_data_parallel()
        replica.shift = twin.shift + 7
        hits = info(twin).report().regions[0].hits
        assert torch.equal(replica(x), twin(x) + 7) and info(twin).report().regions[0].hits == hits + 2


def test_another_class_given_to_the_twin(net: tuple[Net, Any]) -> None:
    _, twin = net
    x = torch.ones(3)

    class Doubled(type(twin)):                                   # as torch.nn.utils.parametrize does
        shift = property(lambda self: self.__dict__["kept"] * 2)

    with torch.no_grad():
        expected = twin(x)
        twin.__dict__["kept"] = twin.__dict__["_parameters" if "shift" in twin._parameters else "_buffers"].pop("shift")
        twin.__class__ = Doubled
        assert torch.equal(twin(x), expected + twin.__dict__["kept"])


def test_nothing_compiled_still_behaves(tmp_path: Path) -> None:
    folder = folder_for(tmp_path, {})
    twin = load_compiled(scaled, folder=folder, functions=[])
    assert twin(torch.ones(3)).tolist() == [3.0] * 3 and info(twin).report().regions == ()
    module = load_compiled(nn.Linear(2, 2), folder=folder, functions=[])
    assert module(torch.ones(1, 2)).shape == (1, 2) and isinstance(module, nn.Linear)
    assert load_compiled(torch.relu, folder=folder, functions=[])(torch.tensor(-1.0)) == 0

    class Callable_:
        def __init__(self) -> None:
            self.n = 2

        def __call__(self, x: int) -> int:
            return x * self.n
    thing = Callable_()
    made = load_compiled(thing, folder=folder, functions=[])
    thing.n = 5
    assert isinstance(made, Callable_) and made(3) == 15


def test_a_function_made_anew_each_time_gets_its_twin_and_leaks_nothing(tmp_path: Path) -> None:
    folder = folder_for(tmp_path, {"make.<locals>.inner:r0": [double_variant("r", argument("x"))]})
    made = runtime_compiled.TwinMaker(runtime_compiled.Package(folder), [split(make(2.0)[0], INNER)])
    x, gone = torch.ones(3), []
    for _ in range(5):
        inner, _ = make(2.0)
        assert made.direct(inner) is not inner and made.direct(inner)(x).tolist() == [2.0] * 3
        gone.append(weakref.ref(inner))
    del inner
    gc.collect()
    assert [reference() for reference in gone] == [None] * 5
    record, = made.report().regions
    assert record.hits == 5 and sum(r.name == "make.<locals>.inner:r0" and r.hits == 5 for r in reporting.report().regions) <= 1


def test_a_changed_function_has_no_twin(tmp_path: Path) -> None:
    folder = folder_for(tmp_path, {"scaled:r0": [double_variant("scaled:r0", argument("x"))]})
    wrong = SplitFunction(__name__, "scaled", SCALED, {"scaled:r0": ("_r0", "_r0_eager")}, (), f"{code_digest(Block.forward.__code__)}")
    twin = load_compiled(scaled, folder=folder, functions=[wrong])
    assert twin(torch.ones(3)).tolist() == [3.0] * 3 and info(twin).report().regions[0].calls == 0


def maybe(x: torch.Tensor, flag: bool) -> torch.Tensor:
    if flag:
        y = x + 1
    print("between")
    return y * 2


MAYBE = '''
class _unbound:
    """A variable without a value."""
def _r0_eager(y):
    if y is _unbound:
        del y
    return y * 2
def maybe(x, flag):
    if flag:
        y = x + 1
    print("between")
    return _r0(locals().get("y", _unbound))
'''


def test_helpers_of_the_split_source_and_sources_that_cannot_be_used(tmp_path: Path) -> None:
    folder = folder_for(tmp_path, {"maybe:r0": []})
    twin = load_compiled(maybe, folder=folder, functions=[split(maybe, MAYBE)])
    assert twin(torch.ones(1), True).item() == 4 and info(twin).report().regions[0].calls == 1
    with pytest.raises(UnboundLocalError):
        twin(torch.ones(1), False)
    inner, _ = make(2.0)
    strange = split(inner, INNER.replace("x * k", "x * k").replace("def _r0_eager(x):", "def _r0_eager(x):\n    def nested(): return nested, strange").replace(
        "def inner(x):", "def strange(): pass\ndef inner(x):"))
    with pytest.warns(reporting.AotCompileWarning, match="AOT606 the split source"):
        assert load_compiled(inner, folder=folder, functions=[strange])(torch.ones(1)).item() == 2


class Parent:
    def __init__(self, n: float) -> None:
        self.n = n

    def value(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.n


class Child(Parent):
    def value(self, x: torch.Tensor) -> torch.Tensor:
        return super().value(x) + 1


CHILD = '''
def _r0_eager(self, x):
    return super(__class__, self).value(x) + 1
def value(self, x):
    if x.numel() < 0:
        return super().value(x)
    return _r0(self, x)
'''


def test_class_cell_and_super_work_in_methods(tmp_path: Path) -> None:
    folder = folder_for(tmp_path, {})
    child = Child(3.0)
    twin = load_compiled(child.value, folder=folder, functions=[split(Child.value, CHILD)])
    assert twin.__self__ is child and twin(torch.ones(2)).tolist() == [4.0, 4.0]
    assert info(twin).report().regions[0].eager
