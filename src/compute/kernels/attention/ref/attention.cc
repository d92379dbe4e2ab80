// The specification of attention, in obvious loops: two passes over all positions that a query attends to, in double,
// rounded once.
#include "compute/kernels/attention/ref/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compute/kernels/attention/kv_layout.h"
#include "compute/kernels/kernel_set.h"

namespace tactus::compute {
namespace {

// Softmax over all visible positions at once: a pass for the maximum, one for sum and values.
void AttendRow(const float* q, const AttentionItem& item, int32_t position, int32_t head, int32_t kv_head,
               const KvLayer& kv, const AttentionSpec& spec, float* out) {
  const int32_t in_window = spec.window > 0 ? std::max(0, position - spec.window + 1) : 0;
  const int32_t low = spec.chunk > 0 ? position / spec.chunk * spec.chunk : in_window;
  auto kv_of = [&](const void* base, int32_t s) {
    return static_cast<const std::byte*>(base) + KvHeadOffset(kv, item.block_table[s / kv.block_size], kv_head);
  };
  auto scale_of = [&](const std::byte* from, int32_t s) {
    return kv.dtype == DType::kInt8 ? static_cast<double>(KvScale(kv, from, s % kv.block_size)) : 1.0;
  };
  float turned[kMaxHeadDim];  // q in K's stored form
  std::copy_n(q, kv.head_dim, turned);
  if (kv.dtype == DType::kInt8) SpreadHead(turned, kv.head_dim);
  auto score = [&](int32_t s) {
    const std::byte* from = kv_of(kv.k, s);
    double dot = 0;
    for (int32_t d = 0; d < kv.head_dim; ++d) {
      dot += static_cast<double>(turned[d]) * KvElement(kv, from, KeyIndex(kv, s % kv.block_size, d));
    }
    double value = dot * scale_of(from, s) * spec.scale;
    if (spec.softcap > 0) value = spec.softcap * std::tanh(value / spec.softcap);
    if (spec.slopes != nullptr) value += static_cast<double>(spec.slopes[head]) * (s - position);
    return value;
  };
  double maximum = spec.sinks != nullptr ? spec.sinks[head] : -std::numeric_limits<double>::infinity();
  for (int32_t s = low; s <= position; ++s) maximum = std::fmax(maximum, score(s));
  double values[kMaxHeadDim] = {};
  double sum = spec.sinks != nullptr ? std::exp(spec.sinks[head] - maximum) : 0;
  for (int32_t s = low; s <= position; ++s) {
    const double weight = std::exp(score(s) - maximum);
    const std::byte* from = kv_of(kv.v, s);
    const double scaled = weight * scale_of(from, s);
    sum += weight;
    for (int32_t d = 0; d < kv.head_dim; ++d) {
      values[d] += scaled * KvElement(kv, from, ValueIndex(kv, s % kv.block_size, d));
    }
  }
  for (int32_t d = 0; d < kv.head_dim; ++d) out[d] = static_cast<float>(values[d] / sum);
}

}  // namespace

void AttentionRef(ThreadPool&, const float* q, int64_t q_stride, std::span<const AttentionItem> items, int32_t heads,
                  const KvLayer& kv, const AttentionSpec& spec, float* out, int64_t out_stride, Workspace) {
  CheckHeadDim(kv.head_dim, 0);
  for (const AttentionItem& item : items) {
    for (int32_t i = 0; i < item.count; ++i) {
      for (int32_t h = 0; h < heads; ++h) {
        const int64_t token = item.first_token + i, column = static_cast<int64_t>(h) * kv.head_dim;
        AttendRow(q + token * q_stride + column, item, item.first_position + i, h, h / (heads / kv.kv_heads), kv, spec,
                  out + token * out_stride + column);
      }
    }
  }
}

}  // namespace tactus::compute
