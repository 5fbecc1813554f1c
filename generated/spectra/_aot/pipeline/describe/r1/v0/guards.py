"""describe:r1: what must hold for this variant to run, in the order in which it is checked. For reading: plan.json decides.

Letters such as s0 are sizes, defined where they first stand in a tensor's signature. is_tensor(x, "f32[s0, 4][4, 1]cuda")
looks at dtype, sizes, strides, device and requires_grad; named(...) is a class or C function by its name, code(...) a Python
function by name and code digest (a library's: by name).
"""


def guards(_t0, loudness, roughness):
    return (
        sys.modules['torch'].log is named("torch:_VariableFunctionsClass.log")                        # pipeline.py:24
        and sys.modules['torch'].stack is named("torch:_VariableFunctionsClass.stack")                # pipeline.py:25
        and type(_t0) is float
        and is_tensor(loudness, "f32[s0][1]", requires_grad=False)
        and is_tensor(roughness, "f32[s0][1]", requires_grad=False)
        and (s0 >= 1 and s0 <= 64)
        and state("autocast_cpu") == None
        and state("autocast_cuda") == None
        and state("default_dtype") == 'float32'
    )
