// The kernel set "amx": the AVX-512 set, with products and attention by matrix tiles where these are faster.
#include "compute/kernels/attention/amx/bf16.h"
#include "compute/kernels/attention/amx/int8.h"
#include "compute/kernels/kernel_set.h"
#include "compute/kernels/packed/operators.h"

namespace tactus::compute {
namespace {

// A cache has one kind of attention, whatever the batch, because their roundings differ.
void AttentionByTiles(ThreadPool& pool, const float* q, int64_t q_stride, std::span<const AttentionItem> items,
                      int32_t heads, const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride,
                      Workspace scratch) {
  const auto attention = spec.changes_scores() ? Avx512Ops().attention
                         : AmxReadsBf16(kv)    ? AttentionAmxBf16
                         : AmxReadsInt8(kv)    ? AttentionAmxInt8
                                               : Avx512Ops().attention;
  attention(pool, q, q_stride, items, heads, kv, spec, out, out_stride, scratch);
}

}  // namespace

const Ops& AmxOps() {
  static const Ops ops = [] {
    Ops set = Avx512Ops();
    set.name = "amx";
    set.attention = AttentionByTiles;
    set.linear_packed = LinearPackedAmx;
    set.gated_packed = GatedPackedAmx;
    return set;
  }();
  return ops;
}

}  // namespace tactus::compute
