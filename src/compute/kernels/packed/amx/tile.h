// Multiplies a panel with matrix tiles.
#pragma once

#include "compute/kernels/packed/amx/bf16.h"
#include "compute/kernels/packed/amx/integers.h"

namespace tactus::compute {
namespace {

// Precondition: not f32 tokens; with wide groups, terms.upper.
template <class Tiles, class Lanes>
void SumPanelByTiles(const PanelRun& run) {
  const PackedMatrix& w = *run.w;
  const bool wide = run.x->format.wide > 0;
  if (w.code == PackedCode::kBF16) {
    SumBf16<Tiles>(run);
  } else if (w.block == 0 || w.block > kAmxRowBytes) {
    wide ? SumScaled<Tiles, Lanes, 2, true>(run) : SumScaled<Tiles, Lanes, 2, false>(run);
  } else {
    wide ? SumScaled<Tiles, Lanes, 1, true>(run) : SumScaled<Tiles, Lanes, 1, false>(run);
  }
  Tiles::Release();
}

}  // namespace
}  // namespace tactus::compute
