"""Launches of GPU kernels through the CUDA driver: no compiler, no Triton. `CudaKernels` stands where `executor.Kernels` does for the CPU.

A variant's binaries for one target are a folder: ``launch.json``, and per kernel ``NAME.cubin``, ``NAME.aligned.cubin`` and ``NAME.ptx``. For a
device the best is taken: a cubin that its compute capability can run, else the PTX text of the highest target not above it (the driver compiles
it, once per device), else none: refused, and the eager body runs. The aligned cubin is used at launches whose pointers are all multiples of 16.

Kernels run in torch's (the device's primary) context, on torch's current stream, so memory, events, graph capture and errors are as for torch's
own kernels.
An index out of range is a device-side assertion, as in eager: the same CUDA error at the next synchronisation.
"""
from __future__ import annotations

import ctypes
import json
import threading
from typing import Any, Callable, Iterable, Mapping, Sequence

import torch

from aotcompile.runtime.guards import UnsupportedPlan, evaluate, expression

SCHEMA = 1
LAUNCH_FILE = "launch.json"
_ALIGNMENT = 16
_LARGEST_GRID = (1 << 31) - 1
_STATIC_SHARED = 48 << 10                  # bytes of shared memory that need no asking for
_FUNC_MAX_DYNAMIC_SHARED = 8               # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NO_CONTEXT = 201                          # CUDA_ERROR_INVALID_CONTEXT
_DEVICE_MAX_SHARED_OPTIN = 97              # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
Read = Callable[[str], bytes]


class CudaError(RuntimeError):
    """The driver refused something. The message begins with AOT710."""


class _Driver:
    """The functions of libcuda that are needed, with their types."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise UnsupportedPlan(f"the CUDA driver cannot be loaded: {error}") from error
        pointer, integer, unsigned = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint
        out = ctypes.POINTER(ctypes.c_void_p)
        self.context_current = self._function("cuCtxGetCurrent", out)
        self.context_push = self._function("cuCtxPushCurrent_v2", pointer)
        self.context_pop = self._function("cuCtxPopCurrent_v2", out)
        self.primary_retain = self._function("cuDevicePrimaryCtxRetain", out, integer)
        self.device_get = self._function("cuDeviceGet", ctypes.POINTER(integer), integer)
        self.device_attribute = self._function("cuDeviceGetAttribute", ctypes.POINTER(integer), integer, integer)
        self.module_load = self._function("cuModuleLoadData", out, ctypes.c_char_p)
        self.module_function = self._function("cuModuleGetFunction", out, pointer, ctypes.c_char_p)
        self.function_attribute = self._function("cuFuncSetAttribute", pointer, integer, integer)
        self.launch = self._function("cuLaunchKernel", pointer, *[unsigned] * 7, pointer, pointer, pointer)
        self._error_name = self._library.cuGetErrorName
        self._error_name.argtypes = (integer, ctypes.POINTER(ctypes.c_char_p))

    def _function(self, name: str, *types: Any) -> Callable[..., int]:
        function = getattr(self._library, name)
        function.argtypes, function.restype = types, ctypes.c_int
        return function                                          # type: ignore[no-any-return]

    def check(self, status: int, what: str) -> None:
        if status:
            name = ctypes.c_char_p()
            self._error_name(status, ctypes.byref(name))
            raise CudaError(f"AOT710 {what}: {(name.value or b'unknown error').decode()} ({status})")


def _public_stream(index: int) -> int:
    return int(torch.cuda.current_stream(index).cuda_stream)


# torch's own fast way to a stream's handle (torch 2.11 to 2.14); the public one makes an object first, a microsecond or two a launch.
_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _public_stream)

_lock = threading.Lock()
_drivers: list[_Driver] = []


def driver() -> _Driver:
    """libcuda, loaded once. Raises UnsupportedPlan where there is none."""
    with _lock:
        if not _drivers:
            _drivers.append(_Driver())
        return _drivers[0]


# ---- which binary -------------------------------------------------------------------------------------------------------------------------

def capability_of(target: str) -> int | None:
    """90 of "cuda-sm_90" (or "cuda:sm_90"); None for another kind of target."""
    number = target[8:] if target.startswith(("cuda-sm_", "cuda:sm_")) else ""
    return int(number) if number.isdigit() else None


def runs_cubin(built: int, device: int) -> bool:
    """Whether a cubin for ``built`` runs on ``device``: within a generation upwards; from 9.0 on, binaries are for one capability alone."""
    return built == device or (device < 90 and built // 10 == device // 10 and built <= device)


def choose(targets: Iterable[str], device: int) -> tuple[str, str] | None:
    """(target, "cubin" or "ptx") for a device of capability ``device`` (90); None if nothing runs there."""
    known = sorted(((capability, target) for target in targets if (capability := capability_of(target)) is not None), reverse=True)
    for kind, fits in (("cubin", lambda built: runs_cubin(built, device)), ("ptx", lambda built: built <= device)):
        for capability, target in known:
            if fits(capability):
                return target, kind
    return None


# ---- kernels ------------------------------------------------------------------------------------------------------------------------------

class _Arguments(threading.local):
    """Memory for a launch's arguments, one per thread. Taken while in use: a finalizer that runs in between may launch too."""

    free: Any = None


