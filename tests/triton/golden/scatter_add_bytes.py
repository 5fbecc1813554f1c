"""GPU kernels of this variant, one function each. Compiled at build time; nothing here is imported in production."""
import triton
import triton.language as tl


# aten.scatter_add.default
@triton.jit
def triton_poi_fused_scatter_add_0_scatter_add_bytes(x_1, scatter_add_base, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x_mask = x < 6
    t0 = tl.load(x_1 + x, x_mask, other=0)
    tl.store(scatter_add_base + x, t0, x_mask)


# aten.scatter_add.default
@triton.jit
def triton_sca_fused_scatter_add_1_scatter_add_bytes(y_1, i_1, scatter_add_base, scatter_add):
    for x in range(0, 4):
        t0 = tl.load(y_1 + x)
        t1 = tl.load(i_1 + x)
        t2 = (t1 >= 0) & (t1 < 6)
        tl.device_assert(t2, "index out of range")
        tl.store(scatter_add + t1, (tl.load(scatter_add + t1, t2, other=0) + t0).to(tl.int8), t2)
