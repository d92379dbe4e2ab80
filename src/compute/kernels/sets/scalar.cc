// The kernel set for any machine: portable C++, 4 lanes wide.
#include "compute/kernels/simd/portable.h"

#include "compute/kernels/rows/activations.h"
#include "compute/kernels/rows/linear_entry.h"
#include "compute/kernels/rows/rope_kv.h"
#include "compute/kernels/rows/row_kernel.h"

#include "compute/kernels/packed/operators.h"

#include "compute/kernels/attention/kernel.h"

namespace tactus::compute {

const Ops& PortableOps() {
  static constexpr Ops kOps = {
      .name = "scalar",
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
      .pack = PackPortable,
      .linear_packed = LinearPackedPortable,
      .gated_packed = GatedPackedPortable,
      .embed_packed = EmbedPackedPortable,
      .rope_store = RopeStore,
  };
  return kOps;
}

}  // namespace tactus::compute
