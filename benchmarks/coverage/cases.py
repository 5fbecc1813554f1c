"""What the coverage lists share: a case, one run of it in a child process, and the table of results.

A case is built eagerly and compiled from equal copies under the same seed; results, gradients and what the call left in the arguments are compared. A
child that dies, hangs or cannot build is a failed case, never a failed list.
"""
from __future__ import annotations

import argparse
import copy
import functools
import math
import os
import pickle
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")        # the lists are for the CPU, and a child forked after CUDA has started cannot use torch

import torch  # noqa: E402


class NoSuchCase(Exception):
    """Raised by ``make`` where a list has no case of this number."""


@dataclass(frozen=True)
class Case:
    """``make`` gives (callable, arguments, keywords); ``training`` also compares the gradients of all parameters and leaf arguments.

    Where the program calls the compiled thing itself, many times (`generate`), ``use`` makes such a program of it, and ``examples`` gives the
    calls to build for, from a copy of what ``make`` gave."""

    name: str
    make: Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]
    training: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    tolerance: tuple[float, float] | None = None          # (relative, absolute); None: the dtype's defaults
    exact: bool = False                                   # where values differ by more: no further from float64 than eager is
    compare_breaks: bool = False                          # also count the breaks that torch.compile has on the same call
    use: Callable[[Any], Callable[..., Any]] | None = None
    examples: Callable[[Any, tuple[Any, ...], dict[str, Any]], list[tuple[tuple[Any, ...], dict[str, Any]]]] | None = None


@dataclass
class Outcome:
    """``kind``: "equal", "differs", "build" (no build), "raises", "timeout" or "died". ``missed``: regions with a variant but without a hit."""

    name: str
    kind: str
    detail: str = ""
    regions: int = 0
    hit: int = 0
    calls: int = 0                                        # calls of regions, and how many of them ran compiled
    compiled_calls: int = 0
    missed: int = 0
    eager: int = 0
    breaks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    build_seconds: float = 0.0
    peer_breaks: int | None = None

    @property
    def all_hit(self) -> bool:
        """Every region ran compiled (a program without any tensor operation has none)."""
        return self.kind == "equal" and self.hit == self.regions and (self.hit > 0 or not self.breaks and not self.notes)


# ---- comparing ----------------------------------------------------------------------------------------------------------------------------


def differences(want: Any, got: Any, tolerance: tuple[float, float] | None, path: str = "result") -> str:
    """"" where ``got`` equals ``want``, else the first difference."""
    if isinstance(want, torch.Tensor):
        return _tensor_difference(want, got, tolerance, path)
    if type(want) is not type(got) and type(want).__qualname__ != type(got).__qualname__:
        return f"{path}: a {type(got).__name__}, eager a {type(want).__name__}"
    if isinstance(want, dict):
        if list(want) != list(got):
            return f"{path}: keys {list(got)}, eager {list(want)}"
        return next((d for k in want if (d := differences(want[k], got[k], tolerance, f"{path}[{k!r}]"))), "")
    if isinstance(want, (list, tuple)):
        if len(want) != len(got):
            return f"{path}: {len(got)} items, eager {len(want)}"
        return next((d for k, (a, b) in enumerate(zip(want, got)) if (d := differences(a, b, tolerance, f"{path}[{k}]"))), "")
    if isinstance(want, float):
        return "" if want == got or (want != want and got != got) or abs(want - got) <= 1e-5 * max(1.0, abs(want)) else f"{path}: {got}, eager {want}"
    if hasattr(want, "__dict__") and not isinstance(want, (type, torch.nn.Module)) and not callable(want):
        return differences(vars(want), vars(got), tolerance, f"{path}.__dict__")
    return "" if want is got or _equal(want, got) else f"{path}: {got!r}, eager {want!r}"[:300]


def _equal(want: Any, got: Any) -> bool:
    try:
        return bool(want == got) or repr(want) == repr(got)
    except (TypeError, ValueError, RuntimeError):
        return repr(want) == repr(got)


def _tensor_difference(want: torch.Tensor, got: Any, tolerance: tuple[float, float] | None, path: str) -> str:
    if type(want) is not type(got):
        return f"{path}: a {type(got).__name__}, eager a {type(want).__name__}"
    for fact in ("dtype", "shape", "device", "requires_grad", "layout"):
        if getattr(want, fact) != getattr(got, fact):
            return f"{path}: {fact} {getattr(got, fact)}, eager {getattr(want, fact)}"
    keywords = {} if tolerance is None else {"rtol": tolerance[0], "atol": tolerance[1]}
    try:
        torch.testing.assert_close(got.detach(), want.detach(), equal_nan=True, **keywords)
    except AssertionError as error:
        return f"{path}: " + " ".join(str(error).split())
    return ""


