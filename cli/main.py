"""The command ``aotcompile``: arguments, exit codes, and what happens when something goes wrong.

Exit codes: 0 done; 1 the tool worked and the answer is no; 2 wrong usage or configuration; 3 internal error (a reproduction was saved).
"""
from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from aotcompile.base.diagnostic import AotCompileError, Diagnostic
from aotcompile.options import DYNAMICS

from . import commands
from .output import Output
from .reproduction import save_reproduction

STAGES = ("source", "bytecode", "regions", "graph", "aten", "ir", "schedule", "cpp", "triton", "wrapper", "guards", "plan")

EPILOG = """exit codes: 0 done; 1 the answer is no (errors in the package, stale, different); 2 wrong usage or configuration; 3 internal error
options can be set in [tool.aotcompile] of pyproject.toml (or aotcompile.toml) and as AOTCOMPILE_<NAME> in the environment"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    words, command_line = split_command(words)
    given = build_parser().parse_args(words)
    given.command_line = command_line
    output = Output(as_json=given.json, quiet=given.quiet)
    try:
        return int(given.run_command(given, output))
    except AotCompileError as error:
        output.diagnostics(error.diagnostics)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output is gone (a pager that was quit): no error of ours. Python would complain when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:                            # noqa: BLE001 (whatever it is, it is our error: report it as one)
        place = save_reproduction(words, error, getattr(given, "packages", None))
        output.diagnostics([Diagnostic("AOT199", "error", f"internal error: {type(error).__name__}: {error}", None,
                                       f"This is an error of aotcompile, not of your package. A reproduction was saved in {place}.")])
        return 3


def split_command(words: list[str]) -> tuple[list[str], list[str]]:
    """``record -- pytest tests`` gives (``record``), (``pytest tests``): what follows ``--`` is the user's command."""
    if words[:1] == ["record"] and "--" in words:
        place = words.index("--")
        return words[:place], words[place + 1:]
    return words, []


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("aotcompile", description="Compile whole PyTorch packages ahead of time.", epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action=commands.VersionAction)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="one JSON object per line")
    common.add_argument("-q", "--quiet", action="store_true", help="no progress, no notes")

    def add(name: str, run: object, text: str, **other: object) -> argparse.ArgumentParser:
        subparser = subparsers.add_parser(name, help=text, description=text, parents=[common], **other)  # type: ignore[arg-type]
        subparser.set_defaults(run_command=run)
        return subparser

    packages = "package folder, .py file or importable name (default: those of the configuration)"
    build = add("build", commands.build, "analyse, compile and write packages")
    build.add_argument("packages", nargs="*", metavar="PKG", help=packages)
    build.add_argument("--show-config", action="store_true", help="print the merged options and where each comes from, then stop")
    add_options(build)

    explain = add("explain", commands.explain, "show regions, graph breaks and guards; writes nothing")
    explain.add_argument("packages", nargs="*", metavar="PKG[:qualname]", help=packages)
    add_options(explain)

    show = add("show", commands.show, "show one stage of one function")
    show.add_argument("target", metavar="PKG:qualname")
    show.add_argument("--stage", choices=STAGES, default="source")
    add_options(show)

    verify = add("verify", commands.verify, "run compiled against eager on the example inputs: values and gradients, stage by stage")
    verify.add_argument("packages", nargs="*", metavar="PKG", help=packages)
    add_options(verify)

    check = add("check", commands.check, "exit 1 if the output is not what a build would write; writes nothing")
    check.add_argument("packages", nargs="*", metavar="PKG", help=packages)
    check.add_argument("--diff", action="store_true", help="show what is different")
    add_options(check)

    clean = add("clean", commands.clean, "remove what a build wrote")
    clean.add_argument("packages", nargs="*", metavar="PKG", help=packages)
    add_options(clean)

    report = add("report", commands.report, "summarize a built package from its manifest")
    report.add_argument("packages", nargs="*", metavar="PKG", help=packages)
    report.add_argument("-o", "--out", metavar="DIR", help="where it was built to")

    record = add("record", commands.record, "run a command and write down the signatures that functions are called with",
                 usage="aotcompile record [-o FILE] PKG... -- CMD...")
    record.add_argument("packages", nargs="*", metavar="PKG")
    record.add_argument("-o", "--output", metavar="FILE", help="default: aotcompile-signatures.toml")

    for name, text in (("bench", "measure compiled against eager"), ("wheel", "make a wheel of a built package")):
        later = add(name, commands.not_available, text)
        later.add_argument("packages", nargs="*", metavar="PKG")

    add("doctor", commands.doctor, "print versions, compiler, CPU and GPU, and whether each requirement is met")
    return parser


def add_options(parser: argparse.ArgumentParser) -> None:
    """The flags that are fields of `aotcompile.options.Options`; None is "not given"."""
    group = parser.add_argument_group("options")
    group.add_argument("-o", "--out", metavar="DIR", help="output folder (default: generated)")
    group.add_argument("--target", dest="targets", action="append", metavar="T", help="native, cpu, cpu:x86-64-v3, cuda:sm_90 ...; repeatable")
    group.add_argument("--backend", metavar="B", help="native, aot_eager, eager, or package.module:function")
    group.add_argument("--fullgraph", action=argparse.BooleanOptionalAction, default=None, help="a graph break is an error")
    group.add_argument("--dynamic", choices=DYNAMICS, help="which sizes are dynamic (default: auto, those that signatures name)")
    modes = group.add_mutually_exclusive_group()
    modes.add_argument("--training", dest="training", action="store_true", default=None, help="training variants only")
    modes.add_argument("--inference", dest="training", action="store_false", help="inference variants only")
    group.add_argument("-j", "--jobs", type=int, metavar="N", help="parallel builds (default: one per core)")
    group.add_argument("--select", action="append", metavar="PAT", help="only entries that match, as module:qualname; repeatable")
    group.add_argument("--exclude", action="append", metavar="PAT", help="not the entries that match; repeatable")
    group.add_argument("--no-run", dest="run", action="store_false", default=None, help="never run the package's code with the example inputs")
    group.add_argument("--no-host", dest="host", action="store_false", default=None,
                       help="without the native runtime extension for this torch and CPython (its Python twin runs everything)")
    group.add_argument("--signatures", metavar="FILE", help="recorded signatures (default: aotcompile-signatures.toml)")


if __name__ == "__main__":
    sys.exit(main())
