"""The commands: each reads the options, calls one function of `aotcompile.pipeline`, prints its report and returns the exit code.

The pipeline is imported inside the commands: ``--help`` and ``doctor`` need no torch.
"""
from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from aotcompile.base.diagnostic import AotCompileError, Diagnostic, UsageError
from aotcompile.options import FIELDS, Configuration, Options, load_configuration
from aotcompile.reports import count

from .output import Output


class VersionAction(argparse.Action):
    """``--version``: looked up only when asked for."""

    def __init__(self, option_strings: list[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(f"aotcompile {version()}")
        parser.exit(0)


def version() -> str:
    try:
        return metadata.version("aotcompile")
    except metadata.PackageNotFoundError:
        return "unknown (not installed)"


def pipeline() -> ModuleType:
    return importlib.import_module("aotcompile.pipeline")


def configuration(given: argparse.Namespace, package: str | None) -> Configuration:
    """The options for a package: its configuration file is searched from the package's folder upwards, else from the current folder."""
    flags = {name: getattr(given, name) for name in FIELDS if name != "packages" and getattr(given, name, None) is not None}
    path = Path(package) if package else None
    start = path.resolve().parent if path is not None and path.exists() else None
    return load_configuration(start, given=flags)


def each_package(given: argparse.Namespace, output: Output, run: Callable[[str, Options], int]) -> int:
    """Run for every package named, or else for those of the configuration; the largest exit code."""
    packages = list(given.packages)
    if not packages:
        found = configuration(given, None)
        folder = found.file.parent if found.file else Path.cwd()
        packages = [str(folder / name) if (folder / name).exists() else name for name in found.options.packages]
    if not packages:
        raise UsageError(Diagnostic("AOT123", "error", "no package is named.", None, 'Name one, or set packages = ["mypkg"] in [tool.aotcompile].'))
    codes = []
    for package in packages:
        options = configuration(given, package.partition(":")[0]).options
        with output.progress():
            codes.append(run(package, options))
    return max(codes)


def build(given: argparse.Namespace, output: Output) -> int:
    if given.show_config:
        output.text(configuration(given, given.packages[0] if given.packages else None).as_text())
        return 0
    return each_package(given, output, lambda package, options: output.result(pipeline().build(package, options)))


def explain(given: argparse.Namespace, output: Output) -> int:
    def run(text: str, options: Options) -> int:
        package, _, target = text.partition(":")
        return output.result(pipeline().explain(package, options, target or None))

    return each_package(given, output, run)


def show(given: argparse.Namespace, output: Output) -> int:
    package, colon, qualname = given.target.partition(":")
    if not colon or not package or not qualname:
        raise UsageError(Diagnostic("AOT124", "error", f"{given.target!r} names no function.", None,
                                    "Write PKG:qualname, as in mypkg.model:Net.forward."))
    options = configuration(given, package).options
    with output.progress():
        text = pipeline().show(given.target, given.stage, options)
    if output.as_json:
        output.objects([{"function": given.target, "stage": given.stage, "text": text}])
    else:
        output.text(text)
    return 0


def verify(given: argparse.Namespace, output: Output) -> int:
    return each_package(given, output, lambda package, options: output.result(pipeline().verify(package, options)))


def check(given: argparse.Namespace, output: Output) -> int:
    def run(package: str, options: Options) -> int:
        report = pipeline().check(package, options)
        if given.diff and report.diff and not output.as_json:
            output.text(report.diff)
        return output.result(report)

    return each_package(given, output, run)


def clean(given: argparse.Namespace, output: Output) -> int:
    return each_package(given, output, lambda package, options: output.result(pipeline().clean(package, options)))


def report(given: argparse.Namespace, output: Output) -> int:
    from .manifest_report import read_manifest

    return each_package(given, output, lambda package, options: output.result(read_manifest(package, options.out)))


def record(given: argparse.Namespace, output: Output) -> int:
    from .record import run_and_record

    target = Path(given.output or Options.signatures)
    code, functions, notes = run_and_record(given.packages, given.command_line, target)
    output.diagnostics(notes)
    if output.as_json:
        output.objects({"function": name} for name in functions)
        output.objects([{"file": target.as_posix(), "functions": len(functions), "command_exit_code": code}])
    else:
        output.text("\n".join([*functions, f"{count(len(functions), 'function')} -> {target.as_posix()}"]))
    if code:
        output.diagnostics([Diagnostic("AOT132", "error", f"the command ended with exit code {code}; what it called before is written.")])
    return 1 if code or not functions else 0


def doctor(given: argparse.Namespace, output: Output) -> int:
    from .doctor import examine

    return output.result(examine())


def not_available(given: argparse.Namespace, output: Output) -> int:
    """A command of the design that does not exist yet: it says so."""
    raise AotCompileError(Diagnostic("AOT190", "error", f"aotcompile {given.command} is not available yet."))
