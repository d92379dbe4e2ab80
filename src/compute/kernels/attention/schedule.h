// How the work of one attention call is cut and distributed to threads, for every kernel set; compiled once, without
// flags of an instruction set. A set provides its functions (AttentionKernel).
//
// A tile is up to AttentionKernel::tile_rows rows, each one (query, head), that share one KV head, so that K and V are
// read once for all query heads of the group. Where there are enough tiles, a decode's tile holds several KV heads, so
// that whole blocks are read in order. Partitions of kPartition positions are fixed in absolute position. A row's
// partitions are merged in ascending order, in one task or, for a tile too long for one, through results in scratch.
// The longest tiles run first.
//
// Decodes that share a prefix (AttentionItem::prefix_group) form common tiles: a tile of one KV head whose queries are
// the last tokens of several sequences. A partition within the prefix is read once for all rows of the tile, one behind
// it by each sequence, one across its end both ways, by column (SharedColumns). A row's partitions and their order are
// the same as without the group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compute/kernels/ops.h"

namespace tactus::compute {

struct AttentionCall {
  const float* q;
  int64_t q_stride, out_stride;  // elements between tokens
  const AttentionItem* items;
  int64_t num_items;
  int32_t heads, group;      // group: heads per KV head
  int32_t tile_heads;        // heads of a group per tile
  int32_t tile_queries;      // of an item
  int32_t kv_heads_at_once;  // for items of few queries: the most KV heads per tile
  const KvLayer* kv;
  int64_t padded;  // head_dim rounded up to kMaxWidth
  const AttentionSpec* spec;
  float* out;
};

// Rows go KV head by KV head, then query by query.
struct AttentionTile {
  const AttentionItem* item;  // with `members`: the first one's
  // Not null: each query is the last token of one of these items (indices). All are decodes with `item`'s blocks for
  // positions [0, shared), a multiple of kKeyTile, and attend to all of those. One KV head.
  const int32_t* members;
  int32_t shared;
  int32_t kv_head, kv_heads;  // several only where all query heads of each are in the tile
  int32_t first_head, heads;  // heads: per KV head
  int32_t first_query, queries;

  int32_t rows_per_kv_head() const { return queries * heads; }
  int32_t rows() const { return kv_heads * rows_per_kv_head(); }
};

// Items with at most this many rows per KV head may have several KV heads per tile, up to kMostKvHeads.
inline constexpr int32_t kNarrowRows = 16;
inline constexpr int32_t kMostKvHeads = 16;

// One query of a tile.
struct AttentionQuery {
  const AttentionItem* item;
  int32_t token, position;  // token: row in q and out; position: in its sequence
};

// A row's result over some partitions: `padded` values, then maximum and sum (of weights relative to the maximum).
struct AttentionKernel {
  // The most rows of a tile of one item, kAttentionTileRows to kMostTileRows: fewer where there would be too few tiles.
  // Tiles of several KV heads or with members have at most kAttentionTileRows.
  int32_t tile_rows;
  // Whether tiles of few rows per KV head may have several KV heads, whose K and V are adjacent in a block; null: no.
  bool (*takes_kv_heads)(const AttentionCall& call);
  // Whether tiles may have members; null: no.
  bool (*takes_members)(const AttentionCall& call);
  // All partitions of a tile, into call.out. `next`: the tile that this thread will probably run next, to be
  // prefetched; null: none. `scratch`: AttentionThreadBytes, 64-byte aligned.
  void (*run_tile)(const AttentionCall& call, const AttentionTile& tile, const AttentionTile* next, std::byte* scratch);
  // One partition; results[row * stride]. A row without a visible position there gets sum -1.
  void (*run_partition)(const AttentionCall& call, const AttentionTile& tile, int32_t index, std::byte* scratch,
                        float* results, int64_t stride);
  // Merges `count` results of one row of query head `head`, `stride` apart and ascending, into `state`, which is also a
  // result (initially: maximum -infinity, all else 0). With `out`, then writes the row there.
  void (*merge)(const AttentionCall& call, int32_t head, float* state, const float* results, int64_t stride,
                int32_t count, float* out);
};

// First and last position that a query of the call at `position` attends to.
struct VisibleRange {
  int32_t low, high;
};
VisibleRange VisibleFrom(const AttentionCall& call, int32_t position);
AttentionQuery QueryOf(const AttentionCall& call, const AttentionTile& tile, int32_t query);
// The tile of one member alone.
AttentionTile MemberTile(const AttentionCall& call, const AttentionTile& tile, int32_t query);
// Number of leading columns of partition `index` that all rows of the tile read from the blocks of tile.item:
// kPartition, unless the members' prefix ends within the partition or before it.
int32_t SharedColumns(const AttentionTile& tile, int32_t index);
// The query head of a tile's row.
int32_t HeadOf(const AttentionCall& call, const AttentionTile& tile, int32_t row);
// The factor of a row's weighted values: 1 / sum, where `sum` is of weights relative to `maximum`, the row's largest
// score. With a sink, its weight is added to the sum.
float InverseSumWithSink(float sink, float maximum, float sum);
inline float InverseSum(const AttentionCall& call, int32_t head, float maximum, float sum) {
  return call.spec->sinks == nullptr ? 1.0f / sum : InverseSumWithSink(call.spec->sinks[head], maximum, sum);
}
// Offset of a tile's row `row` in a buffer whose tokens are `stride` elements apart.
int64_t AttentionRowOffset(const AttentionCall& call, const AttentionTile& tile, int32_t row, int64_t stride);

// Runs Ops::attention, whose arguments these are, by `kernel`.
void RunAttention(ThreadPool& pool, const AttentionKernel& kernel, const float* q, int64_t q_stride,
                  std::span<const AttentionItem> items, int32_t heads, const KvLayer& kv, const AttentionSpec& spec,
                  float* out, int64_t out_stride, Workspace scratch);

int64_t AttentionThreadBytes(int32_t head_dim);
int64_t AttentionWorkspaceBytes(int64_t tokens, int32_t heads, int32_t head_dim, int32_t threads);

}  // namespace tactus::compute
