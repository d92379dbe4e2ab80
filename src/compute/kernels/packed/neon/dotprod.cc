// The operators over packed weights of the Arm set with FEAT_DotProd (compiled for it). All others are the portable
// set's, which is NEON on this architecture. bf16 weights run in bf16.cc where the CPU has FEAT_BF16.
#include "compute/kernels/packed/bf16_tile.h"
#include "compute/kernels/packed/chunks.h"
#include "compute/kernels/packed/kernel.h"
#include "compute/kernels/packed/neon/dots.h"
#include "compute/kernels/packed/operators.h"
#include "compute/kernels/packed/unrounded.h"

namespace tactus::compute {
namespace {

SumPanelFn Pick(const PackedTokens& x, const PackedMatrix&) {
  if (x.format.values == TokenValues::kF32) return SumPanelUnrounded<DotsDotprod>;
  if (x.format.integer()) return SumPanelInt<DotsDotprod, NibbleDotsDotprod, NibbleDotsDotprod>;
  return CpuHasArmBf16() ? SumPanelNeonBf16 : SumPanelBf16<DotsDotprod>;
}

}  // namespace

TACTUS_DEFINE_PACKED_OPS(Neon, Pick)

}  // namespace tactus::compute
