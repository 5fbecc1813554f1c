"""Cases of `operators.py`: samples, building many at once, running, comparing with eager."""
from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import json
import os
import re
import signal
import tempfile
import time
import traceback
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

import torch
from torch.utils import _pytree as pytree

import aotcompile
from aotcompile.base.diagnostic import AotCompileError
from aotcompile.frontend.record import driver
from aotcompile.frontend.record.driver import Situation
from aotcompile.frontend.split import split_function
from aotcompile.package import cpp_build
from aotcompile.package.cpp_build import Build, compile_libraries, native_target
from aotcompile.package.single import single_contents
from aotcompile.package.types import FunctionPlan, VariantFiles
from aotcompile.pipeline.functions import BuiltFunction, EntryGroup, analyze, build_functions
from aotcompile.runtime.loader import Package

_compiled: Any = importlib.import_module(aotcompile.info.__module__)

Say = Callable[[dict[str, Any]], None]
STRICT = os.environ.get("AOTCOMPILE_STRICT_STRIDES") == "1"        # also compare the strides of dimensions of size 1
LARGEST_OBJECT = 24                                              # kernels per object file
KERNEL = re.compile(r'^(?://[^\n]*\n)*extern "C" int32_t (\w+)', re.MULTILINE)
UNDEFINED_VALUES = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "resize_", "resize_as_")


@dataclass
class Case:
    """One sample of one operator. ``call``: the lambda; ``built``: what the pipeline made of it."""

    operator: Any
    name: str
    dtype: str
    number: int
    call: types.FunctionType
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    built: list[BuiltFunction] = field(default_factory=list)
    plans: list[dict[str, Any]] = field(default_factory=list)
    detail: str = ""
    seconds: float = 0.0


def calling(op: Any) -> types.FunctionType:
    """The function under test."""
    def call(*a: Any, **k: Any) -> Any:
        return op(*a, **k)
    return call


# ---- samples ------------------------------------------------------------------------------------------------------------------------------

def samples_of(operator: Any, name: str, dtype: torch.dtype, count: int, gradients: bool, form: str = "function") -> Iterator[Case]:
    """The first samples of an operator. Nothing where it does not support the element type (or, for gradients, differentiation), or has no such
    form."""
    function = operator.op if form == "function" else getattr(operator, f"{form}_variant")
    if function is None:
        return
    if dtype not in operator.supported_dtypes("cpu") or gradients and not (
            operator.supports_autograd and dtype in operator.supported_backward_dtypes("cpu")):
        return
    torch.manual_seed(0)
    for number, sample in enumerate(operator.sample_inputs("cpu", dtype, requires_grad=gradients)):
        if number == count:
            return
        arguments = (sample.input, *sample.args)
        yield Case(operator, name, str(dtype).removeprefix("torch."), number, calling(function), arguments, dict(sample.kwargs))


class Copies:
    """Copies of arguments with the same strides, and memory shared where the originals share it."""

    def __init__(self) -> None:
        self.storages: dict[int, Any] = {}
        self.made: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        return pytree.tree_map(self._copy, value)

    def _copy(self, value: Any) -> Any:
        if isinstance(value, torch.Generator):
            return value.clone_state()
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.made:
            self.made[id(value)] = (self._tensor(value), value)
        return self.made[id(value)][0]

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        if value.layout is not torch.strided or type(value) not in (torch.Tensor, torch.nn.Parameter) or value.is_quantized:
            return value.detach().clone().requires_grad_(value.requires_grad)
        with torch.no_grad():
            key = value.untyped_storage().data_ptr() if value.numel() else id(value)
            storage = self.storages.setdefault(key, value.untyped_storage().clone())
            fresh = torch.empty(0, dtype=value.dtype).set_(storage, value.storage_offset(), value.size(), value.stride())
            if value.is_conj():
                fresh = torch._C._conj(fresh) if hasattr(torch._C, "_conj") else torch.conj(fresh)
            if value.is_neg():
                fresh = torch._neg_view(fresh)
        return fresh.detach().requires_grad_(value.requires_grad)


# ---- building -----------------------------------------------------------------------------------------------------------------------------

