// How a tile of attention runs over its partitions, for any format of K and V; bf16.cc and int8.cc define the
// arithmetic as a Format:
//   kTileRows, kGroupRows, kBlockRows: the most rows of its loops; rows with common columns; rows whose scores, then
//   weights, then values are computed; kTaskRows: the most rows of a tile
//   VecsFor(rows): the vectors of K or V that the loops process at a time
//   Score(rows, vecs, fetch), Weigh(rows, vecs, fetch): its loops (rows.h)
//   RoundQuery(call, head, b): one row of q to the front of b
//   Weights(...): scores to weights (SoftmaxGroup)
//   kCodes: whether K and V have scales and sums of values are whole numbers
//   kValues: how its loops read V (ValueUse)
//   kColumns: the columns of a group of rows begin and end at multiples of it; a row's weights are 0 outside its own
//   BeginScores(rows), BeginValues(rows), End(): called before loops of `rows` rows, and behind a tile
//
// A row is one (query, head). Its result depends on the row and its K and V alone:
// - a score is one sum over head_dim in a fixed order;
// - within a partition of kPartition absolute positions: the maximum, the weights 2^(scale log2(e) (score - maximum)),
//   their sum (lanes by absolute position, then a fixed tree), and one sum of weighted values over positions,
//   ascending;
// - partitions are merged in ascending order by MergeRows.
// Positions that a row does not attend to are skipped or have a weight of exact zero. So block size, chunking,
// neighbours, threads and the splitting of long tiles change no bit.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/avx512/partitions.h"
#include "compute/kernels/attention/schedule.h"

