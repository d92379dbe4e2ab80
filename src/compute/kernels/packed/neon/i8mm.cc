// As dotprod.cc, with FEAT_I8MM (compiled for it).
#include "compute/kernels/packed/bf16_tile.h"
#include "compute/kernels/packed/chunks.h"
#include "compute/kernels/packed/kernel.h"
#include "compute/kernels/packed/neon/dots.h"
#include "compute/kernels/packed/operators.h"
#include "compute/kernels/packed/unrounded.h"

namespace tactus::compute {
namespace {

SumPanelFn Pick(const PackedTokens& x, const PackedMatrix&) {
  if (x.format.values == TokenValues::kF32) return SumPanelUnrounded<DotsI8mm>;
  if (x.format.integer()) return SumPanelInt<DotsI8mm, DotsI8mm, DotsI8mm>;
  return CpuHasArmBf16() ? SumPanelNeonBf16 : SumPanelBf16<DotsI8mm>;
}

}  // namespace

TACTUS_DEFINE_PACKED_OPS(NeonI8mm, Pick)

}  // namespace tactus::compute
