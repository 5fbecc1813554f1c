"""The pipeline: the only place that imports every stage.

    entries -> frontend -> graph -> lower -> schedule -> codegen -> package

`variants` runs the stages from graph to codegen on one captured variant; `functions` does all variants of the functions of a build; `single` is
``aotcompile.compile``; `package` is a whole package; `verify` compares with eager.
"""
from aotcompile.pipeline.package import build, check, clean, explain, show
from aotcompile.pipeline.verify import verify

__all__ = ["build", "check", "clean", "explain", "show", "verify"]
