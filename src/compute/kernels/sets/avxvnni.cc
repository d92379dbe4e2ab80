// The kernel set "avxvnni": the AVX2 set with AVX-VNNI's integer products.
#include "compute/kernels/attention/avx2/avxvnni.h"
#include "compute/kernels/kernel_set.h"
#include "compute/kernels/packed/operators.h"

namespace tactus::compute {

const Ops& AvxVnniOps() {
  static const Ops ops = [] {
    Ops set = Avx2Ops();
    set.name = "avxvnni";
    set.attention = AttentionAvxVnni;
    set.pack = PackAvxVnni;
    set.linear_packed = LinearPackedAvxVnni;
    set.gated_packed = GatedPackedAvxVnni;
    set.embed_packed = EmbedPackedAvxVnni;
    return set;
  }();
  return ops;
}

}  // namespace tactus::compute
