// Kernels of one compiled variant. C ABI: int32_t kernel(void *const *buffers, const int64_t *sizes), 0 on success.
#include "aotcompile_parallel.h"

using namespace aotcompile;

// model.py:1: permute, neg
extern "C" int32_t cpp_poi_fused_neg_permute_0(void *const *buffers, const int64_t *sizes) {
  constexpr int N = lanes_of(4);
  return parallel_for(3, 13312, [=](int64_t begin, int64_t end) {
    const float *const in0 = (const float *)buffers[0];
    float *const out0 = (float *)buffers[1];
    int32_t status = 0;
    int64_t tile = begin;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = tile * 16, last = minimum_index(first + 16, 48);
      vector_loop<N>(0, 64, [&](int64_t x1, auto lanes) AOT_LAMBDA {
        for (int64_t x0 = first; x0 < last; ++x0) {
          auto tmp0 = gather<N>(in0, lanes, [&](int lane) AOT_LAMBDA { return lane*48 + x1*48 + x0; });
          auto tmp1 = exp(tmp0);
          auto tmp2 = -tmp1;
          store<N>(out0 + x0*64 + x1, tmp2, lanes);
        }
      });
      ++tile;
    }
    return status;
  });
}
