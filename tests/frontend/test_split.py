"""Splitting: before and after, readable. The goldens show the whole output."""
from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest

from aotcompile.base.span import Span
from aotcompile.frontend.record.source import settled_variables
from aotcompile.frontend.split import function_text, locate, split_function
from aotcompile.frontend.types import Break, SplitSource


def at(source: str, text: str, kind: Any = "call", *, nth: int = 0, callee: str | None = None) -> Break:
    """A break at the ``nth`` place where ``text`` stands."""
    start = -1
    for _ in range(nth + 1):
        start = source.index(text, start + 1)

    def place(offset: int) -> tuple[int, int]:
        line_start = source.rfind("\n", 0, offset) + 1
        return source.count("\n", 0, offset) + 1, len(source[line_start:offset].encode())

    (line, column), (end_line, end_column) = place(start), place(start + len(text))
    return Break(Span("m.py", line, column, end_line, end_column), kind, "AOT201", text.split("(")[0], callee=callee)


def cut(source: str, *places: Any, **options: Any) -> SplitSource:
    source = textwrap.dedent(source).lstrip("\n")
    breaks = [at(source, *place[:2], **(place[2] if len(place) > 2 else {})) if isinstance(place, tuple) else at(source, place) for place in places]
    split = split_function(source, breaks, **options)
    compile(split.text, "split", "exec")
    return split


def expect(split: SplitSource, wanted: str) -> None:
    assert split.text.strip("\n") == textwrap.dedent(wanted).strip("\n")


def body(split: SplitSource, wanted: str) -> None:
    """Compares the rewritten function without comments."""
    got = [line.split("  # ")[0] for line in function_text(split).rstrip("\n").splitlines()]
    assert "\n".join(got) == textwrap.dedent(wanted).strip("\n")


def region(split: SplitSource, number: int) -> list[str]:
    return [line.strip() for line in split.regions[number].text.splitlines()]


def test_without_breaks_the_body_is_one_region() -> None:
    split = cut('''
        def f(self, x):
            """Doc."""
            # scale
            y = x * 2  # twice
            return self.fc(y)
    ''')
    expect(split, '''
        def _r0_eager(self, x):
            # scale
            y = x * 2  # twice
            return self.fc(y)


        def f(self, x):
            """Doc."""
            return _r0(self, x)  # region 0: lines 4-5
    ''')
    assert split.regions[0].parameters == ("self", "x") and split.regions[0].lines == (4, 5)


def test_print_between() -> None:
    expect(cut('''
        def forward(self, x):
            h = self.fc(x)
            score = h.mean()
            print("score", score.tolist())
            return h * score
    ''', 'print("score", score.tolist())', "score.tolist()"), '''
        def _r0_eager(self, x):
            h = self.fc(x)
            score = h.mean()
            return h, score


        def _r1_eager(h, score):
            return h * score


        def forward(self, x):
            h, score = _r0(self, x)  # region 0: lines 2-3
            print("score", score.tolist())  # graph break AOT201: print (line 4); graph break AOT201: score.tolist (line 4)
            return _r1(h, score)  # region 1: line 5
    ''')


def test_inside_an_expression() -> None:
    split = cut('''
        def f(x):
            return note("a", torch.relu(x)) + float(note("b", x.sum()).item()) * note("c", torch.sin(x)) + len(log)
    ''', 'note("b", x.sum()).item()')
    body(split, '''
        def f(x):
            _t0, _t1 = _r0(x)
            _t2 = _t1.item()
            return _r1(x, _t0, _t2)
    ''')
    assert region(split, 0)[1:] == ['_t0 = note("a", torch.relu(x))', '_t1 = note("b", x.sum())', "return _t0, _t1"]
    assert region(split, 1)[1] == 'return _t0 + float(_t2) * note("c", torch.sin(x)) + len(log)'


