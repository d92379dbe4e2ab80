// Attention over int8 K and V by products of 16-bit integers, 8 lanes at a time: AVX2, or AVX-VNNI (Lanes).
//
// q and the softmax weights, times the position's scale of V, are rounded to 16 bits, each row by its largest value.
// Codes of K and V are widened as they are read. All sums are exact: at most 127 * 32767 * kKvHeadDimMax and 127 *
// 32767
// * kPartition, below 2^31. So a row's bits depend on neither the layout of the cache nor the order of the sums.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/kernels/attention/avx2/int8_loops.h"
#include "compute/kernels/attention/kv.h"

namespace tactus::compute {
namespace {

template <class Lanes>
struct Int8Products {
  // Four rows with two vectors fill the registers.
  static constexpr int32_t kRows = 4;

  // q of each row to pairs of 16 bits, in place.
  static void RoundQueries(const AttentionCall& call, const AttentionBuffers& b, AttentionRows* rows) {
    const int64_t padded = call.padded;
    for (int32_t r = 0; r < rows->count; ++r) {
      float* q = b.queries + r * padded;
      for (int64_t d = call.kv->head_dim; d < padded; ++d) q[d] = 0.0f;
      const float largest = Largest(q, padded);
      const __m256 factor = _mm256_set1_ps(To16(largest));
      rows->q_scale[r] = largest / kMost16 * call.spec->scale;
      for (int64_t d = 0; d < padded; d += 16) {
        const __m256 low = _mm256_mul_ps(_mm256_loadu_ps(q + d), factor);
        const __m256 high = _mm256_mul_ps(_mm256_loadu_ps(q + d + 8), factor);
        Store16(low, high, reinterpret_cast<int16_t*>(q) + d);
      }
    }
  }

  static void ScoreItem(const AttentionCall& call, const AttentionItem& item, int32_t kv_head,
                        const AttentionRows& rows, int32_t base, int32_t begin, int32_t end, const KvRange& next,
                        const AttentionBuffers& b) {
    const int64_t groups = CeilDiv(call.kv->head_dim, 4);
    LinesAhead ahead(*call.kv, next, CeilDiv(end - begin, 16) * CeilDiv(rows.count, kRows) * CeilDiv(groups, 4));
    for (int32_t first = begin / 16 * 16; first < end; first += 16) {
      KeyVectors keys;
      const int32_t low = first + 8 <= begin ? first + 8 : first;  // the first vector of 8 with a column
      const int vecs = low == first && first + 8 < end ? 2 : 1;
      for (int v = 0; v < vecs; ++v) PlaceKeys(call, item, kv_head, low + 8 * v, begin, end, b, v, &keys);
      for (int32_t r = 0, n; r < rows.count; r += n) {
        n = rows.count - r >= kRows ? kRows : rows.count - r >= 2 ? 2 : 1;
        if (rows.high[r + n - 1] < low || rows.low[r] >= low + 8 * vecs) continue;
        float* to = b.weights + r * kPartition + (low - base);
        (vecs == 2 ? Score<2>(n) : Score<1>(n))(rows, r, groups, keys, &ahead, to);
      }
    }
  }

  // Softmax weights of columns [from[r], to[r]) times their scales of V.
  static void ScaleWeights(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t base,
                           int32_t begin, int32_t end, int32_t first, int32_t count, const int32_t* from,
                           const int32_t* to, const AttentionBuffers& b) {
    alignas(32) float scales[kPartition];
    HeadCursor at(*call.kv, call.kv->v, item, kv_head, begin);
    for (int32_t p = begin; p < end; ++p) {
      scales[p - base] = KvScale(*call.kv, at.head(), at.offset());
      at.Next(p + 1 < end);
    }
    for (int32_t r = first; r < first + count; ++r) {
      float* weights = b.weights + r * kPartition;
      for (int32_t c = from[r]; c < to[r]; ++c) weights[c] *= scales[c];
    }
  }

