// Attention of a tile of few rows per KV head and several KV heads over a partition, with the loops of a Format
// (tiles.h).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "compute/kernels/attention/avx512/groups.h"

namespace tactus::compute {
namespace {

// Scores of all KV heads of a narrow tile, ChunksAtOnce of K at a time: blocks are read in memory order. `piece`: index
// of the first piece in the stream.
template <class Format>
void ScoreNarrow(const AttentionCall& call, const AttentionTile& tile, const PartitionKv& p, const FetchStream& stream,
                 int32_t piece, const Buffers& b) {
  const KvLayer& kv = *call.kv;
  const int32_t rows = tile.rows_per_kv_head(), at_once = ChunksAtOnce(kv);
  const int64_t head_bytes = KvHeadBytes(kv), q_stride = call.padded / 2;
  Format::BeginScores(rows < Format::kGroupRows ? rows : Format::kGroupRows);
  for (int32_t first = p.first_chunk(); first <= p.last_chunk(); first += at_once) {
    const int32_t chunks = p.last_chunk() + 1 - first < at_once ? p.last_chunk() + 1 - first : at_once;
    for (int32_t h = 0; h < tile.kv_heads; ++h, piece += chunks) {
      for (int32_t i = 0; i < chunks; i += 2) {
        const uint32_t* keys[2];
        const float* scales[2];
        for (int32_t v = 0; v < 2; ++v) {
          const int32_t c = first + (i + v < chunks ? i + v : i);
          keys[v] = p.keys[c] + h * head_bytes / 4;
          scales[v] = p.key_scales[c] + h * head_bytes / 4;
          if (!Format::kCodes) continue;
          stream.FetchScales(piece + i + v);
          __builtin_prefetch(p.chunks[c].Scales(kv, kv.v) + h * head_bytes / 4);  // softmax reads them next
        }
        for (int32_t r = h * rows, n; r < (h + 1) * rows; r += n) {
          n = (h + 1) * rows - r < Format::kGroupRows ? (h + 1) * rows - r : Format::kGroupRows;
          const ScoreCall score = {n,
                                   b.q + r * q_stride,
                                   q_stride,
                                   b.q_offset + r,
                                   keys,
                                   p.key_stride,
                                   KeyWords(kv),
                                   scales,
                                   stream.Ahead(piece + i),
                                   b.scores + r * kPartition + 16 * (first + i)};
          ScoreVectors<Format>(score, n, 2, r == h * rows);
        }
      }
    }
  }
}

// As ScoreNarrow, for V.
template <class Format>
void WeighNarrow(const AttentionCall& call, const AttentionTile& tile, const PartitionKv& p, const ColumnRange* groups,
                 const FetchStream& stream, int32_t piece, const Buffers& b) {
  const KvLayer& kv = *call.kv;
  const int32_t rows = tile.rows_per_kv_head(), first = p.first_chunk(), at_once = ChunksAtOnce(kv);
  const int32_t word = KvGroup(kv), words = 16 / word;  // positions per word, words per chunk
  const int64_t head_bytes = KvHeadBytes(kv);
  const uint32_t* values[kKeyVectors];
  Format::BeginValues(rows < Format::kGroupRows ? rows : Format::kGroupRows);
  for (int32_t c = first; c <= p.last_chunk(); c += at_once) {
    const int32_t chunks = p.last_chunk() + 1 - c < at_once ? p.last_chunk() + 1 - c : at_once;
    for (int32_t h = 0; h < tile.kv_heads; ++h, piece += chunks) {
      for (int32_t i = 0; i < chunks; ++i) {
        if (Format::kCodes) stream.FetchScales(piece + i);
        values[c + i] =
            ValuesInPlace<Format::kValues>(call, p, c + i, p.chunks[c + i].Values(kv) + h * head_bytes / 4, b);
      }
      for (int32_t r = h * rows, n; r < (h + 1) * rows; r += n) {
        n = (h + 1) * rows - r < Format::kGroupRows ? (h + 1) * rows - r : Format::kGroupRows;
        const ColumnRange& group = groups[(r - h * rows) / Format::kGroupRows];
        const int32_t from = group.from / word > words * c ? group.from / word : words * c;
        const int32_t end = (group.to + word - 1) / word;
        const int32_t to = end < words * (c + chunks) ? end : words * (c + chunks);
        WeighGroup<Format>(call, p, values, n, from, to, p.resumes || c > first, b.weights + r * kPartition,
                           stream.Ahead(piece) - c, r == h * rows, b.part + r * call.padded);
      }
    }
  }
}

// The columns of a partition that each row of a narrow tile's KV head attends to, and the union per group of rows.
struct NarrowRanges {
  ColumnRange own[kNarrowRows], groups[kNarrowRows / kSoftmaxRows];
};

// Scores of a narrow tile to weights.
template <class Format>
void SoftmaxNarrow(const AttentionCall& call, const AttentionTile& tile, const Rows& rows, const PartitionKv& p,
                   const Buffers& b, NarrowRanges* ranges, Sums* sums) {
  const int32_t per_head = tile.rows_per_kv_head();
  ColumnRange *own = ranges->own, *groups = ranges->groups;
  for (int32_t r = 0; r < per_head; r += Format::kGroupRows) {
    groups[r / Format::kGroupRows] =
        RangesOf(rows, r, per_head - r < Format::kGroupRows ? per_head - r : Format::kGroupRows, p.base, own + r);
  }
  for (int32_t r = 0; r < rows.count; ++r) sums->sum[r] = -1.0f;
  for (int32_t h = 0; h < tile.kv_heads; ++h) {
    if (Format::kCodes) PlaceValueScales(call, tile, h, p, b);
    for (int32_t r = 0; r < per_head; r += Format::kGroupRows) {
      const ColumnRange& group = groups[r / Format::kGroupRows];
      if (group.from >= group.to) continue;
      const int32_t row = h * per_head + r;
      SoftmaxGroup<Format>(call, own + r, group, per_head - r < Format::kGroupRows ? per_head - r : Format::kGroupRows,
                           b.FromRow(row, call.padded), row, sums);
    }
  }
}

}  // namespace
}  // namespace tactus::compute
