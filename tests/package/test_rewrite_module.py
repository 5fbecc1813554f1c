"""Modules before and after."""
from __future__ import annotations

import ast
import sys
import textwrap
import types
from typing import Any

import pytest
from package_samples import NET, NET_SPLIT, rewrite, split

from aotcompile.frontend.split import split_function
from aotcompile.package.rewrite.imports import ModuleName
from aotcompile.package.rewrite.module import SplitFunction, rewrite_module

HEADER = "from aotcompile.runtime import bind as _bind\n\n_region = _bind(__name__, __file__)\n"


def run(text: str, monkeypatch: pytest.MonkeyPatch, name: str = "generated_model") -> tuple[dict[str, Any], list[str]]:
    """Execute a generated module with a runtime that runs the eager bodies and records the regions called."""
    called: list[str] = []

    def bind(module: str, file: str) -> Any:
        def region(name: str, eager: Any) -> Any:
            def stub(*arguments: Any) -> Any:
                called.append(name)
                return eager(*arguments)
            return stub
        return region

    runtime: Any = types.ModuleType("aotcompile.runtime")
    runtime.bind = bind
    monkeypatch.setitem(sys.modules, "aotcompile.runtime", runtime)
    scope: dict[str, Any] = {"__name__": name, "__file__": "model.py"}
    exec(compile(text, "model.py", "exec"), scope)
    return scope, called


def test_a_module_before_and_after() -> None:
    after = rewrite(NET, ("Net.forward", split("Net.forward", NET_SPLIT, 2)), variants={"Net.forward": {0: 2, 1: 1}}).text
    assert after == '''\
"""A small net."""
from __future__ import annotations

from aotcompile.runtime import bind as _bind

_region = _bind(__name__, __file__)

import torch


def _r0_eager(self, x):
    h = x * 2
    return h


def _r1_eager(self, h):
    return h + 1


_r0 = _region("Net.forward:r0", _r0_eager)  # model.py:1-2, 2 variants
_r1 = _region("Net.forward:r1", _r1_eager)  # model.py:2-3, 1 variant


# A net with a print.
class Net(torch.nn.Module):
    """Docstring."""

    def forward(self, x):  # the entry
        """Says what it does:
          indented."""
        h = _r0(self, x)  # region 0: line 14
        print("h", h.shape)
        return _r1(self, h)  # region 1: line 16

    # end of Net


def other():  return 1   # untouched
'''


def test_names_are_unique_in_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    before = "_region = 5\n_f_r0 = 7\n\ndef f(x):\n    return x + _f_r0\n\ndef g(x):\n    return f(x) * _region\n"
    one = split("f", "def _r0_eager(x):\n    return x + _f_r0\n\ndef f(x):\n    return _r0(x)\n", 1)
    two = split("g", "def _r0_eager(x):\n    return f(x) * _region\n\ndef g(x):\n    return _r0(x)\n", 1)
    result = rewrite(before, ("f", one), ("g", two))
    scope, called = run(result.text, monkeypatch)
    assert scope["g"](1) == 40 and called == ["g:r0", "f:r0"]
    assert len(set(result.stubs.values())) == 2 and "_f_r0" not in result.stubs.values()


def test_digest_mark_is_the_innermost_decorator(monkeypatch: pytest.MonkeyPatch) -> None:
    before = "class A:\n    @staticmethod\n    # why\n    def f(x):\n        return x\n"
    source = split("A.f", "def _r0_eager(x):\n    return x\n\ndef f(x):\n    return _r0(x)\n", 1)
    text = rewrite(before, ("A.f", source), digest="cp311:ab;source:cd").text
    assert '    @staticmethod\n    # why\n    @_original("cp311:ab;source:cd")\n    def f(x):\n        return _r0(x)\n' in text
    scope, _ = run(text, monkeypatch)
    assert scope["A"].f(3) == 3 and scope["A"].f.__aotcompile_digest__ == "cp311:ab;source:cd"


