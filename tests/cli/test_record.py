"""``aotcompile record``: a real command in a process of its own, and the file read back as entries."""
from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from aotcompile.cli.main import main
from aotcompile.frontend.entries import collect_entries, locate_package
from aotcompile.options import load_configuration

Write = Callable[[dict[str, str]], Path]

FILES = {"mypkg/__init__.py": "", "mypkg/model.py": """\
    import torch

    def scale(x, factor, *, mode="sum", mask=None):
        return helper(x) * factor

    def helper(x):
        return x + 1

    def takes_object(x, thing):
        return x

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x, state):
            return helper(self.linear(x))
""", "use.py": """\
    import torch
    from mypkg.model import Net, scale, takes_object
    for n in (8, 5, 1):
        scale(torch.ones(n, 3), 2.5, mode="mean")
    scale(torch.ones(3, 4, dtype=torch.bfloat16).t(), True)
    net = Net()
    for n in (2, 4):
        net(torch.ones(n, 3), {"h": [torch.zeros(n, dtype=torch.int64)]})
    takes_object(torch.ones(1), net)
    print("the command's own output")
"""}


def test_recorded_calls_become_entries(write_package: Write, capfd: pytest.CaptureFixture[str]) -> None:
    root = write_package(FILES)
    assert main(["record", "mypkg", "--", sys.executable, "use.py"]) == 0
    found = capfd.readouterr()
    assert "the command's own output" in found.out and "2 functions -> aotcompile-signatures.toml" in found.out
    assert "AOT130 mypkg.model:takes_object was called with mypkg.model.Net" in found.err
    text = (root / "aotcompile-signatures.toml").read_text()
    assert tomllib.loads(text)["entry"] == [
        {"function": "mypkg.model:scale", "inputs": {"x": "f32[s0, 3]", "factor": 2.5, "mode": "mean"}},
        {"function": "mypkg.model:scale", "inputs": {"x": "bf16[4, 3][1, 4]", "factor": True}},
        {"function": "mypkg.model:Net.forward", "inputs": {"x": "f32[s0, 3]", "state": {"h": ["i64[s0]"]}}},
    ]
    entries = collect_entries(locate_package("mypkg", root), load_configuration(root / "mypkg", environment={}).options)
    assert [e.name for e in entries] == ["mypkg.model:scale", "mypkg.model:scale", "mypkg.model:Net.forward"]
    assert sorted(str(p) for p in entries[2].dynamic_shapes) == ["state['h'][0]", "x"]
    for entry in entries:
        entry.target(*entry.args, **entry.kwargs)
    assert main(["record", "mypkg", "--", sys.executable, "use.py"]) == 0 and (root / "aotcompile-signatures.toml").read_text() == text


def test_a_command_that_fails_or_calls_nothing(write_package: Write, capfd: pytest.CaptureFixture[str]) -> None:
    root = write_package({**FILES, "bad.py": "import torch\nfrom mypkg.model import scale\nscale(torch.ones(2), 1)\nraise SystemExit(7)\n"})
    assert main(["record", "mypkg", "--", sys.executable, "bad.py"]) == 1
    assert "AOT132 the command ended with exit code 7" in capfd.readouterr().err and "i" in (root / "aotcompile-signatures.toml").read_text()
    assert main(["record", "mypkg", "--", sys.executable, "-c", "pass"]) == 1
    assert "AOT131" in capfd.readouterr().err
    assert main(["record", "mypkg"]) == 2 and main(["record", "mypkg", "--", "no-such-command"]) == 2
