// The Format (tiles.h) of attention by vpdpbusd.
#pragma once

#include "compute/kernels/attention/avx512/int8_tile.h"
#include "compute/kernels/attention/avx512/tiles.h"

namespace tactus::compute {
namespace {

struct Int8 : VectorFormat<Int8Rows> {
  static constexpr int32_t kTileRows = 4;

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
};

}  // namespace
}  // namespace tactus::compute
