"""torch's operator tests (``op_db``) through the pipeline, next to eager.

    python benchmarks/coverage/operators.py                                   float32 over all operators, forward
    python benchmarks/coverage/operators.py --gradients                       float32, training graphs, gradients compared
    python benchmarks/coverage/operators.py --dtypes int64,bool --only fft    other element types, a choice of operators
    python benchmarks/coverage/operators.py --whole                           every case on its own through aotcompile.compile (slow)

Each operator is called as ``lambda *a, **k: op(*a, **k)`` on its first samples. Compared with eager: values, element types, shapes, strides, sharing
of memory between outputs and inputs, changes of inputs, the class of an exception, requires_grad, gradients.

A case is one sample. The cases of a chunk of operators are built by the pipeline's own stages and their kernels compiled into one library, equal
kernels once, then run through the runtime's own stub (guards, executor, epilogue). Each chunk is a process forked from one that has imported
everything, and runs its cases in a further one: a crash or a hang costs one case, and is counted.
"""
from __future__ import annotations

import argparse
import collections
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, os.environ.get("AOTCOMPILE_TREE") or str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")        # the lists are for the CPU, and a child forked after CUDA has started cannot use torch

import torch  # noqa: E402

DTYPES = {name: getattr(torch, name)
          for name in ("float32", "int64", "bool", "bfloat16", "float64", "complex64", "float16", "int32", "uint8", "int8", "int16")}
OUTCOMES = ("kernels", "views", "mixed", "library", "eager", "different", "crash")
ALL_DTYPES = "float32,int64,bool,bfloat16,float64,complex64"


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


# ---- a chunk ------------------------------------------------------------------------------------------------------------------------------


