"""From a captured graph to functional ATen graphs, with torch's AOTAutograd.

    captured      relu(linear(x, w)), running_mean.mul_(0.9)
    forward       (outputs..., saved tensors..., saved sizes...); mutated inputs end in aten.copy_(input, value)
    backward      (saved sizes..., saved tensors..., tangents...) -> one gradient or None per input
"""
from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from aotcompile.frontend.types import CapturedVariant
from aotcompile.graph import passes
from aotcompile.graph.autograd.observe import Observed
from aotcompile.graph.autograd.reached import edge_facts, gradient_groups, outputs_reached, part_of
from aotcompile.graph.autograd.stages import Stages, cut_in_stages, may_depend
from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.record import graph_module, nodes_of, place_of
from aotcompile.graph.torch_private import (
    GuardOnDataDependentSymNode,
    aot_trace,
    composed_on_meta,
    hints_of,
    identify_symbols,
    lazy_graph_modules,
    own_autograd_kernels,
    python_kernels,
    run_fake,
    torch_state_kept,
)
from aotcompile.graph.tracing.checks import Check, insert_checks
from aotcompile.graph.tracing.device import retarget
from aotcompile.graph.tracing.inputs import TracingInputs, evaluate, make_inputs
from aotcompile.graph.tracing.partition import Partitioner, gradient_alignment, is_symbolic_number, save_number_tensors, save_values_before_mutation
from aotcompile.graph.tracing.randomness import keep_random_operators
from aotcompile.graph.tracing.relations import expression_guards
from aotcompile.graph.tracing.repeated import NotRepeated, RepeatedTracer, worth_it
from aotcompile.graph.tracing.trace import CapturedFunction
from aotcompile.graph.tracing.whole import WITH_OWN_DERIVATIVE, whole_kernels
from aotcompile.graph.types import AtenGraphs, Cuts, SavedValue
from aotcompile.ir.expression import parse
from aotcompile.ir.guards import Guard


def build_aten_graphs(variant: CapturedVariant, *, training: bool) -> AtenGraphs:
    """The ATen graphs of a variant. ``backward`` is None for inference, and in training where no output requires grad.

    Raises UnsupportedGraph (AOT3xx) where the region must stay eager in this situation; torch's global state is as before either way."""
    function = CapturedFunction(graph_module(variant.nodes), variant.inputs)
    inputs = make_inputs(variant, training=training, running=lambda: function.running)
    partitioner, decompositions = Partitioner(), _decompositions()
    stand_in = composed_on_meta() if function.uses_cuda else nullcontext()
    kernels, derivatives = python_kernels(whole_kernels()), own_autograd_kernels(WITH_OWN_DERIVATIVE)
    with torch_state_kept(), lazy_graph_modules(), kernels, derivatives, stand_in, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.set_grad_enabled(training)
        _enter_captured_state(variant, function.uses_cuda)
        stages = _cut(variant, function) if training and may_depend(function.graph, variant.output_requires_grad) else None
        function.environment = inputs.environment
        if stages is not None:
            function.cuts = stages.sources
            partitioner.anchors = len(stages.sources)
            partitioner.edges = range(len(variant.output_requires_grad), len(variant.output_requires_grad) + stages.edges)
            inputs.values.extend(_anchors(stages, inputs))
        try:
            repeated = _trace_repeated(variant, function, inputs, decompositions, partitioner, training)
            forward, metadata = repeated or aot_trace(function, inputs.values, inputs.mode, decompositions, partitioner)
        except UnsupportedGraph:
            raise
        except GuardOnDataDependentSymNode as error:
            raise UnsupportedGraph("AOT303", f"tracing needs the value behind {error.args[0] if error.args else error}".splitlines()[0] + ".",
                                   place=function.place) from error
        except Exception as error:  # torch raises all kinds here; each means: no graph for this situation, and eager is right
            message = next(iter(str(error).splitlines()), "")
            reason = f"AOTAutograd cannot trace this region: {type(error).__name__}: {message}."
            raise UnsupportedGraph("AOT302", reason, place=function.place) from error
    identify_symbols(inputs.environment, function.first_symbols)
    for warning in said:
        # torch only warns where an operator has no derivative for a device (the stand-in); its gradient would be lost.
        if training and "an autograd kernel was not registered" in str(warning.message):
            raise UnsupportedGraph("AOT302", f"a derivative is missing: {str(warning.message).partition(':  ')[0].partition('. ')[0]}.",
                                   place=function.place)
    if repeated is None:
        _check(metadata, variant, training)
    cuts = Cuts(nodes_of(function.graph), stages.sources, stages.result_stages, stages.cut_stages) if stages is not None else None
    return _finish(variant, inputs, forward, partitioner, metadata, function.checks, cuts)


