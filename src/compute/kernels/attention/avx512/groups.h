// Attention of a few rows over a partition of one KV head, with the loops of a Format (tiles.h): scores, softmax,
// values.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/avx512/chunks.h"
#include "compute/kernels/attention/avx512/place.h"
#include "compute/kernels/attention/avx512/rows.h"
#include "compute/kernels/attention/schedule.h"

namespace tactus::compute {
namespace {

constexpr float kLog2E = 1.44269504f;

struct Rows {
  Rows(const AttentionCall& call, const AttentionTile& tile) : count(tile.rows()) {
    for (int32_t r = 0; r < count; ++r) {
      const int32_t query = r % tile.rows_per_kv_head() / tile.heads;
      const VisibleRange seen = VisibleFrom(call, QueryOf(call, tile, query).position);
      low[r] = seen.low;
      high[r] = seen.high;
      last = seen.high > last ? seen.high : last;
    }
  }
  // Columns of the partition at `base` that row r attends to; none: from >= to.
  ColumnRange In(int32_t r, int32_t base) const {
    const int32_t from = low[r] > base ? low[r] - base : 0, to = high[r] + 1 - base;
    return {from, to < kPartition ? to : kPartition};
  }
  int32_t count;
  int32_t low[kMostTileRows], high[kMostTileRows];  // both ascending within a KV head of an item
  int32_t last = 0;                                 // of all rows
};

// Weighted values of words [from, to) for `n` rows; arguments as in WeighCall.
template <class Format>
void WeighGroup(const AttentionCall& call, const PartitionKv& p, const uint32_t* const* chunks, int32_t n, int32_t from,
                int32_t to, bool resume, const uint16_t* weights, const std::byte* const* ahead, bool fetch,
                float* out) {
  WeighCall weigh = {0, weights, chunks, from, to, p.value_stride, 0, resume, ahead, out, call.padded};
  for (int32_t r = 0, rows; r < n; r += rows) {
    weigh.rows = rows = n - r < Format::kTileRows ? n - r : Format::kTileRows;
    weigh.weights = weights + r * kPartition;
    weigh.out = out + r * call.padded;
    const int vecs = Format::VecsFor(rows);
    const WeighFn wide = Format::Weigh(rows, vecs, fetch && r == 0), narrow = Format::Weigh(rows, 1, false);
    for (weigh.first_dim = 0; weigh.first_dim + 16 * vecs <= call.padded; weigh.first_dim += 16 * vecs) wide(weigh);
    for (; weigh.first_dim < call.padded; weigh.first_dim += 16) narrow(weigh);
  }
}

// Scores of `n` rows against `vecs` vectors; arguments as in ScoreCall.
template <class Format>
void ScoreVectors(ScoreCall call, int32_t n, int32_t vecs, bool fetch) {
  for (int32_t r = 0, rows; r < n; r += rows) {
    call.rows = rows = n - r < Format::kTileRows ? n - r : Format::kTileRows;
    Format::Score(rows, vecs, fetch && r == 0)(call);
    call.q += rows * call.q_stride;
    call.q_offset += rows;
    call.scores += rows * kPartition;
  }
}

struct Sums {
  float maximum[kMostTileRows], sum[kMostTileRows];  // sum -1: the row attends to no position here
  float unit[kMostTileRows];                         // int8: the value of 1 in its integer results

