"""Steps of access paths: their JSON as something hashable, and as a function."""
from __future__ import annotations

from typing import Any, Callable, Sequence

from aotcompile.runtime.guards.names import Context, UnsupportedPlan, item_key


def decode_step(part: Any, package: str = "", import_name: str = "") -> Any:
    if not isinstance(part, dict):
        return part
    if "constant" in part:
        return item_key(part["constant"], package, import_name)
    return tuple(decode_step(p, package, import_name) for p in part["tuple"])


def step_key(step: Sequence[Any]) -> tuple[Any, ...]:
    """A step's JSON as a hashable value; the type of an item's key matters (``x[1]`` is not ``x[True]``)."""
    if len(step) == 2 and type(step[1]) is str:
        return step[0], step[1]
    parts = [str(part) if isinstance(part, dict) else part for part in step]
    return (*parts, *map(type, step))


def _item(container: Any, key: Any) -> Any:
    if isinstance(container, dict) and type(container) is not dict and key not in container:
        raise KeyError(key)                                      # a defaultdict must not grow by being checked
    return container[key]


_BASES: dict[str, Any] = {"dict": dict, "OrderedDict": dict, "defaultdict": dict, "list": list, "tuple": tuple}
_STEPS: dict[str, Callable[..., Callable[[Any], Any]]] = {
    "attribute": lambda name: lambda value: getattr(value, name),
    "dictionary": lambda name: lambda value: value.__dict__[name],
    "item": lambda key: lambda value: _item(value, key),
    "own_item": lambda base, key: lambda value: _BASES[base].__getitem__(value, key),
    "type": lambda: type,
    "keys": lambda: lambda value: tuple(value.keys()),
    "values": lambda: lambda value: tuple(value.values()),
    "referent": lambda: lambda value: value(),
    "call": lambda arguments: lambda value: value(*arguments),
    "cell": lambda index: lambda value: value.__closure__[index].cell_contents,
    "context_variable": lambda: lambda value: value.get(),
}


def step_access(step: Sequence[Any], context: Context) -> Callable[[Any], Any]:
    if step[0] not in _STEPS:
        raise UnsupportedPlan(f"path step {step[0]!r}")
    return _STEPS[step[0]](*(decode_step(part, context.package, context.import_name) for part in step[1:]))
