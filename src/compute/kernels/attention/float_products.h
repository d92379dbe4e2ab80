// The products of attention in f32, of any K and V: scores, and values by softmax weights (partition.h).
#pragma once

#include <cstdint>

#include "compute/kernels/attention/kv.h"

namespace tactus::compute {
namespace {

inline constexpr int32_t kStep = 8;  // dimensions or positions per step of LinesAhead

// Scores of kRows rows against kAttentionVecs vectors of positions.
template <int kRows>
void ScoreTile(const float* const* q, int32_t head_dim, const float* keys, float scale, LinesAhead* ahead,
               float* scores) {
  constexpr int kVecs = Simd::kAttentionVecs, kW = Simd::kWidth;
  Simd::F acc[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) acc[r][v] = Simd::Zero();
  }
  for (int32_t d = 0; d < head_dim; ++d) {
    if (d % kStep == 0) ahead->Step();
    Simd::F k[kVecs];
    for (int v = 0; v < kVecs; ++v) k[v] = Simd::Load(keys + d * kKeyTile + v * kW);
    for (int r = 0; r < kRows; ++r) {
      const Simd::F x = Simd::Set1(q[r][d]);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = Simd::MulAdd(x, k[v], acc[r][v]);
    }
  }
  const Simd::F s = Simd::Set1(scale);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) Simd::Store(scores + r * kPartition + v * kW, Simd::Mul(acc[r][v], s));
  }
}

inline void Scores(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, const AttentionRows& rows,
                   int32_t base, int32_t begin, int32_t end, const KvRange& next, const AttentionBuffers& b) {
  constexpr int kColumns = Simd::kAttentionVecs * Simd::kWidth;
  constexpr int kRows = Simd::kAttentionRows;
  const int32_t head_dim = call.kv->head_dim;
  LinesAhead ahead(*call.kv, next,
                   CeilDiv(end - begin, kColumns) * CeilDiv(rows.count, kRows) * CeilDiv(head_dim, kStep));
  for (int32_t tile = base; tile < end; tile += kKeyTile) {
    for (int32_t c = 0; c < kKeyTile; c += kColumns) {
      const int32_t first = tile + c, last = first + kColumns - 1;
      if (last < begin || first >= end) continue;
      LoadKeys(call, item, kv_head, tile, c, c + kColumns, begin, end, b);
      for (int32_t r = 0, n; r < rows.count; r += n) {
        n = rows.count - r >= kRows ? kRows : 1;
        if (rows.high[r + n - 1] < first || rows.low[r] > last) continue;
        float* to = b.weights + r * kPartition + (first - base);
        if (n == kRows) {
          ScoreTile<kRows>(rows.q + r, head_dim, b.keys + c, call.spec->scale, &ahead, to);
        } else {
          ScoreTile<1>(rows.q + r, head_dim, b.keys + c, call.spec->scale, &ahead, to);
        }
      }
    }
  }
}

