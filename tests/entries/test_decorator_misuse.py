"""Wrong use of the decorator says so at the user's line."""
from __future__ import annotations

from typing import Any

import pytest

import aotcompile


@pytest.mark.parametrize("inputs", [lambda: ("f32[8]",), "f32[8]", 3])
def test_inputs_that_are_no_list_of_signatures(inputs: Any) -> None:
    with pytest.raises(TypeError, match="inputs must be a sequence or a mapping of signatures"):
        aotcompile.entry(inputs=inputs)
