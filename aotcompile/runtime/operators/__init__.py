"""Operators of our own that graphs may call: torch.ops.aotcompile. Registered where one is called, and by the compiler."""
