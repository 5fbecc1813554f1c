"""package/host_build.py: one compilation per environment, no path of the machine in the binary, clear errors."""
from __future__ import annotations

import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from aotcompile.base.diagnostic import AotCompileError
from aotcompile.package import host_build


def test_second_build_comes_from_the_cache(native: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("compiled although the cache has it")
    monkeypatch.setattr(host_build, "_compile", refuse)
    path = host_build.build_host_extension(tmp_path / "a folder ü")
    assert path.parent.name == host_build.host_folder_name() and path.name == "_aotcompile_native.so"
    assert path.read_bytes() == Path(native.__file__ or "").read_bytes() and native.PROTOCOL == 1
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_no_path_of_this_machine_in_the_binary(native: ModuleType) -> None:
    import torch
    data = Path(native.__file__ or "").read_bytes()
    for path in (Path(torch.__file__).parent, host_build.SOURCES, Path.home()):
        assert str(path).encode() not in data


def test_cache_folder_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTCOMPILE_CACHE_DIR", str(tmp_path))
    assert host_build.cache_directory() == tmp_path
    monkeypatch.setattr(host_build, "_compile", lambda command, built: built.write_bytes(b"made"))
    assert host_build.build_host_extension(tmp_path / "out").read_bytes() == b"made"
    assert len(list(tmp_path.glob("host-*/_aotcompile_native.so"))) == 1


def test_missing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler-at-all")
    with pytest.raises(AotCompileError, match="AOT501.*no-such-compiler-at-all"):
        host_build.build_host_extension(tmp_path)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AotCompileError, match="AOT501.*c\\+\\+"):
        host_build.find_compiler()


def test_failing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'unit.cpp:1: error: no such thing' >&2\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("AOTCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(AotCompileError, match="AOT502(.|\n)*no such thing"):
        host_build.build_host_extension(tmp_path / "out")
    assert not list(tmp_path.glob("cache/*/*.so")) and not (tmp_path / "out").exists()


def test_every_source_is_part_of_the_unit() -> None:
    unit = (host_build.SOURCES / host_build.UNIT).read_text(encoding="utf-8")
    for source in host_build.SOURCES.glob("*.cpp"):
        assert source.name == host_build.UNIT or f'#include "{source.name}"' in unit


def test_sources_compile_alone_too(tmp_path: Path) -> None:
    """The files without torch's headers: an include that only `unit.cpp` provides would go unnoticed otherwise."""
    command = [*host_build.find_compiler(), "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "expression.cpp"]
    subprocess.run(command, cwd=host_build.SOURCES, check=True)
