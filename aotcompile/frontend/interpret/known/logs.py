"""Loggers: what writes nothing at build time stays in its region, guarded by the levels that decide it; everything else is a break.

    log.debug("shape %s", x.shape)              silent: no break, guards on log.level, its parents' and logging.disable
    log.info("mean %.3f", x.mean().item())      a break at any level: a program that reads a tensor to log it is compiled around the call, so that
                                                it stays compiled when its logging is turned on
"""
from __future__ import annotations

import logging
import types
from typing import TYPE_CHECKING, Any

import torch

from aotcompile.frontend.capture.signals import GraphBreak

if TYPE_CHECKING:
    from aotcompile.frontend.interpret.interpreter import Interpreter

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


def call(i: "Interpreter", function: types.FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Call a function of the module ``logging``. Raises GraphBreak AOT201 for one that writes, or may."""
    logger = arguments[0] if arguments else None
    if isinstance(logger, logging.Logger) and type(logger).isEnabledFor is logging.Logger.isEnabledFor:
        if function is logging.Logger.getEffectiveLevel:
            return i.run_function(function, arguments, keywords)
        level = _level(function.__name__, arguments)
        if level is not None and function.__name__ == "isEnabledFor":
            return i.run_function(_is_enabled, (logger, level), {})
        if level is not None and not _has_tensors(i, (arguments[1:], keywords)) and not i.run_function(_is_enabled, (logger, level), {}):
            return None
    raise GraphBreak("AOT201", f"logging.{function.__qualname__} is called")


def _level(name: str, arguments: tuple[Any, ...]) -> int | None:
    """The level that a logger's method writes at, or asks for."""
    if name in ("log", "isEnabledFor"):
        return arguments[1] if len(arguments) > 1 and type(arguments[1]) is int else None
    return _LEVELS.get(name)


def _is_enabled(logger: logging.Logger, level: int) -> bool:
    """Logger.isEnabledFor without its table of earlier answers, which is empty in a new process. Interpreted: what it reads is guarded."""
    if logger.disabled or logger.manager._disable >= level:      # what the property `disable` reads
        return False
    return level >= logger.getEffectiveLevel()


def _has_tensors(i: "Interpreter", value: Any) -> bool:
    """Whether tensors are given, or numbers that are likely read from them."""
    if isinstance(value, (tuple, list)):
        return any(_has_tensors(i, part) for part in value)
    if isinstance(value, dict):
        return any(_has_tensors(i, part) for part in value.values())
    return isinstance(value, (torch.Tensor, float, torch.SymFloat)) or i.symbols.is_data(value)
