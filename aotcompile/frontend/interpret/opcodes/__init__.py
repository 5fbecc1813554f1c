"""The opcodes of CPython 3.11 to 3.13: how they are decoded, and what each does in the interpreter."""
