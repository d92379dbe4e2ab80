// Cuts a step's attention into units for blocks of threads (kernels/attention.h): a pure function of the batch, the
// heads and the number of multiprocessors. Allocates only if a step is larger than any before.
//
// The cut changes no bit of the results, so it follows the load alone: where an item's partitions are more than a fair
// share of all, several units have them (split-KV: Dao et al., "Flash-Decoding", 2023), and their partial results go
// through slots. Decodes that share a prefix have its partitions in common units (Juravsky et al., "Hydragen", 2024).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/cuda/kernels/attention.h"

namespace tactus::compute::cuda {

struct AttentionShape {
  int32_t heads = 0, kv_heads = 0;
  int32_t head_dim = 0;
  int32_t window = 0, chunk = 0;  // as AttentionSpec's
  int32_t multiprocessors = 0;
  bool operator==(const AttentionShape&) const = default;
};

struct AttentionPlan {
  // The longest units first.
  std::vector<AttentionUnit> decodes, chunks;
  std::vector<AttentionMember> members;
  std::vector<AttentionMerge> merges;
  int64_t slots = 0;  // that are used

  // Scratch of PlanAttention.
  struct Item {
    int32_t first = 0, end = 0;  // partitions that any of its queries sees
    int32_t shared = 0;          // of them, from the first on, in units of its prefix group
    int32_t slot = -1;           // of KV head 0, partition `first`, q row 0
    int32_t partitions() const { return end - first; }
  };
  std::vector<Item> items;
  std::vector<int32_t> order, grouped;
};

// `max_slots`: the partial results that there is memory for, each of head_dim + kPartialStats f32. A plan never needs
// more; with fewer than UsefulSlots() long items may be split less than the load asks for.
void PlanAttention(std::span<const AttentionRow> rows, const AttentionShape& shape, int64_t max_slots,
                   AttentionPlan* plan);

// Adds units and merges that do nothing to the plan of at most `items` items of one query each, so that the lengths of
// its lists take few values: a CUDA graph of the step serves other steps too.
void PadPlan(const AttentionShape& shape, int64_t items, AttentionPlan* plan);

// The slots that splits of decodes can need while the cache holds `kv_tokens` tokens of at most `items` sequences.
int64_t UsefulSlots(const AttentionShape& shape, int64_t kv_tokens, int64_t items);

}  // namespace tactus::compute::cuda
