// Attention by vdpbf16ps: q and the softmax weights rounded to bf16, K and V as stored, sums in f32. Each lane of the
// instruction adds two products to its sum, the odd one first, each step rounded to nearest even, subnormals taken as
// zero. A score is one chain over the pairs of head_dim, ascending; weighted values are one chain over the pairs of a
// partition's positions. The weights are summed as rounded (tiles.h).
#include "compute/kernels/attention/avx512/bf16.h"

#include "compute/kernels/attention/avx512/bf16_tile.h"
#include "compute/kernels/attention/avx512/tiles.h"

namespace tactus::compute {
namespace {

struct Bf16 : VectorFormat<Bf16Rows> {
  static constexpr int32_t kTileRows = kGroupRows;

  // Fewer rows use more vectors at a time: about 16 sums are in flight either way.
  static int VecsFor(int32_t rows) { return rows <= 4 ? 4 : 2; }

  template <int kVecs, bool kFetch>
  static constexpr ScoreFn kScore[kTileRows + 1] = {nullptr,
                                                    ScoreRows<1, kVecs, kFetch>,
                                                    ScoreRows<2, kVecs, kFetch>,
                                                    ScoreRows<3, kVecs, kFetch>,
                                                    ScoreRows<4, kVecs, kFetch>,
                                                    ScoreRows<5, 2, kFetch>,
                                                    ScoreRows<6, 2, kFetch>,
                                                    ScoreRows<7, 2, kFetch>,
                                                    ScoreRows<8, 2, kFetch>};
  static ScoreFn Score(int32_t rows, int vecs, bool fetch) {
    if (vecs == 4) return fetch ? kScore<4, true>[rows] : kScore<4, false>[rows];
    return fetch ? kScore<2, true>[rows] : kScore<2, false>[rows];
  }

  template <int kVecs, bool kFetch>
  static constexpr WeighFn kWeigh[kTileRows + 1] = {nullptr,
                                                    WeighRows<1, kVecs, kFetch>,
                                                    WeighRows<2, kVecs, kFetch>,
                                                    WeighRows<3, kVecs, kFetch>,
                                                    WeighRows<4, kVecs, kFetch>,
                                                    WeighRows<5, kVecs == 4 ? 2 : kVecs, kFetch>,
                                                    WeighRows<6, kVecs == 4 ? 2 : kVecs, kFetch>,
                                                    WeighRows<7, kVecs == 4 ? 2 : kVecs, kFetch>,
                                                    WeighRows<8, kVecs == 4 ? 2 : kVecs, kFetch>};
  static WeighFn Weigh(int32_t rows, int vecs, bool fetch) {
    if (vecs == 1) return kWeigh<1, false>[rows];
    if (vecs == 4) return fetch ? kWeigh<4, true>[rows] : kWeigh<4, false>[rows];
    return fetch ? kWeigh<2, true>[rows] : kWeigh<2, false>[rows];
  }
};

}  // namespace

void AttentionAvx512Bf16(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                         int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                         Workspace scratch) {
  AttentionOf<Bf16>(pool, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

}  // namespace tactus::compute
