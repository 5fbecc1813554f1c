"""Digests: SHA-256, in lower-case hexadecimal, of text (as UTF-8), bytes and files.

Used for everything that has to be recognised later: sources, generated files, kernels, eager bodies.
"""
from __future__ import annotations

import hashlib
import os

SHORT = 16
_CHUNK = 1 << 20


def digest(data: str | bytes) -> str:
    """64 hexadecimal digits. Text counts as its UTF-8 bytes (lone surrogates too, which a Python string may hold)."""
    return hashlib.sha256(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data).hexdigest()


def short_digest(data: str | bytes) -> str:
    """The first 16 digits (64 bits): for file names, where a clash within one package is out of the question."""
    return digest(data)[:SHORT]


def file_digest(path: str | os.PathLike[str]) -> str:
    """Digest of a file's bytes, read in pieces. Raises OSError."""
    state = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()