namespace tactus::compute {
namespace {

// Merges a partition's `n` rows, stride apart, into the earlier ones. Before a row's first partition: maximum
// -infinity, sum and values 0.
inline void MergeRows(float log2_scale, int32_t n, const float* maximum, const float* sum, const float* part,
                      int64_t padded, float* state_maximum, float* state_sum, float* state) {
  for (int32_t r = 0; r < n; r += 16) {
    const __mmask16 rows = Within(r, 0, n);
    const __m512 s1 = _mm512_maskz_loadu_ps(rows, sum + r), s0 = _mm512_maskz_loadu_ps(rows, state_sum + r);
    const __mmask16 sees = _mm512_mask_cmp_ps_mask(rows, s1, _mm512_setzero_ps(), _CMP_NLT_UQ);
    if (sees == 0) continue;
    const __m512 m1 = _mm512_maskz_loadu_ps(rows, maximum + r), m0 = _mm512_maskz_loadu_ps(rows, state_maximum + r);
    const __m512 top = _mm512_max_ps(m0, m1), scale = _mm512_set1_ps(log2_scale);
    // The first partition is merged into a state of zeros, so Exp2's value for its -infinity, 2^-126, has no effect.
    const __m512 f0 = Exp2(_mm512_mul_ps(_mm512_sub_ps(m0, top), scale));
    const __m512 f1 = Exp2(_mm512_mul_ps(_mm512_sub_ps(m1, top), scale));
    _mm512_mask_storeu_ps(state_maximum + r, sees, top);
    _mm512_mask_storeu_ps(state_sum + r, sees, _mm512_fmadd_ps(s1, f1, _mm512_mul_ps(s0, f0)));
    alignas(64) float old_factor[16], new_factor[16];
    _mm512_store_ps(old_factor, f0);
    _mm512_store_ps(new_factor, f1);
    for (int32_t i = 0; i < 16; ++i) {
      if ((sees >> i & 1) == 0) continue;
      const __m512 a = _mm512_set1_ps(old_factor[i]), c = _mm512_set1_ps(new_factor[i]);
      float* to = state + (r + i) * padded;
      const float* from = part + (r + i) * padded;
      for (int64_t d = 0; d < padded; d += 16) {
        const __m512 kept = _mm512_mul_ps(_mm512_loadu_ps(to + d), a);
        _mm512_storeu_ps(to + d, _mm512_fmadd_ps(_mm512_loadu_ps(from + d), c, kept));
      }
    }
  }
}

// A sum of zeros is +0 whether or not it was merged.
inline void WriteRow(const float* state, float inverse_sum, int32_t head_dim, float* out) {
  const __m512 inverse = _mm512_set1_ps(inverse_sum);
  for (int32_t d = 0; d < head_dim; d += 16) {
    const __mmask16 lanes = Within(d, 0, head_dim);
    _mm512_mask_storeu_ps(out + d, lanes, _mm512_fmadd_ps(_mm512_loadu_ps(state + d), inverse, _mm512_setzero_ps()));
  }
}

// Calls f(row, index of its first element in a buffer whose tokens are `stride` apart), rows ascending.
template <class F>
inline void ForRowsOf(const AttentionCall& call, const AttentionTile& tile, int64_t stride, F f) {
  const int32_t head_dim = call.kv->head_dim;
  for (int32_t kv_head = 0, r = 0; kv_head < tile.kv_heads; ++kv_head) {
    const int64_t head = AttentionRowOffset(call, tile, r, 0);
    for (int32_t query = 0; query < tile.queries; ++query) {
      const int64_t token = QueryOf(call, tile, query).token * stride + head;
      for (int32_t h = 0; h < tile.heads; ++h, ++r) f(r, token + static_cast<int64_t>(h) * head_dim);
    }
  }
}

template <class Format>
void RoundQueries(const AttentionCall& call, const AttentionTile& tile, const Buffers& b) {
  ForRowsOf(call, tile, call.q_stride,
            [&](int32_t r, int64_t at) { Format::RoundQuery(call, call.q + at, b.FromRow(r, call.padded)); });
}

// Prefetches rows of a tile: of q for the next tile, of the result for this one. They are not contiguous, and waiting
// for them costs a fifth of a short prompt.
template <int kWrite>
void FetchRows(const AttentionCall& call, const AttentionTile& tile, const float* base, int64_t stride) {
  const int64_t bytes = int64_t{tile.heads} * call.kv->head_dim * int64_t{sizeof(float)};
  for (int32_t r = 0; r < tile.rows(); r += tile.heads) {
    const auto* from = reinterpret_cast<const char*>(base + AttentionRowOffset(call, tile, r, stride));
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, kWrite);
  }
}

template <class Format>
void RunTile(const AttentionCall& call, const AttentionTile& tile, const AttentionTile* next, std::byte* scratch) {
  const Buffers b(scratch, call.padded);
  const Rows rows(call, tile);
  RoundQueries<Format>(call, tile, b);
  Sums sums;
  float maximum[kMostTileRows], sum[kMostTileRows];
  // The first partition becomes the state, which equals merging it into an empty state (except for the sign of zeros:
  // see WriteRow).
  const int32_t first = rows.low[0] / kPartition, last = rows.last / kPartition;
  FetchRows<1>(call, tile, call.out, call.out_stride);
  if (next != nullptr) FetchRows<0>(call, *next, call.q, call.q_stride);
  Buffers begin = b;
  begin.part = b.state;
  RunAnyPartition<Format>(call, tile, next, rows, first, begin, &sums);
  for (int32_t r = 0; r < rows.count; ++r) {
    const bool sees = !(sums.sum[r] < 0);
    maximum[r] = sees ? sums.maximum[r] : -__builtin_inff();
    sum[r] = sees ? sums.sum[r] : 0.0f;
    if (!sees) std::memset(b.state + r * call.padded, 0, static_cast<size_t>(call.padded) * sizeof(float));
  }
  for (int32_t index = first + 1; index <= last; ++index) {
    RunAnyPartition<Format>(call, tile, next, rows, index, b, &sums);
    MergeRows(call.spec->scale * kLog2E, rows.count, sums.maximum, sums.sum, b.part, call.padded, maximum, sum,
              b.state);
  }
  Format::End();
  ForRowsOf(call, tile, call.out_stride, [&](int32_t r, int64_t at) {
    const float inverse = InverseSum(call, HeadOf(call, tile, r), maximum[r] * call.spec->scale, sum[r]);
    WriteRow(b.state + r * call.padded, inverse, call.kv->head_dim, call.out + at);
  });
}

template <class Format>
void RunTilePartition(const AttentionCall& call, const AttentionTile& tile, int32_t index, std::byte* scratch,
                      float* results, int64_t stride) {
  const Buffers b(scratch, call.padded);
  const Rows rows(call, tile);
  RoundQueries<Format>(call, tile, b);
  Sums sums;
  RunAnyPartition<Format>(call, tile, nullptr, rows, index, b, &sums);
  Format::End();
  for (int32_t r = 0; r < rows.count; ++r) {
    float* to = results + r * stride;
    std::memcpy(to, b.part + r * call.padded, static_cast<size_t>(call.padded) * sizeof(float));
    to[call.padded] = sums.maximum[r];
    to[call.padded + 1] = sums.sum[r];
  }
}

void MergeResults(const AttentionCall& call, int32_t head, float* state, const float* results, int64_t stride,
                  int32_t count, float* out) {
  for (int32_t i = 0; i < count; ++i) {
    const float* part = results + i * stride;
    MergeRows(call.spec->scale * kLog2E, 1, part + call.padded, part + call.padded + 1, part, call.padded,
              state + call.padded, state + call.padded + 1, state);
  }
  if (out == nullptr) return;
  const float maximum = state[call.padded] * call.spec->scale;
  WriteRow(state, InverseSum(call, head, maximum, state[call.padded + 1]), call.kv->head_dim, out);
}

inline bool ReadsInChunks(const AttentionCall& call) {
  return InChunks(*call.kv);
}

// The part of a Format whose loops use vector instructions.
template <class Rows>
struct VectorFormat : Rows {
  static constexpr int32_t kGroupRows = kSoftmaxRows, kBlockRows = kGroupRows;
  static constexpr int32_t kTaskRows = kAttentionTileRows;
  static constexpr int32_t kColumns = 1;
  static constexpr ValueUse kValues = ValueUse::kWords;
  static void BeginScores(int32_t) {}
  static void BeginValues(int32_t) {}
  static void End() {}
};

template <class Format>
void AttentionOf(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                 int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                 Workspace scratch) {
  static constexpr AttentionKernel kKernel = {
      .tile_rows = Format::kTaskRows,
      .takes_kv_heads = ReadsInChunks,
      .takes_members = ReadsInChunks,
      .run_tile = RunTile<Format>,
      .run_partition = RunTilePartition<Format>,
      .merge = MergeResults,
  };
  RunAttention(pool, kKernel, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

}  // namespace
}  // namespace tactus::compute
