"""A `Program` as text, and back: `print` writes what `show` and the golden files contain, `parse` reads it."""
