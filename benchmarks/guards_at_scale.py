"""One call of a model of 1,000 parameters in a third as many modules: the generated code, torch.compile and eager, side by side in one process.

    python benchmarks/guards_at_scale.py [modules]

The arithmetic is nothing, so what is measured is the check that model and input are what the code was made for, the fetching of the parameters, and
one kernel with 1,000 inputs. Prints microseconds per call, the best of several rounds of each: other programs only ever make a round slower.
"""
from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

import aotcompile


class Unit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.gain, self.bias = (nn.Parameter(torch.randn(4)) for _ in range(3))
        self.epsilon = 1e-5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight * self.gain + self.bias + self.epsilon


class Net(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.units = nn.ModuleList(Unit() for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for unit in self.units:
            x = unit(x)
        return x


def microseconds(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="?", type=int, default=333)
    net, x = Net(parser.parse_args().modules).eval(), torch.randn(2, 4)
    with torch.no_grad():
        built = aotcompile.compile(net, example_inputs=((x,), {}))
        compiled = torch.compile(net)
        calls = {"eager": lambda: net(x), "torch.compile": lambda: compiled(x), "aotcompile": lambda: built(x)}
        for call in calls.values():
            torch.testing.assert_close(call(), net(x))
            call()
        best = {name: min(microseconds(call, 20 if name == "eager" else 200) for _ in range(7)) for name, call in calls.items()}
    [region] = aotcompile.info(built).report().regions
    if region.misses:
        raise AssertionError(region.last_miss)
    print(f"{len(list(net.parameters()))} parameters, {len(list(net.modules()))} modules, torch {torch.__version__}")
    for name, time_per_call in best.items():
        print(f"{name:14} {time_per_call:8.1f} us")


if __name__ == "__main__":
    main()
