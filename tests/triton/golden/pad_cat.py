"""GPU kernels of this variant, one function each. Compiled at build time; nothing here is imported in production."""
import triton
import triton.language as tl


# aten.constant_pad_nd.default, aten.cat.default
@triton.jit
def triton_poi_fused_cat_constant_pad_nd_0_pad_cat(x_1, y_1, cat, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x_mask = x < 80
    x0 = x // 10
    t0 = (x0).to(tl.int64)
    t1 = t0 < 5
    x1 = x % 10
    t2 = (x1 - 1).to(tl.int64)
    t3 = t2 >= 0
    t4 = t2 < 7
    t5 = t3 & t4
    t6 = tl.load(x_1 + (7 * x0 + x1 - 1), x_mask & t1 & t5, other=0)
    t7 = tl.where(t5, t6, tl.full([], 0.0, tl.float32))
    t8 = t0 >= 5
    t9 = tl.load(y_1 + (x - 50), x_mask & t8, other=0)
    t10 = tl.where(t8, t9, tl.full([], 0.0, tl.float32))
    t11 = tl.where(t1, t7, t10)
    tl.store(cat + x, t11, x_mask)
