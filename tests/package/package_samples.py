"""Split functions as the frontend hands them on, made by hand for the tests of the package stage."""
from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

from aotcompile.base.span import Span
from aotcompile.frontend.types import Break, FunctionResult, RegionSource, SplitSource
from aotcompile.package.discover import package_source
from aotcompile.package.rewrite.imports import ModuleName
from aotcompile.package.rewrite.module import RewrittenModule, SplitFunction, rewrite_module
from aotcompile.package.types import FunctionPlan, PackagePlan, VariantFiles


def split(function: str, text: str, regions: int, *, calls: dict[int, str] | None = None, line_map: dict[int, int] | None = None) -> SplitSource:
    """``text`` defines ``_r<N>_eager`` for each region and the rewritten function."""
    text = textwrap.dedent(text).lstrip("\n")
    sources = tuple(RegionSource(f"_r{i}_eager", i, (), "", (i + 1, i + 2), "") for i in range(regions))
    return SplitSource(function, text, sources, calls or {}, line_map or {})


def rewrite(before: str, *functions: tuple[str, SplitSource], variants: Mapping[str, dict[int, int]] | None = None, digest: str = "",
            module: str = "mypkg.model", is_package: bool = False) -> RewrittenModule:
    """`rewrite_module` on a text; a function's line is found by its last ``def name``."""
    found = []
    for qualname, source in functions:
        needle = f"def {qualname.rpartition('.')[2]}("
        line = max(number for number, content in enumerate(before.split("\n"), 1) if needle in content)
        counts = (variants or {}).get(qualname, {region.index: 1 for region in source.regions})
        found.append(SplitFunction(qualname, line, source, counts, digest))
    return rewrite_module(before, found, file=module.replace(".", "/") + ".py", name=ModuleName("mypkg", module, is_package))


NET = '''\
"""A small net."""
from __future__ import annotations

import torch


# A net with a print.
class Net(torch.nn.Module):
    """Docstring."""

    def forward(self, x):  # the entry
        """Says what it does:
          indented."""
        h = x * 2
        print("h", h.shape)
        return h + 1

    # end of Net


def other():  return 1   # untouched
'''

NET_SPLIT = '''
def _r0_eager(self, x):
    h = x * 2
    return h

def _r1_eager(self, h):
    return h + 1

def forward(self, x):
    """Says what it does:
      indented."""
    h = _r0(self, x)  # region 0: line 14
    print("h", h.shape)
    return _r1(self, h)  # region 1: line 16
'''


def make_package(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """A package ``mypkg`` in ``folder``; returns its folder."""
    for name, content in files.items():
        path = folder / "mypkg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / "mypkg"


def net_plan(folder: Path, *, text: str = "one", options: Mapping[str, object] | None = None) -> PackagePlan:
    """A plan for the package at ``folder``/mypkg with `NET` as its ``model.py``: two variants of region 0 with equal kernels, one of region 1."""
    source = package_source("mypkg", folder, folder / "mypkg")
    texts = {"graph.py": f"# {text}\n", "kernels.cpp": "int kernel;\n", "plan.json": "{}\n", "wrapper.py": "# wrapper\n"}
    variant = VariantFiles(texts, {"cpu-x86-64-v3": b"\x7fELF one"})
    graph_break = Break(Span("mypkg/model.py", 15, 8, function="Net.forward"), "call", "AOT201", "print")
    result = FunctionResult("mypkg.model", "Net.forward", "mypkg/model.py", (11, 16), split("Net.forward", NET_SPLIT, 2), {}, (graph_break,))
    return PackagePlan(source, (FunctionPlan(result, {0: (variant, variant), 1: (VariantFiles({"plan.json": "{}\n"}),)}),),
                       options or {"backend": "native", "targets": ["native"]}, {"torch": "2.13.0", "aotcompile": "0.1.0", "python": "3.11"})
