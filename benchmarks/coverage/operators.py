"""torch's operator tests (``op_db``) through the pipeline, next to eager.

    python benchmarks/coverage/operators.py                                   float32 over all operators, forward
    python benchmarks/coverage/operators.py --gradients                       float32, training graphs, gradients compared
    python benchmarks/coverage/operators.py --dtypes int64,bool --only fft    other element types, a choice of operators
    python benchmarks/coverage/operators.py --whole                           every case on its own through aotcompile.compile (slow)

Each operator is called as ``lambda *a, **k: op(*a, **k)`` on its first samples. Compared with eager: values, element types, shapes, strides, sharing
of memory between outputs and inputs, changes of inputs, the class of an exception, requires_grad, gradients.

A case is one sample. The cases of a chunk of operators are built by the pipeline's own stages and their kernels compiled into one library, then run
through the runtime's own stub (guards, executor, epilogue). Each chunk is a process of its own: a crash or a hang costs one operator, and is counted.
"""
from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, os.environ.get("AOTCOMPILE_TREE") or str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch  # noqa: E402

DTYPES = {name: getattr(torch, name)
          for name in ("float32", "int64", "bool", "bfloat16", "float64", "complex64", "float16", "int32", "uint8", "int8", "int16")}
OUTCOMES = ("kernels", "mixed", "library", "eager", "different", "crash")


def operators(only: str) -> list[Any]:
    """The entries of op_db, with names that hold one of the words of ``only`` (or are "=name")."""
    from torch.testing._internal import common_methods_invocations

    # torch's wrapper puts the generator's state back after the call, which no compiled function can; here the seed is set before each call instead.
    common_methods_invocations.wrapper_set_seed = lambda op, *arguments, **keywords: op(*arguments, **keywords)
    op_db = common_methods_invocations.op_db
    words = [word for word in only.split(",") if word]
    return [op for op in op_db if not words or any(full_name(op) == word[1:] if word[0] == "=" else word in full_name(op) for word in words)]


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


# ---- the child: one chunk -----------------------------------------------------------------------------------------------------------------

def run_chunk(arguments: argparse.Namespace) -> None:
    """Build and run the operators of positions first to last, one JSON line per event to the file ``--results``."""
    import operator_cases

    chosen = operators(arguments.only)[arguments.first:arguments.last]
    with open(arguments.results, "a", encoding="utf-8") as file:
        def say(event: dict[str, Any]) -> None:
            file.write(json.dumps(event) + "\n")
            file.flush()

        operator_cases.run(chosen, [DTYPES[name] for name in arguments.dtypes.split(",")], samples=arguments.samples, gradients=arguments.gradients,
                           whole=arguments.whole, say=say)


# ---- the parent ---------------------------------------------------------------------------------------------------------------------------

