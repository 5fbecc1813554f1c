"""Torch's global and per-thread state as the runtime sees it. The one file of the runtime with private torch API (checked on torch 2.11 to 2.14).

`state` guards compare the values of `STATE`; `ambient_reason` says why no compiled code may run at all just now (a mode that wants to see every
operator, a transform, a tracer), whatever the guards say.
"""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch.autograd import forward_ad
from torch.autograd import graph as _autograd_graph

_C: Any = torch._C
_function_modes = _C._len_torch_function_stack
_dispatch_modes = _C._len_torch_dispatch_stack
_functorch_level = _C._functorch.peek_interpreter_stack
_tracing = _C._get_tracing_state
_deterministic = torch.are_deterministic_algorithms_enabled
_saved_tensors_hooks = _C._autograd._top_saved_tensors_default_hooks

increment_version: Callable[[Any], None] = _autograd_graph.increment_version

_BELOW = _C.DispatchKeySet(_C.DispatchKey.ADInplaceOrView)
for _name in ("AutogradCPU", "AutogradCUDA", "AutogradOther", "AutogradFunctionality", "AutocastCPU", "AutocastCUDA"):
    if hasattr(_C.DispatchKey, _name):
        _BELOW = _BELOW | _C.DispatchKeySet(getattr(_C.DispatchKey, _name))


class below_autograd:
    """Context in which graphs run: grad mode off, no autocast, no view tracking and no version counting.

    Without the last two an output that is a view of a temporary could not be modified in place by the user ("a view created in no_grad mode"), and
    library calls that write inputs would count versions a second time. ``grad_mode``: the mode that operators find which ask for it themselves."""

    __slots__ = ("_guard", "_grad", "_grad_mode")

    def __init__(self, grad_mode: bool = False) -> None:
        self._grad_mode = grad_mode

    def __enter__(self) -> None:
        self._grad = torch.is_grad_enabled()
        _C._set_grad_enabled(self._grad_mode)
        self._guard = _C._ExcludeDispatchKeyGuard(_BELOW)
        self._guard.__enter__()

    def __exit__(self, *details: object) -> None:
        self._guard.__exit__(None, None, None)
        _C._set_grad_enabled(self._grad)


def ambient_reason(training: bool) -> str | None:
    """Why nothing compiled may run now, as a Python condition that failed; None if it may. ``training``: hooks on saved tensors matter too."""
    if _function_modes():
        return "no TorchFunctionMode active (a mode or a default device is set)"
    if _dispatch_modes():
        return "no TorchDispatchMode active"
    if _functorch_level() is not None:
        return "no torch.func transform active"
    if _tracing() is not None:
        return "not torch.jit.is_tracing()"
    if not _C._is_torch_function_enabled():
        return "torch function dispatch enabled"
    if forward_ad._current_level >= 0:
        return "no forward-mode differentiation active"
    if torch.compiler.is_compiling():
        return "not torch.compiler.is_compiling()"
    if training and _saved_tensors_hooks(False) is not None:
        return "no saved_tensors_hooks active"
    return None


def plain_storage(tensor: torch.Tensor) -> bool:
    """Strided memory that holds the values themselves: no lazy conjugate or negative, no sparse layout."""
    return tensor.layout is torch.strided and not tensor.is_neg() and not (tensor.is_complex() and tensor.is_conj())


_module: Any = torch.nn.modules.module


