"""Memory: where buffers come to life, which dead one's memory they take, when they are freed.

Reused are only kernel results (an operator's result may share memory with something), never for a graph output, and only by a buffer of the same
device that fits: as many bytes by its form for symbolic sizes, at most twice the bytes for static ones.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from aotcompile.ir.expression import ZERO, Expression, Integer
from aotcompile.ir.linear import product
from aotcompile.ir.nodes import Buffer, Check, LibraryCall, ReadScalar, View
from aotcompile.schedule.dependences import Dependences, call_buffers, results_of
from aotcompile.schedule.types import Allocate, Free, FusedKernel, Reuse, Step

_ALIASING = frozenset({
    "contiguous", "reshape", "to", "_to_copy", "view", "expand", "permute", "transpose", "t", "slice", "select", "squeeze",
    "unsqueeze", "alias", "detach", "as_strided", "narrow", "unbind", "split", "chunk", "flatten", "unflatten", "diagonal", "real",
    "imag", "lift_fresh", "_reshape_alias", "numpy_T", "mT", "T", "conj", "resolve_conj", "resolve_neg", "expand_as", "view_as",
    "reshape_as", "movedim", "swapaxes", "unfold", "split_with_sizes", "dropout", "type_as",
})
"""ATen operators whose result may be their argument or a view of it."""

Work = FusedKernel | LibraryCall | View | ReadScalar | Check


def storage_elements(buffer: Buffer) -> Expression:
    """Elements that the buffer's memory spans. Strides of fresh buffers are dense: the product of the sizes, except where static strides say more."""
    if all(isinstance(e, Integer) for e in (*buffer.sizes, *buffer.strides)):
        sizes = [e.value for e in buffer.sizes if isinstance(e, Integer)]
        strides = [e.value for e in buffer.strides if isinstance(e, Integer)]
        return ZERO if 0 in sizes else Integer(1 + sum((size - 1) * stride for size, stride in zip(sizes, strides)))
    return product(buffer.sizes)


class MemoryPlan:
    def __init__(self, dependences: Dependences) -> None:
        self._dependences = dependences
        self._buffers = dependences.buffers
        self._inputs = {name for name in dependences.program.inputs if name is not None}

    def steps(self, work: Sequence[Work]) -> tuple[Step, ...]:
        root = self._dependences.root_of
        last: dict[str, int] = {}
        exposed: set[str] = set()
        outputs = {root(name) for name in self._dependences.output_names}
        owned: set[str] = set()
        for position, step in enumerate(work):
            for name in _touched(step):
                last[root(name)] = position
            if isinstance(step, LibraryCall):
                owned.update(results_of(step))
                name = step.operator.split(".")[1] if "." in step.operator else step.operator
                if not step.operator.startswith("aten.") or name in _ALIASING:
                    exposed.update(map(root, call_buffers(step)))
        ends: dict[int, list[str]] = {}
        for name, position in last.items():
            if name not in outputs and name not in self._inputs:
                ends.setdefault(position, []).append(name)
        result: list[Step] = []
        free: list[str] = []
        alive: set[str] = set(self._inputs)
        views: dict[str, list[str]] = {}                       # root -> its views so far
        for position, step in enumerate(work):
            if isinstance(step, FusedKernel):
                for name in step.outputs:
                    if root(name) == name and name not in alive:
                        alive.add(name)
                        result.extend(self._provide(name, free, reusable=name not in outputs and name not in exposed))
            result.append(step)
            if isinstance(step, View):
                views.setdefault(root(step.base), []).append(step.result)
            for name in ends.get(position, ()):
                result.extend(map(Free, views.get(name, ())))
                if name in owned or name in exposed:
                    result.append(Free(name))
                else:
                    free.append(name)
        return self._with_frees(result, free)

    def _provide(self, name: str, free: list[str], reusable: bool) -> tuple[Step, ...]:
        """Memory for a kernel's result. The name whose memory is taken over ends here, so that freeing the new one frees the memory."""
        buffer = self._buffers[name]
        best: tuple[int, str] | None = None
        needed = storage_elements(buffer)
        for candidate in free[-64:] if reusable else ():
            other = self._buffers[candidate]
            if other.device != buffer.device:
                continue
            size = storage_elements(other)
            if isinstance(needed, Integer) and isinstance(size, Integer):
                have, want = size.value * other.dtype.itemsize, needed.value * buffer.dtype.itemsize
                if want <= have <= 2 * want and (best is None or have < best[0]):
                    best = (have, candidate)
            elif size == needed and other.dtype.itemsize == buffer.dtype.itemsize:
                best = (0, candidate)
                break
        if best is None:
            return (Allocate(name),)
        free.remove(best[1])
        return Reuse(name, best[1]), Free(best[1])

    def _with_frees(self, steps: list[Step], free: list[str]) -> tuple[Step, ...]:
        """What nobody reuses is freed after its last use."""
        root = self._dependences.root_of
        remaining = set(free)
        last: dict[str, int] = {}
        for position, step in enumerate(steps):
            if isinstance(step, (FusedKernel, LibraryCall, View, ReadScalar)):
                for name in _touched(step):
                    if root(name) in remaining:
                        last[root(name)] = position
        frees: dict[int, list[Step]] = {}
        for name, position in last.items():
            frees.setdefault(position, []).append(Free(name))
        result: list[Step] = []
        for position, step in enumerate(steps):
            result.append(step)
            result.extend(frees.get(position, ()))
        return tuple(result)


def _touched(step: Work) -> Iterable[str]:
    match step:
        case FusedKernel(inputs=inputs, outputs=outputs):
            return (*inputs, *outputs)
        case LibraryCall():
            return (*call_buffers(step), *results_of(step), *step.mutates)
        case View(result=result, base=base):
            return (result, base)
        case ReadScalar(buffer=buffer):
            return (buffer,)
        case Check():
            return ()
    raise TypeError(step)


__all__ = ["MemoryPlan", "storage_elements"]
