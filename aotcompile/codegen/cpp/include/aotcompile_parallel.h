// Loops spread over the OpenMP threads, which are torch's own (both use libgomp.so.1).
#pragma once
#include <stdint.h>
#include "aotcompile_math.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace aotcompile {

// A thread is worth starting for this much work (about one unit per element and simple operation).
constexpr int64_t WORK_PER_THREAD = 32768;

// body(begin, end) over [0, count) in contiguous parts, one per thread; returns the greatest status. `cost` is the work of one item.
// Small work runs on the calling thread. What body computes must not depend on the partition.
template <typename F> AOT_INLINE int32_t parallel_for(int64_t count, int64_t cost, F body) {
  if (count <= 0) return 0;
#ifdef _OPENMP
  int64_t work = count > INT64_MAX / (cost + 1) ? INT64_MAX : count * cost;
  int64_t wanted = work / WORK_PER_THREAD;
  int64_t threads = omp_get_max_threads();
  if (threads > wanted) threads = wanted;
  if (threads > count) threads = count;
  if (threads > 1 && !omp_in_parallel()) {
    int32_t status = 0;
#pragma omp parallel num_threads((int)threads) reduction(max : status)
    {
      int64_t parts = omp_get_num_threads(), part = omp_get_thread_num();
      int64_t each = count / parts, extra = count % parts;
      int64_t begin = part * each + (part < extra ? part : extra);
      int64_t end = begin + each + (part < extra ? 1 : 0);
      if (begin < end) status = body(begin, end);
    }
    return status;
  }
#endif
  return body((int64_t)0, count);
}

// body(i, lanes) for i = begin, begin + N, ...; the last call may have fewer lanes.
template <int N, typename F> AOT_INLINE void vector_loop(int64_t begin, int64_t end, F body) {
  int64_t i = begin;
  for (; i + N <= end; i += N) body(i, AllLanes());
  if (N > 1 && i < end) body(i, FirstLanes{(int)(end - i)});
}

}  // namespace aotcompile
