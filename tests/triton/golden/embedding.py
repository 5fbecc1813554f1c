"""GPU kernels of this variant, one function each. Compiled at build time; nothing here is imported in production."""
import triton
import triton.language as tl


# aten.embedding.default, aten.mul.Tensor
@triton.jit
def triton_poi_fused_embedding_mul_0_embedding(i_1, w_1, mul, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x_mask = x < 96
    x0 = x // 16
    t0 = tl.load(i_1 + x0, x_mask, other=0)
    t1 = (t0 >= 0) & (t0 < 20)
    tl.device_assert(t1 | ~(x_mask), "index out of range")
    x1 = x % 16
    t2 = tl.load(w_1 + 16 * t0 + x1, x_mask & t1, other=0)
    t3 = t2 * 2.0
    tl.store(mul + x, t3, x_mask)
