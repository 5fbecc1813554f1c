"""What the serving processes of the tests do with the examples: the same calls for the original and for the generated package.

Every function takes the package and gives results by name: tensors, numbers, text; what they print is compared as well.
"""
from __future__ import annotations

import importlib
import logging
import sys
from types import ModuleType
from typing import Any

import torch

PACKAGES = {"gpt": "minigpt", "gpt_training": "minigpt", "vision": "digits", "vision_training": "digits", "signal": "spectra", "situations": "small"}


def part(package: ModuleType, name: str) -> Any:
    return importlib.import_module(f"{package.__name__}.{name}")


def gradients(model: torch.nn.Module) -> dict[str, Any]:
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


# ---- gpt ------------------------------------------------------------------------------------------------------------------------------------

def gpt(package: ModuleType) -> dict[str, Any]:
    """A model from an ordinary state_dict: contexts of any length, and text."""
    original = part(package, "aot_inputs").make_model()
    model = package.GPT(package.GPTConfig())
    model.load_state_dict(original.state_dict())
    model.eval()
    results: dict[str, Any] = {"keys": list(model.state_dict())}
    with torch.no_grad():
        for length in (1, 2, 3, 24, 31, 32):
            tokens = torch.randint(65, (1, length), generator=torch.Generator().manual_seed(length))
            results[f"logits of {length}"], nothing = model(tokens)
            results[f"loss of {length}"] = nothing
    torch.manual_seed(7)
    for length, limit in ((1, 8), (20, 16), (32, 4), (40, 2)):
        tokens = torch.randint(1, 65, (1, length), generator=torch.Generator().manual_seed(length))
        results[f"text from {length}"] = part(package, "sampling").sample(model, tokens, 0, limit=limit)
    results["stops at once"] = part(package, "sampling").sample(model, torch.zeros((1, 5), dtype=torch.long), 0)
    return results


def gpt_training(package: ModuleType) -> dict[str, Any]:
    """Forward and backward once, then three steps of the package's own training function (plain SGD: optimizers of torch.optim load Dynamo)."""
    inputs = part(package, "aot_inputs")
    model, (tokens, targets) = inputs.training()
    logits, loss = model(tokens, targets)
    loss.backward()
    results: dict[str, Any] = {"logits": logits.detach().clone(), "loss": loss.detach().clone(), "gradients": gradients(model)}
    optimizer = Descent(model.parameters())
    for step in range(3):
        print("step", step, "loss", round(part(package, "training").train_step(model, optimizer, tokens, targets), 4))
    results["state"] = state(model)
    return results


class Descent:
    """Gradient descent without torch.optim."""

    def __init__(self, parameters: Any, rate: float = 0.1) -> None:
        self.parameters, self.rate = list(parameters), rate

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.sub_(self.rate * parameter.grad)


# ---- vision ---------------------------------------------------------------------------------------------------------------------------------

def log_to_stdout() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s", force=True)


def vision(package: ModuleType) -> dict[str, Any]:
    """Evaluation with both ways out, and the log lines of forward."""
    log_to_stdout()
    drawing = part(package, "drawing")
    model = part(package, "aot_inputs").make_model().eval()
    results: dict[str, Any] = {"keys": list(model.state_dict())}
    for size in (8, 1, 2, 5, 64):
        images, _ = drawing.batch(size, torch.Generator().manual_seed(size))
        with torch.no_grad():
            results[f"of {size}"] = model(images)
            model.early.weight.mul_(40.0)
            results[f"sure of {size}"] = model(images)
            model.early.weight.mul_(1 / 40.0)
    results["early exits"] = model.early_exits
    return results


def vision_training(package: ModuleType) -> dict[str, Any]:
    """A training step by hand, two of the package's own, then the running statistics."""
    log_to_stdout()
    model, (images,) = part(package, "aot_inputs").training()
    late, early = model(images)
    (late.square().mean() + early.square().mean()).backward()
    results: dict[str, Any] = {"late": late.detach().clone(), "early": early.detach().clone(), "gradients": gradients(model), "state": state(model)}
    optimizer = Descent(model.parameters(), rate=0.01)
    for step in range(2):
        images, labels = part(package, "drawing").batch(32, torch.Generator().manual_seed(10 + step))
        print("step", step, "loss", round(part(package, "model").train_step(model, optimizer, images, labels), 4))
    results["state afterwards"] = state(model)
    return results


# ---- signal ---------------------------------------------------------------------------------------------------------------------------------

def signal(package: ModuleType) -> dict[str, Any]:
    blocks = part(package, "sources").signal(20)
    results: dict[str, Any] = {f"features of {n}": package.describe(blocks[:n]) for n in (1, 2, 3, 20)}
    follower = package.Follower()
    for number, block in enumerate(blocks):
        results[f"block {number}"] = follower.feed(block)
    results["state"] = [float(follower.level), follower.blocks, list(follower.loudest)]
    print("features", [round(value, 3) for value in results["features of 2"].flatten().tolist()])
    return results
