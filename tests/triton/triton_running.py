"""What the tests of Triton kernels share: small programs, and a schedule executed step by step with some way of launching kernels."""
from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from aotcompile.codegen.triton.source import generate_triton
from aotcompile.ir.expression import Expression, free_symbols, substitute
from aotcompile.ir.nodes import BufferReference, DTypeReference, LibraryCall, ReadScalar, TorchReference, View
from aotcompile.schedule.types import Allocate, Free, FusedKernel, Reuse, Schedule, parameters

Launch = Callable[[str, dict[str, Any], list[torch.Tensor], list[int], tuple[int, int, int]], None]


class Interpreter:
    """Triton's interpreter in a child process."""

    def __init__(self) -> None:
        child = Path(__file__).with_name("interpreter_child.py")
        self._process = subprocess.Popen([sys.executable, str(child)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def launch(self, text: str, name: str, facts: dict[str, Any], tensors: Sequence[torch.Tensor], sizes: Sequence[int], grid: tuple[int, int, int]) -> None:
        """Runs the kernel on the tensors' memory. Raises RuntimeError for whatever the interpreter raises."""
        flat = [_flat(tensor) for tensor in tensors]
        arrays = [(tensor.view(torch.int16).numpy(), True) if tensor.dtype is torch.bfloat16 else (tensor.numpy(), False) for tensor in flat]
        request = pickle.dumps((text, name, facts, arrays, list(sizes), grid))
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(struct.pack("<q", len(request)) + request)
        self._process.stdin.flush()
        size, = struct.unpack("<q", self._process.stdout.read(8))
        results, error = pickle.loads(self._process.stdout.read(size))
        if error:
            raise RuntimeError(error)
        for tensor, result in zip(flat, results):
            changed = torch.from_numpy(result.copy())
            changed = changed.view(torch.bfloat16) if tensor.dtype is torch.bfloat16 else changed
            # Written back only where changed: a tensor may be given twice, once to read and once to write.
            different = changed.view(torch.uint8) != tensor.view(torch.uint8) if tensor.numel() else None
            if different is not None:
                tensor.view(torch.uint8)[different] = changed.view(torch.uint8)[different]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's memory from its first element on, in one dimension."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    return torch.as_strided(tensor, (elements,), (1,), tensor.storage_offset())


def evaluate(value: Any, symbols: dict[str, int]) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return int(eval(value, {"min": min, "max": max}, dict(symbols)))
    assert isinstance(value, Expression)
    found = substitute(value, {symbol: symbols[symbol.name] for symbol in free_symbols(value)})
    return int(str(found))


def execute(schedule: Schedule, inputs: Sequence[Any], launch: Callable[..., None]) -> list[Any]:
    """The outputs of a schedule; ``launch(text, kernel, facts, tensors, sizes, grid)``."""
    program, source = schedule.program, generate_triton([schedule])
    memory: dict[str, torch.Tensor] = {name: value for name, value in zip(program.inputs, inputs) if name is not None}
    device = next((value.device for value in inputs if isinstance(value, torch.Tensor)), torch.device("cpu"))
    symbols = {s.symbol.name: inputs[s.input].shape[s.dimension] for s in program.symbols}
    symbols |= {symbol.name: int(inputs[index]) for index, symbol in program.scalar_inputs}

    def sized(name: str) -> tuple[list[int], list[int], torch.dtype]:
        buffer = program.buffers[name]
        return [evaluate(s, symbols) for s in buffer.sizes], [evaluate(s, symbols) for s in buffer.strides], getattr(torch, buffer.dtype.torch_name)

    def argument(form: Any) -> Any:
        match form:
            case BufferReference(name):
                return memory[name]
            case DTypeReference(name):
                return getattr(torch, name)
            case TorchReference("device", _):
                return device
            case TorchReference(_, text):
                return getattr(torch, text.removeprefix("torch."))
            case tuple():
                return [argument(item) for item in form]
        return evaluate(form, symbols) if isinstance(form, Expression) else form

    for step in schedule.steps:
        match step:
            case Allocate(name):
                sizes, strides, dtype = sized(name)
                memory[name] = torch.empty_strided(sizes, strides, dtype=dtype, device=device).fill_(_poison(dtype))
            case Reuse(name, previous):
                sizes, strides, dtype = sized(name)
                fresh = torch.empty(0, dtype=dtype, device=device)
                memory[name] = fresh.set_(memory[previous].untyped_storage(), 0, sizes, strides)
            case View(result, base, offset):
                sizes, strides, dtype = sized(result)
                memory[result] = torch.as_strided(memory[base].view(dtype), sizes, strides, memory[base].storage_offset() + evaluate(offset, symbols))
            case LibraryCall():
                operator = torch.ops
                for part in step.operator.split("."):
                    operator = getattr(operator, part)
                found = operator(*map(argument, step.arguments), **{key: argument(value) for key, value in step.keywords})
                for name, tensor in zip(step.results, found if isinstance(found, (list, tuple)) else [found]):
                    if name is not None:
                        memory[name] = tensor
            case ReadScalar(symbol, buffer):
                symbols[symbol.name] = int(memory[buffer].item())
            case FusedKernel():
                _share_updates(step, memory, sized)
                facts = source.launch[step.name]
                grid = tuple(evaluate(size, symbols) for size in facts["grid"])
                if all(grid):
                    launch(source.text, step.name, facts, [memory[name] for name in parameters(step)], [symbols[name] for name in facts["sizes"]], grid)
            case Free(name):
                del memory[name]
    return [memory[o.name] if isinstance(o, BufferReference) else argument(o) for o in program.outputs]


def _share_updates(kernel: FusedKernel, memory: dict[str, torch.Tensor], sized: Callable[[str], Any]) -> None:
    """The result of an update is the memory of what it updates."""
    for stage in kernel.stages:
        for compute in stage.computes:
            if compute.updates is not None and compute.result not in memory:
                sizes, strides, _ = sized(compute.result)
                base = memory[compute.updates]
                memory[compute.result] = torch.as_strided(base, sizes, strides, base.storage_offset())


def _poison(dtype: torch.dtype) -> Any:
    return float("nan") if dtype.is_floating_point else True if dtype is torch.bool else 77