def build(case: Case, gradients: bool) -> None:
    """Frontend, graph, lowering, schedule, codegen of one case. What is not built leaves its reason in ``detail``."""
    start = time.perf_counter()
    arguments, keywords = Copies()((case.arguments, case.keywords))
    situation = Situation(arguments, keywords, grad_modes=(gradients,))
    with torch.random.fork_rng(devices=[]):
        analysis = analyze([EntryGroup(f"operators:{case.name}", case.call, [situation])], run=True)
        case.built = build_functions(analysis, backend="native")
    notes = [note for function in case.built for note in function.result.eager]
    breaks = [found for function in case.built for found in function.result.breaks]
    case.detail = notes[0].message if notes else f"break: {breaks[0].reason}" if breaks else ""
    case.seconds = time.perf_counter() - start


class Library:
    """The kernels of many variants as one shared object; equal kernels once, under names made of their text."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kernels.so"
        self._kernels: dict[str, str] = {}
        self._header = ""

    def add(self, text: str) -> dict[str, str]:
        """Take the kernels of one text; old name -> name in the library."""
        starts = [match.start() for match in KERNEL.finditer(text)]
        head = text[:starts[0]]
        declarations = re.findall(r'^extern "C" \{[^\n]*\n', head, re.MULTILINE)
        self._header = head if not declarations else head[:head.index(declarations[0])]
        names: dict[str, str] = {}
        prefix = "k" + hashlib.sha256(text.encode()).hexdigest()[:12]
        for start, end in zip(starts, [*starts[1:], len(text)]):
            body = text[start:end]
            [name] = KERNEL.findall(body)[:1]
            code = body[body.index('extern "C"'):]
            plain = not any(other in code for other in declarations) and not declarations
            key = code.replace(name, "KERNEL") if plain else prefix + code
            names[name] = self._kernels.setdefault(key, f"kernel_{len(self._kernels)}")
        for key in list(self._kernels):                          # a kernel that calls another one of its text: by its new name
            if key.startswith(prefix):
                number = self._kernels.pop(key)
                code = key.removeprefix(prefix)
                for old, new in names.items():
                    code = re.sub(rf"\b{old}\b", new, code)
                self._kernels[f"// {number}\n" + code] = number
        return names

    def build(self, jobs: int) -> dict[str, str]:
        """Compile. Kernels that the compiler refuses are left out: name -> its message."""
        cpp_build.KERNELS_PER_OBJECT = LARGEST_OBJECT
        texts = {name: code.replace("KERNEL", name) for code, name in self._kernels.items()}
        refused: dict[str, str] = {}
        while texts:
            try:
                self._compile([*texts.values()], self.path, jobs)
                break
            except AotCompileError:
                found = self._refused(texts)
                refused.update(found)
                texts = {name: text for name, text in texts.items() if name not in refused}
                if not found:
                    raise
        return refused

    def _refused(self, texts: dict[str, str]) -> dict[str, str]:
        """Which of these do not compile, by halving."""
        try:
            self._compile([*texts.values()], self.path.with_name("try.so"), 1)
            return {}
        except AotCompileError as error:
            if len(texts) == 1:
                return {name: str(error) for name in texts}
        names = [*texts]
        halves = names[:len(names) // 2], names[len(names) // 2:]
        return {name: message for half in halves for name, message in self._refused({name: texts[name] for name in half}).items()}

    def _compile(self, texts: list[str], path: Path, jobs: int) -> None:
        declarations = "".join(sorted({f'extern "C" {{ int32_t {called}(void *const *buffers, const int64_t *sizes); }}\n'
                                       for text in texts for called in re.findall(r"return (kernel_\d+)\(buffers, sizes\)", text)}))
        compile_libraries([Build(self._header + declarations + "".join(texts), native_target(), path)], jobs=jobs)


class MemoryPackage(Package):
    """A generated package that is in memory, but for its kernels."""

    def __init__(self, files: dict[str, Any], library: Library) -> None:
        super().__init__("/nowhere")
        self._files, self._library = files, library
        self._manifest = json.loads(files["manifest.json"])

    def verified(self, relative: str) -> bytes:
        content = self._files[relative]
        return content if isinstance(content, bytes) else str(content).encode()

    def binary(self, folder: str) -> str:
        return str(self._library.path)


def renamed(texts: dict[str, str], names: dict[str, str]) -> dict[str, str]:
    result = dict(texts)
    for file in ("plan.json", "wrapper.py"):
        for old in sorted(names, key=len, reverse=True):
            result[file] = re.sub(rf"(?<![\w]){re.escape(old)}(?![\w])", f"@{names[old]}@", result[file])
        result[file] = result[file].replace("@", "") if names else result[file]
    return result


def plans_of(case: Case, library: Library) -> list[FunctionPlan]:
    """The case's functions as plans; their kernels go to the library."""
    plans = []
    for function in case.built:
        variants = {index: tuple(VariantFiles(renamed(v.texts, library.add(v.kernels.text) if v.kernels else {})) for v in found)
                    for index, found in function.variants.items()}
        plans.append(FunctionPlan(function.result, variants, function.digest))
    return plans