def test_branch_and_elif() -> None:
    body(cut('''
        def f(x):
            y = x * 2
            if y.sum() > 0:
                z = torch.exp(y)
            elif y.any():
                z = y.abs()
            else:
                z = y
            return z.cumsum(0)
    ''', ("y.sum() > 0", "branch"), ("y.any()", "branch")), '''
        def f(x):
            y, _t0 = _r0(x)
            if _t0:
                z = _r1(y)
            else:
                _t0 = _r2(y)
                if _t0:
                    z = _r3(y)
                else:
                    z = y
            return _r4(z)
    ''')


def test_while_on_a_tensor() -> None:
    body(cut('''
        def f(x, eps):
            n = 0
            while (x * x).sum() > eps:
                x = torch.sin(x) * 0.9
                n += 1
            else:
                x = x.neg()
            return x + n, n
    ''', ("(x * x).sum() > eps", "branch")), '''
        def f(x, eps):
            n = 0
            _telse0 = False
            while True:
                _t0 = _r0(x, eps)
                if not _t0:
                    _telse0 = True
                    break
                x = _r1(x)
                n += 1
            if _telse0:
                x = _r2(x)
            return _r3(x, n)
    ''')


def test_and_or_are_tested_once() -> None:
    body(cut('''
        def f(x, flag):
            if flag and x.sum() > 0:
                return x.exp()
            return x.sin()
    ''', ("x.sum() > 0", "branch")), '''
        def f(x, flag):
            _t0 = False
            if flag:
                _t0 = _r0(x)
            if _t0:
                return _r1(x)
            return _r2(x)
    ''')


def test_ternary() -> None:
    body(cut('''
        def f(x):
            return x.exp() if x.sum() > 0 else x.sin()
    ''', ("x.sum() > 0", "branch")), '''
        def f(x):
            _t0 = _r0(x)
            if _t0:
                _t1 = _r1(x)
            else:
                _t1 = _r2(x)
            return _t1
    ''')


def test_assert_keeps_its_condition_under_optimization() -> None:
    body(cut('''
        def f(x):
            assert x.sum() > 0, "positive"
            return x * 2
    ''', ("x.sum() > 0", "branch")), '''
        def f(x):
            if __debug__:
                _t0 = _r0(x)
                assert _t0, "positive"
            return _r1(x)
    ''')


def test_augmented_assignment_reads_its_target_first() -> None:
    split = cut('''
        def f(self, x, i):
            self.a[i + 1] += x.item()
            return x * 2
    ''', "x.item()")
    assert "_t0 = self.a" in region(split, 0) and "_t1 = i + 1" in region(split, 0) and "_t2 = _t0[_t1]" in region(split, 0)
    assert "_t2 += _t3" in region(split, 1) and "_t0[_t1] = _t2" in region(split, 1)


def test_names_that_change_are_read_in_time() -> None:
    split = cut('''
        def f(x, n):
            global count
            return x * n + count * g(x) + (n := 3)
    ''', "g(x)")
    body(split, '''
        def f(x, n):
            global count
            _t0 = _r0(x, n)
            _t1 = count
            _t2 = g(x)
            return _r1(_t0, _t1, _t2)
    ''')


def test_formatted_string() -> None:
    body(cut('''
        def f(x, name):
            text = f"{name}: {x.mean().item():.2f} of {x.sum()}"
            return text
    ''', "x.mean().item()"), '''
        def f(x, name):
            _t0 = f"{name}: "
            _t1 = _r0(x)
            _t2 = _t1.item()
            return _r1(x, _t0, _t2)
    ''')


def test_comprehension_stays_whole() -> None:
    body(cut('''
        def f(x):
            values = [v.item() for v in x.unbind(0)]
            return x * len(values)
    ''', "v.item()"), '''
        def f(x):
            _t0 = _r0(x)
            values = [v.item() for v in _t0]
            return _r1(x, values)
    ''')


def test_call_split() -> None:
    split = cut('''
        def forward(self, x):
            y = self.a(x + 1)
            return y * 2
    ''', ("self.a(x + 1)", "call_split", {"callee": "A.forward"}))
    body(split, '''
        def forward(self, x):
            _t0 = _r0(x)
            y = _call_0(self.a)(_t0)
            return _r1(y)
    ''')
    assert split.calls == {0: "A.forward"}


