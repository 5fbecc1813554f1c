"""The region stub: checks the guards of its variants in order, runs the first that holds, else the eager body.

    _r0 = _region("Net.forward:r0", _r0_eager)       at import: remembers names, reads nothing
    _r0(self, x)                                      first call: loads the variants (loader), then
                                                      hit: prologue, graph, epilogue;  miss: count, warn once, eager body
"""
from __future__ import annotations

import threading
from types import FunctionType
from typing import Any, Callable, Sequence

import torch

from aotcompile.runtime import explain, reporting
from aotcompile.runtime.autograd import Training
from aotcompile.runtime.executor import KernelFailure
from aotcompile.runtime.guards import Guards, UnsupportedPlan
from aotcompile.runtime.state import IMPLICIT, ambient_reason, below_autograd, describe_state, increment_version, state_holds, state_pairs

NUMBERS = {"int": torch.int64, "float": torch.float64}
Epilogue = Callable[[Sequence[Any], Sequence[Any], dict[str, int], Sequence[Any]], Any]


class Failed(Exception):
    """Compiled code failed before it changed anything; the eager body is to run. ``__cause__`` says how."""


class Variant:
    """One loaded variant. ``plan``: plan.json; ``graphs``: graph name -> callable of the list of inputs; ``training``: for a training variant."""

    def __init__(self, plan: dict[str, Any], guards: Guards, graph: Callable[[Sequence[Any]], Sequence[Any]] | None, training: Training | None,
                 epilogue: Epilogue | None, differentiable: bool = False) -> None:
        self.plan, self.guards, self.graph, self.training, self.epilogue = plan, guards, graph, training, epilogue
        self.differentiable = differentiable                     # the graph is made of torch operators that autograd is to see
        self.checker: Any = guards                               # the native twin of `guards`, where there is one
        result = plan["result"]
        self.result: int | tuple[int, ...] | None = tuple(result) if isinstance(result, list) else result
        if self.result is None and epilogue is None:
            raise UnsupportedPlan("the variant has neither a result nor an epilogue")
        inputs = plan["inputs"]
        self.inputs = len(inputs)
        self.tensors = [index for index, given in enumerate(inputs) if given["kind"] == "tensor"]
        self.numbers = [(index, NUMBERS[given["number"]]) for index, given in enumerate(inputs) if given["kind"] == "number"]
        self.mutated = [index for index, given in enumerate(inputs) if given["mutated"]]
        self.symbols = [(name, index, dimension) for name, index, dimension in plan["symbols"]]
        self.grad_enabled: bool = plan["grad_enabled"]
        self.requires_grad = [index for index, needed in enumerate(plan["output_requires_grad"]) if needed]
        guarded = {name for record in plan["guards"] if record["kind"] == "state" for name, _ in state_pairs(record["expected"])}
        self.implicit = [(name, value) for name, value in IMPLICIT if name not in guarded]

    def as_native(self) -> dict[str, Any]:
        """What the native stub needs, see PROTOCOL.md. ``graph`` is None where the Python `run` is to be used."""
        native_graph = getattr(self.graph, "native", None) if self.training is None else None
        return {"guards": self.checker, "graph": native_graph, "inputs": self.inputs, "fetches": len(self.plan["fetches"]), "result": self.result,
                "epilogue": self.epilogue, "numbers": [[i, self.plan["inputs"][i]["number"]] for i, _ in self.numbers], "symbols": self.symbols,
                "mutated": self.mutated, "training": self.training is not None, "grad_enabled": self.grad_enabled,
                "output_requires_grad": list(self.plan["output_requires_grad"]), "implicit": self.implicit, "run": self.run}

    def state_reason(self) -> str | None:
        """A global state that no guard of the variant speaks of and that must be at its default."""
        for name, value in self.implicit:
            if not state_holds(name, value):
                return describe_state(name, value)
        return None

    def refuses(self, values: Sequence[Any]) -> str | None:
        """What stands against running with these fetched values although the guards hold."""
        enabled = torch.is_grad_enabled()
        if self.training is not None or self.differentiable:
            if enabled is not self.grad_enabled:
                return f"torch.is_grad_enabled() == {self.grad_enabled} (got {enabled})"
        elif enabled and not self.grad_enabled:
            if any(values[index].requires_grad for index in self.tensors):
                return "torch.is_grad_enabled() == False (got True)"
        elif self.grad_enabled and not enabled and self.requires_grad:
            return "torch.is_grad_enabled() == True (got False)"
        checked = self.tensors if self.training is not None else self.mutated
        if checked and not torch.is_inference_mode_enabled() and any(values[index].is_inference() for index in checked):
            return "no input is an inference tensor"
        return None

    def run(self, values: Sequence[Any]) -> Any:
        """The region's result. Raises Failed where the eager body is to run instead."""
        count = self.inputs
        inputs, fetched = list(values[:count]), values[count:]
        try:
            outputs = self._compute(inputs)
        except KernelFailure as failure:
            raise Failed from failure
        except Exception as failure:
            if self.mutated:
                raise
            raise Failed from failure
        result = self.result
        if result is None:
            symbols = {name: inputs[index].shape[dimension] if dimension >= 0 else int(inputs[index]) for name, index, dimension in self.symbols}
            assert self.epilogue is not None
            return self.epilogue(inputs, outputs, symbols, fetched)
        return outputs[result] if isinstance(result, int) else tuple([outputs[index] for index in result])

    def _compute(self, inputs: list[Any]) -> Sequence[Any]:
        arguments = list(inputs)
        if self.differentiable:
            assert self.graph is not None
            return self.graph(arguments)
        for index, dtype in self.numbers:
            arguments[index] = torch.tensor(inputs[index], dtype=dtype)
        if self.training is not None:
            with torch.enable_grad():                            # the region itself may have turned grad mode on
                outputs: Sequence[Any] = self.training.run(arguments)
        else:
            assert self.graph is not None
            with below_autograd():
                outputs = self.graph(arguments)[:self.plan["output_count"]]
            if self.grad_enabled:
                for index in self.requires_grad:
                    outputs[index].requires_grad_()
        for index in self.mutated:
            if not inputs[index].is_inference():
                increment_version(inputs[index])
        return outputs


