"""Splits functions without retrievable source in their bytecode, by the same plan as `frontend.split` splits source text.

    exec("def f(x):                       _r0_eager(x):                      f(x):
              y = torch.relu(x) * 2           torch.relu(x) * 2; return         y = _r0(x)
              z = outside(y)          ->  _r1_eager(y, z):                      z = outside(y)
              return z + y")                  return z + y                      return _r1(y, z)

The stages, one file each: `source` (what is known of such a function) -> `program` (instructions, flow, stack, variables) -> `regions` (which
instructions move out) -> `emit` (code objects) -> `text` (what is written to disk). `split` runs them; `twin` is for the recording run.
"""
from aotcompile.frontend.bytecode.source import BytecodeSource, bytecode_source
from aotcompile.frontend.bytecode.split import BytecodeBreak, BytecodeSplit, break_at, split_bytecode

__all__ = ["BytecodeBreak", "BytecodeSource", "BytecodeSplit", "break_at", "bytecode_source", "split_bytecode"]
