"""describe:r0: what must hold for this variant to run, in the order in which it is checked. For reading: plan.json decides.

Letters such as s0 are sizes, defined where they first stand in a tensor's signature. is_tensor(x, "f32[s0, 4][4, 1]cuda")
looks at dtype, sizes, strides, device and requires_grad; named(...) is a class or C function by its name, code(...) a Python
function by name and code digest (a library's: by name).
"""


def guards(blocks):
    return (
        taper is code("spectra.pipeline:taper", "cp311:2c8c7fe53545f239;source:fe0f8164f2618f89")     # pipeline.py:20
        and sys.modules['torch'].cos is named("torch:_VariableFunctionsClass.cos")                    # pipeline.py:11
        and same_constant(sys.modules['torch'].pi, 3.141592653589793)                                 # pipeline.py:11
        and sys.modules['torch'].arange is named("torch:_VariableFunctionsClass.arange")              # pipeline.py:11
        and sys.modules['torch'].sqrt is named("torch:_VariableFunctionsClass.sqrt")                  # pipeline.py:21
        and is_tensor(blocks, "f32[s0, 256][256, 1]", requires_grad=False)
        and (s0 >= 1 and s0 <= 64)
        and state("autocast_cpu") == None
        and state("autocast_cuda") == None
        and state("default_dtype") == 'float32'
    )
