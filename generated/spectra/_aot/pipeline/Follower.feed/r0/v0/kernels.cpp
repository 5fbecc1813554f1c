// Kernels of one compiled variant. C ABI: int32_t kernel(void *const *buffers, const int64_t *sizes), 0 on success.
// Support headers: aotcompile/codegen/cpp/include, version d58aac875131
#include "aotcompile_parallel.h"

using namespace aotcompile;

// pipeline.py:40: pow, mean, sqrt
// pipeline.py:43: mul, gt
extern "C" int32_t cpp_red_fused_gt_mean_mul_pow_sqrt_0(void *const *buffers, const int64_t *sizes) {
  constexpr int N = lanes_of(4);
  return parallel_for(1, 519, [=](int64_t begin, int64_t end) {
    const float *const in0 = (const float *)buffers[0];
    float *const out0 = (float *)buffers[1];
    bool *const out1 = (bool *)buffers[2];
    int32_t status = 0;
    Vector<float, N> total0 = splat<N>((float)0);
    vector_loop<N>(0, 256, [&](int64_t r0, auto lanes) AOT_LAMBDA {
      auto tmp1 = load<N>(in0 + r0, lanes);
      auto tmp2 = tmp1 * tmp1;
      total0 = Sum::combine(total0, where_active(lanes, tmp2, splat<N>((float)0)));
    });
    auto tmp3 = reduce_lanes<Sum>(total0);
    auto tmp4 = tmp3 / splat<1>(256.0f);
    auto tmp5 = sqrt(tmp4);
    store<1>(out0, tmp5, AllLanes());
    auto tmp6 = tmp5 * splat<1>(1.5f);
    auto tmp7 = tmp5 > tmp6;
    store<1>(out1, tmp7, AllLanes());
    return status;
  });
}
