"""See aotcompile/ARCHITECTURE.md."""
