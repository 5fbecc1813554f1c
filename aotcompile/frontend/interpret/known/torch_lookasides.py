"""Functions and classes of torch with a meaning of their own for the interpreter, and those of the standard library that ask for the environment."""
from __future__ import annotations

import copy
import importlib.metadata
import importlib.util
import inspect
import operator
import os
import types
import typing
import warnings
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint
from torch.utils.hooks import RemovableHandle

from aotcompile.frontend.capture import custom_function
from aotcompile.frontend.capture.signals import GraphBreak, UserException
from aotcompile.frontend.interpret.copying import deep_copy
from aotcompile.frontend.interpret.known.hook_handles import make_handle
from aotcompile.frontend.interpret.known.lookasides import lookaside
from aotcompile.frontend.interpret.operations import operate
from aotcompile.frontend.torch_private import associative_scan_op, compile_and_run, generic_associative_scan
from aotcompile.ir.guards import constant_json
from aotcompile.ir.paths import Path

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter


@lookaside(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _is_compiling(i: "Interpreter") -> bool:
    return True


@lookaside(*(getattr(owner, name) for owner, name in (
    (torch.compiler, "is_exporting"), (torch.jit, "is_tracing"), (torch.jit, "is_scripting"),
    (torch.onnx, "is_in_onnx_export")) if hasattr(owner, name)))
def _other_tracers(i: "Interpreter") -> bool:
    """torch.jit's and torch.export's questions: the compiled code runs under none of them."""
    return False


@lookaside(torch._C._get_tracing_state)
def _tracing_state(i: "Interpreter") -> None:
    return None


@lookaside(*(getattr(torch.nn.RNNBase, name) for name in ("_weights_have_changed",) if hasattr(torch.nn.RNNBase, name)))
def _weights_have_changed(i: "Interpreter", module: Any) -> bool:
    """Whether the weights are not those of the module's flat list any more. It asks weak references; reading both guards that they are the same."""
    flat = i.load_attribute(module, "_flat_weights")
    names = list(i.iterate(i.load_attribute(module, "_flat_weights_names")))
    return any(i.load_attribute(module, name) is not i.get_item(flat, number) for number, name in enumerate(names))


@lookaside(*{type(form).__getitem__ for form in (typing.List, typing.Tuple, typing.Callable, typing.Optional)})
def _type_expression(i: "Interpreter", form: Any, parameters: Any) -> Any:
    """``List[torch.Tensor]`` in a function: the same object each time."""
    return i.plain(operator.getitem, form, parameters)


@lookaside(torch.jit.annotate)
def _annotate(i: "Interpreter", the_type: Any, the_value: Any) -> Any:
    """A type for torch.jit's compiler; nothing anywhere else."""
    return the_value


@lookaside(importlib.util.find_spec)
def _find_specification(i: "Interpreter", *arguments: Any) -> Any:
    """What is installed: versions are checked when a package is loaded."""
    return i.plain(importlib.util.find_spec, *arguments)


@lookaside(importlib.metadata.version)
def _installed_version(i: "Interpreter", name: str) -> Any:
    return i.plain(importlib.metadata.version, name)


@lookaside(os._Environ.__getitem__)
def _environment(i: "Interpreter", environment: Any, name: str) -> str:
    """A variable of the process's environment is read with a guard on its value."""
    if environment is not os.environ or not isinstance(name, str):
        raise GraphBreak("AOT201", "an environment is read")
    path = Path(("module", "os")).attribute("environ")
    i.outside.guard("contains", path, {"key": constant_json(name), "present": name in os.environ})
    if name not in os.environ:
        raise UserException(KeyError(name))
    return str(i.outside.read(os.environ[name], path.item(name)))


@lookaside(os.getenv)
def _getenv(i: "Interpreter", name: str, default: Any = None) -> Any:
    try:
        return _environment(i, os.environ, name)
    except UserException:
        return default


@lookaside(copy.deepcopy)
def _deepcopy(i: "Interpreter", value: Any, memo: Any = None) -> Any:
    return deep_copy(i, value, {} if memo is None else memo)


@lookaside(inspect.signature)
def _signature(i: "Interpreter", function: Any, **keywords: Any) -> Any:
    """A function's own signature, which its guard covers."""
    return i.plain(inspect.signature, function, **keywords)


@lookaside(compile_and_run)
def _compile_and_run(i: "Interpreter", function: Any, *arguments: Any) -> Any:
    return i.call(function, arguments, {})


@lookaside(associative_scan_op)
def _associative_scan(i: "Interpreter", function: Any, leaves: Any, additional_inputs: Any) -> Any:
    """torch's own algorithm, in as many steps as the length has binary digits."""
    return i.call(generic_associative_scan, (function, leaves), {"additional_inputs": additional_inputs})


if isinstance(torch.autograd.Function.apply, types.MethodType):
    lookaside(torch.autograd.Function.apply.__func__)(custom_function.apply)


@lookaside(torch.utils.checkpoint.checkpoint)
def _checkpoint(i: "Interpreter", function: Any, *arguments: Any, use_reentrant: bool | None = None, context_fn: Any = None, **keywords: Any) -> Any:
    """What is recomputed in the backward pass is decided when the graph is partitioned: here it is a call."""
    if use_reentrant is not False or context_fn is not None:
        raise GraphBreak("AOT205", "torch.utils.checkpoint with use_reentrant=True or a context_fn", "Pass use_reentrant=False.")
    own = ("preserve_rng_state", "determinism_check", "debug", "early_stop")
    return i.call(function, arguments, {name: value for name, value in keywords.items() if name not in own})


@lookaside(torch.is_tensor)
def _is_tensor(i: "Interpreter", value: Any) -> bool:
    return isinstance(value, torch.Tensor)


@lookaside(torch.is_grad_enabled)
def _is_grad_enabled(i: "Interpreter") -> bool:
    return torch.is_grad_enabled()


@lookaside(torch._check, torch._check_value, torch._check_index, torch._check_type, torch._check_not_implemented)
def _check(i: "Interpreter", condition: Any, message: Any = None) -> None:
    """A condition on data is checked at run time; one on sizes is a guard, or fails now."""
    if i.symbols.is_data(condition) and i.symbols.check(condition, i.recorder):
        return
    if not i.truth(condition):
        text = "Expected cond to be True, but got False." if message is None else i.call(message, (), {})
        raise UserException(RuntimeError(text))


@lookaside(torch._check_is_size)
def _check_is_size(i: "Interpreter", value: Any, message: Any = None, *, max: Any = None) -> None:
    _check(i, operate(i, operator.ge, value, 0), message)
    if max is not None:
        _check(i, operate(i, operator.le, value, max), message)


@lookaside(torch._assert)
def _assert(i: "Interpreter", condition: Any, message: str) -> None:
    if not i.truth(condition):
        raise UserException(AssertionError(message))


@lookaside(torch.compiler.disable)
def _disable(i: "Interpreter", *arguments: Any, **keywords: Any) -> Any:
    raise GraphBreak("AOT207", "torch.compiler.disable is used")


@lookaside(warnings.warn)
def _warn(i: "Interpreter", *arguments: Any, **keywords: Any) -> None:
    raise GraphBreak("AOT201", "warnings.warn is called")


@lookaside(torch.set_default_dtype, torch.set_default_device, torch.set_num_threads, torch.use_deterministic_algorithms,
           torch.set_default_tensor_type, torch.set_float32_matmul_precision, torch.set_flush_denormal, torch.set_warn_always,
           torch.set_deterministic_debug_mode, torch.set_num_interop_threads, torch.autograd.set_multithreading_enabled)
def _global_setting(i: "Interpreter", *arguments: Any, **keywords: Any) -> None:
    raise GraphBreak("AOT208", "a global setting of torch is changed", kind="statement")


def construct_torch(i: "Interpreter", cls: type, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """An object of a torch class: grad-mode switches and the like are made for real; their effect is part of the graph."""
    if cls is torch.Generator:
        raise GraphBreak("AOT205", "a random generator is made")
    if cls.__module__.startswith(("torch.autograd.grad_mode", "torch.amp", "torch.cpu.amp", "torch.cuda.amp", "torch.backends",
                                  "torch.nn.attention", "torch._C", "torch.types", "torch.utils._python_dispatch")) or issubclass(cls, BaseException):
        return i.plain(cls, *arguments, **keywords)
    raise GraphBreak("AOT205", f"a {cls.__module__}.{cls.__qualname__} is made")


lookaside(RemovableHandle)(make_handle)


@lookaside(torch.inference_mode.__enter__)
def _enter_inference_mode(i: "Interpreter", context: torch.inference_mode) -> None:
    """It stays in the program: regions inside run under it, and what they make are inference tensors."""
    raise GraphBreak("AOT205", "torch.inference_mode is entered", "What it holds is compiled.")


@lookaside(torch.is_inference_mode_enabled)
def _is_inference_mode_enabled(i: "Interpreter") -> bool:
    i.outside.guard("state", None, {"inference_mode": i.recorder.inference_mode})
    return i.recorder.inference_mode


@lookaside(torch.autocast.__enter__)
def _enter_autocast(i: "Interpreter", context: torch.autocast) -> Any:
    if not i.recorder.transforms.active:           # there the operators are recorded with their casts
        arguments = (context.device, context.fast_dtype, context._enabled, context._cache_enabled)
        node = i.recorder.graph.call_function(torch.amp.autocast_mode._enter_autocast, arguments)
        i.recorder._annotate(node)
        context._aotcompile_node = node  # type: ignore[attr-defined]
    with torch._C.DisableTorchFunction():
        return i.plain(torch.autocast.__enter__, context)


@lookaside(torch.autocast.__exit__)
def _exit_autocast(i: "Interpreter", context: torch.autocast, *error: Any) -> Any:
    if not i.recorder.transforms.active:
        i.recorder.graph.call_function(torch.amp.autocast_mode._exit_autocast, (context._aotcompile_node,))  # type: ignore[attr-defined]
    with torch._C.DisableTorchFunction():
        return i.plain(torch.autocast.__exit__, context, *error)


__all__ = ["construct_torch"]
