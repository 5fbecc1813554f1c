"""The kernels of tests/triton on a real GPU, against eager on that GPU. Nothing of Triton is imported here."""
from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from bundle import OPERATOR_COUNT, Bundle
from triton_programs import PROGRAMS
from triton_references import reference
from triton_running import execute
from triton_samples import operator_inputs

from aotcompile.ir.dtypes import DType
from aotcompile.ir.operators import KERNEL_DTYPES, OPERATORS
from aotcompile.runtime.cuda import CudaKernels, choose
from aotcompile.runtime.guards import UnsupportedPlan


@pytest.fixture(scope="session")
def kernels(bundle: Bundle) -> CudaKernels:
    return CudaKernels(bundle.files, bundle.read, bundle.kernels)


def run(kernels: CudaKernels, schedule: Any, inputs: Any) -> list[torch.Tensor]:
    def launch(text: str, name: str, facts: Any, tensors: list[torch.Tensor], sizes: list[int], grid: Any) -> None:
        kernels.launch(name, tensors, sizes)
    return execute(schedule, inputs, launch)


def on_gpu(value: Any) -> Any:
    """On the GPU with the same strides and offset."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = value.untyped_storage().cuda()
    return torch.empty(0, dtype=value.dtype, device="cuda").set_(storage, value.storage_offset(), value.shape, value.stride())


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(kernels: CudaKernels, bundle: Bundle, name: str) -> None:
    function, make = PROGRAMS[name]
    inputs = make()
    try:
        expected = function(*map(on_gpu, inputs))
    except RuntimeError as error:                          # mixed devices: a program that makes CPU tensors by itself
        assert "device" in str(error)
        expected = function(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = run(kernels, bundle.programs[name], [on_gpu(value) for value in inputs])
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a.cpu(), b.cpu(), equal_nan=True)


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(kernels: CudaKernels, bundle: Bundle, name: str) -> None:
    dtypes = [dtype for dtype in KERNEL_DTYPES if OPERATORS[name].accepts(dtype)]
    inputs = {dtype: [tensor.cuda() for tensor in operator_inputs(name, dtype, OPERATOR_COUNT)] for dtype in dtypes}
    results = run(kernels, bundle.operators[name], [tensor for group in inputs.values() for tensor in group])
    for dtype, found in zip(dtypes, results, strict=True):
        expected = reference(name)(*inputs[dtype])
        tolerance = 1e-12 if dtype is DType.f64 else None
        torch.testing.assert_close(found, expected, equal_nan=True, rtol=tolerance, atol=tolerance, msg=lambda text, dtype=dtype: f"{dtype}: {text}")


def test_pointers_that_are_not_aligned(kernels: CudaKernels, bundle: Bundle) -> None:
    """The general kernel is taken where the aligned one would fault."""
    count = 1 << 19
    x, y = (torch.randn(count + 1, device="cuda")[1:] for _ in range(2))
    assert x.data_ptr() % 16
    found, = run(kernels, bundle.programs["pointwise_large"], [x, y])
    torch.testing.assert_close(found, x * y + 1)


def test_current_stream_and_graph_capture(kernels: CudaKernels, bundle: Bundle) -> None:
    x, y = torch.randn(1 << 19, device="cuda"), torch.randn(1 << 19, device="cuda")
    schedule = bundle.programs["pointwise_large"]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run(kernels, schedule, [x, y])
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found, = run(kernels, schedule, [x, y])
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(found, x * y + 1)


def test_another_thread(kernels: CudaKernels, bundle: Bundle) -> None:
    import threading
    x, y = torch.randn(1 << 19, device="cuda"), torch.randn(1 << 19, device="cuda")
    results: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: results.extend(run(kernels, bundle.programs["pointwise_large"], [x, y])))
    thread.start()
    thread.join()
    torch.testing.assert_close(results[0], x * y + 1)


def test_ptx_is_compiled_by_the_driver(bundle: Bundle) -> None:
    """As on a GPU that is newer than the target: no cubin can be used."""
    names = bundle.kernels[:6]

    class Newer(CudaKernels):
        pass
    import aotcompile.runtime.cuda as cuda
    original = cuda.runs_cubin
    cuda.runs_cubin = lambda built, device: False
    try:
        kernels = Newer(bundle.files, bundle.read, names)
    finally:
        cuda.runs_cubin = original
    device = kernels.device(torch.cuda.current_device())
    assert device.kind == "ptx"
    program = next(name for name in bundle.programs if all(s.name in names for s in bundle.programs[name].steps if hasattr(s, "stages")))
    function, make = PROGRAMS[program]
    inputs = [on_gpu(value) for value in make()]
    found = run(kernels, bundle.programs[program], inputs)
    torch.testing.assert_close(found[0], function(*inputs))


def test_no_binary_is_refused(bundle: Bundle) -> None:
    with pytest.raises(UnsupportedPlan, match="no GPU binaries"):
        CudaKernels({}, bundle.read, bundle.kernels)
    major, minor = torch.cuda.get_device_capability()
    assert choose(["cuda-sm_120"] if major < 12 else ["cuda-sm_130"], 10 * major + minor) is None


def test_index_out_of_range_is_the_error_of_eager(bundle: Bundle) -> None:
    """In a process of its own: the assertion ends the CUDA context, as eager's does."""
    code = f"""
import pickle, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
import torch
from test_kernels import CudaKernels, run
bundle = pickle.loads(Path({str(bundle.folder / 'bundle.pickle')!r}).read_bytes()).at(Path({str(bundle.folder)!r}))
kernels = CudaKernels(bundle.files, bundle.read, bundle.kernels)
table, index = torch.randn(20, 16, device="cuda"), torch.tensor([[1, 20, 0], [4, 4, 2]], device="cuda")
run(kernels, bundle.programs["embedding"], [table, index])
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print("device-side assert" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def test_triton_is_not_imported(bundle: Bundle) -> None:
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
import torch
before = {{name for name in sys.modules if name.partition('.')[0] == 'triton'}}
import aotcompile.runtime.cuda as cuda
import pickle
from pathlib import Path
files = {bundle.files!r}
folder = Path({str(bundle.folder)!r})
names = {bundle.kernels[:3]!r}
cuda.CudaKernels(files, lambda path: (folder / path).read_bytes(), names)
print({{name for name in sys.modules if name.partition('.')[0] == 'triton'}} == before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr
