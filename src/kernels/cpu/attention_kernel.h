// Attention over paged K and V for one instruction set: included once per kernel-set file, after row_kernel.h. Softmax
// in pieces as in FlashAttention (Dao et al. 2022) and Flash-Decoding, with partitions fixed in absolute position.
//
// A row is one (query, head). Its result depends on the row and its K and V alone:
// - a score is one chain of multiply-adds over head_dim, ascending; then times `scale`;
// - within a partition of kPartition absolute positions: the maximum, the weights exp(score - maximum), their sum (lanes
//   by absolute position, then the fixed tree of Simd::Sum), and the weighted values added position by position;
// - partitions are merged in ascending order by Merge, from the first that the row sees.
// Positions that a row does not see are skipped or get an exact zero in a sum of non-negative numbers. So block size,
// chunking, neighbours, threads and the splitting below change no bit.
//
// A tile is up to kAttentionTileRows rows that share one KV head; its K is converted and transposed once, its V once.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention_partition.h"

namespace tactus::kernels {
namespace {

struct TilePlace {
  int32_t kv_head, first_head, heads, first_query, queries;
};

inline int64_t TilesOf(const AttentionCall& call, const AttentionItem& item) {
  return CeilDiv(item.count, call.tile_queries) * CeilDiv(call.group, call.tile_heads) * call.kv->kv_heads;
}

inline TilePlace PlaceOf(const AttentionCall& call, const AttentionItem& item, int64_t tile) {
  const int64_t head_tiles = CeilDiv(call.group, call.tile_heads);
  TilePlace p;
  p.kv_head = static_cast<int32_t>(tile % call.kv->kv_heads);
  tile /= call.kv->kv_heads;
  const auto in_group = static_cast<int32_t>(tile % head_tiles) * call.tile_heads;
  p.first_head = p.kv_head * call.group + in_group;
  p.heads = static_cast<int32_t>(MinOf(call.tile_heads, call.group - in_group));
  // The last queries see the most: they come first, so that the long tasks do not end the step.
  const int64_t query_tiles = CeilDiv(item.count, call.tile_queries);
  p.first_query = static_cast<int32_t>(query_tiles - 1 - tile / head_tiles) * call.tile_queries;
  p.queries = static_cast<int32_t>(MinOf(call.tile_queries, item.count - p.first_query));
  return p;
}

// Of row `row` in a buffer whose tokens are `stride` elements apart.
inline int64_t RowOffset(const AttentionCall& call, const AttentionItem& item, const TilePlace& p, int32_t row,
                         int64_t stride) {
  const int64_t token = item.first_token + p.first_query + row / p.heads;
  return token * stride + static_cast<int64_t>(p.first_head + row % p.heads) * call.kv->head_dim;
}

inline AttentionRows RowsOf(const AttentionCall& call, const AttentionItem& item, const TilePlace& p) {
  AttentionRows rows;
  rows.count = p.queries * p.heads;
  for (int32_t r = 0; r < rows.count; ++r) {
    const int32_t position = item.first_position + p.first_query + r / p.heads;
    rows.q[r] = call.q + RowOffset(call, item, p, r, call.q_stride);
    rows.high[r] = position;
    rows.low[r] = call.window > 0 && position >= call.window ? position - call.window + 1 : 0;
  }
  return rows;
}

// One tile over all its partitions.
inline void RunAttentionTile(const AttentionCall& call, const AttentionItem& item, int64_t tile, std::byte* scratch) {
  const AttentionBuffers b = CarveBuffers(scratch, call.padded);
  const TilePlace place = PlaceOf(call, item, tile);
  const AttentionRows rows = RowsOf(call, item, place);
  float maximum[kAttentionTileRows], sum[kAttentionTileRows];
  bool seen[kAttentionTileRows] = {};
  PartitionSums part;
  for (int32_t index = rows.low[0] / kPartition; index <= rows.high[rows.count - 1] / kPartition; ++index) {
    RunPartition(call, item, place.kv_head, rows, index, b, &part);
    for (int32_t r = 0; r < rows.count; ++r) {
      if (part.sum[r] < 0) continue;
      Merge(seen[r], part.maximum[r], part.sum[r], b.part + r * call.padded, call.padded, &maximum[r], &sum[r],
            b.state + r * call.padded);
      seen[r] = true;
    }
  }
  for (int32_t r = 0; r < rows.count; ++r) {
    WriteRow(b.state + r * call.padded, sum[r], call.kv->head_dim, 
             call.out + RowOffset(call, item, place, r, call.out_stride));
  }
}

// A long decode on a machine with more threads than tiles: its partitions are tasks of their own, some at a time; their
// results wait in scratch and are merged in ascending order. Row layout of a result: padded values, maximum, sum.
inline void RunSplitItem(ThreadPool& pool, const AttentionCall& call, const AttentionItem& item, std::byte* results,
                         std::byte* thread_scratch) {
  const int64_t row_floats = call.padded + kMaxWidth, tiles = TilesOf(call, item);
  auto* states = reinterpret_cast<float*>(results);
  float* parts = states + call.heads * row_floats;
  const int32_t position = item.first_position;
  const int32_t low = call.window > 0 && position >= call.window ? position - call.window + 1 : 0;
  const int32_t first = low / kPartition, last = position / kPartition;
  const int32_t wave = kSplitPerThread * pool.threads();
  const int64_t thread_bytes = AttentionThreadBytes(call.kv->head_dim);
  for (int32_t begin = first; begin <= last; begin += wave) {
    const auto count = static_cast<int32_t>(MinOf(wave, last - begin + 1));
    pool.ParallelFor(tiles * count, [&](int64_t task, int32_t thread) {
      const AttentionBuffers b = CarveBuffers(thread_scratch + thread * thread_bytes, call.padded);
      const TilePlace place = PlaceOf(call, item, task % tiles);
      const AttentionRows rows = RowsOf(call, item, place);
      const int64_t index = task / tiles;
      PartitionSums sums;
      RunPartition(call, item, place.kv_head, rows, begin + static_cast<int32_t>(index), b, &sums);
      for (int32_t r = 0; r < rows.count; ++r) {
        float* to = parts + (index * call.heads + place.first_head + r) * row_floats;
        std::memcpy(to, b.part + r * call.padded, static_cast<size_t>(call.padded) * sizeof(float));
        to[call.padded] = sums.maximum[r];
        to[call.padded + 1] = sums.sum[r];
      }
    });
    pool.ParallelFor(call.heads, [&](int64_t head, int32_t) {
      float* state = states + head * row_floats;
      for (int32_t i = 0; i < count; ++i) {
        const float* part = parts + (i * call.heads + head) * row_floats;
        Merge(begin + i > first, part[call.padded], part[call.padded + 1], part, call.padded, state + call.padded,
              state + call.padded + 1, state);
      }
      if (begin + count > last) {
        WriteRow(state, state[call.padded + 1], call.kv->head_dim,
                 call.out + item.first_token * call.out_stride + head * call.kv->head_dim);
      }
    });
  }
}

inline bool ShouldSplit(const AttentionItem& item, int64_t all_tiles, int32_t threads) {
  return item.count == 1 && item.first_position >= 2 * kPartition && all_tiles < 4 * threads && threads > 1;
}

void Attention(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items, int32_t heads,
               const KvLayer& kv, float scale, int32_t window, float* out, int64_t out_stride, Workspace scratch) {
  CheckHeadDim(kv.head_dim, 0);
  AttentionCall call;
  call.q = q;
  call.items = items.data();
  call.num_items = static_cast<int64_t>(items.size());
  call.heads = heads;
  call.group = heads / kv.kv_heads;
  call.tile_heads = static_cast<int32_t>(MinOf(call.group, kAttentionTileRows));
  call.tile_queries = kAttentionTileRows / call.tile_heads;
  call.kv = &kv;
  call.padded = RoundUp(kv.head_dim, kMaxWidth);
  call.scale = scale;
  call.window = window;
  call.out = out;
  call.q_stride = q_stride;
  call.out_stride = out_stride;
  const int64_t offset_bytes = RoundUp((call.num_items + 1) * static_cast<int64_t>(sizeof(int64_t)), 64);
  const int64_t thread_bytes = AttentionThreadBytes(kv.head_dim);
  const int64_t split_bytes = AttentionSplitBytes(heads, kv.head_dim, pool.threads());
  std::byte* aligned = AlignedWorkspace(scratch, offset_bytes + split_bytes + pool.threads() * thread_bytes);
  auto* first_tile = reinterpret_cast<int64_t*>(aligned);  // [num_items + 1]
  std::byte* results = aligned + offset_bytes;
  std::byte* thread_scratch = results + split_bytes;

  int64_t all_tiles = 0;
  for (int64_t i = 0; i < call.num_items; ++i) all_tiles += TilesOf(call, call.items[i]);
  int64_t tiles = 0;
  for (int64_t i = 0; i < call.num_items; ++i) {
    first_tile[i] = tiles;
    if (!ShouldSplit(call.items[i], all_tiles, pool.threads())) tiles += TilesOf(call, call.items[i]);
  }
  first_tile[call.num_items] = tiles;
  pool.ParallelFor(tiles, [&](int64_t task, int32_t thread) {
    int64_t low = 0, high = call.num_items;  // the item with first_tile[low] <= task < first_tile[low + 1]
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (first_tile[middle] <= task ? low : high) = middle;
    }
    RunAttentionTile(call, call.items[low], task - first_tile[low], thread_scratch + thread * thread_bytes);
  });
  for (int64_t i = 0; i < call.num_items; ++i) {
    if (first_tile[i] == first_tile[i + 1] && call.items[i].count > 0) {
      RunSplitItem(pool, call, call.items[i], results, thread_scratch);
    }
  }
}

}  // namespace
}  // namespace tactus::kernels
