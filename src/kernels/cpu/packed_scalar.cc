// The operators over packed weights of the portable set.
#include "kernels/cpu/packed_dots_portable.h"

#include "kernels/cpu/packed_bf16_tile.h"
#include "kernels/cpu/packed_kernel.h"
#include "kernels/cpu/packed_sets.h"
#include "kernels/cpu/packed_tile.h"

namespace tactus::kernels {
namespace {

SumPanelFn Pick(const PackedMatrix& w) {
  return w.code == PackedCode::kBF16 ? SumPanelBf16<DotsPortable> : SumPanelInt<DotsPortable, DotsPortable>;
}

}  // namespace

TACTUS_DEFINE_PACKED_OPS(Portable, Pick)

}  // namespace tactus::kernels
