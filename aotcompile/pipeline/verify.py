"""``aotcompile verify``: compiled against eager on the example inputs, values and gradients, backend by backend, so that a difference can be placed.

Each run is a child process of its own: what the program does to objects, files and random numbers cannot leak from one run into the next.
"""
from __future__ import annotations

import functools
import io
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.frontend.entries.entry import Entry
from aotcompile.frontend.record.backward import run_backward_after_fork
from aotcompile.options import Options
from aotcompile.pipeline.package import opened
from aotcompile.pipeline.single import compile_callable
from aotcompile.reports import Comparison, VerifyReport

_LADDER = ("eager", "aot_eager", "native")
_TOLERANCE = {torch.float64: (1e-7, 1e-7), torch.float32: (1.3e-5, 1e-5), torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5)}


def verify(package: str, options: Options) -> VerifyReport:
    """Compare every entry of a package. The backends up to ``options.backend`` are compared in the order eager, aot_eager, native."""
    stages = _LADDER[:_LADDER.index(options.backend) + 1] if options.backend in _LADDER else (options.backend,)
    with opened(package, options) as (found, _, entries):
        comparisons: list[Comparison] = []
        diagnostics: list[Diagnostic] = []
        for entry in entries:
            made, notes = verify_entry(entry, stages, options)
            comparisons += made
            diagnostics += notes
    return VerifyReport(found.name, tuple(comparisons), tuple(diagnostics))


def verify_entry(entry: Entry, stages: Sequence[str], options: Options) -> tuple[list[Comparison], list[Diagnostic]]:
    """The comparisons of one entry; a stage that cannot be built gives a diagnostic."""
    wanted = _isolated(functools.partial(_outcome, entry.target, entry))
    comparisons: list[Comparison] = []
    for stage in stages:
        with tempfile.TemporaryDirectory(prefix="aotcompile-") as folder:
            try:
                compiled = compile_callable(entry.target, example_inputs=[(tuple(entry.args), dict(entry.kwargs))],
                                            options=replace(options, backend=stage), out=folder)
            except AotCompileError as error:
                return comparisons, list(error.diagnostics)
            got = _isolated(functools.partial(_outcome, compiled, entry))
        comparisons += [replace(c, function=entry.name, stage=stage) for c in compare(wanted, got)]
    return comparisons, []


def _outcome(function: Any, entry: Entry) -> dict[str, Any]:
    """Result, gradients, changed arguments, printed text, and the exception's type of one call."""
    torch.manual_seed(0)
    printed = io.StringIO()
    out, sys.stdout = sys.stdout, printed
    try:
        result, error = function(*entry.args, **entry.kwargs), None
    except Exception as raised:         # noqa: BLE001 - which exception it is gets compared
        result, error = None, f"{type(raised).__name__}: {raised}"
    finally:
        sys.stdout = out
    leaves = [t for t in _tensors(result) if t.requires_grad]
    if leaves:
        sum((t.real if t.is_complex() else t).float().sum() for t in leaves).backward()  # type: ignore[union-attr]
    tensors = {f"argument {i}": t for i, t in enumerate(_tensors((entry.args, entry.kwargs)))}
    module = entry.target if isinstance(entry.target, torch.nn.Module) else None
    if module is not None:
        tensors |= dict(module.state_dict(keep_vars=True))
    return {
        "exception": error, "output": _plain(result), "printed": printed.getvalue(),
        "changed": {name: t.detach().clone() for name, t in tensors.items()},
        "gradients": {name: t.grad.detach().clone() for name, t in tensors.items() if t.is_leaf and t.grad is not None}}


def _plain(value: Any) -> list[Any]:
    """Tensors and numbers of a result in order (any structure)."""
    if isinstance(value, torch.Tensor):
        return [value.detach().clone()]
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in _plain(item)]
    if isinstance(value, dict):
        return [part for key in value for part in (repr(key), *_plain(value[key]))]
    if hasattr(value, "__dict__") and not callable(value):
        return _plain(vars(value))
    return [value if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__]


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _tensors(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in _tensors(item)]
    return []


def _isolated(run: Callable[[], Any]) -> Any:
    """``run()`` in a child process; its result comes back through a file."""
    with tempfile.NamedTemporaryFile(prefix="aotcompile-") as file:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                run_backward_after_fork()
                torch.save(run(), file.name)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            raise RuntimeError(f"a run of verify ended with status {status}")
        return torch.load(file.name, weights_only=True)


def compare(wanted: dict[str, Any], got: dict[str, Any]) -> list[Comparison]:
    """Comparisons of two outcomes, worst first known: exception, printed text, outputs, gradients, changed tensors."""
    found = []
    if wanted["exception"] or got["exception"]:
        same = wanted["exception"] == got["exception"]
        found.append(Comparison("", "", "exception", same, None, "" if same else f"{got['exception']}, eager {wanted['exception']}"))
    if wanted["printed"] or got["printed"]:
        same = wanted["printed"] == got["printed"]
        found.append(Comparison("", "", "printed text", same, None, "" if same else f"{got['printed'][:80]!r}, eager {wanted['printed'][:80]!r}"))
    if len(wanted["output"]) != len(got["output"]):
        found.append(Comparison("", "", "output", False, None, f"{len(got['output'])} parts, eager {len(wanted['output'])}"))
    found += [_one(f"output {i}", a, b) for i, (a, b) in enumerate(zip(wanted["output"], got["output"]))]
    for kind in ("gradients", "changed"):
        if set(wanted[kind]) != set(got[kind]):
            found.append(Comparison("", "", kind, False, None, f"of {sorted(got[kind])}, eager {sorted(wanted[kind])}"))
        summed = kind == "gradients"
        found += [_one(f"gradient of {name}" if summed else name, wanted[kind][name], got[kind][name], summed=summed) for name in wanted[kind]
                  if name in got[kind]]
    return found


def _one(what: str, wanted: Any, got: Any, *, summed: bool = False) -> Comparison:
    """``summed``: a sum over the batch, made in another order: its elements are compared with the size of the whole."""
    if not (isinstance(wanted, torch.Tensor) and isinstance(got, torch.Tensor)):
        same = wanted == got or isinstance(wanted, float) and isinstance(got, float) and abs(wanted - got) <= 1e-5 * max(1.0, abs(wanted))
        return Comparison("", "", what, same, None, "" if same else f"{got!r}, eager {wanted!r}")
    if (wanted.dtype, wanted.shape) != (got.dtype, got.shape):
        return Comparison("", "", what, False, None, f"{got.dtype}{list(got.shape)}, eager {wanted.dtype}{list(wanted.shape)}")
    relative, absolute = _TOLERANCE.get(wanted.dtype, (0.0, 0.0) if not wanted.is_complex() else (1e-5, 1e-5))
    same = torch.allclose(got, wanted, rtol=relative, atol=absolute, equal_nan=True) if wanted.numel() else True
    if not same and summed:
        same = float(torch.linalg.vector_norm(got - wanted)) <= relative * float(torch.linalg.vector_norm(wanted))
    difference = float((got.double() - wanted.double()).abs().max()) if wanted.numel() and not wanted.is_complex() else None
    return Comparison("", "", what, same, difference, "" if same else "beyond the tolerance of its dtype")