  void CopyFrom(const Sums& other, int32_t first, int32_t n) {
    for (int32_t r = 0; r < n; ++r) {
      maximum[first + r] = other.maximum[r];
      sum[first + r] = other.sum[r];
      unit[first + r] = other.unit[r];
    }
  }
};

// Scores of the first `n` rows of b to weights, n at most kSoftmaxRows. Lanes are reduced for all rows together: a
// single row would wait for each step.
template <class Format>
void SoftmaxFew(const ColumnRange* own, ColumnRange group, int32_t n, float log2_scale, const Buffers& b, int32_t first,
                Sums* sums) {
  __m512 lanes[kSoftmaxRows];
  float maximum[kSoftmaxRows] = {};
  for (int32_t r = 0; r < n; ++r) {
    if (own[r].from < own[r].to) lanes[r] = RowMaximum(b.scores + r * kPartition, own[r]);
  }
  for (int32_t r = 0; r < n; ++r) {
    if (own[r].from < own[r].to) maximum[r] = MaxLane(lanes[r]);
  }
  for (int32_t r = 0; r < n; ++r) {
    if (own[r].from >= own[r].to) std::memset(b.weights + r * kPartition, 0, kPartition * sizeof(uint16_t));
  }
  Format::Weights(b, own, group, n, log2_scale, maximum, lanes, sums->unit + first);
  for (int32_t r = 0; r < n; ++r) {
    const bool sees = own[r].from < own[r].to;
    sums->maximum[first + r] = maximum[r];
    sums->sum[first + r] = sees ? SumLanes(lanes[r]) * sums->unit[first + r] : -1.0f;
  }
}

// As SoftmaxFew, for any number of rows.
template <class Format>
void SoftmaxGroup(const AttentionCall& call, const ColumnRange* own, ColumnRange group, int32_t n, const Buffers& b,
                  int32_t first, Sums* sums) {
  for (int32_t r = 0; r < n; r += kSoftmaxRows) {
    SoftmaxFew<Format>(own + r, group, n - r < kSoftmaxRows ? n - r : kSoftmaxRows, call.spec->scale * kLog2E,
                       b.FromRow(r, call.padded), first + r, sums);
  }
}

// The columns of the partition at `base` that each row of [first, first + n) attends to; returns their union.
ColumnRange RangesOf(const Rows& rows, int32_t first, int32_t n, int32_t base, ColumnRange* own) {
  ColumnRange group = {kPartition, 0};
  for (int32_t r = 0; r < n; ++r) {
    own[r] = rows.In(first + r, base);
    if (own[r].from >= own[r].to) continue;
    group.from = own[r].from < group.from ? own[r].from : group.from;
    group.to = own[r].to > group.to ? own[r].to : group.to;
  }
  return group;
}

// Words of one position's K.
inline int32_t KeyWords(const KvLayer& kv) {
  return (kv.head_dim + KvGroup(kv) - 1) / KvGroup(kv);
}

// Scores of the first `n` rows of b over columns [from, to) of the partition.
template <class Format>
void ScoreGroup(const AttentionCall& call, const PartitionKv& p, int32_t n, ColumnRange group,
                const FetchStream& stream, bool fetch, const Buffers& b) {
  const int32_t vecs = Format::VecsFor(n), first_vector = group.from / 16 / vecs * vecs;
  Format::BeginScores(n);
  for (int32_t v = first_vector; v * 16 < group.to; v += vecs) {
    const ScoreCall score = {n,
                             b.q,
                             call.padded / 2,
                             b.q_offset,
                             p.keys + v,
                             p.key_stride,
                             KeyWords(*call.kv),
                             p.key_scales + v,
                             stream.Ahead(v - first_vector),
                             b.scores + 16 * v};
    ScoreVectors<Format>(score, n, vecs, fetch);
  }
}

// Rows [first, first + n), n at most Format::kBlockRows, over the partition, into b.part: scores of all, then weights,
// then values. A group's scores are read when its stores have left the store buffer.
template <class Format>
void RunBlock(const AttentionCall& call, const Rows& rows, const PartitionKv& p, int32_t first, int32_t n,
              const FetchStream& stream, const Buffers& b, Sums* sums) {
  constexpr int32_t kGroups = Format::kBlockRows / Format::kGroupRows;
  ColumnRange own[Format::kBlockRows], groups[kGroups];
  const int32_t word = KvGroup(*call.kv);
  Buffers at = b;  // each block reuses scores and weights
  at.q += first * call.padded / 2;
  at.q_scale += first;
  at.q_offset += first;
  for (int32_t r = 0; r < n; ++r) sums->sum[first + r] = -1.0f;  // until computed
  const auto for_groups = [&](auto f) {
    for (int32_t r = 0; r < n; r += Format::kGroupRows) {
      f(r, n - r < Format::kGroupRows ? n - r : Format::kGroupRows, groups[r / Format::kGroupRows]);
    }
  };
  const auto fetches = [&](int32_t r) { return first == 0 && r == 0 && stream.active(); };
  for_groups([&](int32_t r, int32_t count, ColumnRange& group) {
    group = RangesOf(rows, first + r, count, p.base, own + r);
    if (group.from >= group.to) return;
    group.from = group.from / Format::kColumns * Format::kColumns;
    group.to = (group.to + Format::kColumns - 1) / Format::kColumns * Format::kColumns;
    ScoreGroup<Format>(call, p, count, group, stream, fetches(r), at.FromRow(r, call.padded));
  });
  for_groups([&](int32_t r, int32_t count, ColumnRange& group) {
    if (group.from >= group.to) return;
    SoftmaxGroup<Format>(call, own + r, group, count, at.FromRow(r, call.padded), first + r, sums);
  });
  for_groups([&](int32_t r, int32_t count, ColumnRange& group) {
    if (group.from >= group.to) return;
    const int32_t vecs = Format::VecsFor(count), first_vector = group.from / 16 / vecs * vecs;
    const std::byte* const* ahead = stream.Ahead((group.to + 15) / 16 - first_vector) - group.from / 16;
    Format::BeginValues(count);
    WeighGroup<Format>(call, p, p.values, count, group.from / word, (group.to + word - 1) / word, false,
                       at.weights + r * kPartition, ahead, fetches(r), b.part + (first + r) * call.padded);
  });
}

}  // namespace
}  // namespace tactus::compute
