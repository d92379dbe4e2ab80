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

#include "compute/kernels/attention/partition.h"

namespace tactus::compute {
namespace {

inline constexpr float kMost16 = 32767.0f;

inline int32_t Least(int32_t a, int32_t b) {
  return a < b ? a : b;
}
inline int32_t Most(int32_t a, int32_t b) {
  return a > b ? a : b;
}
inline int32_t Ceil(int32_t a, int32_t b) {
  return (a + b - 1) / b;
}
// What makes numbers up to `largest` codes of 16 bits; 0 for zeros and NaN.
inline float To16(float largest) {
  return largest >= 1e-30f ? kMost16 / largest : 0.0f;
}

// Four codes per 32-bit lane as two pairs of 16 bits: elements 0 and 2, 1 and 3.
struct WideCodes {
  __m256i even, odd;
  explicit WideCodes(const std::byte* from) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    even = _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8);
    odd = _mm256_srai_epi16(codes, 8);
  }
};
// Two pairs, as WideCodes has them, per group of four elements of a row.
inline __m256i SpreadPair(const void* pair) {
  int32_t both;
  std::memcpy(&both, pair, sizeof both);
  return _mm256_set1_epi32(both);
}

// Adds the products of one group: kVecs vectors of codes with two pairs of each row. A row's pairs serve all vectors,
// so the codes, opened once, stay in registers.
template <class Lanes, int kRows, int kVecs, class PairsOf>
inline __attribute__((always_inline)) void AddGroup(const std::byte* const* codes, int64_t offset, PairsOf pairs_of,
                                                    __m256i (&sum)[kRows][kVecs]) {
  __m256i even[kVecs], odd[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    const WideCodes wide(codes[v] + offset);
    even[v] = wide.even;
    odd[v] = wide.odd;
  }
  for (int r = 0; r < kRows; ++r) {
    const int16_t* pairs = pairs_of(r);
    const __m256i first = SpreadPair(pairs), second = SpreadPair(pairs + 2);
    for (int v = 0; v < kVecs; ++v) sum[r][v] = Lanes::MulAddPairs(sum[r][v], even[v], first);
    for (int v = 0; v < kVecs; ++v) sum[r][v] = Lanes::MulAddPairs(sum[r][v], odd[v], second);
  }
}

// K of kVecs vectors of 8 positions; group g of 4 dimensions is at from[v] + g * stride.
struct KeyVectors {
  const std::byte* from[2];
  const float* scales[2];
  int64_t stride;
};

template <class Lanes, int kRows, int kVecs>
void ScoreInts(const AttentionRows& rows, int32_t first, int64_t groups, const KeyVectors& keys, LinesAhead* ahead,
               float* scores) {
  __m256i sum[kRows][kVecs];
  const int16_t* q[kRows];
  for (int r = 0; r < kRows; ++r) {
    q[r] = reinterpret_cast<const int16_t*>(rows.q[first + r]);
    for (int v = 0; v < kVecs; ++v) sum[r][v] = _mm256_setzero_si256();
  }
  for (int64_t g = 0; g < groups; ++g) {
    if (g % 4 == 0) ahead->Step();
    AddGroup<Lanes, kRows, kVecs>(keys.from, g * keys.stride, [&](int r) { return q[r] + 4 * g; }, sum);
  }
  for (int v = 0; v < kVecs; ++v) {
    const __m256 scale = _mm256_loadu_ps(keys.scales[v]);
    for (int r = 0; r < kRows; ++r) {
      const __m256 score = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r][v]), _mm256_set1_ps(rows.q_scale[first + r]));
      _mm256_storeu_ps(scores + r * kPartition + v * 8, _mm256_mul_ps(score, scale));
    }
  }
}

// Adds the values of position groups [first, last) to sums of kVecs vectors of 8 dimensions. weights: int16, rows
// 2 * kPartition apart.
template <class Lanes, int kRows, int kVecs>
void WeighInts(const std::byte* const* values, int32_t first, int32_t last, int64_t offset, const int16_t* weights,
               bool fresh, LinesAhead* ahead, int64_t padded, int32_t* sums) {
  __m256i sum[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      sum[r][v] = fresh ? _mm256_setzero_si256()
                        : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums + r * padded + v * 8));
    }
  }
  for (int32_t g = first; g < last; ++g) {
    if (g % 4 == 0) ahead->Step();
    const std::byte* from[2] = {values[g], values[g] + 32};
    AddGroup<Lanes, kRows, kVecs>(from, offset, [&](int r) { return weights + r * 2 * kPartition + g * 4; }, sum);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + r * padded + v * 8), sum[r][v]);
  }
}

// 16 values of one row in [-kMost16, kMost16] to int16, of every four in the order 0, 2, 1, 3.
inline void Store16(__m256 a, __m256 b, int16_t* to) {
  const __m256i packed = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
  const __m256i ordered = _mm256_permute4x64_epi64(packed, 0xd8);
  const __m256i pairs = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7,
                                         8, 9, 12, 13, 10, 11, 14, 15);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_shuffle_epi8(ordered, pairs));
}

// The largest magnitude, or NaN if a value is NaN or infinite. values: `n` floats, a multiple of 8.
inline float Largest(const float* values, int64_t n) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 most = _mm256_setzero_ps(), zero = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i += 8) {
    const __m256 x = _mm256_loadu_ps(values + i);
    most = _mm256_max_ps(_mm256_andnot_ps(sign, x), most);
    zero = _mm256_fmadd_ps(x, _mm256_setzero_ps(), zero);  // 0 * x: NaN unless finite
  }
  return Simd::MaxLane(most) + Simd::Sum(zero);
}

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