def test_private_names_of_the_split_text_work_outside_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    method = ('def f(self, __x):\n    class Inner:\n        __q = 1\n        def get(self): return self.__q\n'
              '    note = f"{self.__w}"\n    return self.__w * __x + dict(__k=1)["__k"] + Inner().get() + len(note)\n')
    before = "class _Net:\n    def __init__(self):\n        self.__w = 3\n" + textwrap.indent(method, "    ")
    parts = split_function(method, [], class_name="_Net")
    text = rewrite(before, ("_Net.f", split("_Net.f", parts.text, len(parts.regions)))).text
    scope, _ = run(text, monkeypatch)
    assert scope["_Net"]().f(2) == 9 and "self._Net__w * _Net__x" in text


@pytest.mark.parametrize("before, after", [
    ("def f(x): return x\n", "def f(x):\n    return _r0(x)\n"),
    ("def f(x): y = x; return y  # why\n", "def f(x):  # why\n    return _r0(x)\n"),
    ('def f(x):\n  "doc: string"\n  return x\n', 'def f(x):\n  "doc: string"\n  return _r0(x)\n'),
    ('def f(x): "doc"; return x\n', 'def f(x):\n    "doc"\n    return _r0(x)\n'),
    ('def f(x):\n    "doc"; y = x\n    return y\n', 'def f(x):\n    "doc"\n    return _r0(x)\n'),
    ("def f(x: 'a: b' = {1: 2}, *, y=lambda: 0) -> dict[str, int]:  # note: colon\n\treturn x\n",
     "def f(x: 'a: b' = {1: 2}, *, y=lambda: 0) -> dict[str, int]:  # note: colon\n\treturn _r0(x)\n"),
    ("def f(\n    x,\n):\n    # about x\n    return x\n\n    # after\n", "def f(\n    x,\n):\n    return _r0(x)\n\n    # after\n"),
    ("if True:\n        def f(x):\n                @str\n                def g(): pass\n                return x",
     "if True:\n        def f(x):\n                return _r0(x)"),
])
def test_bodies(before: str, after: str) -> None:
    text = rewrite(before, ("f", split("f", "def _r0_eager(x):\n    return x\n\ndef f(x):\n    return _r0(x)\n", 1))).text
    assert text.endswith("variant\n\n\n" + after), text


def test_strings_in_a_body_keep_their_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    before = 'class A:\n    class B:\n        def f(self, x):\n            t = """a\n  b\n"""\n            return t + x\n'
    body = 'def _r0_eager(t, x):\n    return t + x\n\ndef f(self, x):\n    t = """a\n  b\n"""\n    u = f"""{x}\n c"""\n    return _r0(t, x) + u\n'
    scope, _ = run(rewrite(before, ("A.B.f", split("A.B.f", body, 1))).text, monkeypatch)
    assert scope["A"].B().f("x") == "a\n  b\nxx\n c"


def test_line_endings_tabs_and_form_feeds_stay() -> None:
    before = "# -*- coding: utf-8 -*-\r\nimport os\r\n\x0c\r\ndef f(x):\r\n\treturn x  # ä\r\nλ = 1\r\n"
    after = rewrite(before, ("f", split("f", "def _r0_eager(x):\n    return x\n\ndef f(x):\n    return _r0(x)\n", 1))).text
    assert "\n" not in after.replace("\r\n", "") and after.startswith("# -*- coding: utf-8 -*-\r\nfrom aotcompile.runtime")
    assert after.endswith("def f(x):\r\n\treturn _r0(x)\r\nλ = 1\r\n") and "\x0c\r\n" in after


def test_a_function_without_compiled_region_is_not_rewritten() -> None:
    source = split("f", "def _r0_eager(x):\n    return x\n\ndef f(x):\n    return _r0(x)\n", 1)
    before = "def f(x):\n    return x\n"
    assert rewrite(before, ("f", source), variants={"f": {0: 0}}).text == before


def test_a_region_without_variant_is_called_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    text = rewrite(NET.replace("torch.nn.Module", "object").replace("import torch", "import sys"),
                   ("Net.forward", split("Net.forward", NET_SPLIT, 2)), variants={"Net.forward": {1: 1}}).text
    assert "_r0 = _r0_eager  # model.py:1-2, not compiled" in text
    import numpy
    scope, called = run(text, monkeypatch)
    assert scope["Net"]().forward(numpy.ones(1)) == 3 and called == ["Net.forward:r1"]