def load(case: Case, plans: list[FunctionPlan], library: Library) -> tuple[Any, Any]:
    """(compiled function, its regions' report)."""
    contents = single_contents(plans, options={}, built_with={}, extra_files={}, libraries={})
    splits = [_compiled.SplitFunction(f.result.module, f.result.qualname, f.result.split.text,
                            {f"{f.result.qualname}:r{r.index}": (f"_r{r.index}", r.name) for r in f.result.split.regions},
                            tuple(f.result.split.calls), f.digest)
              for f in case.built if f.result.split is not None]
    compiled = _compiled.TwinMaker(MemoryPackage(dict(contents.files), library), splits)
    return compiled.twin(case.call) or case.call, compiled.report


# ---- comparing ----------------------------------------------------------------------------------------------------------------------------

class Differs(Exception):
    pass


@dataclass
class Outcome:
    """A call's result: the value, or the exception."""

    arguments: Any
    value: Any = None
    error: Exception | None = None
    gradients: list[Any] = field(default_factory=list)


def call(function: Any, case: Case, gradients: bool, convert: Callable[[Any], Any] = lambda value: value) -> Outcome:
    outcome = Outcome(Copies()((convert(case.arguments), convert(case.keywords))))
    torch.manual_seed(1)
    with torch.set_grad_enabled(gradients):
        try:
            outcome.value = function(*outcome.arguments[0], **outcome.arguments[1])
        except Exception as error:  # noqa: BLE001  whatever eager raises is what is compared
            outcome.error = error
            return outcome
        if gradients:
            outcome.gradients = gradients_of(case, outcome)
    return outcome


def gradients_of(case: Case, outcome: Outcome) -> list[Any]:
    results = [t for t in pytree.tree_leaves(outcome.value) if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs = [t for t in pytree.tree_leaves(outcome.arguments) if isinstance(t, torch.Tensor) and t.requires_grad and t.is_leaf]
    if not results or not inputs:
        return []
    generator = torch.Generator().manual_seed(5)
    weights = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype) for t in results]
    try:
        return list(torch.autograd.grad(results, inputs, weights, allow_unused=True))
    except Exception as error:  # noqa: BLE001
        return [type(error).__name__]


def compare(case: Case, ours: Outcome, theirs: Outcome, gradients: bool) -> None:
    """Raises Differs."""
    if theirs.error is not None or ours.error is not None:
        if type(ours.error) is not type(theirs.error):
            raise Differs(f"raises {ours.error!r:.200}, eager {theirs.error!r:.200}")
        return
    mine, wanted = pytree.tree_flatten(ours.value), pytree.tree_flatten(theirs.value)
    if mine[1] != wanted[1]:
        raise Differs(f"structure {mine[1]}, eager {wanted[1]}")
    undefined = case.name.split(".")[0] in UNDEFINED_VALUES
    precise = Precise(case, gradients)
    for number, (a, b) in enumerate(zip(mine[0], wanted[0])):
        compare_value(f"result {number}", a, b, undefined, lambda n=number: precise.result(n))
    compare_sharing(ours, theirs)
    before = pytree.tree_leaves((case.arguments, case.keywords))
    for number, (a, b) in enumerate(zip(pytree.tree_leaves(ours.arguments), pytree.tree_leaves(theirs.arguments))):
        if isinstance(b, torch.Tensor) and not undefined:
            compare_value(f"argument {number} afterwards", a, b, False, lambda n=number: precise.argument(n))
            if (a._version != 0) != (b._version != 0) and b.layout is torch.strided and not b.is_inference():
                raise Differs(f"argument {number} has version {a._version}, eager {b._version}")
    del before
    if gradients and not undefined:
        if len(ours.gradients) != len(theirs.gradients):
            raise Differs(f"{len(ours.gradients)} gradients, eager {len(theirs.gradients)}")
        for number, (a, b) in enumerate(zip(ours.gradients, theirs.gradients)):
            compare_value(f"gradient {number}", a, b, False, lambda n=number: precise.gradient(n), strides=False)


