// Kernels of one compiled variant. C ABI: int32_t kernel(void *const *buffers, const int64_t *sizes), 0 on success.
// Support headers: aotcompile/codegen/cpp/include, version d58aac875131
#include "aotcompile_parallel.h"

using namespace aotcompile;

// pipeline.py:46: mul, tanh
// pipeline.py:45: sigmoid, mul, sub, div, add
extern "C" int32_t cpp_poi_fused_add_div_mul_sigmoid_sub_tanh_0(void *const *buffers, const int64_t *sizes) {
  constexpr int N = lanes_of(4);
  return parallel_for(1, 7168, [=](int64_t begin, int64_t end) {
    const float *const in0 = (const float *)buffers[0];
    const float *const in1 = (const float *)buffers[1];
    const float *const in2 = (const float *)buffers[2];
    float *const out0 = (float *)buffers[3];
    int32_t status = 0;
    auto tmp1 = load<1>(in1, AllLanes());
    auto tmp2 = load<1>(in2, AllLanes());
    auto tmp3 = tmp2 + splat<1>(1e-06f);
    auto tmp4 = tmp1 / tmp3;
    auto tmp5 = tmp4 - splat<1>(1.0f);
    auto tmp6 = tmp5 * splat<1>(8.0f);
    auto tmp7 = sigmoid(tmp6);
    vector_loop<N>(0, 256, [&](int64_t x0, auto lanes) AOT_LAMBDA {
      auto tmp0 = load<N>(in0 + x0, lanes);
      auto tmp8 = tmp0 * splat<N>(tmp7);
      auto tmp9 = tanh(tmp8);
      store<N>(out0 + x0, tmp9, lanes);
    });
    return status;
  });
}
