// Cuts a job into shards that run side by side, each a separate process (BlendServe, 6.1): every shard has about the
// same work and about the density of the whole job.
//
// The paper cuts a job whose lengths are known. Here a job is cut before anything has run, and the lengths of answers
// depend on their subject, which is adjacent in the tree. So requests are dealt out one by one along the tree wherever
// that recomputes little (ours): whatever the lengths in a part of the tree, each shard has its share of it.
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

// `outputs`: [request] expected output tokens; 0: it is done. Returns [request] its shard, from 0; -1 if it is done.
// Only the shape of the costs counts: the device's rates are left out, so that processes with different measured rates
// cut alike. kInvalidArgument: `shards` is not in 1 to kMostShards.
Result<std::vector<int32_t>> AssignShards(const PrefixTree& tree, BatchCostModel cost,
                                          const std::vector<int32_t>& outputs, int32_t shards);

}  // namespace tactus::offline
