"""``generate()`` of transformers models with small random configurations: greedy, 32 tokens, dynamic and static KV cache, token for token as eager.

    python benchmarks/coverage/generate.py [--backend native|aot_eager|eager] [-k WORD] [-v]

The model is built for the calls that ``generate`` itself makes: the prompt (prefill) and decoding steps, with the lengths of the cache and of the
attention mask marked as dynamic.
"""
from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch
from cases import Case, parser, run_list
from transformers_models import MODELS

NAMES = ("gpt2", "llama", "t5")
NEW_TOKENS = 32
PROMPT = 7
CACHES = ("dynamic", "static")


def cases() -> list[Case]:
    known = {name: (config, model, configuration) for name, config, model, configuration, _ in MODELS}
    return [_case(name, cache, *known[name]) for name in NAMES for cache in CACHES]


def _case(name: str, cache: str, config: str, model: str, configuration: dict[str, Any]) -> Case:
    def make() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        import transformers

        torch.manual_seed(0)
        made = getattr(transformers, model)(getattr(transformers, config)(**configuration)).eval()
        made.generation_config.eos_token_id = None                # always all tokens
        made.generation_config.pad_token_id = 0
        return made, (torch.randint(3, 99, (2, PROMPT)),), {}

    def use(target: Any) -> Callable[..., Any]:
        def generate(ids: torch.Tensor) -> Any:
            return target.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False, cache_implementation=cache,
                                   disable_compile=True)
        return generate

    def examples(target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return recorded_calls(target, lambda: use(target)(*arguments, **keywords))

    return Case(f"{name}.generate.{cache}", make, use=use, examples=examples, options={"training": False})


def recorded_calls(model: Any, program: Callable[[], Any]) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments of the first three calls that ``program`` makes of ``model.forward``, as they were before each call; sizes that differ between
    the second and the third are marked as dynamic."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def note(module: torch.nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if len(calls) < 3:
            calls.append(copy.deepcopy((arguments, keywords)))

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        program()
    finally:
        handle.remove()
    for earlier, later in zip(tensors_of(calls[1]), tensors_of(calls[2])):
        for dimension in range(later.dim()):
            if earlier.shape[dimension] != later.shape[dimension]:
                torch._dynamo.mark_dynamic(later, dimension)
    return [calls[0], calls[2], calls[1]]


def tensors_of(value: Any, seen: set[int] | None = None) -> list[torch.Tensor]:
    """All tensors in containers and in the attributes of objects (caches and their layers), in a fixed order."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, (torch.nn.Module, type)):
        return []
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_of(item, seen)]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in tensors_of(item, seen)]
    return tensors_of(vars(value), seen) if hasattr(value, "__dict__") else []


if __name__ == "__main__":
    import transformers  # noqa: F401  (once, before the children are forked)

    sys.exit(any(o.kind != "equal" for o in run_list("generate", cases(), parser(__doc__).parse_args())))
