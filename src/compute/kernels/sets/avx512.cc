// The kernel set of machines with AVX-512 F, BW, VL and DQ (compiled for them). Where the CPU also has AVX512-BF16 or
// AVX512-VNNI, attention over bf16 or int8 KV runs in attention/avx512/bf16.cc or int8.cc: several products per
// instruction, with other roundings. Bits are equal per binary, kernel set and those features, not across machines.
#include "compute/kernels/simd/avx512.h"

#include "compute/kernels/rows/activations.h"
#include "compute/kernels/rows/linear_entry.h"
#include "compute/kernels/rows/rope_kv.h"
#include "compute/kernels/rows/row_kernel.h"

#include "compute/kernels/packed/operators.h"

#include "compute/kernels/attention/avx512/bf16.h"
#include "compute/kernels/attention/avx512/int8.h"
#include "compute/kernels/attention/kernel.h"

namespace tactus::compute {
namespace {

// Dot products of whole tiles; scores that change on the way to softmax are computed in f32.
void AttentionByDots(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                     int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                     Workspace scratch) {
  const auto attention = spec.changes_scores()                            ? Attention
                         : kv.dtype == DType::kBF16 && CpuHasAvx512Bf16() ? AttentionAvx512Bf16
                         : kv.dtype == DType::kInt8 && CpuHasAvx512Vnni() ? AttentionAvx512Int8
                                                                          : Attention;
  attention(pool, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

}  // namespace

const Ops& Avx512Ops() {
  static constexpr Ops kOps = {
      .name = "avx512",
      .linear = Linear,
      .rms_norm = RmsNorm,
      .layer_norm = LayerNorm,
      .embed = Embed,
      .rope = Rope,
      .store_kv = StoreKv,
      .attention = AttentionByDots,
      .activate = Activate,
      .add = AddTo,
      .scale = Scale,
      .dequantize_row = DequantizeRow,
      .pack = PackAvx512,
      .linear_packed = LinearPackedAvx512,
      .gated_packed = GatedPackedAvx512,
      .embed_packed = EmbedPackedAvx512,
      .rope_store = RopeStore,
  };
  return kOps;
}

}  // namespace tactus::compute
