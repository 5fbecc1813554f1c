"""Executes plan graphs: `Graph` follows the steps of plan.json, `WrapperGraph` runs the function of wrapper.py that says the same.

Sizes are integers or Python expressions over the size symbols, compiled once. Kernels are C functions ``int32_t kernel(void *const *buffers, const
int64_t *sizes)``; a status other than 0 becomes `KernelFailure`, and the caller then runs the eager body, which raises eager's own exception.
"""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Iterable, Mapping, Sequence

import torch

from aotcompile.runtime.guards import UnsupportedPlan, evaluate, expression

STATUS = {1: "index out of range", 2: "integer division by zero", 3: "a size read at run time is out of its range"}
Values = dict[str, Any]
Step = Callable[[Values, dict[str, int]], None]

forked = False                                                   # this process is a forked child: libgomp's threads did not come along


class KernelFailure(RuntimeError):
    """A kernel gave up before it changed anything the user can see."""

    def __init__(self, kernel: str, status: int) -> None:
        super().__init__(f"kernel {kernel} stopped with status {status} ({STATUS.get(status, 'unknown')})")
        self.kernel, self.status = kernel, status


def _after_fork() -> None:
    global forked
    forked = True


os.register_at_fork(after_in_child=_after_fork)


class Kernels:
    """The kernels of one variant's shared object (already verified), by name. Raises OSError or AttributeError where one cannot be loaded."""

    def __init__(self, path: str | None, names: Iterable[str]) -> None:
        self._functions: dict[str, Any] = {}
        self._threads: Any = None
        if path is None:
            return
        library = ctypes.CDLL(path)
        for name in names:
            function = getattr(library, name)
            function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int32
            self._functions[name] = function
        self._threads = getattr(library, "omp_set_num_threads", None)      # found through the kernels' dependency on libgomp

    def addresses(self) -> dict[str, int]:
        return {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in self._functions.items()}

    def launch(self, name: str, buffers: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*[buffer.data_ptr() for buffer in buffers])
        numbers = (ctypes.c_int64 * max(len(sizes), 1))(*sizes)
        if forked and self._threads is not None:
            # The parent's thread team does not exist in this process; waiting for it would hang. One thread needs no team.
            threads = torch.get_num_threads()
            self._threads(1)
            status = self._functions[name](pointers, numbers)
            self._threads(threads)
        else:
            status = self._functions[name](pointers, numbers)
        if status:
            raise KernelFailure(name, status)


