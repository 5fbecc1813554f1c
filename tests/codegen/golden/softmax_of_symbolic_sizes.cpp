// Kernels of one compiled variant. C ABI: int32_t kernel(void *const *buffers, const int64_t *sizes), 0 on success.
#include "aotcompile_parallel.h"

using namespace aotcompile;

// model.py:1: to, sub, exp, truediv
// model.py:2: maximum, sum
extern "C" int32_t cpp_red_fused_exp_maximum_sub_sum_to_truediv_0(void *const *buffers, const int64_t *sizes) {
  const int64_t s0 = sizes[0];
  const int64_t s1 = sizes[1];
  constexpr int N = lanes_of(4);
  return parallel_for(s0, s1*36, [=](int64_t begin, int64_t end) {
    const bfloat16 *const in0 = (const bfloat16 *)buffers[0];
    float *const out0 = (float *)buffers[1];
    int32_t status = 0;
    int64_t x0 = begin;
    for (int64_t row = begin; row < end; ++row) {
      Vector<float, N> accumulated0 = splat<N>(-(float)__builtin_inf());
      vector_loop<N>(0, s1, [&](int64_t r0, auto lanes) AOT_LAMBDA {
        auto tmp1 = load<N>(in0 + r0 + s1*x0, lanes);
        accumulated0 = Maximum::combine(accumulated0, where_active(lanes, tmp1, splat<N>(-(float)__builtin_inf())));
      });
      auto tmp2 = reduce_lanes<Maximum>(accumulated0);
      Vector<float, N> total3 = splat<N>((float)0);
      for (int64_t start = 0; start < s1; start += 8192) {
        Vector<float, N> part3 = splat<N>((float)0);
        vector_loop<N>(start, minimum_index(start + 8192, s1), [&](int64_t r0, auto lanes) AOT_LAMBDA {
          auto tmp4 = load<N>(in0 + r0 + s1*x0, lanes);
          auto tmp5 = tmp4 - splat<N>(tmp2);
          auto tmp6 = exp(tmp5);
          part3 = Sum::combine(part3, where_active(lanes, tmp6, splat<N>((float)0)));
        });
        total3 = total3 + part3;
      }
      auto tmp7 = reduce_lanes<Sum>(total3);
      vector_loop<N>(0, s1, [&](int64_t r0, auto lanes) AOT_LAMBDA {
        auto tmp8 = load<N>(in0 + r0 + s1*x0, lanes);
        auto tmp9 = tmp8 - splat<N>(tmp2);
        auto tmp10 = exp(tmp9);
        auto tmp11 = tmp10 / splat<N>(tmp7);
        store<N>(out0 + r0 + s1*x0, tmp11, lanes);
      });
      ++x0;
    }
    return status;
  });
}
