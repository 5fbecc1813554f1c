"""GPU kernels of this variant, one function each. Compiled at build time; nothing here is imported in production."""
import triton
import triton.language as tl
from triton.language.extra import libdevice


# aten.gelu.default, aten.add.Tensor, aten.mul.Tensor
@triton.jit
def triton_poi_fused_add_gelu_mul_0_half(x_1, y_1, mul_1, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x_mask = x < 360
    t0 = tl.load(x_1 + x, x_mask, other=0)
    t1 = t0.to(tl.float32)
    t2 = t1 * 3.0
    t3 = t2.to(tl.bfloat16)
    x1 = x % 9
    t4 = tl.load(y_1 + x1, x_mask, other=0)
    t5 = t3.to(tl.float32)
    t6 = t4.to(tl.float32)
    t7 = t5 + t6
    t8 = t7.to(tl.bfloat16)
    t9 = t8.to(tl.float32)
    t10 = t9 * 0.5
    t11 = t9 * 0.7071067690849304
    t12 = libdevice.erf(t11)
    t13 = t12 + 1.0
    t14 = t10 * t13
    t15 = t14.to(tl.bfloat16)
    t16 = t15.to(tl.float32)
    t17 = t16 * 0.10000000149011612
    t18 = t17.to(tl.bfloat16)
    tl.store(mul_1 + x, t18, x_mask)
