// The operators over packed weights of the portable set.
#include "kernels/packed/bf16_tile.h"
#include "kernels/packed/chunks.h"
#include "kernels/packed/kernel.h"
#include "kernels/packed/operators.h"
#include "kernels/packed/portable/dots.h"

namespace tactus::kernels {
namespace {

SumPanelFn Pick(const PackedMatrix& w) {
  return w.code == PackedCode::kBF16 ? SumPanelBf16<DotsPortable>
                                     : SumPanelInt<DotsPortable, DotsPortable, OpenedDotsPortable>;
}

}  // namespace

TACTUS_DEFINE_PACKED_OPS(Portable, Pick)

}  // namespace tactus::kernels