  // Weights of columns [from[r], to[r]) to 16 bits, in place; all others below `columns`, rounded up to 16, to 0. The
  // row's unit is kept behind them.
  static void RoundWeights(int32_t rows, int32_t columns, const int32_t* from, const int32_t* to,
                           const AttentionBuffers& b) {
    const int32_t end = Ceil(columns, 16) * 16;
    for (int32_t r = 0; r < rows; ++r) {
      float* weights = b.weights + r * kPartition;
      const int32_t low = Least(from[r], end), high = from[r] < to[r] ? to[r] : low;
      for (int32_t c = 0; c < low; ++c) weights[c] = 0.0f;
      for (int32_t c = high; c < end; ++c) weights[c] = 0.0f;
      const float largest = Largest(weights, end);
      const __m256 factor = _mm256_set1_ps(To16(largest));
      for (int32_t c = 0; c < end; c += 16) {
        Store16(_mm256_mul_ps(_mm256_loadu_ps(weights + c), factor),
                _mm256_mul_ps(_mm256_loadu_ps(weights + c + 8), factor), reinterpret_cast<int16_t*>(weights) + c);
      }
      weights[kPartition - 1] = largest / kMost16;  // 16-bit weights fill only half of the row
    }
  }

  static void Weigh(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t base, int32_t begin,
                    int32_t end, int32_t first, int32_t count, const int32_t* from, const int32_t* to, bool fresh,
                    const KvRange& next, const AttentionBuffers& b) {
    const std::byte* values[kPartition / 4];
    PlaceValues(call, item, kv_head, base, begin, end, b, values);
    const int64_t padded = call.padded;
    LinesAhead ahead(*call.kv, next, CeilDiv(count, kRows) * CeilDiv(padded, 16) * CeilDiv(end - begin, 16));
    const int32_t low_group = (begin - base) / 4, high_group = Ceil(end - base, 4);
    for (int32_t r = first, n; r < first + count; r += n) {
      const int32_t left = first + count - r;
      n = left >= kRows ? kRows : left >= 2 ? 2 : 1;
      // Only the columns that these rows attend to; weights of the others are 0.
      int32_t low = from[r] / 4, high = Ceil(to[r], 4);
      for (int32_t i = r + 1; i < r + n; ++i) {
        low = Least(low, from[i] / 4);
        high = Most(high, Ceil(to[i], 4));
      }
      low = Most(low, low_group);
      high = Least(high, high_group);
      const auto* weights = reinterpret_cast<const int16_t*>(b.weights + r * kPartition);
      auto* sums = reinterpret_cast<int32_t*>(b.part + r * padded);
      int64_t d = 0;
      for (; d + 16 <= call.kv->head_dim; d += 16)
        Weigh<2>(n)(values, low, high, d * 4, weights, fresh, &ahead, padded, sums + d);
      for (; d < call.kv->head_dim; d += 8)
        Weigh<1>(n)(values, low, high, d * 4, weights, fresh, &ahead, padded, sums + d);
    }
  }