// out[r, :] (+)= weights[r, from..to) * values, position by position. `fresh`: starts from zero.
template <int kRows, int kVecs>
void WeighVectors(const float* weights, const float* values, int64_t padded, int32_t from, int32_t to, bool fresh,
                  LinesAhead* ahead, float* out) {
  constexpr int kW = Simd::kWidth;
  Simd::F acc[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) acc[r][v] = fresh ? Simd::Zero() : Simd::Load(out + r * padded + v * kW);
  }
  for (int32_t s = from; s < to; ++s) {
    if (s % kStep == 0) ahead->Step();
    Simd::F x[kVecs];
    for (int v = 0; v < kVecs; ++v) x[v] = Simd::Load(values + s * padded + v * kW);
    for (int r = 0; r < kRows; ++r) {
      const Simd::F w = Simd::Set1(weights[r * kPartition + s]);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = Simd::MulAdd(w, x[v], acc[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) Simd::Store(out + r * padded + v * kW, acc[r][v]);
  }
}

template <int kRows>
void Weigh(const float* weights, const float* values, int64_t padded, int32_t from, int32_t to, bool fresh,
           LinesAhead* ahead, float* out) {
  constexpr int kVecs = Simd::kAttentionVecs, kW = Simd::kWidth;
  int64_t d = 0;
  for (; d + kVecs * kW <= padded; d += kVecs * kW) {
    WeighVectors<kRows, kVecs>(weights, values + d, padded, from, to, fresh, ahead, out + d);
  }
  for (; d < padded; d += kW) WeighVectors<kRows, 1>(weights, values + d, padded, from, to, fresh, ahead, out + d);
}

// Rows [r, r + n) whose visible columns are [begin[i], end[i]): together where all attend to a column, separately at
// the edges. `fresh`: as in WeighVectors.
inline void WeighRows(int32_t n, const int32_t* begin, const int32_t* end, const float* weights, const float* values,
                      int64_t padded, bool fresh, LinesAhead* ahead, float* out) {
  int32_t common_begin = begin[0], common_end = end[0];
  for (int32_t i = 1; i < n; ++i) {
    common_begin = begin[i] > common_begin ? begin[i] : common_begin;
    common_end = end[i] < common_end ? end[i] : common_end;
  }
  const bool together = n == Simd::kAttentionRows && common_begin < common_end;
  for (int32_t i = 0; i < n; ++i) {
    if (begin[i] >= end[i]) continue;
    const int32_t stop = together ? common_begin : end[i];
    Weigh<1>(weights + i * kPartition, values, padded, begin[i], stop, fresh, ahead, out + i * padded);
  }
  if (!together) return;
  Weigh<Simd::kAttentionRows>(weights, values, padded, common_begin, common_end, false, ahead, out);
  for (int32_t i = 0; i < n; ++i) {
    if (common_end < end[i]) {
      Weigh<1>(weights + i * kPartition, values, padded, common_end, end[i], false, ahead, out + i * padded);
    }
  }
}

// Weighted values of rows [first, first + count) from columns [from[r], to[r]) of the item.
inline void WeighItem(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t base,
                      int32_t begin, int32_t end, int32_t first, int32_t count, const int32_t* from, const int32_t* to,
                      bool fresh, const KvRange& next, const AttentionBuffers& b) {
  LoadValues(call, item, kv_head, base, begin, end, b);
  constexpr int kColumns = Simd::kAttentionVecs * Simd::kWidth;
  LinesAhead ahead(*call.kv, next,
                   CeilDiv(count, Simd::kAttentionRows) * CeilDiv(call.padded, kColumns) * CeilDiv(end - begin, kStep));
  for (int32_t r = first; r < first + count; r += Simd::kAttentionRows) {
    const auto n = static_cast<int32_t>(MinOf(Simd::kAttentionRows, first + count - r));
    WeighRows(n, from + r, to + r, b.weights + r * kPartition, b.values, call.padded, fresh, &ahead,
              b.part + r * call.padded);
  }
}

// Products in f32, of any K and V: the loops above. Another class with these functions: avx2/int8_products.h.
struct FloatProducts {
  static constexpr bool kTurnsQueries = true;  // where K is rotated
  static void RoundQueries(const AttentionCall&, const AttentionBuffers&, AttentionRows*) {}
  static void ScoreItem(const AttentionCall& call, const AttentionItem& item, int32_t kv_head,
                        const AttentionRows& rows, int32_t base, int32_t begin, int32_t end, const KvRange& next,
                        const AttentionBuffers& b) {
    Scores(call, item, kv_head, rows, base, begin, end, next, b);
  }
  static void ScaleWeights(const AttentionCall&, const AttentionItem&, int32_t, int32_t, int32_t, int32_t, int32_t,
                           int32_t, const int32_t*, const int32_t*, const AttentionBuffers&) {}
  static void RoundWeights(int32_t, int32_t, const int32_t*, const int32_t*, const AttentionBuffers&) {}
  static void Weigh(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t base, int32_t begin,
                    int32_t end, int32_t first, int32_t count, const int32_t* from, const int32_t* to, bool fresh,
                    const KvRange& next, const AttentionBuffers& b) {
    WeighItem(call, item, kv_head, base, begin, end, first, count, from, to, fresh, next, b);
  }
  static void Finish(const AttentionCall&, int32_t, const AttentionBuffers&) {}
};

}  // namespace
}  // namespace tactus::compute
