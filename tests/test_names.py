"""Names that may not appear: the peers' modules in our code, errors swallowed in silence, absolute paths in what is generated."""
from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path for folder in ("aotcompile", "cli") for path in (ROOT / folder).rglob("*.py"))
PEERS = ("torch._dynamo", "torch._inductor")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports_of(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("import_module", "__import__"):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
    return found


def is_peer(dotted: str) -> bool:
    return any(dotted == peer or dotted.startswith(peer + ".") for peer in PEERS)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_peer_is_used(path: Path) -> None:
    assert [d for d in sorted(imports_of(ast.parse(path.read_text(encoding="utf-8")))) if is_peer(d)] == []


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_error_is_swallowed(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            silent = all(isinstance(s, (ast.Pass, ast.Continue)) for s in node.body) and caught in ("everything", "Exception", "BaseException")
            assert not silent, f"line {node.lineno}: except {caught} does nothing"


def test_the_peer_rule_sees_each_way_of_writing_it() -> None:
    for text in ("import torch._dynamo", "from torch._inductor import config", "from torch import _dynamo", "torch._dynamo.reset()",
                 "importlib.import_module('torch._dynamo')", "def f():\n    import torch._inductor.ir"):
        assert any(map(is_peer, imports_of(ast.parse(text)))), text
    assert not any(map(is_peer, imports_of(ast.parse("import torch._dynamics\nprint('torch._dynamo is a peer')"))))


def test_generated_text_has_no_absolute_path() -> None:
    files = [p for p in (ROOT / "generated").rglob("*") if p.suffix in (".py", ".json", ".cpp", ".toml", ".md")]
    pattern = re.compile(r"(?<![\w.])/(root|home|tmp|work|Users)/")
    assert [name(p) for p in files if pattern.search(p.read_text(encoding="utf-8"))] == []
