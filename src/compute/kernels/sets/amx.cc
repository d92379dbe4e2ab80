// The kernel set "amx": the AVX-512 set, with products by matrix tiles where these are faster.
#include "compute/kernels/kernel_set.h"
#include "compute/kernels/packed/operators.h"

namespace tactus::compute {

const Ops& AmxOps() {
  static const Ops ops = [] {
    Ops set = Avx512Ops();
    set.name = "amx";
    set.linear_packed = LinearPackedAmx;
    set.gated_packed = GatedPackedAmx;
    return set;
  }();
  return ops;
}

}  // namespace tactus::compute