def test_leaving_a_region_early() -> None:
    split = cut('''
        def f(xs, limit):
            total = 0
            for x in xs:
                if x == limit:
                    break
                if x is None:
                    continue
                y = x * 2
                print(y)
                if limit is None:
                    return y.exp()
                total = total + y
            return total * 2
    ''', "print(y)")
    body(split, '''
        def f(xs, limit):
            total = 0
            for x in xs:
                _k, _v = _r0(limit, x)
                if _k == 2:
                    break
                if _k == 3:
                    continue
                y = _v
                print(y)
                _k, _v = _r1(limit, y, total)
                if _k == 1:
                    return _v
                total = _v
            return _r2(total)
    ''')


def test_exception_handler_sees_what_was_bound() -> None:
    split = cut('''
        def f(x):
            y = None
            try:
                y = x.exp()
                z = g(y)
                print(z)
            except ValueError:
                return y
            return z * 2
    ''', "print(z)")
    body(split, '''
        def f(x):
            y = None
            try:
                y = _r0(x)
                z = _r1(y)
                print(z)
            except ValueError:
                return y
            return _r2(z)
    ''')


def test_maybe_unbound() -> None:
    split = cut('''
        def f(x, flag):
            if flag:
                y = x * 2
            print(x)
            if flag:
                x = x + y
            return x
    ''', "print(x)")
    body(split, '''
        def f(x, flag):
            y = _r0(x, flag)
            if y is _unbound:
                del y
            print(x)
            return _r1(x, flag, locals().get("y", _unbound))
    ''')
    space: dict[str, Any] = {}
    exec(split.text, space)
    space["_r0"], space["_r1"] = space["_r0_eager"], space["_r1_eager"]
    assert space["f"](3, True) == 9 and space["f"](3, False) == 3


def test_captured_and_rebound_stays_eager() -> None:
    split = cut('''
        def f(x):
            n = x.sum()
            g = lambda: n * 2
            print(x)
            n = n + 1
            return g() + x
    ''', "print(x)")
    assert [each.code for each in split.eager] == ["AOT251"] * len(split.eager) and split.eager
    assert "    g = lambda: n * 2" in function_text(split) and "    n = n + 1" in function_text(split)


def test_super_and_private_names() -> None:
    split = cut('''
        def forward(self, x):
            y = super().forward(x) + self.__bias
            print(y)
            return y * 2
    ''', "print(y)", freevars=("__class__",), class_name="Net")
    assert region(split, 0)[:2] == ["def _r0_eager(self, x, __class__):", "y = super(__class__, self).forward(x) + self._Net__bias"]


def test_global_is_declared_in_the_region() -> None:
    split = cut('''
        def f(x):
            global last
            last = x * 2
            print(x)
            return last + 1
    ''', "print(x)")
    assert region(split, 0) == ["def _r0_eager(x):", "global last", "last = x * 2"]


@pytest.mark.parametrize("source", ["def f(x):\n    yield x * 2\n", "async def f(x):\n    return x * 2\n", "def f(x):\n    return len(locals()) * x\n",
                                    "def f(x):\n    exec('x')\n    return x * 2\n"])
def test_unsplit(source: str) -> None:
    split = split_function(source, [])
    assert split.text == source and not split.regions and [each.code for each in split.eager] == ["AOT250"]


def test_region_filter_leaves_statements_in_place() -> None:
    split = cut('''
        def f(x):
            y = x * 2
            print(y)
            return y + 1
    ''', "print(y)", region_filter=lambda found: "+ 1" in found.text)
    assert [each.index for each in split.regions] == [0]
    body(split, '''
        def f(x):
            y = x * 2
            print(y)
            return _r0(y)
    ''')


def test_identity_does_not_depend_on_other_regions() -> None:
    source = '''
        def f(x):
            a = x.exp()
            print(a)
            b = a.sin()
            print(b)
            return b * 2
    '''
    fewer, more = cut(source, "print(b)"), cut(source, "print(a)", "print(b)")
    assert fewer.regions[-1].identity == more.regions[-1].identity and fewer.regions[-1].index != more.regions[-1].index


