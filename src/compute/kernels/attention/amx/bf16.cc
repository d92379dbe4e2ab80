// Attention by tdpbf16ps: q and the softmax weights rounded to bf16, K and V as stored, sums in f32. An instruction
// adds its products from zero, those of even and of odd elements in a chain each, and then adds their total to the sum.
// A score has one instruction per 32 dimensions, ascending; weighted values have one per 16 positions of a chunk,
// ascending. These chains differ from vdpbf16ps's, so decodes use tiles too. The rest is as on AVX-512
// (avx512/tiles.h).
#include "compute/kernels/attention/amx/bf16.h"

#include "compute/kernels/attention/amx/bf16_tile.h"
#include "compute/kernels/attention/avx512/bf16_rows.h"
#include "compute/kernels/attention/avx512/tiles.h"
#include "compute/kernels/simd/amx.h"

namespace tactus::compute {
namespace {

struct AmxBf16 : Bf16Rows {
  static constexpr int32_t kGroupRows = 2 * kAmxRows, kBlockRows = 2 * kGroupRows, kTileRows = kGroupRows;
  static constexpr int32_t kTaskRows = kMostTileRows;
  static constexpr int32_t kColumns = 1;
  static constexpr ValueUse kValues = ValueUse::kChunks;
  static void BeginScores(int32_t rows) { ConfigureScores<AmxTiles>(rows); }
  static void BeginValues(int32_t rows) { ConfigureValues<AmxTiles>(rows); }
  static void End() { AmxTiles::Release(); }

  static int VecsFor(int32_t) { return 2; }
  static ScoreFn Score(int32_t rows, int, bool fetch) {
    if (rows > kAmxRows) return fetch ? ScoreByTiles<AmxTiles, true, true> : ScoreByTiles<AmxTiles, true, false>;
    return fetch ? ScoreByTiles<AmxTiles, false, true> : ScoreByTiles<AmxTiles, false, false>;
  }
  static WeighFn Weigh(int32_t rows, int, bool fetch) {
    if (rows > kAmxRows) return fetch ? WeighByTiles<AmxTiles, true, true> : WeighByTiles<AmxTiles, true, false>;
    return fetch ? WeighByTiles<AmxTiles, false, true> : WeighByTiles<AmxTiles, false, false>;
  }
};

}  // namespace

bool AmxReadsBf16(const KvLayer& kv) {
  return kv.dtype == DType::kBF16 && kv.head_dim % (2 * kTileWords) == 0;
}

void AttentionAmxBf16(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                      int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                      Workspace scratch) {
  AttentionOf<AmxBf16>(pool, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

}  // namespace tactus::compute