class _Function:
    """A loaded function of one device."""

    __slots__ = ("handle", "shared", "threads", "count", "arguments")

    def __init__(self, handle: int, facts: Mapping[str, Any], arguments: int) -> None:
        self.handle, self.shared, self.threads = handle, int(facts["shared"]), int(facts["threads"])
        self.count = arguments + int(facts["extra_pointers"])    # the extra ones are null
        self.arguments = _Arguments()

    def fresh_arguments(self) -> tuple[Any, Any]:
        """(one 8-byte slot per argument, their addresses)."""
        slots = (ctypes.c_int64 * self.count)()
        base = ctypes.addressof(slots)
        return slots, (ctypes.c_void_p * self.count)(*range(base, base + 8 * self.count, 8))


class _Kernel:
    """What launches of one kernel share, whatever the device."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.buffers, self.sizes = int(facts["buffers"]), tuple(map(str, facts["sizes"]))
        self.narrow = facts["size_type"] == "i32"
        self._grid = [size if isinstance(size, int) else expression(size) for size in facts["grid"]]
        self.fixed = all(isinstance(size, int) for size in self._grid)

    def grid(self, sizes: Sequence[int]) -> list[int]:
        if self.fixed:
            return self._grid                                    # type: ignore[return-value]
        symbols = dict(zip(self.sizes, sizes))
        return [size if isinstance(size, int) else evaluate(size, symbols) for size in self._grid]


class _Device:
    """One variant's kernels on one device: every module loaded, so that no launch (it may be under graph capture) has to."""

    def __init__(self, index: int, owner: "CudaKernels") -> None:
        self.api = api = driver()
        major, minor = torch.cuda.get_device_capability(index)
        found = choose(owner.targets, 10 * major + minor)
        if found is None:
            built = ", ".join(sorted(target[5:] for target in owner.targets))
            raise UnsupportedPlan(f"no binary for this GPU (sm_{major}{minor}); built for {built}")
        self.target, self.kind = found
        torch.cuda.current_stream(index)                         # torch makes its context
        number, context = ctypes.c_int(), ctypes.c_void_p()
        api.check(api.device_get(ctypes.byref(number), index), "device")
        api.check(api.primary_retain(ctypes.byref(context), number), "context")
        self.context = context.value
        most = ctypes.c_int()
        api.check(api.device_attribute(ctypes.byref(most), _DEVICE_MAX_SHARED_OPTIN, number), "device attribute")
        self._most_shared = most.value
        self.general: dict[str, _Function] = {}
        self.aligned: dict[str, _Function] = {}
        with _Current(self):
            for name in owner.names:
                self._load_kernel(owner, name)

    def _load_kernel(self, owner: "CudaKernels", name: str) -> None:
        facts, files = owner.facts[self.target]["kernels"][name], owner.targets[self.target]
        if self.kind == "ptx":
            if "ptx" not in facts:
                raise UnsupportedPlan(f"kernel {name} has no text for a GPU newer than {self.target[5:]}")
            self.general[name] = self.aligned[name] = self._function(owner, owner.read(files[facts["ptx"]]) + b"\0", facts, name)
            return
        self.general[name] = self._function(owner, owner.read(files[facts["file"]]), facts, name)
        aligned = facts.get("aligned")
        self.aligned[name] = self._function(owner, owner.read(files[aligned["file"]]), aligned, name) if aligned else self.general[name]

    def _function(self, owner: "CudaKernels", image: bytes, facts: Mapping[str, Any], name: str) -> _Function:
        api = self.api
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        api.check(api.module_load(ctypes.byref(module), image), f"kernel {name} cannot be loaded")
        api.check(api.module_function(ctypes.byref(function), module, str(facts["entry"]).encode()), f"kernel {name}")
        shared = int(facts["shared"])
        if shared > self._most_shared:
            raise UnsupportedPlan(f"kernel {name} needs {shared} bytes of shared memory, this GPU has {self._most_shared}")
        if shared > _STATIC_SHARED:
            api.check(api.function_attribute(function, _FUNC_MAX_DYNAMIC_SHARED, shared), f"kernel {name}: shared memory")
        first = owner.facts[self.target]["kernels"][name]
        return _Function(function.value or 0, facts, int(first["buffers"]) + len(first["sizes"]))


