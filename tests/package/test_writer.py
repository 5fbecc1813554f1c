"""The written package: layout, determinism, and all or nothing."""
from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from package_samples import NET, make_package, net_plan

from aotcompile.base.diagnostic import AotCompileError
from aotcompile.base.digest import digest, file_digest, short_digest
from aotcompile.package import layout, writer
from aotcompile.package.contents import package_contents
from aotcompile.package.discover import package_source
from aotcompile.package.types import PackagePlan


def snapshot(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_package(tmp_path, {"__init__.py": "", "model.py": NET, "sub/data.bin": b"\0\1", "__pycache__/x.pyc": b"", "model.pyc": b"old"})
    return tmp_path


def test_layout(project: Path) -> None:
    written = writer.write_package(package_contents(net_plan(project)), project / "generated")
    files = snapshot(project / "generated")
    binary = f"_aot/bin/cpu-x86-64-v3/{short_digest('int kernel;' + chr(10))}.so"
    region = "mypkg/_aot/model/Net.forward"
    assert sorted(files) == sorted([
        "__init__.py", "mypkg/__init__.py", "mypkg/model.py", "mypkg/sub/data.bin", "mypkg/manifest.json", f"mypkg/{binary}",
        *(f"{region}/r0/v{v}/{name}" for v in (0, 1) for name in ("graph.py", "kernels.cpp", "plan.json", "wrapper.py")),
        f"{region}/r1/v0/plan.json"])
    manifest = json.loads(files["mypkg/manifest.json"])
    assert manifest["regions"] == {"mypkg.model": {
        "Net.forward:r0": {"variants": ["_aot/model/Net.forward/r0/v0", "_aot/model/Net.forward/r0/v1"], "lines": [1, 2]},
        "Net.forward:r1": {"variants": ["_aot/model/Net.forward/r1/v0"], "lines": [2, 3]}}}
    assert manifest["kernels"] == {f"_aot/model/Net.forward/r0/v{v}": {"cpu-x86-64-v3": binary} for v in (0, 1)}
    assert manifest["sources"]["model.py"] == digest(NET) and manifest["modules"] == {"model.py": digest(files["mypkg/model.py"])}
    assert set(manifest["files"]) == {p.removeprefix("mypkg/") for p in files if "/_aot/" in p}
    assert all(file_digest(written.folder / path) == value for path, value in manifest["files"].items())
    assert manifest["breaks"][0]["function"] == "Net.forward" and manifest["schema"] == 1 and written.written == len(files) - 1
    assert str(project) not in "".join(content.decode("latin-1") for content in files.values())


def test_same_input_same_bytes(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    writer.write_package(package_contents(net_plan(project)), project / "generated")
    first = snapshot(project / "generated")
    writer.write_package(package_contents(net_plan(project)), project / "generated")
    assert snapshot(project / "generated") == first
    elsewhere = tmp_path_factory.mktemp("anders ä")
    shutil.copytree(project / "mypkg", elsewhere / "mypkg")
    writer.write_package(package_contents(net_plan(elsewhere)), elsewhere / "out")
    assert snapshot(elsewhere / "out") == first


def test_the_hash_seed_does_not_matter(project: Path) -> None:
    code = ("import sys; from pathlib import Path; from package_samples import net_plan;"
            "from aotcompile.package.contents import package_contents;"
            "c = package_contents(net_plan(Path(sys.argv[1]))); print(repr([(k, v) for k, v in c.files.items() if not hasattr(v, 'source')]))")
    paths = f"{Path(__file__).resolve().parents[2]}:{Path(__file__).resolve().parent}"
    texts = {subprocess.run([sys.executable, "-c", code, str(project)], env={"PYTHONHASHSEED": seed, "PYTHONPATH": paths}, capture_output=True,
                            text=True, check=True).stdout for seed in ("1", "2")}
    assert len(texts) == 1


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device", "x"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("after", [0, 3, 9])
def test_a_failure_half_way_leaves_the_old_build(project: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, after: int) -> None:
    generated = project / "generated"
    make_other(generated)
    writer.write_package(package_contents(net_plan(project)), generated)
    before = snapshot(generated)
    real, count = writer._write_file, 0

    def failing(path: Path, content: Any) -> None:
        nonlocal count
        count += 1
        if count > after:
            raise failure
        real(path, content)

    monkeypatch.setattr(writer, "_write_file", failing)
    contents = package_contents(net_plan(project, text="two"))
    expected = AotCompileError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected) as caught:
        writer.write_package(contents, generated)
    assert snapshot(generated) == before and not list(generated.glob(".*"))
    if isinstance(caught.value, AotCompileError):
        assert caught.value.diagnostics[0].code == "AOT620" and "No space left" in str(caught.value)
    monkeypatch.undo()
    writer.write_package(contents, generated)
    assert b"# two\n" in snapshot(generated).values() and snapshot(generated / "other") == {"manifest.json": b"{}"}


def make_other(generated: Path) -> None:
    (generated / "other").mkdir(parents=True)
    (generated / "other" / "manifest.json").write_text("{}")


@pytest.mark.parametrize("step", [0, 1])
def test_a_failure_while_changing_places(project: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Without the one-step exchange, which not every file system has."""
    generated = project / "generated"
    writer.write_package(package_contents(net_plan(project)), generated)
    before = snapshot(generated)
    monkeypatch.setattr(writer, "_exchange", lambda new, folder: False)
    real, calls = os.rename, 0

    def failing(old: Any, new: Any) -> None:
        nonlocal calls
        calls += 1
        if calls - 1 == step:
            raise OSError(errno.EIO, "Input/output error")
        real(old, new)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(AotCompileError, match="AOT620"):
        writer.write_package(package_contents(net_plan(project, text="two")), generated)
    assert snapshot(generated) == before and not list(generated.glob(".*"))
    monkeypatch.setattr(os, "rename", real)
    writer.write_package(package_contents(net_plan(project, text="two")), generated)
    assert b"# two\n" in snapshot(generated).values() and not list(generated.glob(".*"))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="renameat2 is Linux's")
def test_exchange_is_one_step(tmp_path: Path) -> None:
    one, other = tmp_path / "ä", tmp_path / "b"
    one.mkdir(), other.mkdir(), (one / "x").touch()
    if writer._exchange(one, other):
        assert (other / "x").exists() and not (one / "x").exists()
    with pytest.raises(OSError, match="No such file"):
        writer._exchange(tmp_path / "none", other)


def test_an_output_that_cannot_be_written(project: Path) -> None:
    (project / "file").write_text("")
    with pytest.raises(AotCompileError, match="AOT620 mypkg was not written"):
        writer.write_package(package_contents(net_plan(project)), project / "file")


def test_folders_that_are_not_ours_stay(project: Path) -> None:
    before = snapshot(project)
    with pytest.raises(AotCompileError, match="AOT621"):
        writer.write_package(package_contents(net_plan(project)), project)         # would replace the user's package itself
    assert snapshot(project) == before


@pytest.mark.parametrize("name", ["manifest.json", "_aot/x.py"])
def test_reserved_names(project: Path, name: str) -> None:
    make_package(project, {name: "{}"})
    with pytest.raises(AotCompileError, match=f"AOT610 mypkg/{name}"):
        package_contents(net_plan(project))


def test_permissions(project: Path) -> None:
    (project / "mypkg" / "sub" / "data.bin").chmod(0o555)
    writer.write_package(package_contents(net_plan(project)), project / "generated")
    generated = project / "generated"
    assert (generated / "mypkg" / "sub" / "data.bin").stat().st_mode & 0o777 == 0o755
    umask = os.umask(0)
    os.umask(umask)
    assert generated.joinpath("mypkg").stat().st_mode & 0o777 == 0o777 & ~umask and (generated / "__init__.py").stat().st_mode & 0o777 == 0o644


def test_a_single_module(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text("import tool\nVALUE = 3\n")
    source = package_source("tool", tmp_path, tmp_path / "tool.py")
    writer.write_package(package_contents(PackagePlan(source, ())), tmp_path / "generated")
    code = "import generated.tool as t, sys; print(t.tool.VALUE, t.tool is t, 'tool' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert output == "3 True False\n"


def test_encodings_stay(tmp_path: Path) -> None:
    latin = "# -*- coding: latin-1 -*-\nimport mypkg\nNAME = 'Größe'\n".encode("latin-1")
    marked = b"\xef\xbb\xbfimport mypkg\n"
    make_package(tmp_path, {"__init__.py": "", "latin.py": latin, "marked.py": marked})
    source = package_source("mypkg", tmp_path, tmp_path / "mypkg")
    files = package_contents(PackagePlan(source, ())).files
    assert isinstance(files["latin.py"], bytes) and files["latin.py"].endswith("NAME = 'Größe'\n".encode("latin-1"))
    assert isinstance(files["marked.py"], bytes) and files["marked.py"].startswith(b"\xef\xbb\xbffrom importlib")
    compile(files["latin.py"], "latin.py", "exec")
    compile(files["marked.py"], "marked.py", "exec")


def test_paths_stay_inside() -> None:
    for path in ("/x", "../x", "a/../../x", "", "a\\b", "."):
        assert not layout.is_safe(path)
    assert layout.is_safe("_aot/model/größe.py")
    with pytest.raises(ValueError, match="not in package"):
        layout.module_in_package("mypkg", "mypkgs.model")
    with pytest.raises(ValueError, match="no file of a variant"):
        layout.variant_file("v0", "x.py")


def test_links_and_excluded_folders(project: Path) -> None:
    make_package(project, {"out/x.py": "", "real/y.txt": "y"})
    (project / "mypkg" / "link").symlink_to(project / "mypkg")
    (project / "elsewhere").mkdir()
    (project / "elsewhere" / "z.txt").write_text("z")
    (project / "mypkg" / "data").symlink_to(project / "elsewhere")
    source = package_source("mypkg", project, project / "mypkg", exclude=[project / "mypkg" / "out"])
    assert source.files == ("__init__.py", "data/z.txt", "model.py", "real/y.txt", "sub/data.bin")
    assert [m.name for m in source.modules] == ["mypkg", "mypkg.model"]
