// How much of a job's prompts an order finds in the cache. The cache is the KV memory: what ran last is in it, prompts
// and answers, and what was not used for longest goes first. Prefixes go in whole edges of the tree (ours; a KV cache
// drops block by block).
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

// `starts`: positions of the plan, in the order in which they start. A request that needs more than the cache holds
// takes all of it while it runs.
Sharing SharingOf(const Plan& plan, std::span<const int32_t> starts, int64_t cache_tokens);

// With a cache of any size: what no order exceeds, and depth-first order reaches.
Sharing OptimalSharing(const Plan& plan);

}  // namespace tactus::offline
