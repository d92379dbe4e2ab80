// The kernel set of machines with AVX-512 F, BW, VL and DQ (compiled for them). Where the CPU also has AVX512-BF16,
// bf16 weights under LinearMode::kBF16 go to rows/avx512/linear_bf16.cc and attention over bf16 and int8 KV to
// attention/avx512/bf16.cc: pairs of products in one instruction, other roundings. Bits are promised per binary, kernel
// set and that feature, not across machines.
#include "kernels/simd/avx512.h"

#include "kernels/rows/avx512/linear_bf16.h"
#include "kernels/rows/linear_entry.h"
#include "kernels/rows/rope_kv.h"
#include "kernels/rows/row_kernel.h"

#include "kernels/packed/operators.h"

#include "kernels/attention/avx512/bf16.h"
#include "kernels/attention/kernel.h"

namespace tactus::kernels {
namespace {

void LinearOrBf16(ThreadPool& pool, const float* x, int64_t tokens, const MatrixView& w, const float* bias,
                  LinearMode mode, float* y, Workspace scratch) {
  if (mode == LinearMode::kBF16 && w.dtype == DType::kBF16 && CpuHasAvx512Bf16()) {
    return LinearAvx512Bf16(pool, x, tokens, w, bias, y, scratch);
  }
  Linear(pool, x, tokens, w, bias, mode, y, scratch);
}

void AttentionOrBf16(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                     int32_t heads, const KvLayer& kv, float scale, int32_t window, float* out, int64_t out_stride,
                     Workspace scratch) {
  const auto attention = kv.dtype != DType::kF32 && CpuHasAvx512Bf16() ? AttentionAvx512Bf16 : Attention;
  attention(pool, q, q_stride, items, heads, kv, scale, window, out, out_stride, scratch);
}

}  // namespace

const Ops& Avx512Ops() {
  static constexpr Ops kOps = {
      .name = "avx512",
      .linear = LinearOrBf16,
      .rms_norm = RmsNorm,
      .embed = Embed,
      .rope = Rope,
      .store_kv = StoreKv,
      .attention = AttentionOrBf16,
      .silu_mul = SiluMul,
      .add = AddTo,
      .dequantize_row = DequantizeRow,
      .pack = PackAvx512,
      .linear_packed = LinearPackedAvx512,
      .gated_packed = GatedPackedAvx512,
      .embed_packed = EmbedPackedAvx512,
      .rope_store = RopeStore,
  };
  return kOps;
}

}  // namespace tactus::kernels
