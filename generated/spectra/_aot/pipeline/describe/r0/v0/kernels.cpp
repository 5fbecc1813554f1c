// Kernels of one compiled variant. C ABI: int32_t kernel(void *const *buffers, const int64_t *sizes), 0 on success.
// Support headers: aotcompile/codegen/cpp/include, version d58aac875131
#include "aotcompile_parallel.h"

using namespace aotcompile;

// pipeline.py:12: mean, sub, mul
// pipeline.py:11: sub, mul, cos, div, arange
// pipeline.py:21: pow, mean, add, sqrt
extern "C" int32_t cpp_red_fused_add_arange_cos_div_mean_mul_pow_sqrt_sub_0(void *const *buffers, const int64_t *sizes) {
  const int64_t s0 = sizes[0];
  constexpr int N = lanes_of(4);
  return parallel_for(s0, 5636, [=](int64_t begin, int64_t end) {
    const float *const in0 = (const float *)buffers[0];
    float *const out0 = (float *)buffers[1];
    float *const out1 = (float *)buffers[2];
    int32_t status = 0;
    int64_t x0 = begin;
    for (int64_t row = begin; row < end; ++row) {
      Vector<float, N> total0 = splat<N>((float)0);
      vector_loop<N>(0, 256, [&](int64_t r0, auto lanes) AOT_LAMBDA {
        auto tmp1 = load<N>(in0 + x0*256 + r0, lanes);
        total0 = Sum::combine(total0, where_active(lanes, tmp1, splat<N>((float)0)));
      });
      auto tmp2 = reduce_lanes<Sum>(total0);
      Vector<float, N> total3 = splat<N>((float)0);
      auto tmp5 = tmp2 / splat<1>(256.0f);
      vector_loop<N>(0, 256, [&](int64_t r0, auto lanes) AOT_LAMBDA {
        auto tmp4 = load<N>(in0 + x0*256 + r0, lanes);
        auto tmp6 = tmp4 - splat<N>(tmp5);
        auto tmp7 = index_sequence<int64_t, N>(r0, 1);
        auto tmp8 = cast<double>(tmp7);
        auto tmp9 = cast<float>(tmp8);
        auto tmp10 = tmp9 * splat<N>(6.2831855f);
        auto tmp11 = tmp10 / splat<N>(256.0f);
        auto tmp12 = cos(tmp11);
        auto tmp13 = tmp12 * splat<N>(0.5f);
        auto tmp14 = splat<N>(0.5f) - tmp13;
        auto tmp15 = tmp6 * tmp14;
        store<N>(out0 + x0*256 + r0, tmp15, lanes);
        auto tmp16 = tmp15 * tmp15;
        total3 = Sum::combine(total3, where_active(lanes, tmp16, splat<N>((float)0)));
      });
      auto tmp17 = reduce_lanes<Sum>(total3);
      auto tmp18 = tmp17 / splat<1>(256.0f);
      auto tmp19 = tmp18 + splat<1>(1e-12f);
      auto tmp20 = sqrt(tmp19);
      store<1>(out1 + x0, tmp20, AllLanes());
      ++x0;
    }
    return status;
  });
}

// pipeline.py:22: abs, sub, mean, div
extern "C" int32_t cpp_red_fused_abs_div_mean_sub_1(void *const *buffers, const int64_t *sizes) {
  const int64_t s0 = sizes[0];
  constexpr int N = lanes_of(4);
  return parallel_for(s0, 1024, [=](int64_t begin, int64_t end) {
    const float *const in0 = (const float *)buffers[0];
    const float *const in1 = (const float *)buffers[1];
    float *const out0 = (float *)buffers[2];
    int32_t status = 0;
    int64_t x0 = begin;
    for (int64_t row = begin; row < end; ++row) {
      Vector<float, N> total0 = splat<N>((float)0);
      vector_loop<N>(0, 255, [&](int64_t r0, auto lanes) AOT_LAMBDA {
        auto tmp1 = load<N>(in0 + x0*256 + r0 + 1, lanes);
        auto tmp2 = load<N>(in0 + x0*256 + r0, lanes);
        auto tmp3 = tmp1 - tmp2;
        auto tmp4 = abs(tmp3);
        total0 = Sum::combine(total0, where_active(lanes, tmp4, splat<N>((float)0)));
      });
      auto tmp5 = reduce_lanes<Sum>(total0);
      auto tmp6 = tmp5 / splat<1>(255.0f);
      auto tmp7 = load<1>(in1 + x0, AllLanes());
      auto tmp8 = tmp6 / tmp7;
      store<1>(out0 + x0, tmp8, AllLanes());
      ++x0;
    }
    return status;
  });
}
