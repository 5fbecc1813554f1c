"""Runs kernels in Triton's interpreter, on CPU tensors, in a process of its own (the interpreter has to be chosen before Triton is imported).

Requests and answers are pickles on stdin and stdout: (text, kernel, launch facts, arrays, sizes, grid) -> (arrays after the launch, error or "").
bfloat16 arrays travel as int16. libdevice is CUDA code, which the interpreter does not have: `_Libdevice` computes the same functions with torch.
"""
from __future__ import annotations

import os
import pickle
import struct
import sys
import tempfile

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
import triton  # noqa: E402,F401
import triton.language as tl  # noqa: E402
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, interpreter_builder  # noqa: E402

FUNCTIONS = {"rint": torch.round, "rcp_rn": torch.reciprocal, "div_rn": torch.true_divide, "pow": torch.pow, "fma": lambda a, b, c: (a.double() * b.double() + c.double()).to(a.dtype)}


_cast = InterpreterBuilder.cast_impl


def _rounding_cast(self, source, target):
    """The interpreter cuts f32 to bf16 off; GPUs round to the nearest."""
    if source.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16:
        rounded = torch.from_numpy(np.array(source.data)).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
        return TensorHandle(rounded, tl.bfloat16)
    return _cast(self, source, target)


InterpreterBuilder.cast_impl = _rounding_cast
object.__setattr__(interpreter_builder.options, "debug", True)         # device_assert counts
object.__setattr__(interpreter_builder.options, "sanitize_overflow", False)


class _Libdevice:
    def __getattr__(self, name):
        function = FUNCTIONS.get(name) or getattr(torch, name, None) or getattr(torch.special, name)

        def call(*arguments):
            first = next(argument for argument in arguments if isinstance(argument, tl.tensor))
            data = [torch.from_numpy(np.array(argument.handle.data)) if isinstance(argument, tl.tensor) else torch.tensor(argument) for argument in arguments]
            dtype = next(tensor.dtype for argument, tensor in zip(arguments, data) if argument is first)
            with np.errstate(all="ignore"):
                result = function(*[tensor.to(dtype) for tensor in data]).numpy()
            kind = tl.block_type(first.dtype.scalar, list(result.shape)) if result.ndim else first.dtype.scalar
            return tl.core.tensor(TensorHandle(result, first.dtype.scalar), kind)
        return call


def load(text):
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(text)
    variables = {"__name__": "kernels"}
    exec(compile(text, file.name, "exec"), variables)
    variables["libdevice"] = _Libdevice()
    return variables, file.name


def run(text, kernel, launch, tensors, sizes, grid):
    variables, path = load(text)
    try:
        with np.errstate(all="ignore"):
            variables[kernel][tuple(grid)](*tensors, *sizes, **launch["constants"])
    finally:
        os.unlink(path)


def main():
    source, target = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while head := source.read(8):
        text, kernel, launch, arrays, sizes, grid = pickle.loads(source.read(struct.unpack("<q", head)[0]))
        tensors = [torch.from_numpy(array).view(torch.bfloat16) if half else torch.from_numpy(array) for array, half in arrays]
        error = ""
        try:
            run(text, kernel, launch, tensors, sizes, grid)
        except Exception as problem:                      # noqa: BLE001  told to the test, which fails
            error = f"{type(problem).__name__}: {problem}"
        answer = pickle.dumps(([tensor.view(torch.int16).numpy() if tensor.dtype is torch.bfloat16 else tensor.numpy() for tensor in tensors], error))
        target.write(struct.pack("<q", len(answer)) + answer)
        target.flush()


if __name__ == "__main__":
    main()
