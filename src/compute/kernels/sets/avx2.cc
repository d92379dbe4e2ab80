// The kernel set of machines with AVX2, FMA and F16C (compiled for them).
#include "compute/kernels/simd/avx2.h"

#include "compute/kernels/rows/activations.h"
#include "compute/kernels/rows/linear_entry.h"
#include "compute/kernels/rows/rope_kv.h"
#include "compute/kernels/rows/row_kernel.h"

#include "compute/kernels/packed/operators.h"

#include "compute/kernels/attention/avx2/int8_products.h"
#include "compute/kernels/attention/kernel.h"

namespace tactus::compute {
namespace {

void AttentionAvx2(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                   int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                   Workspace scratch) {
  if (kv.dtype != DType::kInt8) {
    return Attention(pool, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
  }
  AttentionBy<Int8Products<Avx2Pairs>>(pool, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

}  // namespace

const Ops& Avx2Ops() {
  static constexpr Ops kOps = {
      .name = "avx2",
      .linear = Linear,
      .rms_norm = RmsNorm,
      .layer_norm = LayerNorm,
      .embed = Embed,
      .rope = Rope,
      .store_kv = StoreKv,
      .attention = AttentionAvx2,
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
