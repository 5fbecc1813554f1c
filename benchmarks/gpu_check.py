"""The GPT and vision examples on a GPU: generated code against eager in values, gradients and time.

Needs a GPU; exit status 1 if anything differs or ran eagerly.

    python benchmarks/gpu_check.py                         compiles here, for this GPU
    python benchmarks/gpu_check.py --generated ROOT        loads ROOT/minigpt and ROOT/digits, built elsewhere (aotcompile build --target cuda:sm_90)
"""
from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "gpt"), str(ROOT / "examples" / "vision")]

import aotcompile  # noqa: E402

EXAMPLES = {"minigpt": ("context", "training"), "digits": ("training", "inference")}
REPEATS = 30


def on_gpu(value: Any) -> Any:
    if isinstance(value, torch.nn.Module):
        return value.cuda()
    return value.cuda() if isinstance(value, torch.Tensor) else value


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value for tensor in tensors(part)] if isinstance(value, (tuple, list)) else []


def run(model: torch.nn.Module, inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    """The outputs, and in training mode the gradients of all parameters."""
    torch.manual_seed(0)
    if not model.training:
        with torch.no_grad():
            return tensors(model(*inputs))
    found = tensors(model(*inputs))
    model.zero_grad(set_to_none=True)
    sum(tensor.float().pow(2).mean() for tensor in found if tensor.requires_grad).backward()
    return [*(tensor.detach() for tensor in found), *(p.grad for p in model.parameters() if p.grad is not None)]


def milliseconds(function: Callable[[], Any]) -> float:
    """Median time of a call, by events."""
    for _ in range(5):
        function()
    times = []
    for _ in range(REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[REPEATS // 2]


def twin(package: str, model: torch.nn.Module, inputs: tuple[Any, ...], options: argparse.Namespace, folder: str) -> Any:
    """The same model (parameters shared) running generated code."""
    if options.generated is None:
        major, minor = torch.cuda.get_device_capability()
        return aotcompile.compile(model, example_inputs=(inputs, {}), targets=[f"cuda:sm_{major}{minor}"], out=folder, training=model.training)
    loaded = aotcompile.load(package, root=options.generated)
    module = importlib.import_module(f"{loaded.__name__}.model")
    # The configuration's generated class: guards know it.
    config = [getattr(module, type(model.config).__name__)(**vars(model.config))] if hasattr(model, "config") else []
    other = getattr(module, type(model).__name__)(*config).cuda()
    other.load_state_dict(model.state_dict())
    for name, value in vars(model).items():                        # what the provider has set on its model (a threshold)
        if isinstance(value, (bool, int, float, str)):
            setattr(other, name, value)
    return other.train(model.training)


def check(package: str, situation: str, options: argparse.Namespace) -> bool:
    provider = importlib.import_module(f"{package}.aot_inputs")
    model, inputs = getattr(provider, situation)()
    model, inputs = on_gpu(model), tuple(map(on_gpu, inputs))
    eager_state = {name: value.clone() for name, value in model.state_dict().items()}
    expected = run(model, inputs)
    model.load_state_dict(eager_state)                             # the running statistics of batch norms
    with tempfile.TemporaryDirectory() as folder:
        compiled = twin(package, model, inputs, options, folder)
        compiled.load_state_dict(eager_state)
        found = run(compiled, inputs)
        regions = [region for region in aotcompile.runtime.report().regions if package in region.module or options.generated is None]
        worst = 0.0
        good = len(found) == len(expected)
        for a, b in zip(found, expected):
            scale = b.double().norm().item() or 1.0
            worst = max(worst, (a.double() - b.double()).norm().item() / scale)
            good = good and a.shape == b.shape and a.dtype == b.dtype and bool(torch.isfinite(a).all() == torch.isfinite(b).all())
        good = good and worst < 1e-3
        hits, misses = sum(region.hits for region in regions), sum(region.misses for region in regions)
        eager, ours = milliseconds(lambda: run(model, inputs)), milliseconds(lambda: run(compiled, inputs))
    good = good and hits > 0 and misses == 0
    verdict = "ok" if good else "WRONG"
    print(f"{package}:{situation:10} {verdict:6} error {worst:.1e}  hits {hits} misses {misses}  eager {eager:.3f} ms  generated {ours:.3f} ms")
    for region in regions:
        if region.last_miss or region.reason:
            print(f"    {region.name}: {region.last_miss or region.reason}")
    if not regions:
        print("    no region was compiled: everything ran eagerly")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generated", help="folder with packages built elsewhere")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here", file=sys.stderr)
        return 2
    results = [check(package, situation, options) for package, situations in EXAMPLES.items() for situation in situations]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
