"""Guard records to a check. `Guards` follows access paths and compares, in the order of the records; the native extension has a twin of it."""
from aotcompile.runtime.guards.check import Guards, single
from aotcompile.runtime.guards.expressions import evaluate, expression, free_symbols
from aotcompile.runtime.guards.kinds import DTYPES, TENSOR_CLASSES
from aotcompile.runtime.guards.names import ORIGINAL_CLASS, Context, UnsupportedPlan, class_name, item_key

__all__ = ["DTYPES", "ORIGINAL_CLASS", "TENSOR_CLASSES", "Context", "Guards", "UnsupportedPlan", "class_name", "evaluate", "expression",
           "free_symbols", "item_key", "single"]
