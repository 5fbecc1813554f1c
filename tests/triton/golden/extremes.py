"""GPU kernels of this variant, one function each. Compiled at build time; nothing here is imported in production."""
import triton
import triton.language as tl


@triton.jit
def combine_maximum(a, b):
    """The larger; NaN if either is NaN."""
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def combine_minimum(a, b):
    return tl.where((a < b) | (a != a), a, b)


@triton.jit
def combine_first_maximum(a, i, b, j):
    """Values with their positions: the larger value, NaN before all, the smaller position among equals."""
    greater = (a > b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = greater | (equal & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def combine_first_minimum(a, i, b, j):
    smaller = (a < b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    first = smaller | (equal & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


# aten.amax.default, aten.amin.default, aten.argmax.default, aten.argmin.default
@triton.jit
def triton_red_fused_amax_amin_argmax_argmin_0_extremes(x_1, amax, amin, argmax, argmin, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    r_mask = r < 40
    t0 = tl.load(x_1 + 40 * x + r, r_mask, other=0)
    t1 = tl.reduce(tl.where(r_mask, t0, float("-inf")), 1, combine_maximum)[:, None]
    tl.store(amax + x, t1)
    t2 = tl.reduce(tl.where(r_mask, t0, float("inf")), 1, combine_minimum)[:, None]
    tl.store(amin + x, t2)
    t3 = tl.reduce((tl.where(r_mask, t0, float("-inf")), tl.broadcast_to(tl.where(r_mask, r.to(tl.int64), 9223372036854775807), [XBLOCK, RBLOCK])), 1, combine_first_maximum)[1][:, None]
    tl.store(argmax + x, t3)
    t4 = tl.reduce((tl.where(r_mask, t0, float("inf")), tl.broadcast_to(tl.where(r_mask, r.to(tl.int64), 9223372036854775807), [XBLOCK, RBLOCK])), 1, combine_first_minimum)[1][:, None]
    tl.store(argmin + x, t4)
