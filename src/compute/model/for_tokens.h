// Plain work on each token of a step, a few tokens per task.
#pragma once

#include <cstdint>

#include "compute/kernels/thread_pool.h"

namespace tactus::compute {

template <class Each>
void ForTokens(ThreadPool& pool, int64_t tokens, Each each) {
  constexpr int64_t kTokensPerTask = 4;
  pool.ParallelFor((tokens + kTokensPerTask - 1) / kTokensPerTask, [&](int64_t task, int32_t) {
    for (int64_t t = task * kTokensPerTask; t < tokens && t < (task + 1) * kTokensPerTask; ++t) each(t);
  });
}

}  // namespace tactus::compute
