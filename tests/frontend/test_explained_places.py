"""Messages about code say where it is: the file from its top package down, each place once."""
from __future__ import annotations

import torch

import aotcompile


def shares(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
    x = x + 1
    print("a")
    y = (lambda: torch.zeros_like(x))() if y is None else y
    x = x * 2
    x = x.sin()
    return x + y


def fixes(x: torch.Tensor) -> torch.Tensor:
    return x + len(str(x.shape[0]))


def test_a_shared_variable_is_said_once() -> None:
    [function] = aotcompile.explain(shares, example_inputs=((torch.randn(3),), {})).functions
    [note] = function.eager
    first = shares.__code__.co_firstlineno
    assert note.code == "AOT251" and note.span is not None and note.span.file.endswith("test_explained_places.py") and note.span.line == first + 1
    assert note.message.endswith(f"The same holds for lines {first + 3}, {first + 4}, {first + 5}.")


def test_what_fixes_a_size_is_named_with_its_path() -> None:
    x = torch.randn(3)
    [function] = aotcompile.explain(fixes, example_inputs=((x,), {}), dynamic_shapes={"x": {0: "n"}}).functions
    [note] = [note for note in function.notes if note.code == "AOT216"]
    assert note.span is not None and note.span.file.endswith("frontend/test_explained_places.py")
    assert note.span.line == fixes.__code__.co_firstlineno + 1
