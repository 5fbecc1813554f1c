"""Follower.feed:r0: what runs when the guards of this variant hold.

The native executor follows plan.json, which says the same. Graph inputs, in order:
    arg0: f32[256][1] = block
    n1: int = self.blocks
    arg2: f32[][] = self.level
    fetched[0] = self
"""
import torch


def epilogue(inputs, outputs, symbols, fetched):
    n1 = inputs[1]
    fetched[0].level = outputs[2]
    fetched[0].blocks = (1 + n1)
    return (outputs[0], outputs[1])


# ---- computation ----------------------------------------------------------------------------------------------------


def inference(inputs, runtime):
    arg0, n1, arg2 = inputs
    sqrt = runtime.empty((), (), torch.float32, "cpu")
    add = runtime.empty((), (), torch.float32, "cpu")
    gt = runtime.empty((), (), torch.bool, "cpu")
    runtime.launch("cpp_red_fused_add_gt_mean_mul_pow_sqrt_0", (arg0, arg2, sqrt, add, gt), ())
    return [sqrt, gt, add]