  // Sums to values.
  static void Finish(const AttentionCall& call, int32_t rows, const AttentionBuffers& b) {
    for (int32_t r = 0; r < rows; ++r) {
      const __m256 unit = _mm256_set1_ps(b.weights[r * kPartition + kPartition - 1]);
      float* part = b.part + r * call.padded;
      const int64_t dims = RoundUp(call.kv->head_dim, 8);
      for (int64_t d = 0; d < dims; d += 8) {
        const __m256i sum = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(part + d));
        _mm256_storeu_ps(part + d, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), unit));
      }
      for (int64_t d = dims; d < call.padded; ++d) part[d] = 0.0f;
    }
  }

 private:
  using ScoreFn = void (*)(const AttentionRows&, int32_t, int64_t, const KeyVectors&, LinesAhead*, float*);
  template <int kVecs>
  static ScoreFn Score(int32_t rows) {
    return rows == kRows ? ScoreInts<Lanes, kRows, kVecs>
           : rows == 2   ? ScoreInts<Lanes, 2, kVecs>
                         : ScoreInts<Lanes, 1, kVecs>;
  }
  using WeighFn = void (*)(const std::byte* const*, int32_t, int32_t, int64_t, const int16_t*, bool, LinesAhead*,
                           int64_t, int32_t*);
  template <int kVecs>
  static WeighFn Weigh(int32_t rows) {
    return rows == kRows ? WeighInts<Lanes, kRows, kVecs>
           : rows == 2   ? WeighInts<Lanes, 2, kVecs>
                         : WeighInts<Lanes, 1, kVecs>;
  }
  // Whether vectors of 8 lanes can be read where they are.
  static bool InPlace(const KvLayer& kv) { return KvGrouped(kv) && kv.block_size % 8 == 0 && kv.head_dim % 8 == 0; }

  // K of the 8 positions from `first` on, as vector `v`. Positions outside [begin, end) get arbitrary values.
  static void PlaceKeys(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t first,
                        int32_t begin, int32_t end, const AttentionBuffers& b, int v, KeyVectors* keys) {
    const KvLayer& kv = *call.kv;
    if (InPlace(kv)) {
      const HeadCursor at(kv, kv.k, item, kv_head, first);
      keys->from[v] = at.head() + int64_t{at.offset()} * 4;
      keys->scales[v] = reinterpret_cast<const float*>(at.head() + KvScaleOffset(kv, at.offset()));
      keys->stride = int64_t{kv.block_size} * 4;
      return;
    }
    const int64_t groups = CeilDiv(kv.head_dim, 4);
    float* scales = b.keys + v * 8;
    auto* to = reinterpret_cast<std::byte*>(b.keys + 16) + v * 32;
    keys->from[v] = to;
    keys->scales[v] = scales;
    keys->stride = 64;
    for (int64_t g = 0; g < groups; ++g) std::memset(to + g * 64, 0, 32);
    for (int32_t i = 0; i < 8; ++i) scales[i] = 0.0f;
    const int32_t low = Most(first, begin), high = Least(first + 8, end);
    HeadCursor at(kv, kv.k, item, kv_head, low);
    for (int32_t p = low; p < high; ++p) {
      scales[p - first] = KvScale(kv, at.head(), at.offset());
      for (int32_t d = 0; d < kv.head_dim; ++d)
        to[d / 4 * 64 + (p - first) * 4 + d % 4] = at.head()[KeyIndex(kv, at.offset(), d)];
      at.Next(p + 1 < high);
    }
  }

  // values[g]: V of positions base + 4 g and the next three, [head_dim][4]. Positions outside [begin, end) get
  // arbitrary values.
  static void PlaceValues(const AttentionCall& call, const AttentionItem& item, int32_t kv_head, int32_t base,
                          int32_t begin, int32_t end, const AttentionBuffers& b, const std::byte** values) {
    const KvLayer& kv = *call.kv;
    const int64_t dims = RoundUp(kv.head_dim, 8);
    if (InPlace(kv)) {
      HeadCursor at(kv, kv.v, item, kv_head, begin / 4 * 4);
      for (int32_t p = begin / 4 * 4; p < end; p += 4) {
        values[(p - base) / 4] = at.head() + int64_t{at.offset()} * kv.head_dim;
        at.Next(p + 4 < end, 4);
      }
      return;
    }
    auto* to = reinterpret_cast<std::byte*>(b.values);
    for (int32_t g = (begin - base) / 4; g * 4 < end - base; ++g) {
      values[g] = to + g * dims * 4;
      std::memset(to + g * dims * 4, 0, static_cast<size_t>(dims) * 4);
    }
    HeadCursor at(kv, kv.v, item, kv_head, begin);
    for (int32_t p = begin; p < end; ++p) {
      std::byte* group = to + (p - base) / 4 * dims * 4 + (p - base) % 4;
      for (int32_t d = 0; d < kv.head_dim; ++d) group[d * 4] = at.head()[ValueIndex(kv, at.offset(), d)];
      at.Next(p + 1 < end);
    }
  }
};

struct Avx2Pairs {
  static __m256i MulAddPairs(__m256i sum, __m256i a, __m256i b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  }
};

}  // namespace
}  // namespace tactus::compute
