"""The abstract interpreter: runs a function's bytecode on fake tensors and on Python values that remember where they came from."""
