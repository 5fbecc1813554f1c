from __future__ import annotations

from pathlib import Path

import pytest
from package_samples import NET, make_package, net_plan

from aotcompile.base.diagnostic import AotCompileError
from aotcompile.package.contents import package_contents
from aotcompile.package.discover import package_source
from aotcompile.package.freshness import check, clean, diff
from aotcompile.package.types import PackageSource
from aotcompile.package.writer import write_package

OPTIONS = {"backend": "native", "targets": ("native",)}
VERSIONS = {"torch": "2.13.0", "aotcompile": "0.1.0", "python": "3.12"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    make_package(tmp_path, {"__init__.py": "", "model.py": NET, "data.txt": "a\n"})
    write_package(package_contents(net_plan(tmp_path)), tmp_path / "generated")
    return tmp_path


def source(project: Path) -> PackageSource:
    return package_source("mypkg", project, project / "mypkg")


def codes(project: Path, **options: object) -> list[tuple[str, str]]:
    return [(d.code, d.span.file if d.span else "") for d in check(source(project), project / "generated", **options)]  # type: ignore[arg-type]


def test_fresh(project: Path) -> None:
    texts = package_contents(net_plan(project)).texts
    (project / "generated" / "mypkg" / "__pycache__").mkdir()
    (project / "generated" / "mypkg" / "__pycache__" / "model.pyc").touch()
    assert codes(project, options=OPTIONS, built_with=VERSIONS, texts=texts) == []
    assert diff(texts, project / "generated", "mypkg") == ""


def test_each_difference_is_named(project: Path) -> None:
    generated = project / "generated" / "mypkg"
    make_package(project, {"model.py": NET + "\n", "new.py": ""})
    (project / "mypkg" / "data.txt").unlink()
    (generated / "data.txt").write_text("edited")
    plan = generated / "_aot" / "model" / "Net.forward" / "r0" / "v1" / "plan.json"
    plan.write_text("{ }")
    plan.with_name("graph.py").unlink()
    (generated / "stray.py").touch()
    (generated / "model.py").write_text("x")
    there = "generated/mypkg"
    assert codes(project) == [
        ("AOT632", "mypkg/data.txt"), ("AOT632", "mypkg/model.py"), ("AOT632", "mypkg/new.py"),
        ("AOT636", f"{there}/_aot/model/Net.forward/r0/v1/graph.py"), ("AOT635", f"{there}/_aot/model/Net.forward/r0/v1/plan.json"),
        ("AOT635", f"{there}/data.txt"), ("AOT635", f"{there}/model.py"), ("AOT637", f"{there}/stray.py")]


def test_options_and_versions(project: Path) -> None:
    options, versions = {**OPTIONS, "backend": "eager", "fullgraph": True}, {**VERSIONS, "torch": "2.14.0"}
    found = check(source(project), project / "generated", options=options, built_with=versions)
    assert [str(d) for d in found] == [
        "AOT633 option backend is 'eager', built with 'native'. Run `aotcompile build`.",
        "AOT633 option fullgraph is True, built with 'nothing'. Run `aotcompile build`.",
        "AOT634 version of torch is '2.14.0', built with '2.13.0'. Run `aotcompile build`."]


def test_diff_and_texts_that_a_build_would_write(project: Path) -> None:
    texts = package_contents(net_plan(project, text="two")).texts
    path = "_aot/model/Net.forward/r0/v0/graph.py"
    assert ("AOT638", f"generated/mypkg/{path}") in codes(project, texts=texts)
    shown = diff({name: text for name, text in texts.items() if name != "model.py"} | {"extra.py": "no newline"}, project / "generated", "mypkg")
    assert f"--- generated/mypkg/{path}\n+++ generated/mypkg/{path}\n@@ -1 +1 @@\n-# one\n+# two\n" in shown
    assert "--- (nothing)\n+++ generated/mypkg/extra.py\n@@ -0,0 +1 @@\n+no newline\n\\ No newline at end of file\n" in shown
    assert "--- generated/mypkg/model.py\n+++ (nothing)\n" in shown


def test_nothing_built_or_unusable(project: Path) -> None:
    manifest = project / "generated" / "mypkg" / "manifest.json"
    for text in ("{", "[]", '{"schema": 99}'):
        manifest.write_text(text)
        assert codes(project) == [("AOT631", "")]
    manifest.unlink()
    assert codes(project) == [("AOT630", "")]
    assert [d.code for d in check(source(project), project / "nowhere")] == ["AOT630"]


def test_clean(project: Path) -> None:
    generated = project / "generated"
    (generated / "mine").mkdir()
    (generated / "mine" / "notes.txt").touch()
    (generated / ".mypkg.abc.building").mkdir()
    with pytest.raises(AotCompileError, match="AOT621"):
        clean(generated, ["mine"])
    assert [p.name for p in clean(generated)] == ["mypkg"] and (generated / "mine" / "notes.txt").exists()
    write_package(package_contents(net_plan(project)), generated)
    (generated / "mine" / "notes.txt").unlink()
    (generated / "mine").rmdir()
    (generated / ".mypkg.abc.building").mkdir()
    assert [p.name for p in clean(generated)] == [".mypkg.abc.building", "mypkg", "generated"] and not generated.exists()
    assert clean(generated) == []
