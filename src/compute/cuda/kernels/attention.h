// Softmax attention over paged K and V (Dao et al., "FlashAttention", 2022; Kwon et al., "PagedAttention", 2023), of
// decodes and prompt chunks in one launch. What a block of threads does is in a list of units, which attention_plan.h
// makes on the host.
//
// Invariance: K and V are cut at multiples of kPartition positions. A query's partitions are computed one by one and
// added in ascending order, whether one unit has them all or each goes through memory. So a query's bits depend on its
// own K and V alone.
#pragma once

#include "compute/cuda/kernels/rope_store.h"
#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

inline constexpr int32_t kPartition = 256;  // positions; a multiple of every block size that is allowed (16 to 256)

// An item of the step: queries at [first_position, first_position + count) of one sequence.
struct AttentionRow {
  int32_t first_token = 0;  // row of q and out
  int32_t first_position = 0;
  int32_t count = 0;
  int32_t table = 0;  // first entry of the sequence's block table in `tables`
};
// The queries [query, query + queries) of an item against partitions [partition, partition + partitions), one KV head.
struct AttentionUnit {
  int32_t row = 0;
  int32_t query = 0, queries = 0;
  int32_t kv_head = 0;
  int32_t partition = 0, partitions = 0;
  int32_t slot = -1;  // first of `partitions` slots of partial results for each query; -1: writes the output itself
};
// Adds the partial results of an item's queries, all heads.
struct AttentionMerge {
  int32_t row = 0, query = 0;
  int32_t kv_head = 0;
  int32_t slot = 0, partitions = 0;
};

struct AttentionCall {
  const void* q = nullptr;  // [tokens, heads * head_dim] of `type`, q_stride values apart
  void* out = nullptr;      // as q, out_stride values apart
  int64_t q_stride = 0, out_stride = 0;
  Real type = Real::kBF16;
  int32_t heads = 0;
  const AttentionRow* rows = nullptr;
  const int32_t* tables = nullptr;
  const AttentionUnit* decodes = nullptr;  // units of 1 query (or of few: queries * group <= 16)
  int64_t num_decodes = 0;
  const AttentionUnit* chunks = nullptr;  // units of up to kChunkQueries queries
  int64_t num_chunks = 0;
  const AttentionMerge* merges = nullptr;
  int64_t num_merges = 0;
  float* partials = nullptr;  // [slots, group, head_dim + 2]: sums, then maximum and sum of weights
  // As AttentionSpec (compute/kernels/ops.h), slopes and sinks on the device.
  float scale = 1.0f;
  int32_t window = 0, chunk = 0;
  float softcap = 0.0f;
  const float* slopes = nullptr;
  const float* sinks = nullptr;
};
inline constexpr int32_t kChunkQueries = 64;

// The units' K and V. Softmax in f32; products by tensor cores where type and kv.type are bf16 or f16.
void Attention(Stream& s, const AttentionCall& call, const KvPages& kv);

}  // namespace tactus::compute::cuda
