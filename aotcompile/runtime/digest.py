"""Digest of a code object: what a `function` guard compares, so that a function replaced by another one is noticed and an equal one is not.

    cp311:6b0f...(16 digits);source:09ac...(16 digits)

The first part covers everything that decides what the function does: bytecode, constants, names, flags, nested code; not file names, line numbers or
the name of the function's module. Bytecode is that of one CPython version, so the second part covers the function's source text: it decides where the
running CPython is not the one that made the digest. Lambdas have no source part (two of them can share a line).

Code of libraries is not compared function by function at every call, but file by file when a variant is loaded: `library_code`.

A rewritten function stands for the original: it carries ``__aotcompile_digest__``, the original's digest. That attribute alone proves nothing, since
``functools.wraps`` copies it onto wrappers: it counts only on a function whose own code refers to a region stub.
"""
from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import sys
from types import CodeType, FunctionType
from typing import Any, NamedTuple, Sequence

DIGEST_ATTRIBUTE = "__aotcompile_digest__"
STUB_MARK = "__aotcompile_stub__"
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"


def _constant(value: object) -> bytes:
    if isinstance(value, CodeType):
        return b"code(" + _content(value) + b")"
    if isinstance(value, tuple):
        return b"(" + b",".join(map(_constant, value)) + b")"
    if isinstance(value, frozenset):
        return b"{" + b",".join(sorted(map(_constant, value))) + b"}"
    return f"{type(value).__name__}:{value!r}".encode("utf-8", "backslashreplace")


def _content(code: CodeType) -> bytes:
    parts: list[bytes] = [code.co_code, code.co_exceptiontable]
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_name, counts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    parts.append(repr(names).encode("utf-8", "backslashreplace"))
    parts.extend(map(_constant, code.co_consts))
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _source(code: CodeType) -> str:
    """The function's source text without common indentation and trailing blanks; "" if it cannot be had."""
    if code.co_name.startswith("<"):
        return ""
    import inspect
    import textwrap
    try:
        text = inspect.getsource(code)
    except (OSError, TypeError, SyntaxError, IndexError):
        return ""
    return "\n".join(line.rstrip() for line in textwrap.dedent(text).strip().splitlines())


def defined_as(function: FunctionType) -> tuple[str, str]:
    """(module, qualified name) of the definition that a function's code comes from. ``__module__`` and ``__qualname__`` are what ``functools.wraps``
    makes of them: a decorator's wrapper bears the decorated function's."""
    return str(function.__globals__.get("__name__") or function.__module__ or ""), function.__code__.co_qualname


def code_digest(code: CodeType, *, source: bool = True) -> str:
    """The digest of a code object; ``source=False`` leaves the second part out."""
    text = f"{TAG}:{hashlib.sha256(_content(code)).hexdigest()[:16]}"
    lines = _source(code) if source else ""
    return f"{text};source:{hashlib.sha256(lines.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}" if lines else text


def _refers_to_stub(function: FunctionType) -> bool:
    code = function.__code__
    for name in code.co_names:
        if getattr(type(function.__globals__.get(name)), STUB_MARK, False):
            return True
    for cell in function.__closure__ or ():
        try:
            if getattr(type(cell.cell_contents), STUB_MARK, False):
                return True
        except ValueError:          # an empty cell
            continue
    return False


def digest_of(function: FunctionType) -> str:
    """The digest a `function` guard compares: the original's for a rewritten function."""
    original = function.__dict__.get(DIGEST_ATTRIBUTE)
    if isinstance(original, str) and _refers_to_stub(function):
        return original
    return code_digest(function.__code__)


def same_digest(expected: str, function: FunctionType) -> bool:
    """Whether ``function`` is, by digest, the one that ``expected`` was made from."""
    wanted = dict(part.partition(":")[::2] for part in expected.split(";"))
    original = function.__dict__.get(DIGEST_ATTRIBUTE)
    if isinstance(original, str) and _refers_to_stub(function):
        found = dict(part.partition(":")[::2] for part in original.split(";"))
        shared = [key for key in wanted if key in found and key != "source"] or [key for key in ("source",) if key in wanted and key in found]
        return bool(shared) and all(wanted[key] == found[key] for key in shared)
    if TAG in wanted:
        return code_digest(function.__code__, source=False) == f"{TAG}:{wanted[TAG]}"
    if "source" not in wanted:
        return False
    return code_digest(function.__code__).endswith(f";source:{wanted['source']}")


def matches(function: Any, name: str, expected: str) -> bool:
    """Whether ``function`` is a Python function called ``name`` ("module:qualname", already remapped) with this digest. Without a digest (a
    library's function, whose code differs between releases): whether its code was defined as ``name``, whatever a decorator made it say."""
    if not expected:
        return isinstance(function, FunctionType) and f"{function.__globals__.get('__name__')}:{function.__code__.co_qualname}" == name
    return (isinstance(function, FunctionType) and f"{function.__module__}:{function.__qualname__}" == name and same_digest(expected, function))


# ---- modules of libraries -------------------------------------------------------------------------------------------------------------------


class LibraryCode(NamedTuple):
    """What is compared of a library's module whose code was compiled in. ``version``: of its distribution, "" if it has none; ``source``: SHA-256 of
    the module's file, "" where it is no Python source."""

    version: str
    source: str


def library_code(module: str) -> LibraryCode | None:
    """Of the module of this name in this process, which need not be imported; None if there is none."""
    imported = sys.modules.get(module)
    try:
        specification = getattr(imported, "__spec__", None) or importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if specification is None:
        return None
    root = module.partition(".")[0]
    version = getattr(sys.modules.get(root), "__version__", None)
    if not isinstance(version, str):
        try:
            version = importlib.metadata.version(root)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            version = ""
    read = getattr(specification.loader, "get_data", None)
    if read is None or not (specification.origin or "").endswith(".py"):
        return LibraryCode(version, "")
    try:
        return LibraryCode(version, hashlib.sha256(read(specification.origin)).hexdigest())
    except OSError:
        return LibraryCode(version, "")


def has_same_code(module: str, built: Sequence[str]) -> bool:
    """Whether a module has the code that ``built`` (a `LibraryCode`) was taken from. By the source where there is one: another release with the same
    file is the same code, an edited file of the same release is not."""
    version, source = built
    found = library_code(module)
    return found is not None and (source == found.source if source and found.source else version == found.version)
