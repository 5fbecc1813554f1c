"""Tracing a captured graph under AOTAutograd. See aotcompile/ARCHITECTURE.md."""
