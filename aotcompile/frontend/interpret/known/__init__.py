"""Callables that the interpreter knows and does not look into."""
