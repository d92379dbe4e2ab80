// The kernel set "ref": the specification.
#include "compute/kernels/attention/ref/attention.h"
#include "compute/kernels/kernel_set.h"
#include "compute/kernels/packed/operators.h"
#include "compute/kernels/rows/ref/rows.h"

namespace tactus::compute {

const Ops& RefOps() {
  static constexpr Ops kOps = {
      .name = "ref",
      .linear = LinearRef,
      .rms_norm = RmsNormRef,
      .layer_norm = LayerNormRef,
      .embed = EmbedRef,
      .rope = RopeRef,
      .store_kv = StoreKvRef,
      .attention = AttentionRef,
      .activate = ActivateRef,
      .add = AddToRef,
      .scale = ScaleRef,
      .dequantize_row = DequantizeRowRef,
      .pack = PackRef,
      .linear_packed = LinearPackedRef,
      .gated_packed = GatedPackedRef,
      .embed_packed = EmbedPackedRef,
      .rope_store = RopeStoreRef,
  };
  return kOps;
}

}  // namespace tactus::compute
