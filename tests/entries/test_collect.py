"""Collecting entries: decorators, configured providers, recorded signatures, and clear messages for what is wrong with them."""
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import aotcompile
from aotcompile.base.diagnostic import UsageError
from aotcompile.frontend.entries import Entry, collect_entries, locate_package
from aotcompile.options import Options

Write = Callable[[dict[str, str]], Path]

MODEL = """\
    import torch
    import aotcompile

    @aotcompile.entry(inputs=("f32[B, 3]",), dims={"B": (1, 64)})
    @aotcompile.entry(inputs={"images": "f64[4, 3]", "flip": True}, fullgraph=True)
    def preprocess(images, flip=False):
        return images.flip(0) if flip else images * 2

    @aotcompile.entry(inputs=("f32[2, 5]",), make="mypkg.model:make", training=True)
    class Net(torch.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.linear = torch.nn.Linear(5, width)

        def forward(self, x):
            return self.linear(x)

    class Filter:
        @aotcompile.entry(inputs=("f32[T]",))
        def feed(self, x):
            return x + 1

        @staticmethod
        @aotcompile.entry(example_inputs=lambda: ((torch.ones(3),), {}))
        def gain(x):
            return x * 2

    def make():
        return Net(7)
"""


def collect(root: Path, options: Options = Options(), package: str = "mypkg") -> tuple[Entry, ...]:
    return collect_entries(locate_package(package, root), options)


def fails(root: Path, options: Options = Options()) -> str:
    with pytest.raises(UsageError) as caught:
        collect(root, options)
    return str(caught.value)


def test_decorated(write_package: Write) -> None:
    root = write_package({"mypkg/__init__.py": "", "mypkg/model.py": MODEL, "mypkg/other.py": "raise RuntimeError('has no marks, is not imported')"})
    entries = collect(root)
    assert [e.name for e in entries] == ["mypkg.model:preprocess"] * 2 + ["mypkg.model:Net.forward", "mypkg.model:Filter.feed", "mypkg.model:Filter.gain"]
    first, second, net, feed, gain = entries
    assert {str(p): d for p, d in first.dynamic_shapes.items()}.keys() == {"images"} and first.source == "decorator, mypkg/model.py:4"
    assert second.kwargs["flip"] is True and second.fullgraph is True and second.dynamic_shapes == {}
    assert net.training is True and net.target.linear.out_features == 7 and net.arguments["x"].shape == (2, 5)
    assert feed.target(*feed.args).shape == feed.args[0].shape and list(feed.arguments) == ["x"]
    assert gain.args[0].tolist() == [1, 1, 1]


def test_decorators_change_nothing() -> None:
    def f(x: int) -> int:
        return x + 1

    before = (f.__name__, f.__code__, f.__defaults__)
    marked = aotcompile.entry(inputs=("f32[2]",))(f)
    assert marked is f and aotcompile.skip(f) is f and aotcompile.skip(reason="prints")(f) is f and f(1) == 2
    assert before == (f.__name__, f.__code__, f.__defaults__)

    @aotcompile.entry(inputs=("f32[2]",))
    class Base:
        pass

    class Derived(Base):
        pass

    from aotcompile.entry import ENTRY_ATTRIBUTE
    aotcompile.entry(inputs=("f32[3]",))(Derived)
    assert len(vars(Derived)[ENTRY_ATTRIBUTE]) == 1 and len(vars(Base)[ENTRY_ATTRIBUTE]) == 1
    with pytest.raises(TypeError, match="marks functions and classes, not int"):
        aotcompile.entry(3)                                           # type: ignore[call-overload]


def test_the_decorator_module_imports_nothing_heavy() -> None:
    code = "import sys; import aotcompile.entry; print([m for m in ('torch', 'sympy', 'libcst', 'bytecode', 'triton', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


PROVIDERS = """\
    import torch
    from mypkg.model import double

    def one():
        return double, (torch.ones(4, 2),)

    def two():
        return [(double, (torch.ones(4),)), (torch.nn.Linear(2, 3), (torch.ones(1, 2),), {})]

    def raises():
        table = {}
        return double, (table["weights"],)

    def wrong():
        return torch.ones(3)

    def no_tuple():
        return double, torch.ones(3)

    def empty():
        return []
"""


def providers(write_package: Write, table: str) -> Path:
    return write_package({"mypkg/__init__.py": "", "mypkg/model.py": "def double(x):\n    return x * 2\n", "mypkg/aot_inputs.py": PROVIDERS,
                          "pyproject.toml": table})


def test_provided(write_package: Write) -> None:
    root = providers(write_package, """
        [tool.aotcompile]
        packages = ["mypkg"]
        [[tool.aotcompile.entry]]
        make = "mypkg.aot_inputs:one"
        dynamic-shapes = { x = { 0 = "B" } }
        dims = { B = { min = 1, max = 64 } }
        training = false
        [[tool.aotcompile.entry]]
        make = "mypkg.aot_inputs:two"
    """)
    one, two, linear = collect(root)
    assert (one.name, one.training, one.source) == ("mypkg.model:double", False, 'pyproject.toml entry 1, make = "mypkg.aot_inputs:one"')
    assert [str(d) for d in next(iter(one.dynamic_shapes.values())).values()] == ["1 <= B <= 64"]
    assert two.args[0].shape == (4,) and two.training is None
    assert linear.name == "torch.nn.modules.linear:Linear.forward"             # a library's module: the configuration means it
    assert [e.name for e in collect(root, Options(select=("*double",)))] == ["mypkg.model:double"] * 2
    assert [e.name for e in collect(root, Options(exclude=("mypkg.model:*",)))] == [linear.name]
    assert [e.name for e in collect(root, Options(packages=("mypkg", "another")))] == ["mypkg.model:double"] * 2 + [linear.name]


