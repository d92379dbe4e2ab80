// A job in shards for runs side by side, each a plain process (BlendServe, 6.1): every shard has about the same work
// and is about as dense as the whole.
//
// The paper cuts a job whose lengths are known. Here a job is cut before anything has run, and how long answers will be
// follows from what they are about, which lies side by side in the tree. So requests are dealt out one by one along the
// tree wherever that computes little again (ours): whatever a stretch of it turns out to be, each shard has its part.
//
// Deterministic, and every request is in exactly one shard. Time: requests x shards.
#pragma once

#include <cstdint>
#include <vector>

#include "offline/plan/cost_model.h"
#include "offline/plan/prefix_tree.h"
#include "tactus/status.h"

namespace tactus::offline {

inline constexpr int32_t kMostShards = 1 << 16;

// `outputs`: [request] tokens that it is expected to generate; 0: it is done. Returns [request] its shard, from 0; -1
// where it is done. By the shape of the costs alone: the device's rates are left out, so that processes which have
// measured different ones cut alike. kInvalidArgument: `shards` is not in 1 to kMostShards.
Result<std::vector<int32_t>> AssignShards(const PrefixTree& tree, BatchCostModel cost,
                                          const std::vector<int32_t>& outputs, int32_t shards);

}  // namespace tactus::offline
