// As dotprod.cc, with FEAT_I8MM (compiled for it).
#include "kernels/packed/bf16_tile.h"
#include "kernels/packed/chunks.h"
#include "kernels/packed/kernel.h"
#include "kernels/packed/neon/dots.h"
#include "kernels/packed/operators.h"

namespace tactus::kernels {
namespace {

SumPanelFn Pick(const PackedMatrix& w) {
  if (w.code != PackedCode::kBF16) return SumPanelInt<DotsI8mm, DotsI8mm, DotsI8mm>;
  return CpuHasArmBf16() ? SumPanelNeonBf16 : SumPanelBf16<DotsI8mm>;
}

}  // namespace

TACTUS_DEFINE_PACKED_OPS(NeonI8mm, Pick)

const Ops& NeonI8mmOps() {
  static const Ops ops = [] {
    Ops set = PortableOps();
    set.name = "neon_i8mm";
    set.pack = PackNeonI8mm;
    set.linear_packed = LinearPackedNeonI8mm;
    set.gated_packed = GatedPackedNeonI8mm;
    set.embed_packed = EmbedPackedNeonI8mm;
    return set;
  }();
  return ops;
}

}  // namespace tactus::kernels
