"""Follower.feed:r1: what must hold for this variant to run, in the order in which it is checked. For reading: plan.json decides.

Letters such as s0 are sizes, defined where they first stand in a tensor's signature. is_tensor(x, "f32[s0, 4][4, 1]cuda")
looks at dtype, sizes, strides, device and requires_grad; named(...) is a class or C function by its name, code(...) a Python
function by name and code digest (a library's: by name).
"""


def guards(self, block, energy):
    return (
        type(self) is named("spectra.pipeline:Follower")
        and sys.modules['torch'].sigmoid is named("torch:_VariableFunctionsClass.sigmoid")            # pipeline.py:45
        and sys.modules['torch'].tanh is named("torch:_VariableFunctionsClass.tanh")                  # pipeline.py:46
        and is_tensor(block, "f32[256][1]", requires_grad=False)
        and is_tensor(energy, "f32[][]", requires_grad=False)
        and is_tensor(self.level, "f32[][]", requires_grad=False)
        and state("autocast_cpu") == None
        and state("autocast_cuda") == None
        and state("default_dtype") == 'float32'
    )
