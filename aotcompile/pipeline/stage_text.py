"""Texts of the stages of one function, for ``aotcompile show``."""
from __future__ import annotations

import dis
import io
from collections.abc import Sequence
from fnmatch import fnmatch

from aotcompile.base.diagnostic import Diagnostic, UsageError
from aotcompile.frontend.record.source import defined_as
from aotcompile.frontend.types import FunctionResult
from aotcompile.options import Options
from aotcompile.pipeline.functions import EntryGroup
from aotcompile.pipeline.variants import build_variant

STAGES = ("source", "bytecode", "regions", "graph", "aten", "ir", "schedule", "cpp", "triton", "wrapper", "guards", "plan")
_FILES = {"graph": ("graph.py",), "aten": ("forward.py", "backward*.py"), "cpp": ("kernels.cpp",), "triton": ("kernels.py",),
          "wrapper": ("wrapper.py",), "guards": ("guards.py",), "plan": ("plan.json",)}


def stage_text(function: FunctionResult, groups: Sequence[EntryGroup], stage: str, options: Options) -> str:
    """Raises UsageError for an unknown stage."""
    if stage not in STAGES:
        raise UsageError(Diagnostic("AOT116", "error", f"unknown stage {stage!r}.", None, f"Stages: {', '.join(STAGES)}."))
    if stage in ("source", "bytecode"):
        return _original(function, groups, stage)
    if stage == "regions":
        return function.split.text if function.split else f"# {function.qualname}: nothing of it is compiled\n"
    parts = []
    for index, variants in function.variants.items():
        for number, variant in enumerate(variants):
            built = build_variant(variant, backend=options.backend, language="triton" if stage == "triton" else "cpp")
            parts.append(f"# {function.qualname}:r{index} variant {number}\n")
            if isinstance(built, Diagnostic):
                parts.append(f"# {built}\n")
            elif stage in _FILES:
                parts.extend(text for name, text in built.texts.items() if any(fnmatch(name, wanted) for wanted in _FILES[stage]))
            else:
                parts.append(built.stages.get(stage, ""))
    return "\n".join(parts)


def _original(function: FunctionResult, groups: Sequence[EntryGroup], stage: str) -> str:
    import importlib
    import inspect

    for group in groups:
        if defined_as(group.function) == (function.module, function.qualname):
            found = group.function
            break
    else:
        value: object = importlib.import_module(function.module)
        for part in function.qualname.split("."):
            value = getattr(value, part)
        found = value  # type: ignore[assignment]
    if stage == "source":
        return inspect.getsource(found)
    out = io.StringIO()
    dis.dis(found, file=out)
    return out.getvalue()
