"""Code objects of functions that were split in their bytecode, made from text with the standard library alone.

    CPYTHON = "cp311"
    CODES = {"_r0_eager": {"code": "9700...", "constants": [None, 2, {"original": 1}], ...}, "": {... the rewritten function ...}}

The text is read, not run. Bytecode is that of one CPython version: another one does not use it, and the function runs as it is.
"""
from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from aotcompile.runtime import reporting
from aotcompile.runtime.digest import DIGEST_ATTRIBUTE, TAG, same_digest
from aotcompile.runtime.loader import Refused, bind, package_around
from aotcompile.runtime.twins.assemble import assemble
from aotcompile.runtime.twins.callees import Callees


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


# ---- in generated modules -----------------------------------------------------------------------------------------------------------------


def bind_bytecode(module_name: str, module_file: str, namespace: dict[str, Any], functions: Mapping[str, tuple[str, str]]) -> None:
    """For generated modules, at their end: puts split functions in the place of the originals that have no source text.

    ``functions``: qualified name -> (the original's digest, path of its bytecode.py in the package). What does not fit (another CPython, a function
    that came out differently) stays as it is."""
    region = bind(module_name, module_file)
    package = package_around(module_file)
    folder, callee = package.folder, Callees(package)
    for qualname, (digest, path) in functions.items():
        for function, replace in list(_places(namespace, qualname.partition("@")[0])):       # "f@2": the second function of that name
            if DIGEST_ATTRIBUTE in function.__dict__ or not same_digest(digest, function):
                continue
            try:
                replace(_twin(function, code_objects(package.text(path), function.__code__), digest, qualname, region, callee))
            except (Refused, ValueError, SyntaxError) as error:
                reporting.refuse(f"{folder}:{path}",
                                 f"AOT606 the split bytecode of {module_name}:{qualname} cannot be used: {error}. It runs eagerly.")


def _places(namespace: dict[str, Any], qualname: str) -> Iterator[tuple[FunctionType, Callable[[FunctionType], None]]]:
    """Where the module holds functions of this qualified name: under any global name, or in a class that the name leads to."""
    for name, value in namespace.items():
        if isinstance(value, FunctionType) and value.__code__.co_qualname == qualname:
            yield value, functools.partial(namespace.__setitem__, name)
    *owners, last = qualname.split(".")
    owner: Any = namespace.get(owners[0]) if owners else None
    for part in owners[1:]:
        owner = getattr(owner, part, None)
    if isinstance(owner, type) and isinstance(owner.__dict__.get(last), FunctionType):
        yield owner.__dict__[last], functools.partial(setattr, owner, last)


def _twin(function: FunctionType, codes: Mapping[str, CodeType], digest: str, qualname: str,
          region: Callable[[str, FunctionType], Any], callee: Callable[[Any], Any]) -> FunctionType:
    eager = {name.removesuffix("_eager"): (name, code) for name, code in codes.items() if name}
    calls = {name: callee for name in codes[""].co_freevars if name.startswith("_call_")}
    return assemble(function, codes[""], eager, calls, lambda stub, body: region(f"{qualname}:{stub[1:]}", body), digest)
