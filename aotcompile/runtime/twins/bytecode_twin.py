"""Code objects of functions that were split in their bytecode, made from text with the standard library alone.

    CPYTHON = "cp311"
    CODES = {"_r0_eager": {"code": "9700...", "constants": [None, 2, {"original": 1}], ...}, "": {... the rewritten function ...}}

The text is read, not run. Bytecode is that of one CPython version: another one does not use it, and the function runs as it is.
"""
from __future__ import annotations

import ast
from types import CodeType
from typing import Any

from aotcompile.runtime.digest import TAG


def code_objects(text: str, original: CodeType) -> dict[str, CodeType]:
    """Name -> code object, the rewritten function under "". ``original``: the code the text was made from (the caller compares digests).

    Raises ValueError where the text is not of this CPython version or does not fit the original."""
    tree = ast.parse(text)
    found = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    if not {"CPYTHON", "CODES"} <= set(found):
        raise ValueError("the bytecode's text is incomplete")
    tag = ast.literal_eval(found["CPYTHON"])
    if tag != TAG:
        raise ValueError(f"the bytecode is that of {tag}, this is {TAG}")
    records: dict[str, dict[str, Any]] = ast.literal_eval(found["CODES"])
    return {name: _code(record, original) for name, record in records.items()}


def _code(record: dict[str, Any], original: CodeType) -> CodeType:
    count, positional_only, keyword_only = record["arguments"]
    return original.replace(
        co_name=record["name"], co_qualname=record["qualname"], co_flags=record["flags"], co_stacksize=record["stack"], co_firstlineno=record["line"],
        co_argcount=count, co_posonlyargcount=positional_only, co_kwonlyargcount=keyword_only,
        co_consts=tuple([_constant(value, original) for value in record["constants"]]), co_names=tuple(record["names"]),
        co_varnames=tuple(record["variables"]), co_nlocals=len(record["variables"]), co_cellvars=tuple(record["cells"]),
        co_freevars=tuple(record["free"]),
        co_code=bytes.fromhex(record["code"]), co_exceptiontable=bytes.fromhex(record["handlers"]), co_linetable=bytes.fromhex(record["lines"]))


def _constant(value: Any, original: CodeType) -> Any:
    """A constant; ``{"original": n}`` stands for the original's constant number n."""
    if isinstance(value, dict):
        number = value["original"]
        if not 0 <= number < len(original.co_consts):
            raise ValueError(f"the original has no constant {number}")
        return original.co_consts[number]
    return value
