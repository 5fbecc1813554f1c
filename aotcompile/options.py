"""The options of a build: one frozen record, and where each value came from.

Every field of `Options` is one key of ``[tool.aotcompile]`` (kebab-case or snake_case), one command line flag and one environment variable
(``AOTCOMPILE_OUT``, lists separated by commas). Precedence: command line, environment, configuration file, default.

Codes: AOT120 unknown key, AOT121 wrong value, AOT122 the file is no TOML.
"""
from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from aotcompile.base.diagnostic import Diagnostic, UsageError
from aotcompile.base.span import Span

Backend = Literal["native", "aot_eager", "eager"]
Dynamic = Literal["auto", "all", "none"]
BACKENDS: tuple[str, ...] = get_args(Backend)
DYNAMICS: tuple[str, ...] = get_args(Dynamic)

CONFIGURATION_FILES = ("aotcompile.toml", "pyproject.toml")
ENTRY_KEYS = ("function", "make", "inputs", "dims", "dynamic_shapes", "training", "fullgraph")


@dataclass(frozen=True)
class Options:
    """What to build and how.

    packages: names or folders. out: output folder. targets: ``native`` | ``cpu`` | ``cpu:x86-64-v3`` | ``cuda:sm_90`` ... (native: this machine).
    backend: ``native``, ``aot_eager``, ``eager``, or ``package.module:function``, a function that takes an FX graph module and example inputs.
    fullgraph: a graph break is an error. dynamic: ``auto`` (the sizes that signatures name), ``all``, ``none``.
    training: None builds training variants where something requires grad. jobs: parallel builds, 0 for one per core.
    select/exclude: patterns over ``module:qualname`` as in fnmatch.
    run: the rewritten code may be run once with the example inputs, in a child process. signatures: file of recorded signatures.
    host: the native runtime extension for this torch and CPython goes into the package; without it its Python twin runs everything.
    """

    packages: tuple[str, ...] = ()
    out: str = "generated"
    targets: tuple[str, ...] = ("native",)
    backend: str = "native"
    fullgraph: bool = False
    dynamic: Dynamic = "auto"
    training: bool | None = None
    jobs: int = 0
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    run: bool = True
    host: bool = True
    signatures: str = "aotcompile-signatures.toml"

    def output_json(self) -> dict[str, Any]:
        """The options that decide what is written, for the manifest: no folders, nothing about how fast or where the build runs."""
        elsewhere = ("packages", "out", "jobs", "signatures")
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in elsewhere}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Options))


@dataclass(frozen=True)
class EntryTable:
    """One ``[[tool.aotcompile.entry]]``: keys in snake_case (`ENTRY_KEYS`), values as TOML gave them; ``place`` is ``pyproject.toml entry 1``."""

    values: Mapping[str, Any]
    place: str
    file: str


@dataclass(frozen=True)
class Configuration:
    """The merged options, and where each option comes from (``default``, the file, the variable, the flag)."""

    options: Options
    origins: Mapping[str, str]
    file: Path | None = None

    def as_text(self) -> str:
        """One line per option: name, value, origin."""
        values = [(flag_name(name), _toml(getattr(self.options, name)), self.origins[name]) for name in FIELDS]
        left, middle = max(len(v[0]) for v in values), max(len(v[1]) for v in values)
        return "\n".join(f"{name:<{left}} = {value:<{middle}}  # {origin}" for name, value, origin in values)


def flag_name(name: str) -> str:
    return name.replace("_", "-")


def field_name(key: str) -> str:
    return key.replace("-", "_")


