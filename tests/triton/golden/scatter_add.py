"""GPU kernels of this variant, one function each. Compiled at build time; nothing here is imported in production."""
import triton
import triton.language as tl


# aten.scatter_add.default
@triton.jit
def triton_poi_fused_scatter_add_0_scatter_add(x_1, scatter_add_base, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x_mask = x < 36
    t0 = tl.load(x_1 + x, x_mask, other=0)
    tl.store(scatter_add_base + x, t0, x_mask)


# aten.scatter_add.default
@triton.jit
def triton_sca_fused_scatter_add_1_scatter_add(y_1, i_1, scatter_add_base, scatter_add, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x_mask = x < 12
    t0 = tl.load(y_1 + x, x_mask, other=0)
    t1 = tl.load(i_1 + x, x_mask, other=0)
    t2 = (t1 >= 0) & (t1 < 9)
    tl.device_assert(t2 | ~(x_mask), "index out of range")
    x0 = x // 3
    tl.atomic_add(scatter_add + 9 * x0 + t1, t0, x_mask & t2, sem="relaxed")
