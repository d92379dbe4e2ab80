// Attention by vpdpbusd: q and the softmax weights rounded to 16-bit integers, codes of K and V as stored, exact sums
// of their products in 32 bits. q has one scale per row, max|q| / 32639 (so that both bytes are signed). A score is the
// sum in f32, times the position's scale of K; the row's scale of q is applied in the exponent. Weights are the softmax
// weights times the position's scale of V, in units of a power of two that makes the row's largest scale of V in the
// partition a 15-bit number; the weights are summed before that. Sums are at most 2^15 * 127 * kPartition and 32639 *
// 127 * kKvHeadDimMax, below 2^31 (tiles.h).
#include "compute/kernels/attention/avx512/int8.h"

#include "compute/kernels/attention/avx512/int8_format.h"
#include "compute/kernels/attention/avx512/tiles.h"

namespace tactus::compute {
void AttentionAvx512Int8(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                         int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                         Workspace scratch) {
  AttentionOf<Int8>(pool, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

}  // namespace tactus::compute
