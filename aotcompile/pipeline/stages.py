"""Stage objects: one callable, stage by stage.

    trace(f, example_inputs=...) -> Traced -> .lower() -> Lowered -> .schedule() -> Scheduled -> .generate() -> Generated

Each has ``as_text()``, ``verify()`` (well-formedness of what it holds; raises on a defect) and ``diagnostics``. A variant is one region in one
situation; its ATen graphs are named "inference", or "forward" and "backward" ("backward_0", ... where it is several nodes of autograd's graph).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aotcompile.base.diagnostic import Diagnostic
from aotcompile.codegen.cpp.source import generate_cpp
from aotcompile.codegen.types import KernelSource
from aotcompile.frontend.types import CapturedVariant, FrontendResult
from aotcompile.graph.aot import build_aten_graphs
from aotcompile.graph.errors import UnsupportedGraph
from aotcompile.graph.record import graph_module, graph_source
from aotcompile.ir.nodes import Program
from aotcompile.ir.text.print import program_text
from aotcompile.ir.verify import verify as faults_of
from aotcompile.lower.program import lower_graph
from aotcompile.options import Options
from aotcompile.schedule.print import schedule_text
from aotcompile.schedule.schedule import make_schedule
from aotcompile.schedule.types import Schedule


@dataclass(frozen=True)
class Traced:
    """What was captured: split functions, breaks, and the torch-level graph of every variant."""

    result: FrontendResult
    variants: tuple[CapturedVariant, ...]
    diagnostics: tuple[Diagnostic, ...]

    def as_text(self) -> str:
        return "\n".join(map(graph_source, self.variants))

    def verify(self) -> None:
        """Raises RuntimeError where a graph is not well formed."""
        for variant in self.variants:
            graph_module(variant.nodes).graph.lint()

    def lower(self) -> "Lowered":
        """ATen graphs of all variants, lowered to loop IR; a variant that has none is left out with a diagnostic."""
        programs: list[tuple[str, Program]] = []
        diagnostics: list[Diagnostic] = []
        for variant in self.variants:
            try:
                graphs = build_aten_graphs(variant, training=any(variant.output_requires_grad))
            except UnsupportedGraph as unsupported:
                diagnostics += unsupported.diagnostics
                continue
            named = graphs.named(training=graphs.backward is not None)
            programs += [(variant.region, lower_graph(module, name=name)) for name, module in named.items()]
        return Lowered(tuple(programs), tuple(diagnostics))


@dataclass(frozen=True)
class Lowered:
    """Loop IR: (region, program) pairs."""

    programs: tuple[tuple[str, Program], ...]
    diagnostics: tuple[Diagnostic, ...]

    def as_text(self) -> str:
        return "\n".join(f"# {region}\n{program_text(program)}" for region, program in self.programs)

    def verify(self) -> None:
        for region, program in self.programs:
            _check(region, program)

    def schedule(self, backend: Any = "cpp") -> "Scheduled":
        """Fused and ordered for ``backend`` ("cpp" or "triton")."""
        return Scheduled(tuple((region, make_schedule(program, backend=backend)) for region, program in self.programs), backend, self.diagnostics)


def _check(region: str, program: Program) -> None:
    faults = faults_of(program)
    if faults:
        raise RuntimeError(f"{region}: {faults[0]}")


@dataclass(frozen=True)
class Scheduled:
    schedules: tuple[tuple[str, Schedule], ...]
    backend: str
    diagnostics: tuple[Diagnostic, ...]

    def as_text(self) -> str:
        return "\n".join(f"# {region}\n{schedule_text(schedule)}" for region, schedule in self.schedules)

    def verify(self) -> None:
        for region, schedule in self.schedules:
            _check(region, schedule.program)

    def generate(self) -> "Generated":
        """Kernel source text."""
        schedules = [schedule for _, schedule in self.schedules]
        if self.backend == "cpp":
            return Generated(generate_cpp(schedules), self.diagnostics)
        from aotcompile.codegen.triton.source import generate_triton

        return Generated(generate_triton(schedules), self.diagnostics)


@dataclass(frozen=True)
class Generated:
    source: KernelSource
    diagnostics: tuple[Diagnostic, ...]

    def as_text(self) -> str:
        return self.source.text

    def verify(self) -> None:
        """Raises ValueError where a kernel that the source names is not in its text."""
        missing = [name for name in self.source.kernels if name not in self.source.text]
        if missing:
            raise ValueError(f"kernel {missing[0]} is not defined")


def trace_callable(target: Any, *, example_inputs: Any, dynamic_shapes: Any = None) -> Traced:
    """`aotcompile.trace`."""
    from aotcompile.pipeline.single import analyze_callable

    analysis = analyze_callable(target, example_inputs=example_inputs, options=Options(), dynamic_shapes=dynamic_shapes)
    functions = analysis.result.functions
    variants = tuple(variant for function in functions for captured in function.variants.values() for variant in captured)
    breaks = tuple(b.diagnostic(0) for function in functions for b in function.breaks)
    return Traced(analysis.result, variants, (*breaks, *(d for function in functions for d in function.eager)))