class Precise:
    """Eager in f64, for a judgement where two f32 results differ by rounding."""

    def __init__(self, case: Case, gradients: bool) -> None:
        self.case, self.gradients_wanted, self.found = case, gradients, None

    def outcome(self) -> Outcome:
        if self.found is None:
            def widen(value: Any) -> Any:
                wide = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.complex64: torch.complex128}
                return pytree.tree_map(lambda t: t.detach().to(wide[t.dtype]).requires_grad_(t.requires_grad)
                                       if isinstance(t, torch.Tensor) and t.dtype in wide else t, value)
            self.found = call(self.case.call, self.case, self.gradients_wanted, widen)
        return self.found

    def result(self, number: int) -> Any:
        outcome = self.outcome()
        return None if outcome.error else pytree.tree_leaves(outcome.value)[number]

    def argument(self, number: int) -> Any:
        outcome = self.outcome()
        return None if outcome.error else pytree.tree_leaves(outcome.arguments)[number]

    def gradient(self, number: int) -> Any:
        outcome = self.outcome()
        return outcome.gradients[number] if number < len(outcome.gradients) else None


def compare_value(what: str, mine: Any, wanted: Any, undefined: bool, precise: Callable[[], Any], strides: bool = True) -> None:
    if type(mine) is not type(wanted):
        raise Differs(f"{what}: {type(mine).__name__}, eager {type(wanted).__name__}")
    if not isinstance(wanted, torch.Tensor):
        if mine != wanted and not (mine != mine and wanted != wanted):
            raise Differs(f"{what}: {mine!r}, eager {wanted!r}"[:300])
        return
    for fact in ("dtype", "shape", "layout", "requires_grad", "device"):
        if getattr(mine, fact) != getattr(wanted, fact):
            raise Differs(f"{what}: {fact} {getattr(mine, fact)}, eager {getattr(wanted, fact)}")
    if wanted.layout is torch.strided and strides:
        if wanted.numel() and any(a != b for a, b, size in zip(mine.stride(), wanted.stride(), wanted.shape) if size > 1 or STRICT):
            raise Differs(f"{what}: strides {mine.stride()}, eager {wanted.stride()} of {tuple(wanted.shape)}")
        if mine.is_conj() != wanted.is_conj() or mine.is_neg() != wanted.is_neg():
            raise Differs(f"{what}: conj/neg bit {mine.is_conj()}/{mine.is_neg()}, eager {wanted.is_conj()}/{wanted.is_neg()}")
    if undefined or wanted.is_quantized or wanted.device.type == "meta":
        return
    try:
        torch.testing.assert_close(mine.detach(), wanted.detach(), equal_nan=True)
    except AssertionError as error:
        if not rounding_only(mine, wanted, precise()):
            raise Differs(f"{what}: {' '.join(str(error).split())[:260]}") from None


def rounding_only(mine: torch.Tensor, wanted: torch.Tensor, exact: Any) -> bool:
    """Whether ours is about as near to the f64 result as eager's is."""
    if not isinstance(exact, torch.Tensor) or not (wanted.is_floating_point() or wanted.is_complex()) or exact.shape != wanted.shape:
        return False
    mine, wanted, exact = mine.detach().to(exact.dtype), wanted.detach().to(exact.dtype), exact.detach()
    finite = torch.isfinite(wanted) & torch.isfinite(mine)
    infinite = ~finite & ~torch.isnan(mine)
    if not torch.equal(torch.isnan(mine), torch.isnan(wanted)) or not torch.equal(mine[infinite], wanted[infinite]):
        return False
    epsilon = 2.0 ** -22 if exact.dtype in (torch.float64, torch.complex128) else 0.0
    our_error, their_error = (mine - exact)[finite].abs(), (wanted - exact)[finite].abs()
    if not our_error.numel():
        return True
    scale = exact[finite].abs().max() if exact[finite].numel() else 0.0
    return bool((our_error.max() <= 2 * their_error.max() + epsilon * scale).item())


