// Plain work on each token of a step, a few tokens per task.
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/kernels/thread_pool.h"

namespace tactus::compute {

template <class Each>
void ForTokens(ThreadPool& pool, int64_t tokens, Each each) {
  constexpr int64_t kTokensPerTask = 4;
  pool.ParallelFor((tokens + kTokensPerTask - 1) / kTokensPerTask, [&](int64_t task, int32_t) {
    for (int64_t t = task * kTokensPerTask; t < tokens && t < (task + 1) * kTokensPerTask; ++t) each(t);
  });
}

// to[tokens, width] = the rows of `from`, which are `stride` elements apart.
inline void CopyRows(ThreadPool& pool, int64_t tokens, int64_t width, const float* from, int64_t stride, float* to) {
  ForTokens(pool, tokens, [&](int64_t t) {
    std::memcpy(to + t * width, from + t * stride, static_cast<size_t>(width) * sizeof(float));
  });
}

}  // namespace tactus::compute