class Region:
    """The stub of one region. ``load``: called at the first call, returns the variants and the reason why there are none (None where there are
    some)."""

    __aotcompile_stub__ = True

    def __init__(self, name: str, module: str, eager: FunctionType, load: Callable[["Region"], tuple[Sequence[Variant], str | None]],
                 counters: reporting.Counters | None = None) -> None:
        self.name, self.module, self.eager = name, module, eager
        self.variants: Sequence[Variant] | None = None
        self.counters = counters or reporting.Counters()
        self.native: Any = None                                  # the native stub in front of this one, if there is one
        self._load, self._lock = load, threading.RLock()
        self.__name__, self.__qualname__, self.__doc__ = eager.__name__, eager.__qualname__, eager.__doc__
        reporting.register(self)

    def __repr__(self) -> str:
        return f"<aotcompile region {self.module}:{self.name}>"

    def __call__(self, *arguments: Any) -> Any:
        return self.call(*arguments)

    def call(self, *arguments: Any) -> Any:
        """Everything a call may need; the native stub comes here for whatever it does not do itself."""
        self.counters.calls += 1
        if reporting.stance == "force_eager":
            return self.eager(*arguments)
        variants = self.variants
        if variants is None:
            variants = self.ensure_loaded()
        if not variants:
            return self.eager(*arguments)
        ambient = ambient_reason(False)
        if ambient is not None:
            return self.miss(arguments, ambient)
        failures: list[Any] = []
        for variant in variants:
            reason = variant.state_reason() or (ambient_reason(True) if variant.training is not None else None)
            if reason is None:
                values = variant.checker.check(arguments)
                if not isinstance(values, int):
                    reason = variant.refuses(values)
                    if reason is None:
                        try:
                            result = variant.run(values)
                        except Failed as failure:
                            return self.failed(arguments, failure.__cause__ or failure)
                        self.counters.hits += 1
                        return result
                    failures.append((2.0, reason, None))
                else:
                    failures.append((values / max(len(variant.guards.records), 1), values, variant))
            else:
                failures.append((-1.0, reason, None))
        closest = max(failures, key=lambda failure: failure[0])
        text = closest[1] if closest[2] is None else explain.reason(closest[2].guards, closest[1], arguments)
        return self.miss(arguments, text)

    def miss(self, arguments: tuple[Any, ...], reason: str) -> Any:
        """Counts a miss and runs the eager body. Raises MissError under "error_on_miss"."""
        self.counters.misses += 1
        self.counters.last_miss = reason
        if reporting.stance == "error_on_miss":
            raise reporting.MissError(f"AOT701 {self.module}:{self.name}: no variant fits: {reason}")
        if "miss" not in self.counters.warned:
            self.counters.warned.add("miss")
            reporting.warn(f"AOT701 {self.module}:{self.name} runs eagerly, no variant fits: {reason}. Build with these inputs as well, "
                           "or allow this size to vary; `aotcompile.runtime.report()` counts.")
        return self.eager(*arguments)

    def failed(self, arguments: tuple[Any, ...], failure: BaseException) -> Any:
        """Compiled code raised: the eager body runs, so that eager's own exception appears. Warns once where eager does not raise."""
        self.counters.misses += 1
        if type(failure).__name__ == "KernelFailure" and len(failure.args) == 2:
            failure = KernelFailure(*failure.args)               # the native extension's exception of that name
        self.counters.last_miss = f"compiled code failed: {type(failure).__name__}: {failure}"
        result = self.eager(*arguments)
        if "failed" not in self.counters.warned:
            self.counters.warned.add("failed")
            reporting.warn(f"AOT702 {self.module}:{self.name}: compiled code failed where eager does not: {type(failure).__name__}: {failure}. "
                        "The eager result is used; please report this.")
        return result

    def ensure_loaded(self) -> Sequence[Variant]:
        """Loads the variants once, whichever thread comes first."""
        with self._lock:
            if self.variants is None:
                variants, self.counters.reason = self._load(self)
                self.counters.eager = not variants
                self.variants = tuple(variants)
            return self.variants

    def after_fork(self) -> None:
        """In a forked child: a thread of the parent may have held the lock."""
        self._lock = threading.RLock()

    def record(self) -> reporting.RegionRecord:
        """The counters. Loads nothing: a region that was never called is ``eager`` only if that is known without loading."""
        return self.counters.record(self.name, self.module)
