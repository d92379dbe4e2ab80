// Tokens of f32 over panels of any weights: packed/unrounded.h in vectors of 16.
#include "compute/kernels/packed/unrounded.h"

#include "compute/kernels/packed/avx512/packed.h"

namespace tactus::compute {
namespace {

struct FloatsAvx512 {
  static constexpr int kRows = 6;
  static constexpr int VectorsOf(int) { return 4; }
  static constexpr bool HasLoop(int) { return false; }
};

}  // namespace

void SumPanelUnrounded(const PanelRun& run) {
  SumPanelUnrounded<FloatsAvx512>({run.w, run.x, run.panel, run.first_row, run.rows, run.sums});
}

}  // namespace tactus::compute
