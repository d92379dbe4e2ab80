// Computes how many of a job's prompt tokens are found in the cache for a given order. The cache is the KV memory: it
// holds the prompts and answers that ran last, and the least recently used are evicted. Prefixes are evicted in whole
// edges of the tree (ours; a KV cache evicts single blocks).
#pragma once

#include <cstdint>
#include <span>

#include "offline/plan/plan.h"

namespace tactus::offline {

struct Sharing {
  int64_t prompt_tokens = 0;
  int64_t shared_tokens = 0;  // of them, found in the cache
  double saved_s = 0;         // their compute time

  double ratio() const {
    return prompt_tokens > 0 ? static_cast<double>(shared_tokens) / static_cast<double>(prompt_tokens) : 0;
  }
};

// `starts`: positions of the plan, in start order. A request that needs more than the cache occupies all of it while it
// runs.
Sharing SharingOf(const Plan& plan, std::span<const int32_t> starts, int64_t cache_tokens);

// Sharing with an unlimited cache: no order exceeds it, and depth-first order reaches it.
Sharing OptimalSharing(const Plan& plan);

}  // namespace tactus::offline
