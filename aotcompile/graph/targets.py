"""Names of the callables in graphs: ``torch.relu`` <-> "torch:relu", ``torch.ops.aten.add.Tensor`` <-> "torch.ops:aten.add.Tensor"."""
from __future__ import annotations

import builtins
import importlib
import operator
from functools import cache
from typing import Any, Callable

import torch

from aotcompile.graph.errors import UnsupportedGraph

# Modules in which C functions without a usable ``__module__`` are looked for, the documented name first.
_MODULES = ("torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft", "torch._C._nn", "torch._C._special", "torch._C._linalg",
            "torch._C._fft", "torch._C._nested", "torch._C._sparse", "torch._VF", "torch._C", "torch.amp.autocast_mode",
            "math", "_operator", "builtins")


def resolve(target: str) -> Any:
    """The object named by "module:qualname". Raises UnsupportedGraph (AOT301) where there is none."""
    module, _, qualname = target.partition(":")
    try:
        value = torch.ops if module == "torch.ops" else importlib.import_module(module)
        for part in qualname.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise UnsupportedGraph("AOT301", f"{target} names nothing: {error}.") from error
    owner = getattr(value, "__self__", None)
    return _application(target) if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) else value


@cache
def _application(target: str) -> Callable[..., Any]:
    """``Class.apply`` of a custom autograd function, as a function that torch.fx can print (from torch 2.14 it refuses bound builtins)."""
    module, _, qualname = target.partition(":")
    name, _, method = qualname.rpartition(".")

    def apply(*arguments: Any) -> Any:
        owner: Any = importlib.import_module(module)
        for part in name.split("."):
            owner = getattr(owner, part)
        return getattr(owner, method)(*arguments)

    apply.__module__, apply.__qualname__ = module, qualname
    apply.target = target                                            # type: ignore[attr-defined]
    return apply


def name_of(function: Callable[..., Any]) -> str:
    """"module:qualname" of a callable, such that `resolve` gives it back. Raises UnsupportedGraph (AOT301) for one without such a name."""
    if isinstance(function, torch._ops.OpOverload):
        return f"torch.ops:{function.namespace}.{function._schema.name.partition('::')[2]}.{function._overloadname}"
    if isinstance(function, torch._ops.OpOverloadPacket):
        return "torch.ops:" + function._qualified_op_name.replace("::", ".")
    if isinstance(function, torch._ops.HigherOrderOperator):
        return f"torch.ops:{function.namespace}.{function.name()}"
    if hasattr(function, "target") and getattr(function, "__name__", "") == "apply":
        return str(function.target)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type):                                      # Class.apply: a new bound object at each access
        candidates = [f"{owner.__module__}:{owner.__qualname__}.{function.__name__}"]
    else:
        objclass = getattr(function, "__objclass__", None)
        qualname = str(getattr(function, "__qualname__", None) or getattr(function, "__name__", ""))
        if objclass is not None and "." not in qualname:
            qualname = f"{objclass.__qualname__}.{qualname}"
        modules = [getattr(function, "__module__", None), getattr(objclass, "__module__", None)]
        name = getattr(function, "__name__", "")
        candidates = [f"{m}:{qualname}" for m in modules if m and m != "torch._ops"]
        candidates = [f"{m}:{name}" for m in _MODULES[:2]] + candidates + [f"{m}:{name}" for m in _MODULES]
        candidates += [f"torch._C:TensorBase.{name}", f"torch:Tensor.{name}"]
    for candidate in candidates:
        try:
            found = resolve(candidate)
        except UnsupportedGraph:
            continue
        if found is function or (isinstance(owner, type) and (found == function or getattr(found, "target", "") == candidate)):
            return candidate
    for name, value in vars(torch.Tensor).items():                   # Tensor.__rsub__, Tensor.__pow__: torch's wrappers, under the wrapped name
        if value is function:
            return f"torch:Tensor.{name}"
    raise UnsupportedGraph("AOT301", f"{function!r} has no importable name.", "Define the function at the top level of a module.")


# Infix forms for reading; only where the operator is exactly that expression.
INFIX = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//", operator.mod: "%",
         operator.pow: "**", operator.matmul: "@", operator.and_: "&", operator.or_: "|", operator.xor: "^",
         operator.lshift: "<<", operator.rshift: ">>", operator.eq: "==",
         operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}
BUILTIN_NAMES = frozenset(dir(builtins))