def _cut(variant: CapturedVariant, function: CapturedFunction) -> Stages | None:
    """Cuts the function's graph where results are computed from each other; None where none is."""
    inputs = make_inputs(variant, training=True, running=lambda: function.running)
    observed, state = Observed(), torch.is_grad_enabled()
    function.observer = observed
    try:
        run_fake(function, inputs.values, inputs.mode)
    except Exception:  # noqa: BLE001  the tracing that follows meets the same error and says what it means
        return None
    finally:
        function.observer = None
        torch.set_grad_enabled(state)
        _enter_captured_state(variant, function.uses_cuda)
    return cut_in_stages(function.graph, observed, [facts.name for facts in variant.symbols])


def _anchors(stages: Stages, inputs: TracingInputs) -> list[torch.Tensor]:
    with inputs.mode:
        return [torch.empty([size if isinstance(size, int) else evaluate(parse(size), inputs.sizes) for size in sizes], dtype=dtype, device=device,
                            requires_grad=True) for sizes, dtype, device in stages.kinds]


def _trace_repeated(variant: CapturedVariant, function: CapturedFunction, inputs: TracingInputs, decompositions: dict[Any, Any],
                    partitioner: Partitioner, training: bool) -> tuple[fx.GraphModule, Any] | None:
    """The forward or inference graph of a program with repeated parts, each distinct operator traced once. None: it is to be traced as a whole."""
    program = function.graph
    fixed = not variant.symbols and all(given.facts is not None and not given.mutated for given in variant.inputs)
    if not fixed or not worth_it(program):
        return None
    state = torch.is_grad_enabled()
    try:
        given = inputs.values[:len(variant.inputs)]
        result = RepeatedTracer(inputs.mode, decompositions, function.around, function.cuts).run(program, given, training)
    except NotRepeated:
        torch.set_grad_enabled(state)
        _enter_captured_state(variant, function.uses_cuda)
        return None
    if not training:
        return result.graph, result.metadata
    partitioner.anchors = 0                                      # the tracer needs none
    joint_inputs = (given, result.tangents)
    forward, _ = partitioner(result.graph, joint_inputs, num_fwd_outputs=len(result.metadata.output_info), static_lifetime_input_indices=[])
    return forward, result.metadata


def _enter_captured_state(variant: CapturedVariant, uses_cuda: bool) -> None:
    """Autocast and the default dtype as they were at capture: the graph contains what eager does under them. The caller puts torch's state back."""
    state: dict[str, Any] = {}
    for guard in variant.guards:
        if guard.kind == "state":
            state.update(guard.expected)
    if uses_cuda and state.get("autocast_cuda"):
        raise UnsupportedGraph("AOT302", "autocast on CUDA cannot be traced without a GPU.")
    for device in ("cpu", "cuda"):
        dtype = state.get(f"autocast_{device}")
        torch.set_autocast_enabled(device, bool(dtype))
        if dtype:
            torch.set_autocast_dtype(device, getattr(torch, dtype))
    if isinstance(default := state.get("default_dtype"), str):
        torch.set_default_dtype(getattr(torch, default))


def _decompositions() -> dict[Any, Any]:
    from aotcompile.graph.decompositions import decomposition_table
    return keep_random_operators(decomposition_table())


def _check(metadata: Any, variant: CapturedVariant, training: bool) -> None:
    names = [given.name for given in variant.inputs]
    for name, information in zip(names, metadata.input_info):
        if information.mutates_metadata or getattr(information, "mutation_inductor_storage_resize", False):
            raise UnsupportedGraph("AOT312", f"the sizes, strides or storage of the input {name} are changed in place.")
        # By autograd: the input would have another history.
        recorded = not (information.mutations_under_no_grad_or_inference_mode or information.mutations_hidden_from_autograd)
        if information.mutates_data and training and information.requires_grad and recorded:
            raise UnsupportedGraph("AOT311", f"the input {name} requires grad and is changed in place.")
    for number, information in enumerate(metadata.output_info):
        if information.output_type.name not in ("non_alias", "unsafe_view_alias", "custom_function_view"):
            kind = information.output_type.name
            raise UnsupportedGraph("AOT313", f"output {number} of the region shares memory with an input or another output ({kind}).")
    if metadata.num_intermediate_bases or metadata.num_mutated_inp_runtime_indices or metadata.tokens:
        raise UnsupportedGraph("AOT313", "the region's graph needs results beyond its outputs (shared memory, changed inputs or effects).")


