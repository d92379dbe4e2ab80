// The operators over packed weights of the portable set.
#include "compute/kernels/packed/bf16_tile.h"
#include "compute/kernels/packed/chunks.h"
#include "compute/kernels/packed/kernel.h"
#include "compute/kernels/packed/operators.h"
#include "compute/kernels/packed/portable/dots.h"
#include "compute/kernels/packed/unrounded.h"

namespace tactus::compute {
namespace {

SumPanelFn Pick(const PackedTokens& x, const PackedMatrix&) {
  if (x.format.values == TokenValues::kF32) return SumPanelUnrounded<DotsPortable>;
  return x.format.integer() ? SumPanelInt<DotsPortable, DotsPortable, OpenedDotsPortable> : SumPanelBf16<DotsPortable>;
}

}  // namespace

TACTUS_DEFINE_PACKED_OPS(Portable, Pick)

}  // namespace tactus::compute
