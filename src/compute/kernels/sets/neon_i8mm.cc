// The kernel set "neon_i8mm": the portable set, which is NEON on this architecture, with FEAT_I8MM's integer products.
#include "compute/kernels/kernel_set.h"
#include "compute/kernels/packed/operators.h"

namespace tactus::compute {

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

}  // namespace tactus::compute
