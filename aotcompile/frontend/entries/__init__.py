"""Entries: what is to be built, and for which inputs. `collect_entries` finds those of a package, `make_entry` makes one from objects at hand."""
from aotcompile.frontend.entries.collect import collect_entries
from aotcompile.frontend.entries.discovery import Package, importable, locate_package
from aotcompile.frontend.entries.entry import Entry, make_entry, name_of
from aotcompile.frontend.entries.shapes import Dimension, example_inputs_of, normalize_dynamic_shapes

__all__ = ["Dimension", "Entry", "Package", "collect_entries", "example_inputs_of", "importable", "locate_package", "make_entry", "name_of",
           "normalize_dynamic_shapes"]
