"""Access paths (provenance): how a value is reached from a region's arguments and the modules around it.

A path is a root and steps; it prints as the Python expression that reaches the value, and reads back from JSON (`as_json`, `from_json`).

    ("argument", "self")                         a parameter of the region
    ("closure", "k")                             a free variable of the function the region was cut from
    ("global", "SCALE")                          a global of the module the region was cut from
    ("module", "torch.nn.functional")            a module, by name in sys.modules
  steps
    ("attribute", "weight")   getattr(x, "weight")          ("dictionary", "n")   x.__dict__["n"] (an instance attribute, no descriptor runs)
    ("item", 3)               x[3], key str/int/bool/None/float or a tuple of them
    ("type",)                 type(x)                        ("keys",)             tuple(x.keys())
    ("cell", 0)               x.__closure__[0].cell_contents
    ("context_variable",)     x.get()
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Step = tuple[Any, ...]


@dataclass(frozen=True)
class Path:
    root: Step
    steps: tuple[Step, ...] = ()

    def attribute(self, name: str) -> "Path":
        return Path(self.root, (*self.steps, ("attribute", name)))

    def dictionary(self, name: str) -> "Path":
        return Path(self.root, (*self.steps, ("dictionary", name)))

    def item(self, key: object) -> "Path":
        return Path(self.root, (*self.steps, ("item", key)))

    def then(self, *step: object) -> "Path":
        return Path(self.root, (*self.steps, tuple(step)))

    def __str__(self) -> str:
        kind, name = self.root
        text = {"argument": name, "closure": name, "global": name}.get(kind) or f"sys.modules[{name!r}]"
        for step in self.steps:
            match step:
                case ("attribute", name):
                    text = f"{text}.{name}"
                case ("dictionary", name):
                    text = f"{text}.__dict__[{name!r}]"
                case ("item", key):
                    text = f"{text}[{key!r}]"
                case ("type",):
                    text = f"type({text})"
                case ("keys",):
                    text = f"tuple({text}.keys())"
                case ("cell", index):
                    text = f"{text}.__closure__[{index}].cell_contents"
                case ("context_variable",):
                    text = f"{text}.get()"
                case _:
                    raise ValueError(f"unknown step {step!r}")
        return text

    def as_json(self) -> list[Any]:
        return [list(self.root), [[_encode(part) for part in step] for step in self.steps]]

    @staticmethod
    def from_json(data: list[Any]) -> "Path":
        root, steps = data
        return Path(tuple(root), tuple(tuple(_decode(part) for part in step) for step in steps))


def _encode(part: Any) -> Any:
    return {"tuple": [_encode(p) for p in part]} if isinstance(part, tuple) else part


def _decode(part: Any) -> Any:
    return tuple(_decode(p) for p in part["tuple"]) if isinstance(part, dict) else part
