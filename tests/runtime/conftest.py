"""Makes the builder of handmade packages importable (`runtime_tests`) and its fixture known."""
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from runtime_tests import load_package, runtime_kind  # noqa: E402

__all__ = ["load_package", "runtime_kind"]
