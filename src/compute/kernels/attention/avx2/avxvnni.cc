// Attention over int8 K and V by vpdpwssd, which multiplies and adds 16-bit pairs; all else as the AVX2 set.
#include "compute/kernels/attention/avx2/avxvnni.h"

#include "compute/kernels/attention/avx2/int8_products.h"
#include "compute/kernels/attention/kernel.h"

namespace tactus::compute {
namespace {

struct VnniPairs {
  static __m256i MulAddPairs(__m256i sum, __m256i a, __m256i b) { return _mm256_dpwssd_avx_epi32(sum, a, b); }
};

}  // namespace

void AttentionAvxVnni(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                      int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                      Workspace scratch) {
  if (kv.dtype != DType::kInt8) {
    return Avx2Ops().attention(pool, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
  }
  AttentionBy<Int8Products<VnniPairs>>(pool, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

}  // namespace tactus::compute
