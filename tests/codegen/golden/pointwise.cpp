// Kernels of one compiled variant. C ABI: int32_t kernel(void *const *buffers, const int64_t *sizes), 0 on success.
#include "aotcompile_parallel.h"

using namespace aotcompile;

// model.py:1: sin, cos, mul, tanh, add
extern "C" int32_t cpp_poi_fused_add_cos_mul_sin_tanh_0(void *const *buffers, const int64_t *sizes) {
  constexpr int N = lanes_of(4);
  return parallel_for(43691, 14976, [=](int64_t begin, int64_t end) {
    const float *const in0 = (const float *)buffers[0];
    float *const out0 = (float *)buffers[1];
    int32_t status = 0;
    const int64_t first = begin * 384, last = minimum_index(end * 384, 16777216);
    vector_loop<N>(first, last, [&](int64_t x0, auto lanes) AOT_LAMBDA {
      auto tmp0 = load<N>(in0 + x0, lanes);
      auto tmp1 = sin(tmp0);
      auto tmp2 = cos(tmp0);
      auto tmp3 = tmp1 * tmp2;
      auto tmp4 = tanh(tmp0);
      auto tmp5 = tmp3 + tmp4;
      store<N>(out0 + x0, tmp5, lanes);
    });
    return status;
  });
}