def run_all(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All chunks. A chunk that dies is taken up again behind the operator that killed it, with single operators for what was built but not run."""
    count = len(operators(arguments.only))
    work = [(first, min(first + arguments.chunk, count)) for first in range(arguments.start, count, arguments.chunk)]
    events: list[dict[str, Any]] = []
    names = [full_name(op) for op in operators(arguments.only)]
    while work:
        first, last = work.pop(0)
        found, status = _child(arguments, first, last)
        if status != 0 and last - first > 1:
            started = {event["operator"] for event in found if event["event"] == "start"}
            middle = max(1, min((last - first) // 4, len(started)))
            work = [(a, min(a + middle, last)) for a in range(first, last, middle)] + work
            print(f"operators {first}-{last}: the process ended with {status}; again in smaller parts", flush=True)
            continue
        if status != 0:
            started = [event for event in found if event["event"] == "start"]
            where = f"{started[-1]['dtype']} sample {started[-1]['sample']}" if started else "while building"
            found.append({"event": "case", "operator": names[first], "dtype": arguments.dtypes, "sample": -1, "outcome": "crash",
                          "detail": f"the process ended with {status}, {where}"})
        events += found
        cases = [event for event in found if event["event"] == "case"]
        bad = [event for event in cases if event["outcome"] in ("different", "crash")]
        print(f"operators {first}-{last} of {count}: {len(cases)} cases, {len(bad)} bad", flush=True)
        for event in bad:
            print(f"   {event['outcome']} {event['operator']} {event['dtype']} #{event['sample']}: {event['detail']}", flush=True)
        if arguments.json:
            Path(arguments.json).write_text("\n".join(map(json.dumps, events)) + "\n", encoding="utf-8")
    return events


def _child(arguments: argparse.Namespace, first: int, last: int) -> tuple[list[dict[str, Any]], int]:
    with tempfile.TemporaryDirectory(prefix="aotcompile-operators-") as folder:
        results = Path(folder) / "results.jsonl"
        command = [sys.executable, __file__, "--child", "--results", str(results), "--first", str(first), "--last", str(last),
                   "--only", arguments.only, "--dtypes", arguments.dtypes, "--samples", str(arguments.samples)]
        command += ["--gradients"] * arguments.gradients + ["--whole"] * arguments.whole
        log = Path(folder) / "log"
        with log.open("wb") as output:
            try:
                status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=arguments.timeout, check=False).returncode
            except subprocess.TimeoutExpired:
                status = 124
        if status not in (0, 124) and arguments.verbose:
            print(log.read_text(errors="replace")[-3000:])
        lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
        return [json.loads(line) for line in lines], status


def print_table(events: list[dict[str, Any]]) -> None:
    cases = [event for event in events if event["event"] == "case"]
    rows: dict[str, collections.Counter[str]] = {}
    for case in cases:
        rows.setdefault(case["dtype"], collections.Counter())[case["outcome"]] += 1
    total: collections.Counter[str] = sum(rows.values(), collections.Counter())
    print(f"\n{'dtype':12s}{'cases':>8s}" + "".join(f"{name:>11s}" for name in OUTCOMES))
    for name, row in [*rows.items(), ("all", total)]:
        print(f"{name:12s}{sum(row.values()):8d}" + "".join(f"{row[outcome]:11d}" for outcome in OUTCOMES))
    steps = collections.Counter({"kernels": sum(c.get("kernels", 0) for c in cases), "calls": sum(c.get("calls", 0) for c in cases)})
    print(f"steps in all plans: {steps['kernels']} kernels, {steps['calls']} library calls")
    reasons = collections.Counter(case["detail"][:90] for case in cases if case["outcome"] == "eager")
    for reason, count in reasons.most_common(15):
        print(f"  eager {count:5d}  {reason}")
    called = collections.Counter(name for case in cases for name in case.get("called", ()))
    print("library calls made most:", ", ".join(f"{name} {count}" for name, count in called.most_common(40)))


def main() -> int:
    parser = argparse.ArgumentParser(description="torch's operator tests through aotcompile, compared with eager.")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--only", default="", help="comma-separated parts of operator names (=name: exactly that)")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--chunk", type=int, default=40, help="operators per process")
    parser.add_argument("--start", type=int, default=0, help="leave out the operators before this position")
    parser.add_argument("--timeout", type=int, default=900, help="seconds per process")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--whole", action="store_true", help="through aotcompile.compile, case by case")
    parser.add_argument("--json", default="", help="write all events to this file")
    parser.add_argument("--verbose", action="store_true")
    for hidden in ("--results", "--first", "--last"):
        parser.add_argument(hidden, default="0", type=str if hidden == "--results" else int, help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        warnings.simplefilter("ignore")
        run_chunk(arguments)
        sys.stdout.flush()
        os._exit(0)                                              # nothing to tear down that could crash after the results are written
    start = time.time()
    events = run_all(arguments)
    print_table(events)
    print(f"{time.time() - start:.0f} s")
    return int(any(event.get("outcome") in ("different", "crash") for event in events))


if __name__ == "__main__":
    sys.exit(main())