def run_all(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All chunks of the positions asked for. A case that kills the process while it is built is left out in the next attempt."""
    import operator_cases

    warnings.simplefilter("ignore")
    if arguments.dtypes == "all":
        arguments.dtypes = ALL_DTYPES
    chosen = operators(arguments.only)
    stop = min(arguments.stop or len(chosen), len(chosen))
    operator_cases.warm()
    events: list[dict[str, Any]] = []
    for first in range(arguments.start, stop, arguments.chunk):
        start = time.time()
        found = _chunk(arguments, chosen[first:min(first + arguments.chunk, stop)])
        events += found
        if arguments.json:
            with open(arguments.json, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(event) + "\n" for event in found)
        bad = [event for event in found if event["outcome"] in ("different", "crash")]
        last = min(first + arguments.chunk, stop)
        print(f"operators {first}-{last} of {len(chosen)}: {len(found)} cases, {len(bad)} bad, {time.time() - start:.0f} s", flush=True)
        for event in bad:
            print(f"   {event['outcome']} {event['operator']} {event['dtype']} #{event['sample']}: {event['detail']}", flush=True)
    return events


def _chunk(arguments: argparse.Namespace, chosen: list[Any]) -> list[dict[str, Any]]:
    """The outcomes ("case" events) of one chunk."""
    skip: set[tuple[Any, ...]] = set()
    killed: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="aotcompile-operators-") as folder:
        while True:
            results = Path(folder) / "results.jsonl"
            results.write_text("")
            child = os.fork()
            if child == 0:
                _in_child(arguments, chosen, skip, results)
            status = _wait(child, results, arguments.timeout)
            events = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
            cases = [event for event in events if event["event"] == "case"]
            if status == 0:
                return killed + cases
            started = [event for event in events if event["event"] == "start"]
            compiled = any(event["event"] == "compile" for event in events)
            case = started[-1] if started and not compiled else {"operator": full_name(chosen[0]), "dtype": arguments.dtypes, "sample": -1}
            killed.append({**case, "event": "case", "outcome": "crash", "detail": f"the process ended with {status} while building"})
            if case["sample"] < 0:
                return killed + cases
            skip.add((case["operator"], case["dtype"], case["sample"]))


def _in_child(arguments: argparse.Namespace, chosen: list[Any], skip: set[tuple[Any, ...]], results: Path) -> None:
    """Build and run, one JSON line per event to the file. Never returns."""
    import operator_cases

    status = 1
    try:
        if not arguments.verbose:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            os.dup2(null, 2)
        os.setpgid(0, 0)
        with open(results, "a", encoding="utf-8") as file:
            def say(event: dict[str, Any]) -> None:
                file.write(json.dumps(event) + "\n")
                file.flush()

            dtypes = [DTYPES[name] for name in arguments.dtypes.split(",")]
            operator_cases.run(chosen, dtypes, samples=arguments.samples, gradients=arguments.gradients, whole=arguments.whole, say=say, skip=skip,
                               jobs=arguments.jobs, seconds=arguments.timeout, form=arguments.form)
        status = 0
    finally:
        if status:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)                                         # nothing to tear down that could crash after the results are written


def _wait(child: int, results: Path, seconds: float) -> int:
    """The child's exit status; it is ended when the file has not grown for ``seconds`` (a compiler's run may take longer)."""
    size, since = 0, time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.1)
        if results.stat().st_size != size:
            size, since = results.stat().st_size, time.monotonic()
        limit = seconds * 10 if '"compile"' in results.read_text(encoding="utf-8")[-200:] else seconds * 2
        if time.monotonic() - since > limit:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return 124


# ---- the table ----------------------------------------------------------------------------------------------------------------------------

def failed(cases: list[dict[str, Any]]) -> bool:
    return any(case["outcome"] in ("different", "crash") for case in cases)


def totals(name: str, cases: list[dict[str, Any]]) -> str:
    """One line: how many cases, and their shares."""
    found = collections.Counter(case["outcome"] for case in cases)
    shares = ", ".join(f"{outcome} {found[outcome]} ({100 * found[outcome] / max(1, len(cases)):.1f} %)" for outcome in OUTCOMES)
    return f"{name}: {len(cases)} cases; {shares}"


def print_table(cases: list[dict[str, Any]]) -> None:
    rows: dict[str, collections.Counter[str]] = {}
    for case in cases:
        rows.setdefault(case["dtype"], collections.Counter())[case["outcome"]] += 1
    total: collections.Counter[str] = sum(rows.values(), collections.Counter())
    print(f"\n{'dtype':12s}{'cases':>8s}" + "".join(f"{name:>11s}" for name in OUTCOMES))
    for name, row in [*rows.items(), ("all", total)]:
        print(f"{name:12s}{sum(row.values()):8d}" + "".join(f"{row[outcome]:11d}" for outcome in OUTCOMES))
    print(totals("operators", cases))
    steps = collections.Counter({"kernels": sum(c.get("kernels", 0) for c in cases), "calls": sum(c.get("calls", 0) for c in cases)})
    print(f"steps in all plans: {steps['kernels']} kernels, {steps['calls']} library calls")
    reasons = collections.Counter(case["detail"][:90] for case in cases if case["outcome"] == "eager")
    for reason, count in reasons.most_common(15):
        print(f"  eager {count:5d}  {reason}")
    called = collections.Counter(name for case in cases for name in case.get("called", ()))
    print("library calls made most:", ", ".join(f"{name} {count}" for name, count in called.most_common(40)))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which operators, and how."""
    parser.add_argument("--dtypes", default="float32", help=f"comma-separated, or all: {ALL_DTYPES}")
    parser.add_argument("--only", default="", help="comma-separated parts of operator names (=name: exactly that)")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--chunk", type=int, default=20, help="operators per process")
    parser.add_argument("--start", type=int, default=0, help="leave out the operators before this position")
    parser.add_argument("--stop", type=int, default=0, help="leave out the operators from this position on")
    parser.add_argument("--jobs", type=int, default=1, help="compilers at a time")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--form", default="function", choices=("function", "method", "inplace"), help="torch.add(x, y), x.add(y) or x.add_(y)")
    parser.add_argument("--whole", action="store_true", help="through aotcompile.compile, case by case")
    parser.add_argument("--json", default="", help="append all outcomes to this file")
    parser.add_argument("--verbose", action="store_true", help="let the processes print")


def main() -> int:
    parser = argparse.ArgumentParser(description="torch's operator tests through aotcompile, compared with eager.")
    add_options(parser)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds per case")
    parser.add_argument("--table", default="", help="run nothing: the table of outcomes that were written by --json")
    arguments = parser.parse_args()
    start = time.time()
    if arguments.table:
        latest = {}
        for line in Path(arguments.table).read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            latest[event["operator"], event["dtype"], event["sample"]] = event
        events = [*latest.values()]
    else:
        events = run_all(arguments)
    print_table(events)
    print(f"{time.time() - start:.0f} s")
    return int(failed(events))


if __name__ == "__main__":
    sys.exit(main())
