"""What `aotcompile.compile` says of example inputs in another form."""
from __future__ import annotations

from typing import Any

import pytest
import torch

import aotcompile
from aotcompile.base.diagnostic import UsageError


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize(("given", "says"), [
    (torch.ones(2), "this is a Tensor"), ((torch.ones(2),), "this is a tuple"), ([], "this is an empty list"), ([torch.ones(2)], "this is a Tensor"),
    (((torch.ones(2),), torch.ones(2)), "this is a tuple"), (None, "this is a NoneType"),
])
def test_another_form(given: Any, says: str) -> None:
    with pytest.raises(UsageError, match=f"AOT113.*{says}"):
        aotcompile.compile(double, example_inputs=given, backend="eager")
