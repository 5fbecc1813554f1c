"""The list of torch's operators (benchmarks/coverage/operators.py) runs, and sees a difference."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


ROOT = Path(__file__).resolve().parent.parent.parent
LIST = ROOT / "benchmarks" / "coverage" / "operators.py"


def test_operators_run_in_our_kernels_and_a_difference_is_found(tmp_path: Path) -> None:
    """Two operators, forward and backward; the same again with kernels that subtract where they should add."""
    results = tmp_path / "results.jsonl"
    command = [str(LIST), "--only", "=add,=linalg.inv", "--samples", "2", "--dtypes", "float32", "--gradients", "--json"]
    done = subprocess.run([sys.executable, *command, str(results)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = [(case["operator"], case["outcome"]) for case in map(json.loads, results.read_text().splitlines())]
    assert outcomes == [("add", "kernels")] * 2 + [("linalg.inv", "mixed")] * 2

    broken = tmp_path / "broken.py"
    broken.write_text(f"""import sys; sys.path.insert(0, {str(LIST.parent)!r}); sys.argv = ["", *{command!r}[1:], {str(tmp_path / "bad.jsonl")!r}]
import operators, operator_cases
add = operator_cases.Library.add
operator_cases.Library.add = lambda self, text: add(self, text.replace(" + tmp", " - tmp"))
sys.exit(operators.main())
""")
    done = subprocess.run([sys.executable, str(broken)], capture_output=True, text=True, check=False)
    cases = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert done.returncode == 1 and "different" in {case["outcome"] for case in cases if case["operator"] == "add"}, done.stdout + done.stderr