def test_a_configuration_for_two_packages(write_package: Write) -> None:
    table = "".join(f'[[tool.aotcompile.entry]]\nmake = "{p}.inputs:f"\n' for p in ("mypkg", "another"))
    text = "def g(x):\n    return x\ndef f():\n    return g, (1,)\n"
    root = write_package({f"{p}/{name}.py": text if name == "inputs" else "" for p in ("mypkg", "another") for name in ("__init__", "inputs")}
                         | {"pyproject.toml": table})
    options = Options(packages=("mypkg", "another"))
    assert [e.name for e in collect(root, options)] == ["mypkg.inputs:g"]
    assert [e.name for e in collect(root, options, "another")] == ["another.inputs:g"]


def test_recorded(write_package: Write) -> None:
    root = write_package({"mypkg/__init__.py": "", "mypkg/model.py": "def f(x, scale, *, mode):\n    return x * scale\n", "aotcompile-signatures.toml": """
        [[entry]]
        function = "mypkg.model:f"
        inputs = { x = "f32[B, 3]", scale = 2.5, mode = "sum" }
        dims = { B = { min = 1 } }
        [[entry]]
        function = "elsewhere.model:g"
        inputs = ["f32[2]"]
    """})
    (entry,) = collect(root)
    assert entry.kwargs["scale"] == 2.5 and entry.kwargs["mode"] == "sum" and len(entry.dynamic_shapes) == 1
    assert entry.source == "aotcompile-signatures.toml entry 1, mypkg.model:f"


@pytest.mark.parametrize("make, words", [
    ("mypkg.aot_inputs:on", ("AOT102", "mypkg.aot_inputs has no 'on'", "Did you mean 'one'?")),
    ("mypkg.aot_input:one", ("AOT102", "there is no module 'mypkg.aot_input'")),
    ("mypkg.aot_inputs", ("AOT102", '"package.module:function"')),
    ("mypkg.aot_inputs:raises", ("AOT103 mypkg/aot_inputs.py:12:", "KeyError: 'weights'")),
    ("mypkg.aot_inputs:wrong", ("AOT104 mypkg/aot_inputs.py:14:", "returned a Tensor", "Return (callable or nn.Module, args tuple)")),
    ("mypkg.aot_inputs:no_tuple", ("AOT104", "args as a Tensor (a tuple belongs there: (x,))")),
    ("mypkg.aot_inputs:empty", ("AOT104", "an empty list")),
])
def test_providers_that_are_wrong(write_package: Write, make: str, words: tuple[str, ...]) -> None:
    found = fails(providers(write_package, f'[[tool.aotcompile.entry]]\nmake = "{make}"'))
    assert all(word in found for word in words), found


@pytest.mark.parametrize("text, words", [
    ('@aotcompile.entry(inputs=("f32[B",))\ndef f(x): ...', ("AOT110 mypkg/model.py:2:1", "at column 6: ']' expected")),
    ('@aotcompile.entry(inputs=("f32[B]", 3))\ndef f(x): ...', ("AOT113 mypkg/model.py:2:1", "too many positional arguments")),
    ('@aotcompile.entry(inputs={"y": "f32[B]"})\ndef f(x): ...', ("AOT113", "missing a required argument: 'x'")),
    ('@aotcompile.entry\ndef f(x): ...', ("AOT107", "has no inputs")),
    ('@aotcompile.entry(inputs=("f32[2]",))\nclass A:\n    def __init__(self, n): ...', ("AOT106", "A() cannot be made without arguments", "make=")),
    ('@aotcompile.entry(inputs=("f32[2]",), dynamic_shapes={"x": {3: "B"}})\ndef f(x): ...', ("AOT112", "x has 1 dimensions")),
    ("import nowhere_to_be_found", ("AOT105 mypkg/model.py:2:", "No module named 'nowhere_to_be_found'")),
    ("1 / 0", ("AOT105 mypkg/model.py:2:", "ZeroDivisionError: division by zero")),
])
def test_code_that_is_wrong(write_package: Write, text: str, words: tuple[str, ...]) -> None:
    found = fails(write_package({"mypkg/__init__.py": "", "mypkg/model.py": "import aotcompile\n" + text}))
    assert all(word in found for word in words), found


def test_a_file_that_does_not_parse(write_package: Write) -> None:
    assert "AOT105 mypkg/model.py:2:1 the file does not parse" in fails(write_package({"mypkg/__init__.py": "", "mypkg/model.py": "import aotcompile\ndef f(:\n"}))


def test_no_entries_is_no_error(write_package: Write) -> None:
    assert collect(write_package({"mypkg/__init__.py": ""})) == ()


def test_locating(write_package: Write) -> None:
    root = write_package({"mypkg/__init__.py": "", "mypkg/sub/__init__.py": "", "mypkg/sub/deep.py": "", "src/inner/__init__.py": "", "single.py": "",
                          "with space/mypkg2/__init__.py": ""})
    assert locate_package("mypkg", root).name == locate_package("mypkg/", root).name == "mypkg"
    sub = locate_package("mypkg/sub", root)
    assert (sub.name, sub.root) == ("mypkg.sub", root) and locate_package("mypkg.sub", root) == sub
    assert locate_package("inner", root).root == root / "src"
    single = locate_package("single.py", root)
    assert single == locate_package("single", root) and single.is_single_file and single.modules() == (("single", root / "single.py"),)
    assert locate_package("with space/mypkg2", root).name == "mypkg2"
    assert [name for name, _ in locate_package("mypkg", root).modules()] == ["mypkg", "mypkg.sub", "mypkg.sub.deep"]
    with pytest.raises(UsageError, match="AOT101 no package 'mypkk'.*Did you mean 'mypkg'"):
        locate_package("mypkk", root)
