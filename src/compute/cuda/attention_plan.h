// Cuts a step's attention into units for blocks of threads (kernels/attention.h): a pure function of the batch, the
// heads and the number of multiprocessors. Allocates only if a step is larger than any before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/cuda/kernels/attention.h"

namespace tactus::compute::cuda {

struct AttentionShape {
  int32_t heads = 0, kv_heads = 0;
  int32_t window = 0, chunk = 0;  // as AttentionSpec's
  int32_t multiprocessors = 0;
  bool operator==(const AttentionShape&) const = default;
};

struct AttentionPlan {
  std::vector<AttentionUnit> decodes, chunks;
  std::vector<AttentionMerge> merges;
  int64_t slots = 0;  // partial results, each of group heads
};

// `max_slots`: the partial results that there is memory for; a plan never needs more.
void PlanAttention(std::span<const AttentionRow> rows, const AttentionShape& shape, int64_t max_slots,
                   AttentionPlan* plan);

}  // namespace tactus::compute::cuda
