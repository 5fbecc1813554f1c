"""Every private torch API that the graph stage uses. Checked on torch 2.13.0 and 2.14.1; written for 2.11 to 2.14.

AOTAutograd's modules are imported inside functions: they pull in much of torch (about two seconds) that only a build needs.
"""
from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import types
import warnings
from typing import Any, Callable, Iterable, Iterator, Sequence
from unittest.mock import patch

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._sympy.symbol import SymT, make_symbol
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

__all__ = ["FakeTensor", "FakeTensorMode", "GuardOnDataDependentSymNode", "ShapeEnv", "ValueRanges", "bound_sympy", "fx_traceback",
           "define_size_symbol", "expression_as_traced",
           "aot_trace", "trace_functional", "graph_module", "lazy_graph_modules", "new_names", "identify_symbols", "size_hint", "hints_of",
           "torch_state_kept", "run_fake", "min_cut_partition", "python_kernels", "own_autograd_kernels",
           "composed_on_meta", "upsample_size", "no_dispatch_modes"]

# sympy names that torch reads as other kinds of symbols (unbacked ints and floats, precomputed sizes): not for sizes of inputs.
RESERVED_PREFIXES = ("u", "zuf", "zf", "ps", "nested")


def define_size_symbol(environment: ShapeEnv, name: str, hint: int, minimum: int | None, maximum: int | None) -> sympy.Symbol:
    """A size symbol called ``name`` in ``environment``, in [minimum, maximum], as `ShapeEnv.create_symbol` would register one.

    ``create_symbol`` itself chooses the name, and the names are part of our text on disk."""
    sign = {} if minimum is None else {"positive": True} if minimum > 0 else {"nonnegative": True}
    symbol = sympy.Symbol(name, integer=True, **sign)
    hints_of(environment)[symbol] = sympy.Integer(hint)
    environment.var_to_range[symbol] = ValueRanges(-_int_infinity() if minimum is None else minimum,
                                                   _int_infinity() if maximum is None else maximum)
    environment.var_to_sources[symbol] = []
    environment.symbol_guard_counter[symbol] = 0
    slocs = getattr(environment, "var_to_range_sloc", None)
    if slocs is not None:
        from torch.fx.experimental.symbolic_shapes import ValueRangesSLoc
        location = environment._get_sloc()
        slocs[symbol] = ValueRangesSLoc(location, location)
    return symbol


def hints_of(environment: ShapeEnv) -> dict[sympy.Symbol, sympy.Integer]:
    """Symbol of an input's size -> the number that stands for it while tracing (before torch 2.12 the table is called ``var_to_val``)."""
    return environment.backed_var_to_val if hasattr(environment, "backed_var_to_val") else environment.var_to_val


def size_hint(size: int | torch.SymInt) -> int:
    """The number that stands for a size while tracing, without a guard."""
    if isinstance(size, int):
        return size
    return int(size.node.expr.xreplace(hints_of(size.node.shape_env)))


def expression_as_traced(number: torch.SymInt) -> Any:
    """The sympy expression of a number as it was made, without what is known of its symbols since (``u0``, not the 2 it was checked to be)."""
    return number.node._expr


def identify_symbols(environment: ShapeEnv, first: Sequence[int]) -> None:
    """AOTAutograd runs a function twice, and a size that is data gets another symbol in each run: tangents have those of the first run's outputs.
    ``first``: per run, how many such symbols there were before it. The earlier run's symbols are those of the last run from here on."""
    if len(first) < 2:
        return
    for number in range(first[-1] - first[-2]):
        earlier, later = (make_symbol(SymT.UNBACKED_INT, start + number, integer=True) for start in (first[-2], first[-1]))
        known = environment.replace(later)
        if environment.replace(earlier) == earlier and later in environment.var_to_range and earlier not in known.free_symbols:
            environment.replacements[earlier] = known
    if hasattr(environment, "_replacements_version_counter"):    # torch 2.13: numbers remember their replaced expression until this changes
        environment._replacements_version_counter += 1
    environment._update_version_counter()


def _int_infinity() -> Any:
    from torch.utils._sympy.numbers import int_oo
    return int_oo


@contextlib.contextmanager
def torch_state_kept() -> Iterator[None]:
    """Puts grad mode, autocast, the default dtype and the anomaly mode back as they were, also when the body raises."""
    grad = torch.is_grad_enabled()
    anomaly = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    devices = ("cpu", "cuda")
    autocast = [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices]
    cache, default_dtype = torch.is_autocast_cache_enabled(), torch.get_default_dtype()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Anomaly Detection has been enabled")
            warnings.filterwarnings("ignore", message="Error detected in")
            yield
    finally:
        torch._C._set_grad_enabled(grad)
        torch.set_anomaly_enabled(*anomaly)
        for device, enabled, dtype in autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(cache)
        if torch.get_default_dtype() is not default_dtype:
            torch.set_default_dtype(default_dtype)