def further_from_exact(wanted: Sequence[Any], got: Any, exact: Any) -> str:
    """"" where ``got`` is as near to the results in float64 as eager's, of which ``wanted`` has several for inputs that differ in the last bit; else
    the first tensor that is further off.

    A gradient that sums over a network with batch norm over few values, or through the kinks of relu and max-pool, can be far off in float32
    whoever computes it; no fixed tolerance tells that from a wrong kernel. Distances are those of whole tensors, twice eager's and a tenth of the
    tensor at most, with a share of the largest one: gradients that are zero in exact arithmetic hold rounding alone."""
    rows = list(zip(leaves(exact), leaves(got), *map(leaves, wanted), strict=True))
    scale = max((float(reference.norm()) for reference, *_ in rows if reference.is_floating_point()), default=0.0)
    for number, (reference, ours, *eager) in enumerate(rows):
        if not reference.is_floating_point():
            if not torch.equal(eager[0], ours):
                return f"tensor {number}: another {ours.dtype}"
            continue
        distance, *distances = (float((each.double() - reference).norm()) for each in (ours, *eager))
        limit = max(distances)
        if not distance <= min(2 * limit, 0.1 * float(reference.norm())) + 1e-6 * scale:
            return f"tensor {number}: {distance:.3g} from float64, eager {limit:.3g}"
    return ""


# ---- one case -----------------------------------------------------------------------------------------------------------------------------


