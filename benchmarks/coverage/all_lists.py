"""All lists of other people's programs, one after the other, and a table with the totals.

    python benchmarks/coverage/all_lists.py [--backend native|aot_eager|eager] [--peer] [--only export,transformers,timm,generate,modules,operators]
    python benchmarks/coverage/all_lists.py --only operators --operators "--dtypes all"
    python benchmarks/coverage/all_lists.py --only operators --operators "--dtypes float32 --gradients --start 0 --stop 100"

Needs torch's test helpers (``pip install expecttest``), transformers and timm; a list whose packages are missing is left out and said so.
"""
from __future__ import annotations

import argparse
import importlib
import importlib.util
import shlex
import sys

import operators
from cases import parser, run_list, totals

LISTS = {
    "export": ("export_examples", ()), "transformers": ("transformers_models", ("transformers",)), "timm": ("timm_models", ("timm",)),
    "generate": ("generate", ("transformers",)),
    "modules": ("module_tests", ("expecttest",)),
}


def operator_options(chosen: argparse.Namespace) -> argparse.Namespace:
    parsed = argparse.ArgumentParser(prog="--operators")
    operators.add_options(parsed)
    return parsed.parse_args(shlex.split(chosen.operators), argparse.Namespace(timeout=chosen.timeout))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default="", help="these lists only (comma-separated)")
    options.add_argument("--operators", default="", help="options of the list of operators (benchmarks/coverage/operators.py), as one text")
    chosen = options.parse_args()
    lines, failed = [], False
    for name, (module, needed) in LISTS.items():
        if chosen.only and name not in chosen.only.split(","):
            continue
        missing = [package for package in needed if importlib.util.find_spec(package) is None]
        if missing:
            lines.append(f"{name}: not run, {', '.join(missing)} is not installed")
            continue
        for package in needed:
            importlib.import_module(package)          # once, before the children are forked
        outcomes = run_list(name, importlib.import_module(module).cases(), chosen)
        failed = failed or any(outcome.kind != "equal" for outcome in outcomes)
        lines.append(totals(name, outcomes))
    if not chosen.only or "operators" in chosen.only.split(","):
        if importlib.util.find_spec("expecttest") is None:
            lines.append("operators: not run, expecttest is not installed")
        else:
            cases = operators.run_all(operator_options(chosen))
            failed = failed or operators.failed(cases)
            lines.append(operators.totals("operators", cases))
    print("\n".join(["", *lines]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