class _Current:
    """Makes a device's context the thread's current one, if it is not (a thread that has not used CUDA yet, another library's context)."""

    def __init__(self, device: _Device) -> None:
        self._device, self._pushed = device, False

    def __enter__(self) -> None:
        api, found = driver(), ctypes.c_void_p()
        api.check(api.context_current(ctypes.byref(found)), "context")
        if found.value != self._device.context:
            api.check(api.context_push(self._device.context), "context")
            self._pushed = True

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            api, found = driver(), ctypes.c_void_p()
            api.check(api.context_pop(ctypes.byref(found)), "context")


class CudaKernels:
    """The kernels of one variant. ``targets``: target -> file name -> path; ``read`` gives a path's verified content; ``names``: the kernels that
    the plan launches.

    Raises UnsupportedPlan where they cannot run here: no driver, no device, no binary for the current device, launch facts of an unknown form."""

    def __init__(self, targets: Mapping[str, Mapping[str, str]], read: Read, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self.read = read
        self.targets = {target: files for target, files in targets.items() if capability_of(target) is not None}
        self.facts = {target: self._launch_facts(target) for target in self.targets}
        if not torch.cuda.is_available():
            raise UnsupportedPlan("there is no GPU here")
        first = next(iter(self.facts.values()), None)
        if first is None:
            raise UnsupportedPlan("there are no GPU binaries")
        self._kernels = {name: _Kernel(first["kernels"][name]) for name in self.names}
        self._devices: dict[int, _Device] = {}
        self._lock = threading.Lock()
        self.device(torch.cuda.current_device())

    def _launch_facts(self, target: str) -> dict[str, Any]:
        files = self.targets[target]
        if LAUNCH_FILE not in files:
            raise UnsupportedPlan(f"{target} has no {LAUNCH_FILE}")
        facts: dict[str, Any] = json.loads(self.read(files[LAUNCH_FILE]))
        if facts.get("schema") != SCHEMA:
            raise UnsupportedPlan(f"{LAUNCH_FILE} of {target} has schema {facts.get('schema')!r}, this runtime reads {SCHEMA}")
        missing = [name for name in self.names if name not in facts["kernels"]]
        if missing:
            raise UnsupportedPlan(f"{target} has no kernel {missing[0]}")
        return facts

    def device(self, index: int) -> _Device:
        """The kernels as loaded on a device. Raises UnsupportedPlan, CudaError."""
        found = self._devices.get(index)
        if found is None:
            with self._lock:
                found = self._devices.get(index)
                if found is None:
                    found = self._devices[index] = _Device(index, self)
        return found

    def addresses(self) -> dict[str, int]:
        """No host functions: the native executor leaves GPU kernels to this one."""
        return {}

    def launch(self, name: str, buffers: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
        """Queues the kernel on torch's current stream of the buffers' device. Raises CudaError, UnsupportedPlan."""
        kernel = self._kernels[name]
        grid = kernel.grid(sizes)
        if 0 in grid:
            return
        if not kernel.fixed and (max(grid) > _LARGEST_GRID or (kernel.narrow and any(not -(1 << 31) <= size < 1 << 31 for size in sizes))):
            raise CudaError(f"AOT710 kernel {name}: sizes {tuple(sizes)} are beyond what it was built for")
        current = index = torch.cuda.current_device()
        values = []
        together = 0
        for buffer in buffers:
            pointer = buffer.data_ptr()
            values.append(pointer)
            together |= pointer
        if buffers:
            index = buffers[-1].get_device()
            index = current if index < 0 else index
        device = self._devices.get(index) or self.device(index)
        function = (device.general if together % _ALIGNMENT else device.aligned)[name]
        # A 32-bit size is the low half of its slot (hosts of GPUs are little-endian). The driver copies the arguments before it returns.
        values.extend(sizes)
        own = function.arguments
        memory, own.free = own.free or function.fresh_arguments(), None
        memory[0][:len(values)] = values
        configuration = (function.handle, grid[0], grid[1], grid[2], function.threads, 1, 1, function.shared, _stream(index), memory[1], None)
        # Nearly always the device's context is the current one; a thread that has not used CUDA yet has none.
        status = device.api.launch(*configuration) if index == current else _NO_CONTEXT
        if status == _NO_CONTEXT:
            with _Current(device):
                status = device.api.launch(*configuration)
        own.free = memory
        if status:
            device.api.check(status, f"kernel {name} was not launched")
