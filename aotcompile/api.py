"""The functions of the public API that need the compiler. ``import aotcompile`` loads this file only when one of them is used."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotcompile.options import Options
from aotcompile.pipeline import package as packages
from aotcompile.pipeline.single import compile_callable, explain_callable
from aotcompile.pipeline.stages import Traced, trace_callable
from aotcompile.pipeline.verify import verify as verify_package
from aotcompile.reports import BuildReport, Explanation, VerifyReport


def build(package: str, *, out: str = "generated", targets: Sequence[str] = ("native",), backend: str = "native", fullgraph: bool = False,
          training: bool | None = None, dynamic: bool | None = None, jobs: int = 0, run: bool = True) -> BuildReport:
    """Build a package (its name or folder) into ``out``; the old build stays intact if anything fails.

    targets: "native", "cpu", "cpu:x86-64-v3", "cuda:sm_90", ...; backend: "native", "aot_eager", "eager" or "package.module:function"; run False
    forbids running the rewritten code on the example inputs. Raises AotCompileError (UsageError for wrong usage)."""
    options = Options(out=out, targets=tuple(targets), backend=backend, fullgraph=fullgraph, training=training, dynamic=_dynamic(dynamic),
                      jobs=jobs, run=run)
    return packages.build(package, options)


def compile(target: Any, *, example_inputs: Any, out: str | None = None, backend: str = "native", dynamic_shapes: Any = None,
            dynamic: bool | None = None, fullgraph: bool = False, training: bool | None = None, targets: Sequence[str] = ("native",)) -> Any:
    """Compile one function, method or module ahead of time and load the result: the same kind of thing, called like the original.

    example_inputs: ``(args, kwargs)``, or a list of such pairs (several variants). out: folder for the generated files, a temporary one if None.
    backend: "native", "aot_eager", "eager", or "package.module:function". dynamic_shapes: as in torch.export (a string stands for a Dim). dynamic:
    True makes all sizes of the arguments dynamic, False none. fullgraph: a graph break is an error. training: None also builds backward where
    something requires grad, False never, True only. A module's result shares parameters, buffers and hooks with the original.

    Raises AotCompileError (with the user's file and line) where nothing can be built; a situation that a stage cannot do stays eager."""
    options = Options(backend=backend, fullgraph=fullgraph, training=training, targets=tuple(targets), dynamic=_dynamic(dynamic))
    return compile_callable(target, example_inputs=example_inputs, options=options, out=out, dynamic_shapes=dynamic_shapes)


def explain(target: Any, *, example_inputs: Any = None, dynamic_shapes: Any = None) -> Explanation:
    """Graph count, break count, operator count, break reasons, operators per graph and guards, of a package (a name or folder) or of one callable
    with its ``example_inputs``. Writes nothing."""
    if isinstance(target, str):
        return packages.explain(target, Options())
    return explain_callable(target, example_inputs=example_inputs, options=Options(), dynamic_shapes=dynamic_shapes)


def trace(target: Any, *, example_inputs: Any, dynamic_shapes: Any = None) -> Traced:
    """The stages one by one: ``trace(f, ...).lower().schedule().generate()``, each with ``as_text()``, ``verify()`` and ``diagnostics``."""
    return trace_callable(target, example_inputs=example_inputs, dynamic_shapes=dynamic_shapes)


def verify(package: str, *, backend: str = "native") -> VerifyReport:
    """Compiled against eager on a package's example inputs: values, gradients, printed text and changed tensors, backend by backend."""
    return verify_package(package, Options(backend=backend))


def _dynamic(dynamic: bool | None) -> Any:
    return "all" if dynamic else "none" if dynamic is False else "auto"
