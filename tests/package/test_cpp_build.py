"""Building kernel texts: targets, errors, reproducible bytes, long files."""
from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from aotcompile.base.diagnostic import AotCompileError
from aotcompile.package import cpp_build
from aotcompile.package.cpp_build import Build, compile_libraries, compile_library, find_compiler, native_target, resolve_target, split_text

TEXT = """\
#include <stdint.h>

// one
extern "C" int32_t one(void *const *buffers, const int64_t *sizes) {
  return (int32_t)sizes[0] + 1;
}
"""


def test_a_kernel_can_be_called(tmp_path: Path) -> None:
    path = compile_library(TEXT, target="native", output_path=tmp_path / "a b" / "é.so")
    assert ctypes.CDLL(str(path)).one(None, (ctypes.c_int64 * 1)(41)) == 42


def test_same_text_same_bytes(tmp_path: Path) -> None:
    many = TEXT + "".join(f'\n// {k}\nextern "C" int32_t f{k}(void *const *b, const int64_t *s) {{\n  return {k};\n}}\n' for k in range(20))
    assert len(split_text(many)) == 3 and split_text(many)[1].startswith("#include") and "// 7\n" in split_text(many)[1]
    compile_libraries([Build(many, "cpu", tmp_path / "one.so"), Build(many, "cpu", tmp_path / "other" / "two.so")], jobs=2)
    compile_libraries([Build(many, "cpu", tmp_path / "three.so")], jobs=1)
    one = (tmp_path / "one.so").read_bytes()
    assert one == (tmp_path / "other" / "two.so").read_bytes() == (tmp_path / "three.so").read_bytes()
    assert str(tmp_path).encode() not in one and b"/aotcompile-" not in one
    library = ctypes.CDLL(str(tmp_path / "one.so"))
    assert [getattr(library, f"f{k}")(None, None) for k in range(20)] == list(range(20))


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -x")
    with pytest.raises(AotCompileError, match="AOT501.*no-such-compiler -x"):
        find_compiler()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AotCompileError, match="AOT501.*CXX"):
        compile_library(TEXT, target="cpu", output_path=tmp_path / "a.so")


def test_the_compilers_message_is_shown(tmp_path: Path) -> None:
    with pytest.raises(AotCompileError, match=r"AOT502(.|\n)*kernels0.cpp:6(.|\n)*error") as failure:
        compile_library(TEXT.replace("}\n", "oops\n}\n"), target="cpu", output_path=tmp_path / "a.so")
    assert "/kernels0.cpp" not in str(failure.value) and not (tmp_path / "a.so").exists()


def test_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_target("cpu") == "cpu" and resolve_target("native") == native_target()
    with pytest.raises(AotCompileError, match="AOT503.*cpu:x86-64-v3"):
        resolve_target("cpu:z80")
    monkeypatch.setattr(cpp_build, "architecture", lambda: "aarch64")
    assert resolve_target("native") == "cpu"
    with pytest.raises(AotCompileError, match="AOT503.*aarch64"):
        resolve_target("cpu:x86-64-v3")


@pytest.mark.parametrize("flags, level", [(cpp_build._V2, "cpu:x86-64-v2"), (cpp_build._V2 | cpp_build._V3, "cpu:x86-64-v3"),
                                          (cpp_build._V2 | cpp_build._V3 | cpp_build._V4, "cpu:x86-64-v4"), (set(), "cpu"), (cpp_build._V4, "cpu")])
def test_levels(flags: set[str], level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp_build, "architecture", lambda: "x86_64")
    monkeypatch.setattr(cpp_build, "_processor_flags", lambda: flags)
    assert native_target() == level
