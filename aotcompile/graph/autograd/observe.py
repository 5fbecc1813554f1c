"""What the values of a captured graph are, seen in one run with fake tensors: which require grad, share memory, are written in place and when."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx


@dataclass
class Observed:
    """``values``: node -> its value, tensors as they are at the end of the run; ``last_write``: memory -> position of the last node that wrote to
    it; ``writes``: node -> the memory it wrote to. Memory is known by the address of its storage."""

    values: dict[fx.Node, Any] = field(default_factory=dict)
    position: dict[fx.Node, int] = field(default_factory=dict)
    last_write: dict[int, int] = field(default_factory=dict)
    writes: dict[fx.Node, set[int]] = field(default_factory=dict)
    _sharing: dict[int, list[torch.Tensor]] = field(default_factory=dict)             # memory -> the tensors seen on it
    _versions: dict[int, int] = field(default_factory=dict)

    def __call__(self, node: fx.Node, result: Any) -> None:
        """Notes that ``node`` has been run."""
        if node.op == "output":
            return
        place = self.position[node] = len(self.position)
        self.values[node] = result
        given = [tensor for before in node.all_input_nodes for tensor in tensors_of(self.values[before])]
        for memory in {memory_of(tensor) for tensor in given if self._versions[id(tensor)] != tensor._version}:
            self.last_write[memory] = place
            self.writes.setdefault(node, set()).add(memory)
            self._versions.update({id(tensor): tensor._version for tensor in self._sharing[memory]})
        for tensor in tensors_of(result):
            self._sharing.setdefault(memory_of(tensor), []).append(tensor)
            self._versions[id(tensor)] = tensor._version

    def written_after(self, tensor: torch.Tensor, place: int) -> bool:
        return self.last_write.get(memory_of(tensor), -1) >= place


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in tensors_of(item)] if isinstance(value, (tuple, list)) else []


def memory_of(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


__all__ = ["Observed", "memory_of", "tensors_of"]
