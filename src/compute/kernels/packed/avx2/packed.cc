// The operators over packed weights of the AVX2 set.
#include "compute/kernels/packed/avx2/dots.h"
#include "compute/kernels/packed/bf16_tile.h"
#include "compute/kernels/packed/chunks.h"
#include "compute/kernels/packed/kernel.h"
#include "compute/kernels/packed/operators.h"
#include "compute/kernels/packed/unrounded.h"

namespace tactus::compute {
namespace {

void SumPanelCodes(const PanelSums& run) {
  const PackedMatrix& w = *run.w;
  const int32_t bits = w.code == PackedCode::kU4 ? 4 : w.code_bits;
  if (bits > 6) return SumPanelInt<WideDotsAvx2, WideDotsAvx2, OpenedDotsAvx2>(run);
  if (bits > 5) return SumPanelInt<ByteDotsAvx2<6>, ByteDotsAvx2<6>, ByteDotsAvx2<6>>(run);
  if (bits > 4) return SumPanelInt<ByteDotsAvx2<5>, ByteDotsAvx2<5>, ByteDotsAvx2<5>>(run);
  SumPanelInt<ByteDotsAvx2<4>, ByteDotsAvx2<4>, ByteDotsAvx2<4>>(run);
}

SumPanelFn Pick(const PackedTokens& x, const PackedMatrix&) {
  if (x.format.values == TokenValues::kF32) return SumPanelUnrounded<BaseAvx2>;
  return x.format.integer() ? SumPanelCodes : SumPanelBf16<BaseAvx2>;
}

}  // namespace

TACTUS_DEFINE_PACKED_OPS(Avx2, Pick)

}  // namespace tactus::compute
