"""torch's module tests (`torch.testing._internal.common_modules.module_db`): CPU, float32, train and eval, the first two samples of each module.

    python benchmarks/coverage/module_tests.py [--backend native|aot_eager|eager] [-k WORD] [-v]
"""
from __future__ import annotations

import itertools
import sys
from typing import Any

import torch
from cases import Case, NoSuchCase, parser, run_list

SAMPLES = 2


def cases() -> list[Case]:
    from torch.testing._internal.common_modules import module_db

    found = []
    for info in module_db:
        if torch.float32 not in info.supported_dtypes("cpu") if hasattr(info, "supported_dtypes") else torch.float32 not in info.dtypes:
            continue
        for training in (True, False):
            for number in range(SAMPLES):
                found.append(_case(info, training, number))
    return found


def _case(info: Any, training: bool, number: int) -> Case:
    def make() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
        sample = next(itertools.islice(iter(inputs), number, None), None)
        if sample is None:
            raise NoSuchCase
        arguments, keywords = sample.constructor_input.args, sample.constructor_input.kwargs
        typed = {"dtype": torch.float32} if _takes_dtype(info.module_cls) and "dtype" not in keywords else {}
        module = info.module_cls(*arguments, **keywords, **typed).to(torch.float32)
        module.train(training)
        return module, tuple(sample.forward_input.args), dict(sample.forward_input.kwargs)

    return Case(f"{info.name}.{'train' if training else 'eval'}.{number}", make, training=True)


def _takes_dtype(cls: type) -> bool:
    import inspect

    return "dtype" in inspect.signature(cls.__init__).parameters


if __name__ == "__main__":
    sys.exit(any(o.kind != "equal" for o in run_list("module tests", cases(), parser(__doc__).parse_args())))