def compare_sharing(ours: Outcome, theirs: Outcome) -> None:
    """Which results share memory with which arguments and with each other."""
    def sharing(outcome: Outcome) -> list[tuple[int, int]]:
        leaves = [*pytree.tree_leaves(outcome.arguments), *pytree.tree_leaves(outcome.value)]
        tensors = [leaf if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel() else None for leaf in leaves]
        places: dict[int, int] = {}
        return [(-1, 0) if t is None else (places.setdefault(t.untyped_storage().data_ptr(), number), t.storage_offset() if
                places[t.untyped_storage().data_ptr()] != number else 0) for number, t in enumerate(tensors)]
    mine, wanted = sharing(ours), sharing(theirs)
    if mine != wanted:
        count = len(pytree.tree_leaves(ours.arguments))
        raise Differs(f"sharing of memory: {mine[count:]}, eager {wanted[count:]} (of {count} arguments)")
    leaves = lambda outcome: [*pytree.tree_leaves(outcome.arguments)]  # noqa: E731
    identical = lambda outcome: [next((n for n, a in enumerate(leaves(outcome)) if a is v), -1) if isinstance(v, torch.Tensor) else -1  # noqa: E731
                                 for v in pytree.tree_leaves(outcome.value)]
    if identical(ours) != identical(theirs):
        raise Differs(f"results that are arguments: {identical(ours)}, eager {identical(theirs)}")


# ---- a chunk ------------------------------------------------------------------------------------------------------------------------------

@functools.lru_cache(maxsize=64)
def _split_once(text: str, first_line: int, freevars: tuple[str, ...]) -> Any:
    return split_function(text, [], first_line=first_line, freevars=freevars)


def _split(text: str, breaks: Sequence[Any], *, first_line: int = 1, freevars: Sequence[str] = (), **keywords: Any) -> Any:
    """`split_function`; the text of all cases is the same function, whose split without breaks is made once."""
    if not breaks and not any(keywords.values()):
        return _split_once(text, first_line, tuple(freevars))
    return split_function(text, breaks, first_line=first_line, freevars=tuple(freevars), **keywords)


def warm() -> None:
    """Import what a build imports, once, before processes are forked. Leaves no thread behind."""
    torch.set_num_threads(1)
    driver.split_function = _split
    library = Library(Path("/"))
    case = Case(None, "warm", "float32", 0, calling(torch.sin), (torch.ones(3),), {})
    prepare(case, False, library, [], lambda event: None)
    gc.collect()
    gc.freeze()


def run(chosen: Sequence[Any], dtypes: Sequence[torch.dtype], *, samples: int, gradients: bool, whole: bool, say: Say, skip: set[tuple[Any, ...]],
        jobs: int, seconds: float, form: str) -> None:
    """Build all cases of the operators, compile their kernels together, run and compare each. ``skip``: cases that killed the process before."""
    cases: list[tuple[Case, list[FunctionPlan]]] = []
    with tempfile.TemporaryDirectory(prefix="aotcompile-operators-") as folder:
        library = Library(Path(folder))
        for operator in chosen:
            name = f"{operator.name}.{operator.variant_test_name}" if operator.variant_test_name else str(operator.name)
            for dtype in dtypes:
                try:
                    for case in samples_of(operator, name, dtype, samples, gradients, form):
                        if (name, case.dtype, case.number) in skip:
                            continue
                        say({"event": "start", "operator": name, "dtype": case.dtype, "sample": case.number})
                        if whole:
                            finish(case, None, None, gradients, say)
                        else:
                            prepare(case, gradients, library, cases, say)
                except Exception as error:  # noqa: BLE001  torch's sample functions may raise, or a copy of a sample fail
                    say({"event": "case", "operator": name, "dtype": str(dtype).removeprefix("torch."), "sample": -1, "outcome": "crash",
                         "detail": f"no sample: {type(error).__name__}: {str(error)[:200]}"})
        say({"event": "compile"})
        refused = library.build(jobs)
        finish_all(cases, library, refused, gradients, say, seconds)


