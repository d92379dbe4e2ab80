// A job in shards for runs side by side, each a plain process (BlendServe, 6.1): every shard has about the same work
// and is about as dense as the whole. It takes a stretch from the left end of the plan and one from the right, so only
// the prefixes at its ends are computed twice, which costs in proportion to the number of shards.
//
// Deterministic, and every position is in exactly one shard.
#pragma once

#include <cstdint>
#include <vector>

#include "batch/plan.h"
#include "tactus/status.h"

namespace tactus::batch {

struct Shard {
  int32_t left_begin = 0, left_end = 0;    // positions
  int32_t right_begin = 0, right_end = 0;  // right of them

  int32_t size() const { return left_end - left_begin + right_end - right_begin; }
  std::vector<int32_t> Positions() const;  // ascending
};

// Precondition: the plan is kBlend or kBalance; any other has its work cut as evenly, its densities by luck.
Result<std::vector<Shard>> CutShards(const Plan& plan, int32_t shards);

// [request] Its shard, from 0; -1 where `outputs` has 0. By the plan of kBlend and the shape of the costs alone: the
// device's rates are left out, so that processes which have measured different ones cut alike.
Result<std::vector<int32_t>> AssignShards(PrefixTree tree, BatchCostModel cost, const std::vector<int32_t>& outputs,
                                          int32_t shards);

}  // namespace tactus::batch
