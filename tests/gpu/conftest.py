"""Tests on a GPU: opt-in by having one. AOTCOMPILE_GPU_BUNDLE names a folder that bundle.py wrote (on a machine without GPU); otherwise kernels are built here."""
from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest
import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "triton")]

from bundle import Bundle, make_bundle  # noqa: E402


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="no GPU"))


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = os.environ.get("AOTCOMPILE_GPU_BUNDLE")
    if folder is None:
        folder = str(tmp_path_factory.mktemp("bundle"))
        major, minor = torch.cuda.get_device_capability()
        make_bundle(Path(folder), [f"cuda:sm_{major}{minor}"], jobs=os.cpu_count() or 1)
    return pickle.loads((Path(folder) / "bundle.pickle").read_bytes()).at(Path(folder))
