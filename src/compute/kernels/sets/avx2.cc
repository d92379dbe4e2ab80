// The kernel set of machines with AVX2, FMA and F16C (compiled for them).
#include "compute/kernels/simd/avx2.h"

#include "compute/kernels/rows/activations.h"
#include "compute/kernels/rows/linear_entry.h"
#include "compute/kernels/rows/rope_kv.h"
#include "compute/kernels/rows/row_kernel.h"

#include "compute/kernels/packed/operators.h"

#include "compute/kernels/attention/kernel.h"

namespace tactus::compute {

const Ops& Avx2Ops() {
  static constexpr Ops kOps = {
      .name = "avx2",
      .linear = Linear,
      .rms_norm = RmsNorm,
      .layer_norm = LayerNorm,
      .embed = Embed,
      .rope = Rope,
      .store_kv = StoreKv,
      .attention = Attention,
      .activate = Activate,
      .add = AddTo,
      .scale = Scale,
      .dequantize_row = DequantizeRow,
      .pack = PackAvx2,
      .linear_packed = LinearPackedAvx2,
      .gated_packed = GatedPackedAvx2,
      .embed_packed = EmbedPackedAvx2,
      .rope_store = RopeStore,
  };
  return kOps;
}

}  // namespace tactus::compute