def test_a_split_function_in_a_split_function(monkeypatch: pytest.MonkeyPatch) -> None:
    before = "def outer(x):\n    k = x * 2\n    def inner(y):\n        return y + k\n    print(end='')\n    return inner(k)\n"
    outer = split("outer", """
        def _r0_eager(x):
            return x * 2

        def outer(x):
            k = _r0(x)
            def inner(y):
                return y + k
            print(end='')
            return inner(k)
        """, 1, line_map={6: 3})
    inner = split("outer.<locals>.inner", "def _r0_eager(y, k):\n    return y + k\n\ndef inner(y):\n    return _r0(y, k)\n", 1)
    result = rewrite(before, ("outer", outer), ("outer.<locals>.inner", inner))
    scope, called = run(result.text, monkeypatch)
    assert scope["outer"](3) == 12 and called == ["outer:r0", "outer.<locals>.inner:r0"], result.text


def test_two_functions_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A property's getter and setter, each with its own regions: the second is called ``Box.size@2``."""
    before = ("class Box:\n    held = 1\n    @property\n    def size(self):\n        return self.held + 1\n"
              "    @size.setter\n    def size(self, value):\n        self.held = value * 2\n")
    getter = split("Box.size", "def _r0_eager(self):\n    return self.held + 1\n\ndef size(self):\n    return _r0(self)\n", 1)
    setter = split("Box.size", "def _r0_eager(self, value):\n    self.held = value * 2\n\ndef size(self, value):\n    return _r0(self, value)\n", 1)
    functions = [SplitFunction("Box.size", 3, getter, {0: 1}), SplitFunction("Box.size@2", 6, setter, {0: 1})]
    result = rewrite_module(before, functions, file="model.py", name=ModuleName("mypkg", "mypkg.model", False))
    assert result.rewritten == ("Box.size", "Box.size@2") and not result.diagnostics
    scope, called = run(result.text, monkeypatch)
    box = scope["Box"]()
    box.size = 4
    assert box.size == 9 and called == ["Box.size@2:r0", "Box.size:r0"], result.text


def test_calls_of_split_callees() -> None:
    """The splitter's ``_call_<N>(callee)`` is taken off: in the generated package the callee's own name leads to its rewritten form."""
    source = split("f", "def _r0_eager(x):\n    return x\n\ndef f(x):\n"
                        "    return _call_0(Net.helper)(_r0(x)) + _call_1(part.g)(x) + _call_2(h or part.g)(x) + _call_3(x)\n", 1,
                   calls={0: "Net.helper", 1: "mypkg.sub.part:g", 2: "mypkg.model:h"})
    text = rewrite("def f(x):\n    return x\n", ("f", source)).text
    assert "return Net.helper(_r0(x)) + part.g(x) + (h or part.g)(x) + _call_3(x)" in text
    assert text.startswith(HEADER)


def test_a_function_that_is_not_there_is_reported() -> None:
    source = split("f", "def _r0_eager(x):\n    return x\n\ndef f(x):\n    return _r0(x)\n", 1)
    before = "f = lambda x: x  # def f(\n"
    result = rewrite(before, ("f", source))
    assert result.text == before and [d.code for d in result.diagnostics] == ["AOT612"] and result.rewritten == ()


def test_attributes_called_like_stubs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    source = split("f", "def _r0_eager(x, _r1=0):\n    return x._r0\n\ndef f(x):\n    return _r0(x, _r1=1)\n", 1)
    text = rewrite("def f(x):\n    return x._r0\n\n_r0 = 1\n", ("f", source)).text
    assert "x._r0\n" in text and "_r1=1" in text
    assert ast.parse(text)


def test_header_goes_below_a_licence_and_is_last_of_nothing() -> None:
    source = split("f", "def _r0_eager(x):\n    return x\n\ndef f(x):\n    return _r0(x)\n", 1)
    text = rewrite("#!/usr/bin/env python\n# licence\n\n# about f\ndef f(x):\n    return x\n", ("f", source)).text
    assert text.startswith("#!/usr/bin/env python\n# licence\n\n" + HEADER + "\n\ndef _r0_eager")
    assert "# about f\ndef f(x):\n    return _r0(x)\n" in text
