// Units of a parallel job over several experts: each entry of the job has blocks of its tokens, and each thread runs
// the operators of its unit alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "compute/kernels/thread_pool.h"

namespace tactus::compute {

inline constexpr int64_t kUnitTokens = 128;  // the most of a unit: they stay in the L2 cache

inline int64_t TokenBlocks(int64_t tokens) {
  return (tokens + kUnitTokens - 1) / kUnitTokens;
}

// Tokens [first, first + count) of block `block` of `tokens` tokens, whose blocks are as even as possible.
struct TokenBlock {
  TokenBlock(int64_t tokens, int64_t block)
      : first(tokens * block / TokenBlocks(tokens)), count(tokens * (block + 1) / TokenBlocks(tokens) - first) {}
  int64_t first, count;
};

// The entry with `unit`: entries have ascending first_unit, the first one 0.
template <class Entry>
const Entry& EntryOf(const std::vector<Entry>& entries, int64_t unit) {
  const auto after = std::upper_bound(entries.begin(), entries.end(), unit,
                                      [](int64_t u, const Entry& entry) { return u < entry.first_unit; });
  return *(after - 1);
}

// A pool of the calling thread alone. Threads of a job may use one together: it never waits and stores nothing.
class CallingThread {
 public:
  CallingThread() : pool_(1, unread_) {}
  operator ThreadPool&() { return pool_; }

 private:
  ManualClock unread_;
  ThreadPool pool_;
};

}  // namespace tactus::compute