@contextlib.contextmanager
def _kernels_put_back(operators: Iterable[torch._ops.OpOverload]) -> Iterator[None]:
    """After it, these operators have the Python kernels that they had before."""
    before = {operator: dict(operator.py_kernels) for operator in operators}
    try:
        for operator in before:
            operator._dispatch_cache.clear()
        yield
    finally:
        for operator, kernels in before.items():
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()


@contextlib.contextmanager
def python_kernels(makers: dict[torch._ops.OpOverload, Callable[[Callable[..., Any]], Callable[..., Any]]]) -> Iterator[None]:
    """Inside, the kernels that torch registers in Python for these operators are those that the makers make of them."""
    with _kernels_put_back(makers):
        for operator, make in makers.items():
            operator.py_kernels.update({key: make(kernel) for key, kernel in operator.py_kernels.items()})
        yield


@contextlib.contextmanager
def own_autograd_kernels(operators: Sequence[torch._ops.OpOverload]) -> Iterator[None]:
    """Inside, these operators have their derivative from C++, as in eager, and not the Python form that torch has in its place."""
    with _kernels_put_back(operators):
        for operator in operators:
            for key in (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd):
                operator.py_kernels.pop(key, None)
        yield


@functools.cache
def _composites_with_meta_kernels() -> tuple[torch._ops.OpOverload, ...]:
    """Operators that C++ composes of others, and that have a kernel for meta tensors in Python."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    found = []
    for name in sorted(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")):
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        operator = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload or "default", None)
        if operator is not None and torch._C.DispatchKey.Meta in operator.py_kernels and key not in operator.py_kernels:
            found.append(operator)
    return tuple(found)


@contextlib.contextmanager
def composed_on_meta() -> Iterator[None]:
    """Inside, autograd on meta tensors sees through composite operators, as it does on every other device. Under the Python dispatcher a kernel
    in Python for meta tensors hides what C++ composes (``nll_loss``), and the operator would have no derivative."""
    key = torch._C.DispatchKey.AutogradMeta
    changed = [operator for operator in _composites_with_meta_kernels() if key not in operator.py_kernels]
    try:
        for operator in changed:
            operator.py_kernels[key] = functools.partial(operator._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd)
            operator._dispatch_cache.clear()
        yield
    finally:
        for operator in changed:
            del operator.py_kernels[key]
            operator._dispatch_cache.clear()


def upsample_size(sizes: Sequence[Any], output_size: Any, factors: Any) -> Any:
    """The sizes of an upsampled image, given as such or by factors. ``sizes``: of the input, with batch and channels."""
    from torch._decomp.decompositions import upsample_compute_output_size
    return upsample_compute_output_size(sizes, output_size, factors)


def no_dispatch_modes() -> Any:
    """Inside: no fake tensor mode, no proxy mode; real tensors can be made and computed with."""
    from torch.utils._python_dispatch import _disable_current_modes
    return _disable_current_modes()


def min_cut_partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Inside `lazy_graph_modules` both graphs are of that kind (torch reorders the backward into a module whose code is written at every change)."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.fx._lazy_graph_module import _get_graph_module_cls
    kind = _get_graph_module_cls()
    with _light_pattern_matcher():
        parts = min_cut_rematerialization_partition(joint, inputs, **options)
    forward, backward = (part if isinstance(part, kind) else graph_module(part, part.graph) for part in parts)
    return forward, backward


@contextlib.contextmanager
def _light_pattern_matcher() -> Iterator[None]:
    """Before it partitions, torch finds common subexpressions, and for two small functions imports Inductor's pattern matcher, longer than
    the rest. Inside, these are the two; whoever asks that module for more gets the real one."""
    name = "torch._inductor.pattern_matcher"
    if name in sys.modules:
        yield
        return
    light = types.ModuleType(name)

    def real(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if sys.modules.get(name) is light:
            del sys.modules[name]
        return getattr(importlib.import_module(name), attribute)

    vars(light).update(compute_mutation_region_ids=number_regions, same_mutation_regions=same_region, __getattr__=real)
    sys.modules[name] = light
    try:
        yield
    finally:
        if sys.modules.get(name) is light:
            del sys.modules[name]


def number_regions(graph: fx.Graph) -> None:
    """Gives every node the number of writes in place up to it: equal calls in one region, with nothing written in between, give equal results."""
    region = 0
    for node in graph.nodes:
        region += _may_write(node)
        node.meta["mutation_region_id"] = region


def same_region(first: fx.Node, second: fx.Node) -> bool:
    return bool(first.meta["mutation_region_id"] == second.meta["mutation_region_id"])


def _may_write(node: fx.Node) -> bool:
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable)
    return isinstance(node.target, torch._ops.HigherOrderOperator) or node.op in ("call_method", "call_module") or "out" in node.kwargs


def lazy_graph_modules() -> Any:
    """Inside: what torch makes of graphs writes their Python code only when it is called."""
    from torch.fx._lazy_graph_module import _use_lazy_graph_module
    return _use_lazy_graph_module(True)


def graph_module(root: torch.nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """A module of the graph; inside `lazy_graph_modules` one of that kind."""
    from torch.fx._lazy_graph_module import _make_graph_module
    return _make_graph_module(root, graph)


def new_names(graph: fx.Graph, names: Sequence[str]) -> None:
    """Names all nodes anew, in order; a name that is taken already gets a number."""
    from torch.fx.graph import _Namespace
    graph._graph_namespace = _Namespace()
    for node, name in zip(graph.nodes, names, strict=True):
        node.name = graph._graph_namespace.create_name(name, node)
        if node.op == "placeholder":
            node.target = node.name


def aot_trace(module: torch.nn.Module, inputs: Sequence[Any], mode: FakeTensorMode, decompositions: dict[Any, Any],
              partition: Callable[..., tuple[fx.GraphModule, fx.GraphModule]]) -> tuple[fx.GraphModule, Any]:
    """AOTAutograd on ``module`` with fake ``inputs``: the forward or inference graph, and torch's metadata about inputs
    and outputs (ViewAndMutationMeta).

    ``partition`` is called with the joint graph if there is one. Nothing is compiled and no runtime wrapper is used."""
    from torch._functorch import config
    from torch._functorch._aot_autograd import graph_compile
    from torch._functorch.aot_autograd import aot_module_simplified
    from torch._guards import TracingContext, tracing
    captured: list[tuple[fx.GraphModule, Any]] = []

    def compile_forward(graph: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        captured.append((graph, TracingContext.get().fw_metadata))
        return graph.forward

    def compile_backward(graph: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        return graph.forward

    wanted = {"force_non_lazy_backward_lowering": False, "functionalize_rng_ops": False, "enable_autograd_cache": False,
              "fake_tensor_propagate_real_tensors": False, "debug_partitioner": False, "joint_custom_pass": None}
    known = {name: value for name, value in wanted.items() if hasattr(config, name)}
    # AOTAutograd's pass that turns float numbers into tensor arithmetic rounds differently from eager for 16-bit types; numbers stay numbers here.
    with tracing(TracingContext(mode)), config.patch(known), patch.object(graph_compile, "tensorify_python_scalars", lambda *_: None, create=True):
        aot_module_simplified(module, list(inputs), fw_compiler=compile_forward, bw_compiler=compile_backward, inference_compiler=compile_forward,
                              partition_fn=partition, decompositions=decompositions, keep_inference_input_mutations=True)
    [result] = captured
    return result


def run_fake(function: Callable[..., Any], inputs: Sequence[Any], mode: FakeTensorMode) -> Any:
    """``function`` on fake ``inputs`` as AOTAutograd runs it, without tracing it."""
    from torch._dispatch.python import enable_python_dispatcher
    with mode, enable_python_dispatcher():
        return function(*inputs)


def trace_functional(function: Callable[..., Sequence[Any]], inputs: Sequence[torch.Tensor], mode: FakeTensorMode,
                     decompositions: dict[Any, Any]) -> tuple[fx.GraphModule, bool]:
    """``function`` on fake ``inputs`` as a functional, decomposed ATen graph, traced as AOTAutograd does; and whether it writes to an input."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch._functorch._aot_autograd.functional_utils import from_fun, to_fun
    from torch._functorch.aot_autograd import aot_autograd_decompositions
    from torch._subclasses.functional_tensor import FunctionalTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    written = False

    def functional(*tensors: torch.Tensor) -> list[Any]:
        nonlocal written
        wrapped = [to_fun(tensor) for tensor in tensors]
        excluded = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            results = [from_fun(result) for result in function(*wrapped)]
        written = any(torch._functionalize_has_data_mutation(tensor.elem) or torch._functionalize_has_metadata_mutation(tensor.elem)
                      for tensor in wrapped)
        return results

    table = {**aot_autograd_decompositions, **decompositions}
    with mode, enable_python_dispatcher(), FunctionalTensorMode():
        module = make_fx(functional, decomposition_table=table)(*inputs)
    return module, written
