from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from aotcompile.base.digest import digest, file_digest, short_digest
from aotcompile.base.writer import Writer


def test_indentation() -> None:
    out = Writer()
    out.blank()
    out.line("def f(x):")
    with out.indented():
        out.line("if x:\n    return 1   ")
        out.line()
        with out.indented("for i in x:"):
            out.lines(["a()", "b()"])
    out.blank(2)
    out.blank(2)
    out.line("done")
    out.line()
    assert out.text() == "def f(x):\n    if x:\n        return 1\n\n    for i in x:\n        a()\n        b()\n\n\ndone\n"


def test_braces_and_unit() -> None:
    out = Writer("  ")
    with out.indented("{", "}"):
        out.line("int x;")
    assert out.text() == "{\n  int x;\n}\n" and Writer().text() == ""


def test_an_error_inside_keeps_the_level() -> None:
    out = Writer()
    with pytest.raises(KeyError), out.indented("{", "}"):
        raise KeyError
    out.line("x")
    assert out.text() == "{\nx\n"


def test_digests(tmp_path: Path) -> None:
    data = "größe\n".encode() * 400_000                # more than one piece
    path = tmp_path / "daten ü"
    path.write_bytes(data)
    assert digest(data) == file_digest(path) == digest(data.decode()) == hashlib.sha256(data).hexdigest()
    assert short_digest("x") == hashlib.sha256(b"x").hexdigest()[:16]
    assert len(digest("\ud800")) == 64