def finish_all(cases: list[tuple[Case, list[FunctionPlan]]], library: Library, refused: dict[str, str], gradients: bool, say: Say,
               seconds: float) -> None:
    """Run the built cases in a forked process; one that kills it, or takes longer than ``seconds``, is reported and the others go on in the next."""
    position = 0
    while position < len(cases):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            torch.set_num_threads(2)
            for number in range(position, len(cases)):
                os.write(writer, b"%d\n" % number)
                case, plans = cases[number]
                message = next((refused[name] for name in kernels_of(plans) if name in refused), "")
                if message:
                    report(case, say, "crash", f"the C++ compiler refuses: {message[:300]}")
                else:
                    finish(case, plans, library, gradients, say)
            os._exit(0)
        os.close(writer)
        last, status = _followed(reader, child, seconds)
        position = len(cases) if status == 0 else (last if last >= 0 else position) + 1
        if status != 0:
            report(cases[position - 1][0], say, "crash", f"the process ended with {status} while running" if status > 0 else "no end in time")


def _followed(reader: int, child: int, seconds: float) -> tuple[int, int]:
    """(number of the last case that was begun, exit status; -1 where it was ended for its time)."""
    import select

    last, data = -1, b""
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], seconds)
            if not ready:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return last, -1
            piece = stream.read(1 << 16)
            if not piece:
                return last, os.waitpid(child, 0)[1]
            data = (data + piece)[-64:]
            last = int(data.splitlines()[-1])


def kernels_of(plans: list[FunctionPlan]) -> set[str]:
    return {name for plan in plans for variants in plan.variants.values() for variant in variants
            for name in re.findall(r"\bkernel_\d+\b", variant.texts["plan.json"])}


def prepare(case: Case, gradients: bool, library: Library, cases: list[tuple[Case, list[FunctionPlan]]], say: Say) -> None:
    if call(case.call, case, gradients).error is not None:
        return                                                   # nothing to compile: torch's own sample raises
    try:
        build(case, gradients)
        cases.append((case, plans_of(case, library)))
    except Exception as error:  # noqa: BLE001  a build that raises is a failure of its own
        trace = traceback.extract_tb(error.__traceback__)[-1]
        report(case, say, "crash", f"build: {type(error).__name__}: {str(error)[:200]} ({Path(trace.filename).name}:{trace.lineno})")


def finish(case: Case, plans: list[FunctionPlan] | None, library: Library | None, gradients: bool, say: Say) -> None:
    try:
        if plans is None or library is None:
            arguments, keywords = Copies()((case.arguments, case.keywords))
            compiled = aotcompile.compile(case.call, example_inputs=(arguments, keywords), training=gradients)
            report_of = aotcompile.info(compiled).report
            case.plans = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(aotcompile.info(compiled).out).rglob("plan.json"))]
        else:
            compiled, report_of = load(case, plans, library)
    except Exception as error:  # noqa: BLE001
        trace = traceback.extract_tb(error.__traceback__)[-1]
        report(case, say, "crash", f"load: {type(error).__name__}: {str(error)[:200]} ({Path(trace.filename).name}:{trace.lineno})")
        return
    ours = call(compiled, case, gradients)
    theirs = call(case.call, case, gradients)
    regions = report_of().regions
    hits, misses = sum(region.hits for region in regions), [str(region.last_miss) for region in regions if region.misses]
    try:
        compare(case, ours, theirs, gradients)
        again = call(compiled, case, gradients)
        compare(case, again, theirs, gradients)
    except Differs as difference:
        report(case, say, "different", str(difference))
        return
    if misses and theirs.error is None and "compiled code failed" in misses[0]:
        report(case, say, "different", misses[0][:300])
    elif not hits:
        report(case, say, "eager", case.detail or (f"miss: {misses[0][:200]}" if misses else "nothing to compile"))
    else:
        report(case, say, "", "")


def report(case: Case, say: Say, outcome: str, detail: str) -> None:
    plans = case.plans or [json.loads(v.texts["plan.json"]) for function in case.built for found in function.variants.values() for v in found]
    steps = [step for plan in plans for graph in plan["graphs"].values() for step in graph["steps"]]
    kernels, calls = sum(step["step"] == "kernel" for step in steps), sum(step["step"] == "call" for step in steps)
    called = sorted({step["operator"] for step in steps if step["step"] == "call"})
    if not outcome:
        outcome = ("mixed" if kernels else "library") if calls else "kernels" if kernels else "views"
    say({"event": "case", "operator": case.name, "dtype": case.dtype, "sample": case.number, "outcome": outcome, "detail": detail, "kernels": kernels,
         "calls": calls, "called": called, "seconds": round(case.seconds, 3)})
