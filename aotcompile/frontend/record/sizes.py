"""Situations beside the examples: other sizes of the dimensions that are dynamic, where what was captured does not serve them.

    def f(x): return x[:, :10].exp()          x: f32[4, T], 7 in the example       served: T < 10; also captured with T = 15
    def g(x): return x.softmax(0)             x: f32[B, 4], 1 in the example       served: B = 1;  also captured with B = 5

The tensors of such a situation repeat, or are the first of, the example's elements.
"""
from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from aotcompile.frontend.capture.region import Dimensions, DimensionSpec
from aotcompile.frontend.record.served import Served, size_of

Sizes = dict[str, int]


class OtherSizes:
    """The sizes to try for one example. ``arguments``: all of its values; ``dimensions``: which of their sizes are dynamic."""

    def __init__(self, arguments: Any, dimensions: Dimensions) -> None:
        self._arguments, self._dimensions = arguments, dimensions
        self.example: Sizes = {}
        self._ranges: dict[str, DimensionSpec] = {}
        found = 0
        for tensor in tensors_of(arguments):
            specs = dimensions.get(id(tensor), {})
            found += bool(specs)
            for dimension, spec in specs.items():
                if spec.name.isidentifier():
                    self.example[spec.name], self._ranges[spec.name] = tensor.shape[dimension], spec
        texts = [spec.name for specs in dimensions.values() for spec in specs.values()]
        self.possible = bool(self.example) and found == len(dimensions) and all(size_of(text, self.example) is not None for text in texts)
        self._tried: list[Sizes] = [self.example]
        self._forms: dict[str, set[tuple[str, ...]]] = {}        # conditions with their numbers left out -> conditions
        self._fixed: set[tuple[str, int]] = set()                # letter, a size at which the code makes it a constant

    def next(self, regions: Sequence[Sequence[Served]]) -> Sizes | None:
        """Sizes that no variant of some region serves; None where there are none left to try. Each is given once."""
        if not self.possible or self._is_exhausted():
            return None
        for sizes in self._candidates([served for region in regions for served in region]):
            if sizes not in self._tried and any(not any(served.holds(sizes) for served in region) for region in regions):
                self._tried.append(sizes)
                return sizes
        return None

    def learn(self, served: Served) -> bool:
        """Take in what a variant that was found serves. Whether it is for more than the sizes it was found at: a letter that the code fixes at the
        example and at another size (a loop over it, say) is not tried further."""
        fixed = {(text, value) for text, value in served.fixed if text in self.example and value not in (0, 1)}
        self._fixed |= fixed
        self._forms.setdefault(_form(served), set()).add(served.conditions)
        at_example = {text for text, value in self._fixed if value == self.example[text]}
        return all(value == self.example[text] or text not in at_example for text, value in fixed)

    def _is_exhausted(self) -> bool:
        """Whether size after size has brought the same questions with other answers: the program is another one for each size."""
        return any(len(conditions) > _SAME_FORM and "==" in form for form, conditions in self._forms.items())

    def _candidates(self, known: Sequence[Served]) -> Iterator[Sizes]:
        """One letter after the other, from what was tried before; sizes in which little is special first."""
        constant = {letter for letter in self.example if (letter, self.example[letter]) in self._fixed and
                    sum(text == letter for text, _ in self._fixed) > 1}
        values = {letter: self._values(letter, known) for letter in self.example if letter not in constant}
        bases = [sizes for sizes in self._tried if all(sizes[letter] == self.example[letter] for letter in constant)]
        for small in (False, True):
            for base in bases:
                for letter, (large, special) in values.items():
                    for value in special if small else large:
                        yield {**base, letter: value}

    def _values(self, letter: str, known: Sequence[Served]) -> tuple[list[int], list[int]]:
        """Sizes from 2, and 0 and 1."""
        example, spec = self.example[letter], self._ranges[letter]
        limits = sorted({int(number) for served in known for condition in served.conditions for number in re.findall(r"\b\d+\b", condition)})
        near = [value for limit in limits for value in (2 * limit + 1, limit + 1, limit - 1, limit)]
        values = dict.fromkeys([2 * example + 3, *near, example + 1, example - 1, 3, 2, 1, 0])
        allowed = [value for value in values if spec.minimum <= value <= min(spec.maximum or _LARGEST, _LARGEST)]
        if not any(value > 1 for value in allowed) and (spec.maximum or 0) > 1:
            allowed.insert(0, min(spec.maximum or 0, _LARGEST))
        return [value for value in allowed if value > 1], [value for value in allowed if value in (1, 0)]

    def resized(self, sizes: Sizes) -> tuple[Any, Dimensions]:
        """The arguments with these sizes, and which of their sizes are dynamic."""
        dimensions: Dimensions = {}
        made: dict[int, torch.Tensor] = {}

        def change(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                specs = self._dimensions.get(id(value))
                if specs is None:
                    return value
                if id(value) not in made:
                    made[id(value)] = _resized(value, {dimension: size_of(spec.name, sizes) or 0 for dimension, spec in specs.items()})
                    dimensions[id(made[id(value)])] = specs
                return made[id(value)]
            if type(value) in (tuple, list):
                return type(value)(map(change, value))
            if _is_record(value):
                changed = copy.copy(value)
                for name in _fields(value):
                    object.__setattr__(changed, name, change(getattr(value, name)))
                return changed
            return {key: change(item) for key, item in value.items()} if type(value) is dict else value

        return change(self._arguments), dimensions


_LARGEST = 1024                # a size that is made up
_SAME_FORM = 2                 # variants that differ in the numbers of their conditions only


def most_attempts(operator_count: int, known: Sequence[Served]) -> int:
    """How many situations to add for an entry whose graphs have so many operators: each costs about what the first has cost, which grows with the
    questions about sizes too."""
    cost = operator_count + sum(len(condition) for served in known for condition in served.conditions) // 20
    return 6 if cost <= 20 else 3 if cost <= 60 else 1


def _form(served: Served) -> str:
    return re.sub(r"\b\d+\b", "#", " and ".join(served.conditions))


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif type(value) in (tuple, list, dict):
        for item in value.values() if type(value) is dict else value:
            yield from tensors_of(item)
    elif _is_record(value):
        for name in _fields(value):
            yield from tensors_of(getattr(value, name))


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _fields(value: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]


def _resized(tensor: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    """``tensor`` with other sizes: its elements again and again, or the first of them, in the same order in memory."""
    order = sorted(range(tensor.dim()), key=lambda dimension: -tensor.stride(dimension))
    with torch.set_grad_enabled(tensor.grad_fn is not None):
        result = tensor.permute(order)
        for dimension, size in sizes.items():
            if size != tensor.shape[dimension]:
                place, old = order.index(dimension), tensor.shape[dimension]
                shape = list(result.shape)
                shape[place] = size
                result = result.index_select(place, torch.arange(size, device=tensor.device) % old) if old else result.new_zeros(shape)
        result = result.permute([order.index(dimension) for dimension in range(tensor.dim())])
    return result.requires_grad_() if tensor.requires_grad and not result.requires_grad else result
