// The kernel set "neon_dotprod": the portable set, which is NEON on this architecture, with FEAT_DotProd's integer
// products.
#include "compute/kernels/kernel_set.h"
#include "compute/kernels/packed/operators.h"

namespace tactus::compute {

const Ops& NeonDotprodOps() {
  static const Ops ops = [] {
    Ops set = PortableOps();
    set.name = "neon_dotprod";
    set.pack = PackNeon;
    set.linear_packed = LinearPackedNeon;
    set.gated_packed = GatedPackedNeon;
    set.embed_packed = EmbedPackedNeon;
    return set;
  }();
  return ops;
}

}  // namespace tactus::compute
