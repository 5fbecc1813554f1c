"""``aotcompile.compile``: one callable through the whole pipeline, written to disk, and loaded."""
from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aotcompile.base.diagnostic import Diagnostic, UsageError
from aotcompile.frontend.entries.entry import make_entry, name_of
from aotcompile.graph.plugin import require_plugin
from aotcompile.options import Options
from aotcompile.package.single import single_contents
from aotcompile.package.types import PackageContents
from aotcompile.pipeline.entries import function_of, situations_of
from aotcompile.pipeline.environment import built_with, host_files
from aotcompile.pipeline.functions import Analysis, EntryGroup, analyze, build_functions, library_digests, require_fullgraph, with_binaries
from aotcompile.pipeline.garbage import fewer_collections
from aotcompile.pipeline.package import explanation_of
from aotcompile.reports import Explanation
from aotcompile.runtime.twins.compiled import SplitFunction, load_compiled

Pair = tuple[tuple[Any, ...], dict[str, Any]]


@fewer_collections()
def compile_callable(target: Any, *, example_inputs: Pair | Sequence[Pair], options: Options, out: str | None, dynamic_shapes: Any = None) -> Any:
    """Build ``target`` for its example inputs and load the result. See `aotcompile.compile`."""
    require_plugin(options.backend)
    analysis = analyze_callable(target, example_inputs=example_inputs, options=options, dynamic_shapes=dynamic_shapes)
    if options.fullgraph:
        require_fullgraph(analysis.result)
    built = build_functions(analysis, backend=options.backend, targets=options.targets)
    plans = with_binaries(built, targets=options.targets, jobs=options.jobs)
    contents = single_contents(plans, options=options.output_json(), built_with=built_with(), extra_files=host_files(options),
                               libraries=library_digests(built))
    folder = _folder(out)
    _write(contents, folder)
    splits = [
        SplitFunction(f.result.module, f.result.qualname, f.result.split.text,
                      {f"{f.result.qualname}:r{r.index}": (f"_r{r.index}", r.name) for r in f.result.split.regions}, tuple(f.result.split.calls),
                      f.digest, f.result.split.form == "bytecode", f.result.split.line_map)
        for f in built if f.result.split is not None]
    return load_compiled(target, folder=str(folder), functions=splits, out=str(folder))


def analyze_callable(target: Any, *, example_inputs: Pair | Sequence[Pair], options: Options, dynamic_shapes: Any = None) -> Analysis:
    """The frontend on one callable. Raises UsageError (AOT113) where ``example_inputs`` is something else."""
    pairs = _pairs(example_inputs)
    entries = [make_entry(target, args, kwargs, dynamic_shapes=dynamic_shapes if number == 0 else None)
               for number, (args, kwargs) in enumerate(pairs)]
    function = function_of(entries)
    situations = situations_of(entries, dynamic=options.dynamic, training=options.training)
    return analyze([EntryGroup(entries[0].name, function, situations)], run=options.run)


def _pairs(example_inputs: Any) -> list[Pair]:
    pairs = [example_inputs] if isinstance(example_inputs, tuple) else list(example_inputs) if isinstance(example_inputs, list) else []
    for pair in pairs or [None]:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], (tuple, list)) and isinstance(pair[1], dict)):
            found = "an empty list" if example_inputs == [] else f"a {type(example_inputs if pair is None else pair).__name__}"
            raise UsageError(Diagnostic("AOT113", "error", f"example_inputs are (args, kwargs), or a list of such pairs; this is {found}.", None,
                                        "For f(x, y): example_inputs=((x, y), {})."))
    return pairs


def explain_callable(target: Any, *, example_inputs: Any, options: Options, dynamic_shapes: Any = None) -> Explanation:
    """`aotcompile.explain` of one callable."""
    analysis = analyze_callable(target, example_inputs=example_inputs, options=options, dynamic_shapes=dynamic_shapes)
    return explanation_of(name_of(target), analysis, {name_of(target): "example_inputs"})


def _folder(out: str | None) -> Path:
    if out is not None:
        return Path(out)
    folder = tempfile.mkdtemp(prefix="aotcompile-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)


def _write(contents: PackageContents, folder: Path) -> None:
    for path, content in contents.files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, (str, bytes)):
            # In the place of the old file, not into it: its code may be loaded in this very process.
            written = file.with_name(f"{file.name}.new")
            written.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
            os.replace(written, file)


__all__ = ["compile_callable"]
