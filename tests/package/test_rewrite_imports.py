from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from package_samples import make_package, rewrite

from aotcompile.package.contents import package_contents
from aotcompile.package.discover import package_source
from aotcompile.package.rewrite.imports import ModuleName
from aotcompile.package.types import PackagePlan
from aotcompile.package.writer import write_package


@pytest.mark.parametrize("before, after", [
    ("from mypkg.sub import x, y as z  # why\n", "from .sub import x, y as z  # why\n"),
    ("from mypkg import sub\n", "from . import sub\n"),
    ("from mypkg.sub import (\n    x,  # a\n    y,\n)\n", "from .sub import (\n    x,  # a\n    y,\n)\n"),
    ("from mypkg . sub \\\n  import x\n", "from .sub \\\n  import x\n"),
    ("import mypkg.sub.a as m; y = 1\n", "from .sub import a as m; y = 1\n"),
    ("import mypkg.sub as sub\n", "from . import sub\n"),
    ("from . import sub\nfrom .sub import x\nimport mypkgs, os\nfrom mypkgs import mypkg\n", None),
    ("if TYPE_CHECKING:\n    import mypkg.sub\nelse:\n    from mypkg import sub\n",
     "if TYPE_CHECKING:\n    import mypkg.sub\nelse:\n    from . import sub\n"),
    ("if typing.TYPE_CHECKING:\n    from mypkg import sub\n", None),
    ("def f():\n    if 1: from mypkg.sub import ä\n", "def f():\n    if 1: from .sub import ä\n"),
    ("é = 1; from mypkg.sub import x\n", "é = 1; from .sub import x\n"),
    ("'import mypkg'\n# import mypkg\n__all__ = ['mypkg']\nif __name__ == '__main__':\n    pass\n", None),
])
def test_before_and_after(before: str, after: str | None) -> None:
    assert rewrite(before).text == (before if after is None else after)


def test_import_that_binds_the_root() -> None:
    before = '"""Doc."""\nimport os, sys, mypkg.sub.a, json as j\nimport mypkg\nimport mypkg as p\n'
    assert rewrite(before).text == (
        '"""Doc."""\nfrom importlib import import_module as _import_module\n'
        'import os, sys; _import_module(".sub.a", __package__); mypkg = _import_module(".", __package__); import json as j\n'
        'mypkg = _import_module(".", __package__)\np = _import_module(".", __package__)\n')


@pytest.mark.parametrize("module, is_package, target, relative", [
    ("mypkg", True, "mypkg", "."), ("mypkg", True, "mypkg.a.b", ".a.b"), ("mypkg.m", False, "mypkg", "."), ("mypkg.a", True, "mypkg", ".."),
    ("mypkg.a.b", False, "mypkg.a.c", ".c"), ("mypkg.a.b", False, "mypkg.a", "."), ("mypkg.a.b.c", False, "mypkg.a.d", "..d"),
    ("mypkg.a.b", False, "mypkg.x", "..x"), ("mypkg.a.b.c", False, "mypkg", "..."),
])
def test_relative_names(module: str, is_package: bool, target: str, relative: str) -> None:
    assert ModuleName("mypkg", module, is_package).relative(target) == relative


def test_a_name_in_a_string_is_reported() -> None:
    result = rewrite("import importlib\nimportlib.import_module('mypkg.sub')\nimportlib.import_module('.sub', __package__)\n__import__('os')\n")
    assert [(d.code, d.span.line if d.span else 0) for d in result.diagnostics] == [("AOT613", 2)]


PACKAGE = {
    "__init__.py": '"""Root."""\nfrom __future__ import annotations\nimport mypkg.a\nfrom mypkg.a.deep import VALUE\nNAME = __name__\n',
    "a/__init__.py": "import mypkg\nimport mypkg.b as b\n",
    "a/deep.py": ("import mypkg.b, os\nfrom mypkg import b as again\nVALUE = 7\n\n\n"
                  "def modules():\n    import mypkg.a.deep\n    from mypkg.a import deep as d\n"
                  "    return [mypkg.b.__name__, again.__name__, mypkg.a.deep.__name__, d.__name__, mypkg.__name__]\n\n\n"
                  "class Holder:\n    import mypkg.b as inner\n"),
    "b.py": "class Thing:\n    pass\n",
    "data/größe ü.txt": "Daten\n",
    "native.so": b"\x7fELF\0",
    "only.pyc": b"\0\0",
    "broken.py": "def f(:\n",
    "my-script.py": "import mypkg\n",
}


@pytest.mark.parametrize("root", ["generated", "renamed.deeper"])
def test_imports_lead_to_the_generated_copy(tmp_path: Path, root: str) -> None:
    home = tmp_path / "häuser und mehr"
    make_package(home / "src", PACKAGE)
    source = package_source("mypkg", home / "src", home / "src" / "mypkg")
    contents = package_contents(PackagePlan(source, ()))
    out = home.joinpath("out", *root.split("."))
    write_package(contents, out)
    assert [(d.code, str(d.span)) for d in contents.diagnostics] == [("AOT611", "mypkg/broken.py:1:1")]
    code = (f"import sys, importlib; m = importlib.import_module('{root}.mypkg.a.deep'); print(m.modules(), m.Holder.inner.__name__); "
            "print([n for n in sys.modules if n.split('.')[0] == 'mypkg'])")
    result = subprocess.run([sys.executable, "-c", code], cwd=home / "out", env={"PYTHONPATH": str(home / "src"), "PYTHONIOENCODING": "utf-8"},
                            capture_output=True, text=True, check=False)
    expected = [f"{root}.mypkg{module}" for module in (".b", ".b", ".a.deep", ".a.deep", "")]
    assert result.stdout.splitlines() == [f"{expected} {root}.mypkg.b", "[]"], result.stderr
    for copied in ("data/größe ü.txt", "native.so", "only.pyc", "broken.py", "my-script.py", "b.py"):
        assert (out / "mypkg" / copied).read_bytes() == (home / "src" / "mypkg" / copied).read_bytes()