def calls_forward_only(module: torch.nn.Module) -> bool:
    """Whether `torch.nn.Module.__call__` does nothing but call the module's ``forward``: no hooks of its own or global ones."""
    values = module.__dict__
    return (values.get("_compiled_call_impl") is None
            and not any(values.get(name) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"))
            and not (_module._global_forward_hooks or _module._global_forward_pre_hooks or _module._global_backward_hooks
                     or _module._global_backward_pre_hooks)
            and _tracing() is None)


def _autocast(device: str) -> Callable[[], Any]:
    def read() -> Any:
        return str(torch.get_autocast_dtype(device)).removeprefix("torch.") if torch.is_autocast_enabled(device) else None
    return read


STATE: dict[str, Callable[[], Any]] = {
    "grad_enabled": torch.is_grad_enabled,
    "inference_mode": torch.is_inference_mode_enabled,
    "autocast_cpu": _autocast("cpu"),
    "autocast_cuda": _autocast("cuda"),
    "autocast_cpu_dtype": lambda: str(torch.get_autocast_dtype("cpu")).removeprefix("torch."),
    "autocast_cuda_dtype": lambda: str(torch.get_autocast_dtype("cuda")).removeprefix("torch."),
    "autocast_cache_enabled": torch.is_autocast_cache_enabled,
    "default_dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
    "default_device": lambda: str(torch.get_default_device()),
    "deterministic_algorithms": _deterministic,
    "deterministic_algorithms_warn_only": torch.is_deterministic_algorithms_warn_only_enabled,
    "deterministic_fill_uninitialized_memory": lambda: torch.utils.deterministic.fill_uninitialized_memory,
    "float32_matmul_precision": torch.get_float32_matmul_precision,
    "cudnn_enabled": lambda: torch.backends.cudnn.enabled,
    "cudnn_benchmark": lambda: torch.backends.cudnn.benchmark,
    "cudnn_deterministic": lambda: torch.backends.cudnn.deterministic,
    "cudnn_allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "cuda_matmul_allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "flash_sdp": torch.backends.cuda.flash_sdp_enabled,
    "math_sdp": torch.backends.cuda.math_sdp_enabled,
    "mem_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled,
    "mkldnn_enabled": lambda: torch.backends.mkldnn.enabled if hasattr(torch.backends.mkldnn, "enabled") else True,
    "anomaly_mode": torch.is_anomaly_enabled,
    "num_threads": torch.get_num_threads,
    "multithreading_enabled": _C._is_multithreading_enabled,
    "torch_function_enabled": _C._is_torch_function_enabled,
    "fwd_grad_enabled": _C._is_fwd_grad_enabled,
}
ALIASES = {"is_grad_enabled": "grad_enabled", "inference_mode_enabled": "inference_mode", "is_inference_mode_enabled": "inference_mode",
           "deterministic": "deterministic_algorithms"}
# What must be off unless a guard of the variant says otherwise: (state, value without which nothing compiled runs).
IMPLICIT: tuple[tuple[str, Any], ...] = (("autocast_cpu", None), ("autocast_cuda", None), ("deterministic_algorithms", False))


def state_pairs(expected: dict[str, Any]) -> list[tuple[str, Any]]:
    """The (name, value) pairs of a `state` guard's ``expected``: ``{name: value, ...}`` or ``{"name": name, "value": value}``."""
    pairs = [(expected["name"], expected["value"])] if set(expected) == {"name", "value"} else list(expected.items())
    return [(ALIASES.get(name, name), value) for name, value in pairs]


def state_holds(name: str, value: Any) -> bool:
    """Whether the state has this value. For autocast: a bool, a dtype's name or None (off). Raises KeyError for an unknown name."""
    found = STATE[name]()
    if name in ("autocast_cpu", "autocast_cuda") and isinstance(value, bool):
        return (found is not None) == value
    if isinstance(value, str):
        value = value.removeprefix("torch.")
    if isinstance(value, list):                                  # [enabled, dtype]
        return bool(found == (str(value[1]).removeprefix("torch.") if value[0] else None))
    return type(found) is type(value) and bool(found == value)


def describe_state(name: str, value: Any) -> str:
    text = {"grad_enabled": "torch.is_grad_enabled()", "inference_mode": "torch.is_inference_mode_enabled()",
            "default_dtype": "torch.get_default_dtype()"}.get(name, f"torch state {name}")
    return f"{text} == {value!r} (got {STATE[name]()!r})"


def memory_range(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte and end of the memory a strided tensor reaches; (0, 0) for an empty one."""
    if tensor.numel() == 0:
        return 0, 0
    first = tensor.data_ptr()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return first, first + (last + 1) * tensor.element_size()


def share_memory(one: Any, other: Any) -> bool:
    """Whether a change of one may be seen in the other: tensors by their memory, objects by identity."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return one is other
    first, end = memory_range(one)
    other_first, other_end = memory_range(other)
    return first < other_end and other_first < end
