"""All lists of other people's programs, one after the other, and a table with the totals.

    python benchmarks/coverage/all_lists.py [--backend native|aot_eager|eager] [--peer] [--only export,transformers,timm,modules]

Needs torch's test helpers (``pip install expecttest``), transformers and timm; a list whose packages are missing is left out and said so.
"""
from __future__ import annotations

import importlib
import importlib.util
import sys

from cases import parser, run_list, totals

LISTS = {
    "export": ("export_examples", ()), "transformers": ("transformers_models", ("transformers",)), "timm": ("timm_models", ("timm",)),
    "modules": ("module_tests", ("expecttest",)),
}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default="", help="these lists only (comma-separated)")
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
    print("\n".join(["", *lines]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
