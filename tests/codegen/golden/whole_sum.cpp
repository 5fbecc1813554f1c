// Kernels of one compiled variant. C ABI: int32_t kernel(void *const *buffers, const int64_t *sizes), 0 on success.
#include "aotcompile_parallel.h"

using namespace aotcompile;

// model.py:2: sum
// model.py:1: mul
extern "C" int32_t cpp_red_fused_mul_sum_0(void *const *buffers, const int64_t *sizes) {
  constexpr int N = lanes_of(4);
  constexpr int PARTS = 64;
  const int64_t step = (1000000 + PARTS * 64 - 1) / (PARTS * 64) * 64;       // elements of one part
  float parts0[1 * PARTS];
  int32_t failed = parallel_for(1 * PARTS, (1000002) / PARTS + 1, [=, &parts0](int64_t begin, int64_t end) {
    const float *const in0 = (const float *)buffers[0];
    float *const out0 = (float *)buffers[1];
    int32_t status = 0;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / PARTS, part = item % PARTS;
      const int64_t part_first = minimum_index(part * step, 1000000), part_last = minimum_index(part_first + step, 1000000);
      Vector<float, N> total1 = splat<N>((float)0);
      for (int64_t start = part_first; start < part_last; start += 8192) {
        Vector<float, N> part1 = splat<N>((float)0);
        vector_loop<N>(start, minimum_index(start + 8192, part_last), [&](int64_t r0, auto lanes) AOT_LAMBDA {
          auto tmp2 = load<N>(in0 + r0, lanes);
          part1 = Sum::combine(part1, where_active(lanes, tmp2, splat<N>((float)0)));
        });
        total1 = total1 + part1;
      }
      store<1>(parts0 + item, reduce_lanes<Sum>(total1), AllLanes());
    }
    return status;
  });
  if (failed != 0) return failed;
  const float *const in0 = (const float *)buffers[0];
  float *const out0 = (float *)buffers[1];
  int32_t status = 0;
  for (int64_t row = 0; row < 1; ++row) {
    Vector<float, 1> total3 = splat<1>((float)0);
    for (int64_t part = 0; part < PARTS; ++part) total3 = Sum::combine(total3, load<1>(parts0 + row * PARTS + part, AllLanes()));
    auto tmp4 = total3;
    auto tmp5 = tmp4 * splat<1>(1e-06f);
    store<1>(out0, tmp5, AllLanes());
  }
  return status;
}