class Runtime:
    """What wrapper.py calls: memory, kernels, results of library calls."""

    def __init__(self, kernels: Kernels) -> None:
        self.launch = kernels.launch

    @staticmethod
    def empty(sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: str) -> torch.Tensor:
        """Fresh memory, not initialised."""
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    @staticmethod
    def view(base: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int, dtype: torch.dtype) -> torch.Tensor:
        """The same memory with other sizes; ``offset`` counts elements of ``dtype`` from the first element of ``base``."""
        if dtype is base.dtype:
            return torch.as_strided(base, sizes, strides, base.storage_offset() + offset)
        # Not Tensor.view(dtype): that wants matching sizes and strides, and `sizes` are already those of the new dtype.
        first = base.storage_offset() * base.element_size()
        item = torch.empty((), dtype=dtype).element_size()
        if first % item:
            raise UnsupportedPlan(f"a {dtype} view of memory that starts at byte {first}")
        fresh = torch.empty(0, dtype=dtype, device=base.device)
        return fresh.set_(base.untyped_storage(), first // item + offset, tuple(sizes), tuple(strides))

    @staticmethod
    def tensors(result: Any) -> list[Any]:
        """What an operator returned, as a flat list."""
        if isinstance(result, (list, tuple)):
            return [item for part in result for item in Runtime.tensors(part)]
        return [result]

    @staticmethod
    def strided(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
        """``tensor``, or a copy of it with these strides where it has others (that matter: not those of sizes 0 and 1)."""
        found = tensor.stride()
        if found == tuple(strides) or 0 in tensor.shape or all(a == b or size == 1 for a, b, size in zip(found, strides, tensor.shape)):
            return tensor
        return torch.empty_strided(tensor.shape, tuple(strides), dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    @staticmethod
    def check(holds: bool | int, condition: str) -> None:
        """Raises KernelFailure where a condition on sizes does not hold."""
        if not holds:
            raise KernelFailure(condition, 3)

    @staticmethod
    def size(value: Any) -> int:
        """A size symbol that arrives as an int or as a 0-dim integer tensor."""
        return value if type(value) is int else int(value)


# ---- plan.json ----------------------------------------------------------------------------------------------------------------------------

def sizes_of(texts: Sequence[int | str]) -> Callable[[dict[str, int]], tuple[int, ...]]:
    """Sizes of a plan as a function of the symbols."""
    if all(isinstance(text, int) for text in texts):
        fixed = tuple(int(text) for text in texts)
        return lambda symbols: fixed
    codes = [text if isinstance(text, int) else expression(text) for text in texts]
    return lambda symbols: tuple([code if isinstance(code, int) else evaluate(code, symbols) for code in codes])


def dtype_of(name: str) -> torch.dtype:
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        from aotcompile.runtime.guards import DTYPES
        dtype = DTYPES.get(name)
    if dtype is None:
        raise UnsupportedPlan(f"dtype {name!r}")
    return dtype


def _argument(form: Any) -> Callable[[Values, dict[str, int]], Any]:
    """An argument of a library call as a function of the buffers and symbols. Forms: `aotcompile.codegen.types.PlanCall`."""
    if isinstance(form, list):
        parts = [_argument(part) for part in form]
        return lambda values, symbols: [part(values, symbols) for part in parts]
    if not isinstance(form, dict):
        return lambda values, symbols: form
    (kind, value), = form.items()
    if kind == "buffer":
        return lambda values, symbols: values[value]
    if kind == "number":
        return lambda values, symbols: values[value].item()
    if kind == "size":
        code = expression(str(value))
        return lambda values, symbols: evaluate(code, symbols)
    constants: dict[str, Callable[[], Any]] = {
        "dtype": lambda: dtype_of(value), "device": lambda: torch.device(value), "layout": lambda: getattr(torch, value.removeprefix("torch.")),
        "memory_format": lambda: getattr(torch, value.removeprefix("torch.")), "complex": lambda: complex(*map(float, value)),
        "float": lambda: float(value)}
    if kind not in constants:
        raise UnsupportedPlan(f"argument form {kind!r}")
    constant = constants[kind]()
    return lambda values, symbols: constant


def find_operator(name: str) -> Any:
    """``torch.ops.<name>``. Raises UnsupportedPlan where this torch does not have it."""
    found: Any = torch.ops
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except (AttributeError, RuntimeError):
            raise UnsupportedPlan(f"operator {name!r} is not in this torch") from None
    return found


# Operators that ask for the grad mode themselves -> the result that they give under it only, for their backward. The native twin: graph.cpp.
_GIVES_WITH_GRAD_MODE = {"aten.mkldnn_rnn_layer.default": 3}


def needs_grad_mode(graph: Mapping[str, Any]) -> bool:
    """Whether a graph (as JSON) uses such a result."""
    return any(step["step"] == "call" and (place := _GIVES_WITH_GRAD_MODE.get(step["operator"])) is not None and step["results"][place] is not None
               for step in graph["steps"])


class Graph:
    """One PlanGraph. ``graph(inputs)`` returns the list of outputs; ``inputs`` are tensors, or ints where the plan's symbols say so.

    Raises UnsupportedPlan at construction for a step it does not know; KernelFailure, and whatever a library call raises, at a call."""

    def __init__(self, plan: Mapping[str, Any], kernels: Kernels) -> None:
        self._runtime = Runtime(kernels)
        self._inputs: list[str] = list(plan["inputs"])
        self._symbols = [(name, index, dimension) for name, index, dimension in plan["symbols"]]
        self._steps = [self._step(step) for step in plan["steps"]]
        self._outputs = [_argument({"buffer": o["buffer"]} if "buffer" in o else {"size": o["size"]} if "size" in o else o["constant"])
                         for o in plan["outputs"]]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        values: Values = dict(zip(self._inputs, inputs, strict=True))
        symbols = {name: inputs[index].shape[dimension] if dimension >= 0 else Runtime.size(inputs[index])
                   for name, index, dimension in self._symbols}
        del inputs
        for step in self._steps:
            step(values, symbols)
        return [output(values, symbols) for output in self._outputs]

    def _step(self, step: Mapping[str, Any]) -> Step:
        build = {"allocate": self._allocate, "view": self._view, "kernel": self._kernel, "call": self._call, "read_scalar": self._read_scalar,
                 "check": self._check, "free": self._free}.get(step["step"])
        if build is None:
            raise UnsupportedPlan(f"plan step {step['step']!r}")
        return build(step)

    def _allocate(self, step: Mapping[str, Any]) -> Step:
        name, dtype, device = step["name"], dtype_of(step["dtype"]), step["device"]
        sizes, strides = sizes_of(step["sizes"]), sizes_of(step["strides"])

        def run(values: Values, symbols: dict[str, int]) -> None:
            values[name] = Runtime.empty(sizes(symbols), strides(symbols), dtype, device)
        return run

    def _view(self, step: Mapping[str, Any]) -> Step:
        name, base, dtype = step["name"], step["base"], dtype_of(step["dtype"])
        sizes, strides, offset = sizes_of(step["sizes"]), sizes_of(step["strides"]), sizes_of([step["offset"]])

        def run(values: Values, symbols: dict[str, int]) -> None:
            values[name] = Runtime.view(values[base], sizes(symbols), strides(symbols), offset(symbols)[0], dtype)
        return run

    def _kernel(self, step: Mapping[str, Any]) -> Step:
        if step.get("grid") is not None:
            raise UnsupportedPlan("a GPU kernel needs the native executor")
        kernel, buffers, sizes, launch = step["kernel"], step["buffers"], sizes_of(step["sizes"]), self._runtime.launch

        def run(values: Values, symbols: dict[str, int]) -> None:
            launch(kernel, [values[name] for name in buffers], sizes(symbols))
        return run

    def _call(self, step: Mapping[str, Any]) -> Step:
        operator = find_operator(step["operator"])
        arguments = [_argument(form) for form in step["arguments"]]
        keywords = {name: _argument(form) for name, form in step["keywords"].items()}
        results = step["results"]
        strides = [None if declared is None else sizes_of(declared) for declared in step.get("strides") or [None] * len(results)]

        def run(values: Values, symbols: dict[str, int]) -> None:
            result = operator(*[a(values, symbols) for a in arguments], **{name: a(values, symbols) for name, a in keywords.items()})
            for name, declared, tensor in zip(results, strides, Runtime.tensors(result)):
                if name is not None:
                    values[name] = tensor if declared is None else Runtime.strided(tensor, declared(symbols))
        return run

    def _read_scalar(self, step: Mapping[str, Any]) -> Step:
        symbol, buffer = step["symbol"], step["buffer"]

        def run(values: Values, symbols: dict[str, int]) -> None:
            symbols[symbol] = int(values[buffer].item())
        return run

    def _check(self, step: Mapping[str, Any]) -> Step:
        condition = step["condition"]
        code = expression(condition)

        def run(values: Values, symbols: dict[str, int]) -> None:
            Runtime.check(evaluate(code, symbols), condition)
        return run

    def _free(self, step: Mapping[str, Any]) -> Step:
        name = step["name"]

        def run(values: Values, symbols: dict[str, int]) -> None:
            del values[name]
        return run


class WrapperGraph:
    """A function of wrapper.py: ``inference(inputs, runtime)``, ``forward`` or ``backward``."""

    def __init__(self, function: Callable[[Sequence[Any], Runtime], list[Any]], kernels: Kernels) -> None:
        self._function, self._runtime = function, Runtime(kernels)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        return self._function(inputs, self._runtime)


def kernel_names(graphs: Mapping[str, Any]) -> list[str]:
    """The kernels that the graphs of a plan launch, each once."""
    return list(dict.fromkeys(step["kernel"] for graph in graphs.values() for step in graph.get("steps", ()) if step["step"] == "kernel"))