def _finish(variant: CapturedVariant, inputs: TracingInputs, forward: fx.GraphModule, partitioner: Partitioner, metadata: Any,
            checks: list[Check], cuts: Cuts | None) -> AtenGraphs:
    backward = partitioner.backward
    output_count = len(metadata.output_info) - len(checks) - len(partitioner.edges)
    tangents: tuple[int, ...] = ()
    if backward is not None:
        if partitioner.output_count != output_count + len(checks):
            raise UnsupportedGraph("AOT302", f"the forward graph has {partitioner.output_count} outputs where the region has {output_count}.")
        tangents = tuple(number for number, information in enumerate(metadata.output_info)
                         if information.requires_grad and issubclass(information.raw_type, torch.Tensor))
        gradient_alignment(backward, len(variant.inputs) + (len(cuts.sources) if cuts else 0))
        save_number_tensors(forward, backward, output_count + len(checks))
    insert_checks(forward, checks, output_count)
    graphs = [forward] if backward is None else [forward, backward]
    for graph in graphs:
        _places(graph)
        passes.run(graph)
    passes.insert_size_checks(forward, inputs.environment)
    passes.restore_output_strides(forward, variant.output_strides, inputs.mode)
    if backward is not None:
        passes.accept_tangents(forward, backward, tangents, output_count, inputs.mode)
        save_values_before_mutation(forward, output_count)
    names = passes.rename_nodes(forward, [given.name for given in variant.inputs])
    if backward is not None:
        passes.rename_nodes(backward, [names.get(node.name, node.name) for node in backward.graph.find_nodes(op="placeholder")])
    guards = _guards(variant, inputs, graphs)
    if any(given.facts is not None and given.facts.device != "cpu" for given in variant.inputs):
        for graph in graphs:
            retarget(graph, inputs.mode)
    graphs_of = AtenGraphs(forward, backward, _saved(forward, output_count), output_count, tangents, guards)
    return graphs_of if backward is None else _in_groups(graphs_of, backward, len(variant.inputs), cuts)


def _in_groups(graphs: AtenGraphs, backward: fx.GraphModule, input_count: int, cuts: Cuts | None) -> AtenGraphs:
    reached = outputs_reached(backward, graphs.tangents, cuts, input_count)
    groups = gradient_groups(backward, reached, graphs.tangents, cuts)
    if cuts is not None:
        cuts = replace(cuts, edges=edge_facts(backward, graphs.tangents, graphs.output_count))
    if len(groups) == 1:
        return replace(graphs, reached=reached, groups=groups, cuts=cuts)
    found = [part_of(backward, group.inputs, group.needed) for group in groups]
    groups = tuple(replace(group, needed=needed) for group, (_, needed) in zip(groups, found))
    return replace(graphs, reached=reached, groups=groups, parts=tuple(part for part, _ in found), cuts=cuts)


def _places(graph: fx.GraphModule) -> None:
    for node in graph.graph.nodes:
        place, source = place_of(node.meta.get("stack_trace"))
        if place:
            node.meta["place"], node.meta["source"] = place, source


def _saved(forward: fx.GraphModule, output_count: int) -> tuple[SavedValue, ...]:
    [output] = forward.graph.find_nodes(op="output")
    saved = list(enumerate(output.args[0]))[output_count:]                                    # type: ignore[arg-type]
    return tuple(SavedValue(index, "size" if is_symbolic_number(node) else "tensor") for index, node in saved)


def _guards(variant: CapturedVariant, inputs: TracingInputs, graphs: list[fx.GraphModule]) -> tuple[Guard, ...]:
    known = [str(guard.expected) for guard in variant.guards if guard.kind == "expression"]
    relations = [guard.expr for guard in inputs.environment.guards]
    relations += [relation for graph in graphs for relation in passes.required_sizes(graph)]
    return expression_guards(relations, known, hints_of(inputs.environment))
