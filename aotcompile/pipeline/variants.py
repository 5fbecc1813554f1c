"""One captured variant through graph, lowering, schedule and codegen: its texts, and the kernels still to be built.

The stage list as data: `STAGES` names what `show` prints and in which order it is made.
"""
from __future__ import annotations

import json
import traceback
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.codegen.cpp.source import generate_cpp
from aotcompile.codegen.python.guards import guards_source
from aotcompile.codegen.python.plan import as_json, plan_graph
from aotcompile.codegen.python.wrapper import wrapper_source
from aotcompile.codegen.types import KernelSource, PlanCall, PlanGraph, PlanKernel
from aotcompile.frontend.types import CapturedVariant
from aotcompile.graph.aot import build_aten_graphs
from aotcompile.graph.aten_source import aten_source
from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.plugin import apply_plugin
from aotcompile.graph.record import graph_source
from aotcompile.graph.types import AtenGraphs
from aotcompile.ir.nodes import Program
from aotcompile.ir.text.print import program_text
from aotcompile.lower.program import lower_graph
from aotcompile.schedule.print import schedule_text
from aotcompile.schedule.schedule import make_schedule
from aotcompile.schedule.types import Schedule

STAGES = ("graph", "aten", "ir", "schedule", "cpp", "triton", "wrapper", "guards", "plan")
PLAN_SCHEMA = 1
IN_STAGES = 2                               # a plan with several nodes of autograd's graph, each with its own backward graph


@dataclass(frozen=True)
class BuiltVariant:
    """A variant as text. ``stages``: stage name -> text, for `show`; ``kernels``: what is to be compiled, None where nothing is."""

    variant: CapturedVariant
    texts: dict[str, str]
    kernels: KernelSource | None
    kernel_count: int
    library_count: int
    stages: dict[str, str] = field(default_factory=dict)
    graphs: AtenGraphs | None = None


def build_variant(variant: CapturedVariant, *, backend: str, language: str = "cpp") -> BuiltVariant | Diagnostic:
    """All texts of a variant. A Diagnostic says why this situation stays eager."""
    try:
        return _build_variant(variant, backend, language)
    except (UnsupportedGraph, AotCompileError) as unsupported:
        return unsupported.diagnostics[0]
    except Exception as error:  # noqa: BLE001  a defect of ours in one variant must not take the build with it: it is reported, the region stays eager
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"internal error of a stage: {type(error).__name__}: {next(iter(str(error).splitlines()), '')} ({place.name})."
        return Diagnostic("AOT399", "warning", text, None, "Please report it; the region runs eagerly.")


def _build_variant(variant: CapturedVariant, backend: str, language: str) -> BuiltVariant:
    """Raises UnsupportedGraph, or AotCompileError (AOT4xx), where a stage has no form for the graph."""
    training = any(variant.output_requires_grad)
    if ":" in backend:
        variant, written = apply_plugin(variant, backend)
        return _finish(variant, {"graph.py": graph_source(variant)}, {}, None, None, training, "eager" if written else backend)
    texts = {"graph.py": graph_source(variant)}
    if backend == "eager":
        return _finish(variant, texts, {}, None, None, training, backend)
    graphs = build_aten_graphs(variant, training=training)
    variant = replace(variant, guards=(*variant.guards, *graphs.guards))
    if graphs.cuts is not None:
        texts["graph.py"] = graph_source(replace(variant, nodes=graphs.cuts.nodes))
    programs: dict[str, Program] = {}
    for name, module in graphs.named(training).items():
        texts["forward.py" if name == "inference" else f"{name}.py"] = aten_source(module, name)
        programs[name] = lower_graph(module, name=name, library_only=backend == "aot_eager")
    schedules = {name: make_schedule(program, backend="cpp" if language == "cpp" else "triton") for name, program in programs.items()}
    kernels = _kernels(schedules, language)
    stages = {"ir": "\n".join(map(program_text, programs.values())), "schedule": "\n".join(map(schedule_text, schedules.values()))}
    plans = {name: plan_graph(schedule) for name, schedule in schedules.items()}
    return replace(_finish(variant, texts, plans, kernels, graphs, training, backend), stages=stages)


def _kernels(schedules: dict[str, Schedule], language: str) -> KernelSource | None:
    if language == "cpp":
        source = generate_cpp(list(schedules.values()))
    else:
        from aotcompile.codegen.triton.source import generate_triton

        source = generate_triton(list(schedules.values()))
    return source if source.kernels else None


def _finish(variant: CapturedVariant, texts: dict[str, str], plans: dict[str, PlanGraph], kernels: KernelSource | None, graphs: AtenGraphs | None,
            training: bool, backend: str) -> BuiltVariant:
    texts["guards.py"] = guards_source(variant.guards, variant.region)
    texts["wrapper.py"] = wrapper_source(variant, plans)
    if kernels is not None:
        texts["kernels.cpp" if kernels.language == "cpp" else "kernels.py"] = kernels.text
    texts["plan.json"] = plan_text(variant, plans, graphs, training, backend)
    steps = [step for plan in plans.values() for step in plan.steps]
    return BuiltVariant(variant, texts, kernels, sum(isinstance(s, PlanKernel) for s in steps), sum(isinstance(s, PlanCall) for s in steps),
                        graphs=graphs)


def plan_text(variant: CapturedVariant, plans: dict[str, PlanGraph], graphs: AtenGraphs | None, training: bool, backend: str) -> str:
    """plan.json. Lists one entry per line, so that a diff can be read."""
    data: dict[str, Any] = {
        "schema": IN_STAGES if graphs and graphs.parts else PLAN_SCHEMA,
        "region": variant.region,
        "backend": backend,
        "inputs": [{"name": i.name, "kind": i.kind, "path": i.path.as_json(), "facts": i.facts.as_json() if i.facts else None, "number": i.number,
                    "mutated": i.mutated} for i in variant.inputs],
        "symbols": [[s.name, s.input, s.dimension] for s in variant.symbols],
        "guards": [guard.as_json() for guard in variant.guards],
        "libraries": list(variant.libraries),
        "fetches": [path.as_json() for path in variant.fetches],
        "result": list(variant.result) if isinstance(variant.result, tuple) else variant.result,
        "grad_enabled": variant.grad_enabled,
        "training": training,
        "output_requires_grad": list(variant.output_requires_grad),
        "graphs": {name: as_json(plan) for name, plan in plans.items()},
        "saved": [[s.index, s.kind] for s in graphs.saved] if graphs else [],
        "tangents": list(graphs.tangents) if graphs else [],
        **({"reached": [list(outputs) for outputs in graphs.reached], "groups": [asdict(group) for group in graphs.groups]}
           if graphs and graphs.groups else {}),
        **({"cuts": [list(source) for source in graphs.cuts.sources], "edges": [asdict(edge) for edge in graphs.cuts.edges]}
           if graphs and graphs.cuts else {}),
        "output_count": graphs.output_count if graphs else len(variant.output_requires_grad),
    }
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_lines(value)}" for key, value in data.items()) + "\n}\n"


def _lines(value: Any, depth: int = 0) -> str:
    if depth < 3 and value and isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value):
        return "[\n" + ",\n".join(_lines(v, depth + 1) for v in value) + "\n]"
    if depth < 3 and value and isinstance(value, dict) and any(isinstance(v, (dict, list)) and v for v in value.values()) and depth < 2:
        return "{\n" + ",\n".join(f"{json.dumps(k)}: {_lines(v, depth + 1)}" for k, v in value.items()) + "\n}"
    return json.dumps(value, ensure_ascii=True)
