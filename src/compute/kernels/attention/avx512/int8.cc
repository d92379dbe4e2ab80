// Attention by vpdpbusd: q and the softmax weights rounded to 16-bit integers, codes of K and V as stored, exact sums
// of their products in 32 bits. q has one scale per row, max|q| / 32639 (so that both bytes are signed). A score is the
// sum in f32, times the position's scale of K; the row's scale of q is applied in the exponent. Weights are the softmax
// weights times the position's scale of V, in units of a power of two that makes the row's largest scale of V in the
// partition a 15-bit number; the weights are summed before that. Sums are at most 2^15 * 127 * kPartition and 32639 *
// 127 * kKvHeadDimMax, below 2^31 (tiles.h).
#include "compute/kernels/attention/avx512/int8.h"

#include "compute/kernels/attention/avx512/int8_tile.h"
#include "compute/kernels/attention/avx512/tiles.h"

namespace tactus::compute {
namespace {

struct Int8 {
  static constexpr int32_t kGroupRows = kSoftmaxRows, kBlockRows = kGroupRows, kTileRows = 4;
  static constexpr int32_t kTaskRows = kAttentionTileRows;
  static constexpr bool kCodes = true, kWholeChunks = false;
  static void BeginScores(int32_t) {}
  static void BeginValues(int32_t) {}
  static void End() {}

  // Each row and vector has two sums.
  static int VecsFor(int32_t rows) { return rows <= 2 ? 4 : 2; }

  template <int kVecs, bool kFetch>
  static constexpr ScoreFn kScore[kTileRows + 1] = {nullptr, ScoreRows<1, kVecs, kFetch>, ScoreRows<2, kVecs, kFetch>,
                                                    ScoreRows<3, 2, kFetch>, ScoreRows<4, 2, kFetch>};
  static ScoreFn Score(int32_t rows, int vecs, bool fetch) {
    if (vecs == 4) return fetch ? kScore<4, true>[rows] : kScore<4, false>[rows];
    return fetch ? kScore<2, true>[rows] : kScore<2, false>[rows];
  }

  template <int kVecs, bool kFetch>
  static constexpr WeighFn kWeigh[kTileRows + 1] = {nullptr, WeighRows<1, kVecs, kFetch>, WeighRows<2, kVecs, kFetch>,
                                                    WeighRows<3, kVecs == 4 ? 2 : kVecs, kFetch>,
                                                    WeighRows<4, kVecs == 4 ? 2 : kVecs, kFetch>};
  static WeighFn Weigh(int32_t rows, int vecs, bool fetch) {
    if (vecs == 1) return kWeigh<1, false>[rows];
    if (vecs == 4) return fetch ? kWeigh<4, true>[rows] : kWeigh<4, false>[rows];
    return fetch ? kWeigh<2, true>[rows] : kWeigh<2, false>[rows];
  }

  static void RoundQuery(const AttentionCall& call, const float* from, const Buffers& b) {
    const int32_t head_dim = call.kv->head_dim, run = head_dim & -head_dim;
    alignas(64) float q[kKvHeadDimMax];
    std::memcpy(q, from, static_cast<size_t>(head_dim) * sizeof(float));
    for (int64_t d = head_dim; d < call.padded; ++d) q[d] = 0.0f;
    if (run >= 16) {
      SpreadVectors(reinterpret_cast<__m512*>(q), head_dim / 16, run);
    } else {
      SpreadHead(q, head_dim);
    }
    // Bits of magnitudes compare as the magnitudes do, with infinity and NaN on top.
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i top = _mm512_setzero_si512();
    for (int64_t d = 0; d < call.padded; d += 16) {
      top = _mm512_max_epi32(top, _mm512_and_si512(_mm512_load_si512(q + d), magnitude));
    }
    const float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(_mm512_reduce_max_epi32(top))));
    const bool finite = largest <= 3.4028234e38f, zero = largest < 1e-30f;
    *b.q_scale = !finite ? __builtin_nanf("") : zero ? 0.0f : largest / 32639.0f;
    const __m512 inverse = _mm512_set1_ps(!finite || zero ? 0.0f : 32639.0f / largest);
    auto* high = reinterpret_cast<std::byte*>(b.q);
    std::byte* low = high + call.padded;
    __m512i sum = _mm512_setzero_si512();
    for (int64_t d = 0; d < call.padded; d += 16) {
      const __m512i x = finite ? _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(q + d), inverse)) : sum;
      const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(128)), 8);
      sum = _mm512_add_epi32(sum, x);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(high + d), _mm512_cvtepi32_epi8(upper));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(low + d), _mm512_cvtepi32_epi8(x));
    }
    *b.q_offset = -128 * _mm512_reduce_add_epi32(sum);
  }

  static void Weights(const Buffers& b, const ColumnRange* own, ColumnRange group, int32_t n, float log2_scale,
                      float* maximum, __m512* sums, float* unit) {
    float largest = 0;
    for (int32_t r = 0; r < n; ++r) {
      unit[r] = 1.0f;
      if (own[r].from >= own[r].to) continue;
      const bool again = r > 0 && own[r].from == own[r - 1].from && own[r].to == own[r - 1].to;
      if (!again) largest = LargestScale(b.value_scales, own[r]);
      const int32_t shift = WeightShift(largest);
      sums[r] = SoftmaxRow(b.scores + r * kPartition, own[r], group, log2_scale * b.q_scale[r], maximum[r], shift,
                           b.value_scales, b.weights + r * kPartition);
      maximum[r] *= b.q_scale[r];
      unit[r] = PowerOfTwo(-shift) + 0.0f * largest;  // NaN stays NaN
    }
  }
};

}  // namespace

void AttentionAvx512Int8(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                         int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                         Workspace scratch) {
  AttentionOf<Int8>(pool, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

}  // namespace tactus::compute
