"""A variant captured with CPU examples, for a GPU target: the same graph with every tensor on the GPU.

Machines that build often have no GPU. What the capture saw on the CPU is captured again here by changing records only: the facts of the inputs, the
tensor guards, and device arguments of graph nodes.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from aotcompile.frontend.types import CapturedVariant, NodeRecord


def devices_of(targets: tuple[str, ...]) -> tuple[str, ...]:
    """The kinds of device that targets build for, in order: "cpu", "cuda"."""
    return tuple(dict.fromkeys("cuda" if target.startswith("cuda") else "cpu" for target in targets))


def for_device(variant: CapturedVariant, device: str) -> CapturedVariant | None:
    """The variant on ``device``; None where it was captured on a GPU and ``device`` is the CPU (or the other way round with mixed inputs)."""
    found = {given.facts.device for given in variant.inputs if given.facts is not None}
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
