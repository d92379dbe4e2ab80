// Softmax attention over paged K and V (Dao et al., "FlashAttention", 2022; Kwon et al., "PagedAttention", 2023), of
// decodes and prompt chunks. What a block of threads does is in a list of units, which attention_plan.h makes on the
// host.
//
// A q row is one query of one head. The rows of an item for a KV head are numbered query * group + head, where group is
// heads / kv_heads and head counts within the group. Rows of one KV head share the loads of K and V.
//
// Invariance: K and V are cut at multiples of kPartition positions, and partitions into tiles. Each tile is computed by
// itself; a partition adds its tiles and a row adds its partitions, both in ascending order and by one function (Fold),
// whether one unit has them all or each goes through memory. All products are sums of 16 terms on the matrix units,
// whose result for a row does not depend on the other rows. So a row's bits depend on its q and on its K and V alone:
// they are equal in a decode, in a chunk of any length, beside any other rows, in a shared prefix and for any cut. They
// differ between types, head dimensions and devices.
//
// Forms. Tensor cores: type bf16 or f16, kv.type the same or int8 or e4m3, head_dim a multiple of 16 up to 512. Every
// other call runs in plain loops, which compute in f32 and are slow.
//
// int8 codes times their scale are rounded to `type` on the way into shared memory; e4m3 is exact in both types. K and
// V are finite: a weight of 0 times infinity is NaN, also for the tokens of a chunk that do not see the position.
//
// Alignment: q, out, K and V begin at multiples of 16 bytes, q_stride and out_stride are multiples of 8 values.
#pragma once

#include "compute/cuda/kernels/rope_store.h"
#include "compute/cuda/runtime.h"
#include "compute/cuda/types.h"

namespace tactus::compute::cuda {

inline constexpr int32_t kPartition = 256;  // positions; any block size is allowed

// An item of the step: queries at [first_position, first_position + count) of one sequence.
struct AttentionRow {
  int32_t first_token = 0;  // row of q and out
  int32_t first_position = 0;
  int32_t count = 0;
  int32_t table = 0;  // first entry of the sequence's block table in `tables`
  // As AttentionItem's (compute/kernels/ops.h); the plan reads them, the kernels do not.
  int32_t prefix_group = -1;
  int32_t prefix_tokens = 0;
};

// What one block of threads computes at a time: q rows against partitions [partition, partition + partitions) of one KV
// head. A unit without q rows does nothing, nor does a merge without partitions: lists may be padded with them.
struct AttentionUnit {
  int32_t item = 0;  // of `rows`; its block table is read
  int32_t kv_head = 0;
  int32_t first = 0, count = 0;  // q rows of the item
  int32_t partition = 0, partitions = 0;
  // Slot of row `first` and partition `partition`; the next partition's is count * group of the item further. -1: the
  // unit has all partitions of its rows and writes the output.
  int32_t slot = -1;
  // >= 0: the rows are those of members[members], members[members + 1], ..., `group` rows each, `count` in all. `slot`
  // and `first` are not used.
  int32_t members = -1;
};

// A decode that shares its first partitions with `item` of a unit.
struct AttentionMember {
  int32_t item = 0;
  int32_t slot = 0;        // of KV head 0, partition 0
  int32_t partitions = 0;  // of the member's slots
};

// One query whose partitions are in slots: the merge adds them for all heads. The slot of a KV head h, partition p and
// head of the group g is slot + (h * partitions + p - partition) * stride + g.
struct AttentionMerge {
  int32_t item = 0, query = 0;
  int32_t slot = 0;
  int32_t partition = 0, partitions = 0;  // of the item's slots
  int32_t stride = 0;                     // count * group of the item
};

struct AttentionCall {
  const void* q = nullptr;  // [tokens, heads * head_dim] of `type`, q_stride values apart
  void* out = nullptr;      // as q, out_stride values apart
  int64_t q_stride = 0, out_stride = 0;
  Real type = Real::kBF16;
  int32_t heads = 0;
  const AttentionRow* rows = nullptr;
  const int32_t* tables = nullptr;
  // The plan's lists. Units of at most kDecodeRows q rows, and of at most ChunkRows(head_dim).
  const AttentionUnit* decodes = nullptr;
  int64_t num_decodes = 0;
  const AttentionUnit* chunks = nullptr;
  int64_t num_chunks = 0;
  const AttentionMember* members = nullptr;
  const AttentionMerge* merges = nullptr;
  int64_t num_merges = 0;
  float* partials = nullptr;  // [slots, head_dim + kPartialStats]
  // As AttentionSpec (compute/kernels/ops.h), slopes and sinks on the device. `scale` > 0.
  float scale = 1.0f;
  int32_t window = 0, chunk = 0;
  float softcap = 0.0f;
  const float* slopes = nullptr;
  const float* sinks = nullptr;
  // > 0: a launch has at most the blocks that this number of multiprocessors holds, and each block computes several
  // units in ascending order, so that other work runs beside it. 0: a block per unit. Changes no bit.
  int32_t max_multiprocessors = 0;
};
inline constexpr int32_t kDecodeRows = 16;
constexpr int32_t ChunkRows(int32_t head_dim) {
  return head_dim <= 128 ? 128 : head_dim <= 256 ? 64 : kDecodeRows;
}
// A partial result is head_dim sums of values, then the maximum and the sum of weights.
inline constexpr int32_t kPartialStats = 2;

// Attention of the units' rows. K and V of all their positions are in the cache.
void Attention(Stream& s, const AttentionCall& call, const KvPages& kv);

}  // namespace tactus::compute::cuda
