"""torch's export example programs (`torch._export.db.examples`), also those that torch.export does not support, with their example inputs.

    python benchmarks/coverage/export_examples.py [--backend native|aot_eager|eager] [-k WORD] [-v]
"""
from __future__ import annotations

import sys
from typing import Any

from cases import Case, parser, run_list


def cases() -> list[Case]:
    from torch._export.db.examples import all_examples

    def case(name: str, example: Any) -> Case:
        return Case(name, lambda: (example.model, tuple(example.example_args), dict(example.example_kwargs)))

    return [case(name, example) for name, example in sorted(all_examples().items())]


if __name__ == "__main__":
    sys.exit(any(o.kind != "equal" for o in run_list("export examples", cases(), parser(__doc__).parse_args())))
