// Attention over paged K and V in f32, written once over simd/simd.h; kv.h reads K and V, partition.h has the
// arithmetic. Softmax in pieces as in FlashAttention (Dao et al. 2022) and Flash-Decoding, with partitions fixed in
// absolute position.
//
// A row is one (query, head). Its result depends on the row and its K and V alone:
// - a score is one chain of multiply-adds over head_dim, ascending; then times `scale`, soft-capped, and ALiBi's slope
//   added;
// - within a partition of kPartition absolute positions: the maximum, the weights exp(score - maximum), their sum
//   (lanes by absolute position, then the fixed tree of Simd::Sum), and the weighted values added position by position;
// - partitions are merged in ascending order by Merge, from the first that the row attends to.
// Positions that a row does not attend to are skipped or add an exact zero to a sum of non-negative numbers. So block
// size, chunking, neighbours, threads and the splitting below change no bit.
//
// K of int8 is rotated (kv_layout.h), so q is too, and the scores are the same.
//
// A tile is up to kAttentionTileRows rows that share one KV head; its K is converted and transposed once, its V
// converted once. For a tile with members that holds for the shared columns.
#pragma once

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/float_products.h"
#include "compute/kernels/attention/partition.h"

namespace tactus::compute {
namespace {

template <class Products>
AttentionRows RowsOf(const AttentionCall& call, const AttentionTile& tile, const AttentionBuffers& b) {
  AttentionRows rows;
  rows.count = tile.rows();
  for (int32_t r = 0; r < rows.count; ++r) {
    const VisibleRange seen = VisibleFrom(call, QueryOf(call, tile, r / tile.heads).position);
    rows.q[r] = call.q + AttentionRowOffset(call, tile, r, call.q_stride);
    if (call.kv->dtype == DType::kInt8) {
      float* turned = b.queries + r * call.padded;
      std::memcpy(turned, rows.q[r], static_cast<size_t>(call.kv->head_dim) * sizeof(float));
      SpreadHead(turned, call.kv->head_dim);
      rows.q[r] = turned;
    }
    rows.low[r] = seen.low;
    rows.high[r] = seen.high;
  }
  Products::RoundQueries(call, b, &rows);
  return rows;
}

template <class Products>
void RunAttentionTile(const AttentionCall& call, const AttentionTile& tile, const AttentionTile* next,
                      std::byte* scratch) {
  const AttentionBuffers b = CarveBuffers(scratch, call.padded);
  const AttentionRows rows = RowsOf<Products>(call, tile, b);
  float maximum[kAttentionTileRows], sum[kAttentionTileRows];
  bool seen[kAttentionTileRows] = {};
  PartitionSums part;
  for (int32_t index = rows.low[0] / kPartition; index <= rows.last() / kPartition; ++index) {
    RunPartition<Products>(call, tile, next, rows, index, b, &part);
    for (int32_t r = 0; r < rows.count; ++r) {
      if (part.sum[r] < 0) continue;
      Merge(seen[r], part.maximum[r], part.sum[r], b.part + r * call.padded, call.padded, &maximum[r], &sum[r],
            b.state + r * call.padded);
      seen[r] = true;
    }
  }
  for (int32_t r = 0; r < rows.count; ++r) {
    const float inverse = InverseSum(call, HeadOf(call, tile, r), maximum[r], sum[r]);
    WriteRow(b.state + r * call.padded, inverse, call.kv->head_dim,
             call.out + AttentionRowOffset(call, tile, r, call.out_stride));
  }
}

template <class Products>
void RunAttentionPartition(const AttentionCall& call, const AttentionTile& tile, int32_t index, std::byte* scratch,
                           float* results, int64_t stride) {
  const AttentionBuffers b = CarveBuffers(scratch, call.padded);
  const AttentionRows rows = RowsOf<Products>(call, tile, b);
  PartitionSums sums;
  RunPartition<Products>(call, tile, nullptr, rows, index, b, &sums);
  for (int32_t r = 0; r < rows.count; ++r) {
    float* to = results + r * stride;
    std::memcpy(to, b.part + r * call.padded, static_cast<size_t>(call.padded) * sizeof(float));
    to[call.padded] = sums.maximum[r];
    to[call.padded + 1] = sums.sum[r];
  }
}

void MergeAttention(const AttentionCall& call, int32_t head, float* state, const float* results, int64_t stride,
                    int32_t count, float* out) {
  const int64_t padded = call.padded;
  for (const float* part = results; part < results + count * stride; part += stride) {
    if (part[padded + 1] < 0) continue;
    const bool seen = state[padded + 1] != 0;  // a sum is at least 1: the maximum's own weight
    Merge(seen, part[padded], part[padded + 1], part, padded, &state[padded], &state[padded + 1], state);
  }
  if (out == nullptr) return;
  WriteRow(state, InverseSum(call, head, state[padded], state[padded + 1]), call.kv->head_dim, out);
}

template <class Products>
void AttentionBy(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                 int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                 Workspace scratch) {
  static constexpr AttentionKernel kKernel = {
      .tile_rows = kAttentionTileRows,
      .takes_kv_heads = nullptr,
      .takes_members = [](const AttentionCall&) { return true; },
      .run_tile = RunAttentionTile<Products>,
      .run_partition = RunAttentionPartition<Products>,
      .merge = MergeAttention,
  };
  RunAttention(pool, kKernel, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

inline void Attention(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                      int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                      Workspace scratch) {
  AttentionBy<FloatProducts>(pool, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

}  // namespace
}  // namespace tactus::compute
