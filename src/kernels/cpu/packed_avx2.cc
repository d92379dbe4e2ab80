// The operators over packed weights of the AVX2 set.
#include "kernels/cpu/packed_dots_avx2.h"

#include "kernels/cpu/packed_bf16_tile.h"
#include "kernels/cpu/packed_kernel.h"
#include "kernels/cpu/packed_sets.h"
#include "kernels/cpu/packed_tile.h"

namespace tactus::kernels {
namespace {

SumPanelFn Pick(const PackedMatrix& w) {
  return w.code == PackedCode::kBF16 ? SumPanelBf16<DotsAvx2> : SumPanelInt<DotsAvx2, NibbleDotsAvx2>;
}

}  // namespace

TACTUS_DEFINE_PACKED_OPS(Avx2, Pick)

}  // namespace tactus::kernels
