// Kernels of one compiled variant. C ABI: int32_t kernel(void *const *buffers, const int64_t *sizes), 0 on success.
#include "aotcompile_parallel.h"

using namespace aotcompile;

// model.py:2: sum
extern "C" int32_t cpp_red_fused_sum_0(void *const *buffers, const int64_t *sizes) {
  constexpr int N = lanes_of(4) * 4;
  return parallel_for(11, 2112000, [=](int64_t begin, int64_t end) {
    const float *const in0 = (const float *)buffers[0];
    float *const out0 = (float *)buffers[1];
    int32_t status = 0;
    const int64_t first = begin * 64, last = minimum_index(end * 64, 700);
    vector_loop<N>(first, last, [&](int64_t x0, auto lanes) AOT_LAMBDA {
      Vector<float, N> total0 = splat<N>((float)0);
      for (int64_t start = 0; start < 3000; start += 128) {
        Vector<float, N> part0 = splat<N>((float)0);
        for (int64_t r0 = start, stop = minimum_index(start + 128, 3000); r0 < stop; ++r0) {
          auto tmp1 = load<N>(in0 + r0*700 + x0, lanes);
          auto tmp2 = exp(tmp1);
          part0 = Sum::combine(part0, tmp2);
        }
        total0 = total0 + part0;
      }
      auto tmp3 = total0;
      store<N>(out0 + x0, tmp3, lanes);
    });
    return status;
  });
}