def nearest(word: str, words: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` or nothing, as the end of a message."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f"Did you mean {close[0]!r}?" if close else ""


def _fail(code: str, message: str, hint: str = "", file: str | None = None, line: int = 1) -> NoReturn:
    raise UsageError(Diagnostic(code, "error", message, Span(file, line) if file else None, hint))


# ---- reading values -----------------------------------------------------------------------------------------------------------------------

def _check(name: str, value: Any, place: str, file: str | None) -> Any:
    """The value in the field's type. Raises AOT121 naming ``place`` (a key, a variable or a flag)."""
    def wrong(expected: str) -> NoReturn:
        _fail("AOT121", f"{place} must be {expected}, got {value!r}.", file=file)

    if name in ("packages", "targets", "select", "exclude"):
        items = [value] if isinstance(value, str) else value
        if not (isinstance(items, (list, tuple)) and all(isinstance(item, str) for item in items)):
            wrong("a list of strings")
        if name == "targets" and not items:
            wrong("a list of at least one target")
        return tuple(items)
    if name == "jobs":
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            wrong("a whole number from 0")
        return value
    if name in ("fullgraph", "run", "host") or (name == "training" and value is not None):
        if not isinstance(value, bool):
            wrong("true or false")
        return value
    if name == "training":
        return None
    if not isinstance(value, str) or not value:
        wrong("a string")
    if name == "dynamic" and value not in DYNAMICS:
        wrong(_one_of(DYNAMICS))
    if name == "backend" and value not in BACKENDS and ":" not in value:
        wrong(f"{_one_of(BACKENDS)} or \"package.module:function\"")
    return value


def _one_of(words: Sequence[str]) -> str:
    return ", ".join(f'"{w}"' for w in words[:-1]) + f' or "{words[-1]}"'


def _from_environment(name: str, text: str, variable: str) -> Any:
    if name in ("packages", "targets", "select", "exclude"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if name in ("fullgraph", "run", "training"):
        words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
        if name == "training":
            words["auto"] = None                                      # type: ignore[assignment]
        if text.lower() not in words:
            _fail("AOT121", f"{variable} must be true or false, got {text!r}.")
        return words[text.lower()]
    if name == "jobs":
        if not text.isdigit():
            _fail("AOT121", f"{variable} must be a whole number from 0, got {text!r}.")
        return int(text)
    return text


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if value is None:
        return '"auto"'
    return str(value).lower() if isinstance(value, (bool, int)) else f'"{value}"'


# ---- reading files ------------------------------------------------------------------------------------------------------------------------

def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file. Raises UsageError AOT122 with the line of the error."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        _fail("AOT122", f"the file is no TOML: {error}", file=path.name)


def find_configuration(start: Path) -> tuple[Path, dict[str, Any]] | None:
    """The nearest ``aotcompile.toml``, or ``pyproject.toml`` with a ``[tool.aotcompile]``, in ``start`` or a folder above it; with its table."""
    start = start.resolve()
    for folder in (start, *start.parents):
        for name in CONFIGURATION_FILES:
            path = folder / name
            if path.is_file():
                data = read_toml(path)
                table = data.get("tool", {}).get("aotcompile")
                if name == "aotcompile.toml" and table is None:
                    table = data                                  # the file is ours alone: the table's header may be left out
                if table is not None:
                    return path, table
    return None


def key_line(text: str, key: str) -> int:
    """The line where a key is first assigned in TOML text (1 if it is not found literally)."""
    for number, line in enumerate(text.splitlines(), 1):
        name = line.split("=", 1)[0].strip().strip("\"'")
        if field_name(name) == field_name(key):
            return number
    return 1


def entry_tables(raw: Any, path: Path) -> tuple[EntryTable, ...]:
    """``[[entry]]`` tables of a file. Raises AOT120 for an unknown key, AOT121 for what is no list of tables."""
    if isinstance(raw, dict):
        raw = [raw]
    if not (isinstance(raw, list) and all(isinstance(table, dict) for table in raw)):
        _fail("AOT121", "entry must be a list of tables, [[tool.aotcompile.entry]].", file=path.name)
    found = []
    for number, table in enumerate(raw, 1):
        place = f"{path.name} entry {number}"
        values = {}
        for key, value in table.items():
            if field_name(key) not in ENTRY_KEYS:
                _fail("AOT120", f"unknown key {key!r} in entry {number}.", nearest(field_name(key), ENTRY_KEYS) or _known(ENTRY_KEYS),
                      path.name, key_line(path.read_text(encoding="utf-8"), key))
            values[field_name(key)] = value
        if "make" not in values and "function" not in values:
            _fail("AOT121", f"entry {number} names neither make nor function.", 'Add make = "package.module:provider".', path.name)
        for key in ("training", "fullgraph"):
            if key in values:
                _check(key, values[key], f"{key} of entry {number}", path.name)
        found.append(EntryTable(values, place, path.name))
    return tuple(found)


def _known(words: Sequence[str]) -> str:
    return "Known keys: " + ", ".join(map(flag_name, words)) + "."


def _from_table(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    known = (*FIELDS, "entry")
    values = {}
    for key, value in table.items():
        name = field_name(key)
        if name == "entry":
            continue
        if name not in FIELDS:
            _fail("AOT120", f"unknown key {key!r} in [tool.aotcompile].", nearest(name, known) or _known(known), path.name,
                  key_line(path.read_text(encoding="utf-8"), key))
        if name == "training" and value == "auto":
            value = None
        values[name] = _check(name, value, key, path.name)
    return values


# ---- merging ------------------------------------------------------------------------------------------------------------------------------

def load_configuration(start: Path | None = None, *, given: Mapping[str, Any] | None = None,
                       environment: Mapping[str, str] | None = None) -> Configuration:
    """Merge defaults, the configuration file found from ``start`` upwards (default: the current folder), the environment, and ``given`` (flags).

    A value None in ``given`` means "not given". Folders named in the file are relative to the file, the others to the current folder.
    Raises UsageError (AOT120, AOT121, AOT122).
    """
    environment = os.environ if environment is None else environment
    found = find_configuration(start or Path.cwd())
    values: dict[str, Any] = {}
    origins = dict.fromkeys(FIELDS, "default")
    if found:
        path, table = found
        for name, value in _from_table(table, path).items():
            values[name], origins[name] = value, path.name
    folder = found[0].parent if found else Path.cwd()
    for name in ("out", "signatures"):
        values[name] = _below(folder, values.get(name, getattr(Options, name)))
    for name in FIELDS:
        variable = f"AOTCOMPILE_{name.upper()}"
        if environment.get(variable):
            value = _from_environment(name, environment[variable], variable)
            values[name], origins[name] = _check(name, value, variable, None), variable
    for key, value in (given or {}).items():
        name = field_name(key)
        if name not in FIELDS:
            _fail("AOT120", f"unknown option {key!r}.", nearest(name, FIELDS) or _known(FIELDS))
        if value is not None:
            flag = f"--{flag_name(name)}"
            values[name], origins[name] = _check(name, value, flag, None), flag
    return Configuration(Options(**values), origins, found[0] if found else None)


def load_entry_tables(start: Path, signatures: str) -> tuple[tuple[EntryTable, ...], tuple[EntryTable, ...]]:
    """The entry tables of the configuration file found from ``start`` upwards, and those of the file of recorded signatures if it exists."""
    found = find_configuration(start)
    configured = entry_tables(found[1].get("entry", []), found[0]) if found else ()
    recorded = Path(signatures)
    return configured, entry_tables(read_toml(recorded).get("entry", []), recorded) if recorded.is_file() else ()


def _below(folder: Path, name: str) -> str:
    """``name`` seen from the current folder, as short as it can be said."""
    path = folder / name
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)
