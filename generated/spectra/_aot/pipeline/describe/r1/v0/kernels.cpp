// Kernels of one compiled variant. C ABI: int32_t kernel(void *const *buffers, const int64_t *sizes), 0 on success.
// Support headers: aotcompile/codegen/cpp/include, version d58aac875131
#include "aotcompile_parallel.h"

using namespace aotcompile;

// pipeline.py:24: abs, log, div
// pipeline.py:25: cat
extern "C" int32_t cpp_poi_fused_abs_cat_div_log_0(void *const *buffers, const int64_t *sizes) {
  const int64_t s0 = sizes[0];
  constexpr int N = lanes_of(4);
  return parallel_for(s0, 57, [=](int64_t begin, int64_t end) {
    const float *const in0 = (const float *)buffers[0];
    const float *const in1 = (const float *)buffers[1];
    const double *const in2 = (const double *)buffers[2];
    float *const out0 = (float *)buffers[3];
    int32_t status = 0;
    int64_t x0 = begin;
    for (int64_t row = begin; row < end; ++row) {
      vector_loop<N>(0, 3, [&](int64_t x1, auto lanes) AOT_LAMBDA {
        auto tmp0 = index_sequence<int64_t, N>(x1, 1);
        auto tmp1 = tmp0 < splat<N>((int64_t)1);
        auto tmp2 = tmp0 < splat<N>((int64_t)2);
        auto tmp3 = tmp0 >= splat<N>((int64_t)2);
        auto tmp4 = gather_masked<N>(in0, lanes, tmp3, [&](int lane) AOT_LAMBDA { return x0; });
        auto tmp5 = gather_masked<N>(in2, lanes, tmp3, [&](int lane) AOT_LAMBDA { return 0; });
        auto tmp6 = cast<float>(tmp5);
        auto tmp7 = tmp4 / tmp6;
        auto tmp8 = log(tmp7);
        auto tmp9 = abs(tmp8);
        auto tmp10 = where(tmp3, tmp9, splat<N>(0.0f));
        auto tmp11 = load_masked<N>(in1 + x0 + x1 - 1, lanes, tmp2);
        auto tmp12 = where(tmp2, tmp11, tmp10);
        auto tmp13 = load_masked<N>(in0 + x0 + x1, lanes, tmp1);
        auto tmp14 = where(tmp1, tmp13, tmp12);
        store<N>(out0 + x0*3 + x1, tmp14, lanes);
      });
      ++x0;
    }
    return status;
  });
}
