"""A variant captured with CPU examples, for a GPU target: the same graph with every tensor on the GPU.

Machines that build often have no GPU. What the capture saw on the CPU is captured again here by changing records only: the facts of the inputs, the
tensor guards, and device arguments of graph nodes.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from aotcompile.frontend.types import CapturedVariant, NodeRecord


def devices_of(targets: Sequence[str]) -> tuple[str, ...]:
    """The kinds of device that targets build for, in order: "cpu", "cuda"."""
    return tuple(dict.fromkeys("cuda" if target.startswith("cuda") else "cpu" for target in targets))


def placements(captured: Sequence[CapturedVariant], targets: Sequence[str]) -> list[tuple[CapturedVariant, str]]:
    """The variants with the device that each is to be built for. What was captured on a GPU is for ``native`` too: this machine's GPU is meant."""
    placed = [(moved, device) for device in devices_of(targets) for variant in captured if (moved := _for_device(variant, device)) is not None]
    if "native" in targets and "cuda" not in devices_of(targets):
        placed += [(variant, "cuda") for variant in captured if _devices(variant) == {"cuda"}]
    return placed


def with_own_gpu(targets: Sequence[str]) -> tuple[str, ...]:
    """``targets`` where GPU kernels have to be compiled and none of them says for which GPU: with this machine's."""
    if "cuda" in devices_of(targets) or not torch.cuda.is_available():
        return tuple(targets)
    major, minor = torch.cuda.get_device_capability()
    return (*targets, f"cuda:sm_{major}{minor}")


def _devices(variant: CapturedVariant) -> set[str]:
    return {given.facts.device for given in variant.inputs if given.facts is not None}


def _for_device(variant: CapturedVariant, device: str) -> CapturedVariant | None:
    """The variant on ``device``; None where it was captured on a GPU and ``device`` is the CPU (or the other way round with mixed inputs)."""
    found = _devices(variant)
    if found == {device} or (not found and device == "cpu"):
        return variant
    if device == "cpu" or "cuda" in found:
        return variant if device == "cuda" and found == {"cuda"} else None
    inputs = tuple(replace(given, facts=replace(given.facts, device=device)) if given.facts is not None else given for given in variant.inputs)
    guards = tuple(replace(guard, expected={**guard.expected, "device": device}) if guard.kind == "tensor" else guard for guard in variant.guards)
    return replace(variant, inputs=inputs, guards=guards, nodes=tuple(_node(node, device) for node in variant.nodes))


def _node(node: NodeRecord, device: str) -> NodeRecord:
    return replace(node, arguments=_value(node.arguments, device), keywords={key: _value(value, device) for key, value in node.keywords.items()})


def _value(value: Any, device: str) -> Any:
    if isinstance(value, torch.device):
        return torch.device(device) if value.type == "cpu" else value
    if type(value) in (tuple, list):
        return type(value)(_value(item, device) for item in value)
    if type(value) is dict:
        return {key: _value(item, device) for key, item in value.items()}
    return value