def copied(made: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Copies that share nothing with the original (tensors that were computed lose their history)."""
    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and not value.is_leaf:
            return value.detach().clone().requires_grad_(value.requires_grad)
        if type(value) in (tuple, list):
            return type(value)(map(plain, value))
        if type(value) is dict:
            return {key: plain(item) for key, item in value.items()}
        own = isinstance(value, (torch.Tensor, torch.nn.Module)) or hasattr(value, "__dict__") and not callable(value)
        return copy.deepcopy(value) if own else value

    target, arguments, keywords = made
    return plain(target), plain(arguments), plain(keywords)


def leaves(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for item in value.values() for t in leaves(item)]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in leaves(item)]
    return []


def called(function: Any, owner: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], training: bool) -> dict[str, Any]:
    """What one call gives: the result or the exception, gradients, and the arguments and buffers afterwards."""
    torch.manual_seed(1)
    found: dict[str, Any] = {}
    try:
        result = function(*arguments, **keywords)
    except Exception as error:      # noqa: BLE001 - which exception it is gets compared
        found["exception"] = f"{type(error).__name__}"
        found["_trace"] = traceback.format_exc()
        return found
    found["result"] = result
    if training:
        outputs = [t for t in leaves(result) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
        if outputs:
            total = sum((t.abs() if t.is_complex() else t).float().mul(torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape)).sum() for t in outputs)
            total.backward()
        owners = list(owner.parameters()) if isinstance(owner, torch.nn.Module) else []
        found["gradients"] = [t.grad for t in (*owners, *leaves(arguments), *leaves(keywords)) if t.is_leaf]
    found["arguments"] = [t.detach() for t in leaves(arguments)]
    found["buffers"] = {name: b.detach() for name, b in owner.named_buffers()} if isinstance(owner, torch.nn.Module) else {}
    return found


def run_case(case: Case, backend: str, peer: bool) -> Outcome:
    import aotcompile

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    made = case.make()
    target, arguments, keywords = copied(made)
    want = called(case.use(target) if case.use else target, target, arguments, keywords, case.training)
    owner, arguments, keywords = copied(made)
    other, example, example_keywords = copied(made)
    examples = case.examples(other, example, example_keywords) if case.examples else (example, example_keywords)
    outcome = Outcome(case.name, "equal")
    start = time.perf_counter()
    try:
        compiled = aotcompile.compile(owner, example_inputs=examples, backend=backend, **case.options)
    except Exception as error:      # noqa: BLE001 - whatever a build raises is this case's outcome
        outcome.kind, outcome.detail = "build", f"{type(error).__name__}: {error}"
        outcome.notes = [traceback.format_exc()]
        return outcome
    outcome.build_seconds = time.perf_counter() - start
    got = called(case.use(compiled) if case.use else compiled, owner, arguments, keywords, case.training)
    trace, want_trace = got.pop("_trace", ""), want.pop("_trace", "")
    if "exception" in got and want.get("exception") != got["exception"]:
        outcome.kind, outcome.detail = "raises", trace.strip().splitlines()[-1]
        outcome.notes = [trace]
    else:
        outcome.detail = differences(want, got, case.tolerance, "call")
        outcome.kind = "differs" if outcome.detail else "equal"
        if outcome.detail and case.exact and not differences(want, got, (0.0, math.inf), "call"):
            further = further_from_exact([want, *_nearby(case, made)], got, _exactly(case, made))
            outcome.kind = "differs" if further else "equal"
            outcome.detail = further or f"as near to float64 as eager; {outcome.detail}"
        if not outcome.detail and want_trace:
            outcome.detail = "both raise " + want["exception"]
    _regions(outcome, aotcompile.info(compiled))
    if peer and case.compare_breaks:
        outcome.peer_breaks = _peer_breaks(copied(made))
    return outcome


def _exactly(case: Case, made: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> dict[str, Any]:
    """What eager gives in float64."""
    target, arguments, keywords = copied(made)
    target = target.double()
    return called(target, target, *_changed((arguments, keywords), torch.Tensor.double), case.training)


def _nearby(case: Case, made: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> list[dict[str, Any]]:
    """What eager gives for inputs that differ by rounding."""
    found = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        target, arguments, keywords = copied(made)
        nudged = _changed((arguments, keywords), functools.partial(_nudge, generator))
        found.append(called(target, target, *nudged, case.training))
    return found


def _nudge(generator: torch.Generator, tensor: torch.Tensor) -> torch.Tensor:
    return tensor * (1 + 1e-7 * torch.randn(tensor.shape, generator=generator))


def _changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``value`` with its floating point tensors changed."""
    if isinstance(value, torch.Tensor):
        return change(value.detach()).requires_grad_(value.requires_grad) if value.is_floating_point() else value
    if isinstance(value, (tuple, list)):
        return type(value)(_changed(item, change) for item in value)
    return {key: _changed(item, change) for key, item in value.items()} if isinstance(value, dict) else value


def _regions(outcome: Outcome, info: Any) -> None:
    for region in info.report().regions:
        outcome.regions += 1
        outcome.hit += region.hits > 0
        outcome.calls += region.calls
        outcome.compiled_calls += region.hits
        outcome.eager += region.eager
        outcome.missed += not region.eager and not region.hits and region.calls > 0
        if region.last_miss or region.reason:
            outcome.notes.append(f"{region.name}: {region.last_miss or region.reason}")
    # A call of a function that has a break of its own is split too, but it is no further cause.
    outcome.breaks = [f"{b.code} {b.file}:{b.line} {b.reason}" for b in info.breaks if "has a break of its own" not in b.reason]
    manifest = os.path.join(info.out, "manifest.json")
    if os.path.exists(manifest):
        import json
        with open(manifest, encoding="utf-8") as file:
            outcome.notes += [str(note) for note in json.load(file).get("eager", [])]


def _peer_breaks(made: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> int | None:
    """The breaks that torch.compile reports for the same call."""
    import torch._dynamo

    target, arguments, keywords = made
    try:
        return int(torch._dynamo.explain(target)(*arguments, **keywords).graph_break_count)
    except Exception:               # noqa: BLE001 - the peer may fail in any way: no number then
        return None


# ---- child processes ----------------------------------------------------------------------------------------------------------------------


class Child:
    """`run_case` in a forked child, which writes its outcome into a pipe."""

    def __init__(self, case: Case, options: argparse.Namespace) -> None:
        self.case = case
        self.timeout: float = options.timeout
        self.reader, writer = os.pipe()
        sys.stdout.flush()
        self.process = os.fork()
        if self.process == 0:
            _child(case, options.backend, options.peer, self.reader, writer, not options.show)
        os.close(writer)
        self.data, self.end = b"", time.monotonic() + self.timeout

    def fileno(self) -> int:
        return self.reader

    def read(self) -> bool:
        """Take what the child has written; False at its end."""
        piece = os.read(self.reader, 1 << 16)
        self.data += piece
        return bool(piece)

    def outcome(self, timed_out: bool) -> Outcome:
        """What the child has reported, once it has ended; one that has run out of time is ended."""
        if timed_out:
            os.killpg(self.process, signal.SIGKILL)
        os.close(self.reader)
        _, status = os.waitpid(self.process, 0)
        if timed_out:
            return Outcome(self.case.name, "timeout", f"no end after {self.timeout:.0f} s")
        if not self.data:
            return Outcome(self.case.name, "died", f"exit status {status}")
        reported: Outcome = pickle.loads(self.data)
        return reported


def outcomes_of(cases: Sequence[Case], options: argparse.Namespace) -> Iterator[Outcome]:
    """The outcomes in the order in which the cases end, ``--jobs`` children at a time (no threads: libraries refuse to be forked beside them)."""
    waiting, running = list(reversed(cases)), list[Child]()
    while waiting or running:
        while waiting and len(running) < options.jobs:
            running.append(Child(waiting.pop(), options))
        first_end = min(child.end for child in running)
        readable, _, _ = select.select(running, [], [], max(0.0, first_end - time.monotonic()))
        ended = [(child, False) for child in readable if not child.read()]
        ended += [(child, True) for child in running if child not in readable and child.end <= time.monotonic()]
        for child, timed_out in ended:
            running.remove(child)
            yield child.outcome(timed_out)


def _child(case: Case, backend: str, peer: bool, reader: int, writer: int, quiet: bool) -> None:
    """Never returns."""
    os.setpgid(0, 0)
    os.close(reader)
    if quiet:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
    try:
        outcome = run_case(case, backend, peer)
    except NoSuchCase:
        outcome = Outcome(case.name, "absent")
    except BaseException as error:  # noqa: BLE001 - the child reports it
        outcome = Outcome(case.name, "died", f"{type(error).__name__}: {error}", notes=[traceback.format_exc()])
    with os.fdopen(writer, "wb") as stream:
        stream.write(pickle.dumps(outcome))
        stream.flush()
    import atexit

    atexit._run_exitfuncs()
    os._exit(0)


# ---- lists ----------------------------------------------------------------------------------------------------------------------------------


def line_of(outcome: Outcome, verbose: bool) -> str:
    mark = "ok  " if outcome.kind == "equal" else "FAIL"
    peer = "" if outcome.peer_breaks is None else f"/{outcome.peer_breaks}"
    text = f"{mark} {outcome.name:44} {outcome.kind:8} regions {outcome.hit}/{outcome.regions} breaks {len(outcome.breaks)}{peer} "
    text += f"calls {outcome.compiled_calls}/{outcome.calls} " if outcome.calls > outcome.regions else ""
    text += f"build {outcome.build_seconds:5.1f} s  "
    text += outcome.detail[:400 if outcome.kind != "equal" else 60]
    if verbose:
        text += "".join(f"\n      {line}" for line in (*outcome.breaks, *outcome.notes))
    return text


def totals(name: str, outcomes: Sequence[Outcome]) -> str:
    kinds = {kind: sum(o.kind == kind for o in outcomes) for kind in ("equal", "differs", "raises", "build", "timeout", "died")}
    bad = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count and kind != "equal")
    peers = [o for o in outcomes if o.peer_breaks is not None]
    peer = f", torch.compile {sum(o.peer_breaks or 0 for o in peers)} breaks on {len(peers)}" if peers else ""
    failed = f" ({bad})" if bad else ""
    return (f"{name}: {kinds['equal']} of {len(outcomes)} equal{failed}, {sum(o.all_hit for o in outcomes)} with a hit in every region, "
            f"{sum(o.missed for o in outcomes)} regions missed, {sum(o.eager for o in outcomes)} eager, "
            f"{sum(len(o.breaks) for o in outcomes)} breaks{peer}, "
            f"build {sum(o.build_seconds for o in outcomes):.0f} s")


def run_list(name: str, cases: Sequence[Case], options: argparse.Namespace) -> list[Outcome]:
    """Run the cases that match ``-k``, ``--jobs`` at a time, and print a line for each and the totals."""
    import torch._functorch.aot_autograd  # noqa: F401  (imported once, before the children are forked)

    import aotcompile.api  # noqa: F401

    warnings.simplefilter("ignore")
    chosen = [case for case in cases if not options.k or any(word in case.name for word in options.k.split(","))]
    outcomes = []
    for outcome in outcomes_of(chosen, options):
        if outcome.kind != "absent":
            outcomes.append(outcome)
            print(line_of(outcome, options.v), flush=True)
    print(totals(name, outcomes), flush=True)
    return outcomes


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--backend", default="native", help="native, aot_eager or eager")
    made.add_argument("-k", default="", help="only cases whose name holds one of these words (comma-separated)")
    made.add_argument("--jobs", type=int, default=1, help="cases at a time")
    made.add_argument("--timeout", type=float, default=300.0, help="seconds per case")
    made.add_argument("--peer", action="store_true", help="also count torch.compile's breaks, where the list compares them")
    made.add_argument("--show", action="store_true", help="let the children print")
    made.add_argument("-v", action="store_true", help="breaks, misses and what stays eager")
    return made