def test_line_map_and_positions_of_an_indented_method() -> None:
    source = 'def forward(self, x):\n    y = "é", x * 2\n    print(y)\n    return y[1] + 1\n'
    found = at(source, "print(y)")
    moved = Break(Span("m.py", 12, 8, 12, 16), found.kind, found.code, found.reason)
    split = split_function(source, [moved], first_line=10, indent=4)
    lines = split.text.splitlines()
    number = next(i for i, line in enumerate(lines, 1) if line.startswith("    print(y)"))
    assert split.line_map[number] == 12 and "(line 12)" in lines[number - 1]
    assert split.line_map[next(i for i, line in enumerate(lines, 1) if "x * 2" in line)] == 11
    assert [each.lines for each in split.regions] == [(11, 11), (13, 13)]


def test_with_try_and_for_stay_python() -> None:
    body(cut('''
        def f(self, x):
            with torch.no_grad(), timer(x.sum().item()) as t:
                for i, b in enumerate(self.blocks):
                    x = b(x)
                    self.seen.append(x.mean().item())
                    x = x + 1
            return x * t
    ''', "timer(x.sum().item())", "x.sum().item()", "x.mean().item()", "self.seen.append(x.mean().item())"), '''
        def f(self, x):
            with torch.no_grad():
                _t0 = _r0(x)
                with timer(_t0.item()) as t:
                    for i, b in enumerate(self.blocks):
                        x = _r1(x, b)
                        _t0 = _r2(x)
                        self.seen.append(_t0.item())
                        x = _r3(x)
            return _r4(x, t)
    ''')


def test_locate() -> None:
    source = "def f(x):\n    return g(x).item() + [h(y) for y in x][0]\n"
    found = locate(source, 2, 11, 2, 22)
    assert isinstance(found, ast.Call) and ast.unparse(found) == "g(x).item()"
    assert isinstance(locate(source, 2, 26, 2, 30), ast.Return)


@pytest.mark.parametrize("binding, settled", [
    ("k = 1", True), ("k = 1\n    k = 2", False), ("for k in range(3): pass", False), ("while x:\n        k = 1", False), ("k = 1\n    del k", False),
    ("k = 1\n    def other():\n        nonlocal k\n        k = 2", False), ("if x:\n        k = 1", True), ("import math as k", True), ("k = 1; k += 1", False),
    ("with x as k: pass", True), ("[k for k in x]\n    k = 1", True), ("[(k := 1) for j in x]", False), ("try: pass\n    except ValueError as k: pass", False),
])
def test_variables_of_enclosing_functions_that_are_bound_once(binding: str, settled: bool) -> None:
    text = f"def outer(x):\n    {binding}\n    def inner(y):\n        return [lambda: k, y]\n    return inner\n"
    line = 1 + text.splitlines().index("    def inner(y):")
    assert settled_variables(text, line, ["k", "unknown"]) == (frozenset({"k"}) if settled else frozenset())


def test_an_inner_function_may_capture_a_settled_variable() -> None:
    source = "def f(x):\n    y = x + 1\n    return apply(lambda t: t * k, y)\n"
    assert not [note for note in split_function(source, [], freevars=("k",), settled={"k"}).eager if note.code == "AOT251"]
    assert [note for note in split_function(source, [], freevars=("k",)).eager if note.code == "AOT251"]


def test_statements_of_one_line_are_compiled_one_by_one_where_a_manager_may_swallow_exceptions() -> None:
    split = cut("""
        def f(x, manager):
            with manager:
                y = x * 2; z = y + 1
            print("between")
            return y + z
    """, ('print("between")',), ("manager", "call", {"nth": 1}))
    assert "AOT253" not in [note.code for note in split.eager]
    assert len(split.regions) == 3
    assert "        y = _r0(x)  # region 0: line 3\n        z = _r1(y)  # region 1: line 3\n" in split.text
