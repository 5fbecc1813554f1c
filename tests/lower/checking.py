"""Trace, lower, verify, print and parse, evaluate, compare with eager: one call for a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from aotcompile.graph.decompositions import decomposition_table
from aotcompile.ir.dtypes import BY_TORCH_NAME
from aotcompile.ir.reference.evaluate import Array, evaluate
from aotcompile.ir.nodes import DTypeReference, LibraryCall, Program, TorchReference
from aotcompile.ir.text.parse import parse_program
from aotcompile.ir.text.print import program_text
from aotcompile.ir.verify import verify
from aotcompile.lower.program import lower_graph


def array_of(tensor: torch.Tensor) -> Array:
    """The tensor with its whole storage as a list."""
    memory = torch.as_strided(tensor.detach(), (tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0).tolist()
    return Array(memory, tuple(tensor.shape), tensor.stride(), BY_TORCH_NAME[str(tensor.dtype).removeprefix("torch.")], tensor.storage_offset())


def tensor_of(array: Array) -> torch.Tensor:
    data = torch.tensor([0 if value is None else value for value in array.memory], dtype=getattr(torch, array.dtype.torch_name))
    return torch.as_strided(data, array.sizes, array.strides, array.offset)


def call_library(call: LibraryCall, argument: Callable[[Any], Any]) -> Sequence[Array | None]:
    """A library call, on torch tensors made from Arrays."""
    changed: list[tuple[Array, torch.Tensor]] = []

    def convert(value: Any) -> Any:
        if isinstance(value, Array):
            tensor = tensor_of(value)
            changed.append((value, tensor))
            return tensor
        if isinstance(value, list):
            return [convert(part) for part in value]
        if isinstance(value, DTypeReference):
            return getattr(torch, value.name)
        if isinstance(value, TorchReference):
            return torch.device(value.text) if value.kind == "device" else getattr(torch, value.text.removeprefix("torch."))
        return value

    namespace, name, overload = call.operator.split(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    results = operator(*(convert(argument(a)) for a in call.arguments), **{key: convert(argument(a)) for key, a in call.keywords})
    if call.mutates:
        for array, tensor in changed:
            array.memory[:] = array_of(tensor).memory
    flat = results if isinstance(results, (list, tuple)) else [results]
    return [array_of(result) if isinstance(result, torch.Tensor) else None for result in flat]


def trace(function: Callable[..., Any], inputs: Sequence[Any], dynamic: bool = False) -> GraphModule:
    """The functional, decomposed ATen graph."""

    def flat(*arguments: Any) -> Any:
        result = function(*arguments)
        return result if isinstance(result, (tuple, list)) else (result,)

    return make_fx(
        torch.func.functionalize(flat, remove="mutations"),
        decomposition_table=decomposition_table(),
        tracing_mode="symbolic" if dynamic else "fake",
        _allow_non_fake_inputs=True,
    )(*inputs)


def lower(function: Callable[..., Any], *inputs: Any, dynamic: bool = False) -> Program:
    program = lower_graph(trace(function, inputs, dynamic), name="inference")
    assert verify(program) == ()
    assert program_text(parse_program(program_text(program))) == program_text(program)
    return program


def check(
    function: Callable[..., Any],
    *inputs: torch.Tensor,
    dynamic: bool = False,
    run_on: Sequence[torch.Tensor] | None = None,
    tolerance: float | None = None,
    kernels_only: bool = False,
    strides: bool = True,
) -> Program:
    """Lower ``function`` for ``inputs``, evaluate on ``run_on`` (else the inputs), compare values, dtypes, shapes, strides and changed inputs with eager."""
    program = lower(function, *inputs, dynamic=dynamic)
    given = list(run_on if run_on is not None else inputs)
    arrays = [array_of(value) for value in given]
    expected = function(*given)  # eager runs second: it may change the inputs
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    outputs = evaluate(program, arrays, call_library)
    assert len(outputs) == len(expected)
    for output, wanted in zip(outputs, expected):
        compare(output, wanted, tolerance, strides)
    for array, value in zip(arrays, given):
        compare(array, value, tolerance, strides)
    if kernels_only:
        assert not any(isinstance(operation, LibraryCall) for operation in program.operations), program_text(program)
    return program


def compare(output: Any, wanted: Any, tolerance: float | None, strides: bool) -> None:
    if not isinstance(wanted, torch.Tensor):
        assert output == wanted
        return
    assert isinstance(output, Array)
    assert output.dtype.torch_name == str(wanted.dtype).removeprefix("torch.")
    assert output.sizes == tuple(wanted.shape)
    if strides and wanted.numel():
        assert all(size == 1 or a == b for size, a, b in zip(wanted.shape, output.strides, wanted.stride())), (output.strides, wanted.stride())
    torch.testing.assert_close(
        tensor_of(output).reshape(wanted.shape),
        wanted.detach(),
        equal_nan=True,
        **({} if tolerance is None else {"rtol": tolerance, "atol": tolerance}),
    )


def run_by_evaluation(graph_module: GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """A "compiler" for `torch._functorch`: the graph, lowered, run by the reference evaluator."""
    program = lower_graph(graph_module, name="graph")
    assert verify(program) == ()
    assert program_text(parse_program(program_text(program))) == program_text(program)

    def run(*inputs: Any) -> list[Any]:
        arrays = [array_of(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        before = [list(array.memory) if isinstance(array, Array) else None for array in arrays]
        outputs = evaluate(program, arrays, call_library)
        for array, memory, value in zip(arrays, before, inputs):
            if isinstance(value, torch.Tensor) and repr(memory) != repr(array.memory):
                with torch.no_grad():
                    value.copy_(tensor_of(array))
        return [tensor_of(output) if isinstance(output, Array) else output for output in outputs]

    return run


def check_training(function: Callable[..., Any], *inputs: torch.Tensor, dynamic: bool = False, tolerance: float = 1e-4) -> None:
    """Values and gradients through AOTAutograd's forward and backward graphs, both lowered and evaluated, against eager."""
    from functorch.compile import aot_function, make_boxed_func

    compiled = aot_function(
        function,
        fw_compiler=lambda graph, examples: make_boxed_func(run_by_evaluation(graph, examples)),
        decompositions=decomposition_table(),
        dynamic=dynamic,
    )
    ours = [value.detach().clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad) for value in inputs]
    theirs = [value.detach().clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad) for value in inputs]
    torch.manual_seed(0)
    results = compiled(*ours)
    torch.manual_seed(0)
    expected = function(*theirs)
    results, expected = ((value if isinstance(value, (tuple, list)) else (value,)) for value in (results, expected))
    for result, wanted in zip(results, expected):
        torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert not wanted.numel() or result.stride() == wanted.stride()
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(value.shape, generator=generator) for value in expected]
    for outputs in (results, expected):
        sum((value.float() * weight).sum() for value, weight in zip(outputs, weights) if value.requires_grad).backward()
    for mine, wanted in zip(ours, theirs):
        torch.testing.assert_close(mine, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert (mine.grad is None) == (wanted.grad is None)
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, wanted.grad, rtol=tolerance, atol=tolerance, equal_nan=True)
