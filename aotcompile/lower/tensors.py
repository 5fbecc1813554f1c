"""Tensors while lowering: memory or a recipe (a `Root`), and strided views of it.

A `Root` owns what a fresh tensor of the ATen graph owns. It starts as a recipe, ``function(index) -> Value``, which its users inline; when it is
realised it becomes a buffer, laid out in the strides that the fake run gave, and later users load from it. A `Tensor` is a view of a root, in two
forms at once: the strides and offset that the fake run gave (right once the root is memory), and ``remap``, which maps its index to the root's
(right while it is a recipe).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from aotcompile.ir.dtypes import DType
from aotcompile.ir.expression import ONE, ZERO, Expression, add, multiply
from aotcompile.ir.nodes import Load, Origin, Value

Index = tuple[Expression, ...]
Recipe = Callable[[Index], Value]
Remap = Callable[[Index], Index]


@dataclass(eq=False)
class Root:
    """A fresh tensor. ``offset`` is the storage offset of the fake run's tensor, in elements of ``dtype`` (an input may have one): offsets of
    views are relative to it.

    ``uses``: how many operators of the graph read it, or a view of it; ``pending``: how many of them are still to be lowered. ``wanted``: it must
    become memory (an output, an argument of a library call); ``viewed``: the graph has views of it."""

    name: str
    dtype: DType
    sizes: Index
    strides: Index
    device: str
    origin: Origin
    offset: Expression = ZERO
    function: Recipe | None = None
    buffer: str | None = None
    uses: int = 1
    pending: int = 0
    wanted: bool = False
    viewed: bool = False
    origins: tuple[Origin, ...] = ()
    memo: dict[Index, tuple[Value, tuple[Origin, ...]]] = field(default_factory=dict)


@dataclass(eq=False)
class Tensor:
    """A view of ``root``; its ``dtype`` is the root's."""

    root: Root
    sizes: Index
    strides: Index
    offset: Expression
    remap: Remap
    load_root: Callable[[Root, Index], Value]

    @property
    def dtype(self) -> DType:
        return self.root.dtype

    @property
    def device(self) -> str:
        return self.root.device

    @property
    def rank(self) -> int:
        return len(self.sizes)

    def load(self, index: Index) -> Value:
        """The element at ``index``: a load where the root is memory, else its recipe."""
        if self.root.buffer is not None:
            return Load(self.dtype, self.root.buffer, flat_index(index, self.strides, self.offset))
        return self.load_root(self.root, self.remap(index))

    def is_whole(self) -> bool:
        """Whether this is the root itself, and no view of it."""
        return (
            self.sizes == self.root.sizes
            and self.offset == ZERO
            and all(size == ONE or mine == its for size, mine, its in zip(self.sizes, self.strides, self.root.strides))
        )


def flat_index(index: Index, strides: Index, offset: Expression = ZERO) -> Expression:
    """``offset + sum(index[d] * strides[d])``."""
    return add(offset, *(multiply(position, stride) for position, stride in zip(index, strides)))


def product(sizes: Index) -> Expression:
    """Number of elements."""
    return multiply(*sizes) if sizes else ONE


def contiguous_strides(sizes: Index) -> Index:
    """Row-major strides, in elements."""
    strides: list[Expression] = []
    stride: Expression = ONE
    for size in reversed(sizes):
        strides.append(stride)
        stride = multiply(stride, size)
    return tuple(reversed(strides))


def broadcast_index(index: Index, sizes: Index) -> Index:
    """The index of an operand with ``sizes`` for element ``index`` of the broadcast result."""
    own = index[len(index) - len(sizes) :]
    return tuple(ZERO if size == ONE else position for position, size in zip(own, sizes))
