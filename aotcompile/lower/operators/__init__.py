"""Lowerings, one file per operator family; importing a file fills `registry.LOWERINGS`."""
