// The operators over packed weights of the portable set.
#include "kernels/cpu/packed_dots_portable.h"

#include "kernels/cpu/packed_bf16_tile.h"
#include "kernels/cpu/packed_chunks.h"
#include "kernels/cpu/packed_kernel.h"
#include "kernels/cpu/packed_sets.h"

namespace tactus::kernels {
namespace {

SumPanelFn Pick(const PackedMatrix& w) {
  return w.code == PackedCode::kBF16 ? SumPanelBf16<DotsPortable>
                                     : SumPanelInt<DotsPortable, DotsPortable, OpenedDotsPortable>;
}

}  // namespace

TACTUS_DEFINE_PACKED_OPS(Portable, Pick)

}  // namespace tactus::kernels
