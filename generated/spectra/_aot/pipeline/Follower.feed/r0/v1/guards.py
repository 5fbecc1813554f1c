"""Follower.feed:r0: what must hold for this variant to run, in the order in which it is checked. For reading: plan.json decides.

Letters such as s0 are sizes, defined where they first stand in a tensor's signature. is_tensor(x, "f32[s0, 4][4, 1]cuda")
looks at dtype, sizes, strides, device and requires_grad; named(...) is a class or C function by its name, code(...) a Python
function by name and code digest (a library's: by name).
"""


def guards(self, block):
    return (
        type(self) is named("spectra.pipeline:Follower")
        and sys.modules['torch'].sqrt is named("torch:_VariableFunctionsClass.sqrt")                  # pipeline.py:40
        and same_constant(self.decay, 0.9)                                                            # pipeline.py:41
        and same_constant(self.ratio, 1.5)                                                            # pipeline.py:43
        and type(n1 := self.blocks) is int
        and is_tensor(block, "f32[256][1]", requires_grad=False)
        and is_tensor(self.level, "f32[][]", requires_grad=False)
        and (n1 != 0)
        and state("autocast_cpu") == None
        and state("autocast_cuda") == None
        and state("default_dtype") == 'float32'
    )
