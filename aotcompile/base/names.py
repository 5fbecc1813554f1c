"""Every rule for a generated name, in one place: identifiers, regions, files and folders, kernels, temporaries.

Names are functions of what they name and of nothing else (no counters that live across calls, no ids, no hash order), so that the same input gives
the same text. Identifiers and file names are ASCII whatever alphabet the user's names are in.

    region_name("Net.forward", 0)               Net.forward:r0          what reports, guards and the manifest call it
    stub_name("Net.forward", 0, alone=True)     _r0                     in a module with one split function
    stub_name("Net.forward", 0, alone=False)    _Net_forward_r0         in a module with several
    eager_name("_r0")                           _r0_eager
    variant_folder("sub.model", "Net.forward", 0, 1)    _aot/sub/model/Net.forward/r0/v1
    kernel_name("cpp", "reduction", ["mul", "sum"], 3)  cpp_red_fused_mul_sum_3
"""
from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from aotcompile.base.digest import digest

FILE_NAME_BYTES = 120                      # a component; file systems allow 255, tools and archives less
KERNEL_NAME_OPERATIONS = 60                # characters of a kernel's name that say what is fused
KINDS = {"pointwise": "poi", "reduction": "red", "persistent_reduction": "per", "matmul": "mm", "foreach": "for", "copy": "copy"}
_DEVICE_NAMES = re.compile(r"^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)", re.IGNORECASE)


# ---- identifiers --------------------------------------------------------------------------------------------------------------------------

def identifier(text: str) -> str:
    """``text`` as an ASCII identifier (valid in Python and C): "." "<" ">" and the like become "_", other letters ``u<hex>``. Two texts can
    meet in one name (``a.b`` and ``a_b``): see `unique`."""
    name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"u{ord(c):x}" if c.isalnum() else "_" for c in text)
    return name if name and not name[0].isdigit() else f"_{name}"


def unique(name: str, taken: Collection[str]) -> str:
    """``name``, or with the first of ``_2``, ``_3``, ... that is not taken."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def temporary_name(index: int) -> str:
    """Temporary of a pulled-apart expression in a rewritten function."""
    return f"_t{index}"


def buffer_name(index: int) -> str:
    return f"buf{index}"


def enclosing_class(qualname: str) -> str:
    """The innermost class whose body a function stands in, "" for none: ``Net`` of "make.<locals>.Net.forward.<locals>.inner"."""
    parts = qualname.split(".")
    classes = [part for part, after in zip(parts, parts[1:]) if part != "<locals>" and after != "<locals>"]
    return classes[-1] if classes else ""


def mangled(name: str, class_name: str | None) -> str:
    """Python's mangling of class-private names: ``__x`` in ``class Net`` is ``_Net__x`` (language reference, 6.2.1)."""
    bare = (class_name or "").lstrip("_")
    if not bare or not name.startswith("__") or name.endswith("__"):
        return name
    return f"_{bare}{name}"


# ---- functions ----------------------------------------------------------------------------------------------------------------------------

def numbered(qualname: str, number: int) -> str:
    """The name of the ``number``-th function (from 1) that its module calls ``qualname``: ``f``, ``f@2``, ``f@3``, ..."""
    return qualname if number == 1 else f"{qualname}@{number}"


def written_name(name: str) -> str:
    """The name that a function has in its module: ``f`` for ``f@2``."""
    return name.partition("@")[0]


# ---- regions ------------------------------------------------------------------------------------------------------------------------------

def region_name(qualname: str, index: int) -> str:
    return f"{qualname}:r{index}"


def split_region_name(region: str) -> tuple[str, int]:
    """("Net.forward", 0) of "Net.forward:r0". Raises ValueError."""
    qualname, separator, index = region.rpartition(":r")
    if not separator or not index.isdigit():
        raise ValueError(f"not a region's name: {region!r}")
    return qualname, int(index)


def stub_name(qualname: str, index: int, *, alone: bool) -> str:
    """The module-level name of a region's stub. One leading underscore exactly: two would be mangled inside classes."""
    if alone:
        return f"_r{index}"
    owner = identifier(qualname.replace(".<locals>", "")).lstrip("_")
    return f"_{owner}_r{index}"


def eager_name(stub: str) -> str:
    return f"{stub}_eager"


# ---- files and folders --------------------------------------------------------------------------------------------------------------------

def file_name(text: str) -> str:
    """One path component that is safe on every file system and says what it stands for.

    Letters, digits and ``. _ -`` stay; ``<locals>`` loses its brackets; the rest becomes ``u<hex>``. Whenever something of ``text`` was lost or
    spelled differently, eight digits of its digest follow, so that different texts have different names.
    """
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "" if c in "<>" else f"u{ord(c):x}" for c in text)
    if _DEVICE_NAMES.match(name) or name in ("", ".", ".."):
        name = f"_{name.replace('.', '_')}"
    name = name.rstrip(".") if name.endswith(".") else name
    if len(name) > FILE_NAME_BYTES:
        name = name[:FILE_NAME_BYTES]
    return name if name == text else f"{name}-{digest(text)[:8]}"


def region_folder(module: str, qualname: str, index: int) -> str:
    """``_aot/<module path>/<qualname>/r<N>``; ``module`` is relative to the package ("sub.model", "" for its ``__init__``)."""
    parts = [file_name(part) for part in module.split(".")] if module else ["__init__"]
    return "/".join(["_aot", *parts, file_name(qualname), f"r{index}"])


def variant_folder(module: str, qualname: str, index: int, variant: int) -> str:
    return f"{region_folder(module, qualname, index)}/v{variant}"


# ---- kernels ------------------------------------------------------------------------------------------------------------------------------

def kernel_name(language: str, kind: str, operations: Iterable[str], index: int) -> str:
    """``<language>_<kind>_fused_<operations>_<index>``, e.g. ``triton_poi_fused_add_cos_mul_sin_tanh_0``.

    ``operations`` are named once each and sorted; overload and namespace go ("aten.add.Tensor" is "add"). Beyond 60 characters the list is cut
    at a whole name and the count of the others is said (``_and_5_more``).
    """
    words = sorted({_operation_word(operation) for operation in operations})
    shown: Sequence[str] = words
    if len("_".join(words)) > KERNEL_NAME_OPERATIONS:
        count, length = 0, 0
        while count < len(words) and length + len(words[count]) <= KERNEL_NAME_OPERATIONS:
            length += len(words[count]) + 1
            count += 1
        count = max(count, 1)
        shown = [*words[:count], *([f"and_{len(words) - count}_more"] if count < len(words) else [])]
    fused = f"_fused_{'_'.join(shown)}" if shown else ""
    return f"{identifier(language)}_{KINDS.get(kind, identifier(kind))}{fused}_{index}"


def _operation_word(operation: str) -> str:
    parts = operation.replace("::", ".").split(".")
    if len(parts) > 1 and parts[0] in ("aten", "prims", "torch"):
        parts = parts[1:2]
    return identifier("_".join(parts)).strip("_") or "_"
