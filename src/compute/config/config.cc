#include "compute/config/config.h"

#include <cmath>

namespace tactus::compute {
namespace {

struct Bound {
  const char* field;
  int64_t value;
  int64_t low, high;
};

}  // namespace

int64_t ModelConfig::NumParameters() const {
  const int64_t q = num_heads * head_dim, kv = num_kv_heads * head_dim;
  int64_t layer = 2 * hidden_size;  // the two norms
  layer += hidden_size * (q + 2 * kv) + q * hidden_size + 3 * hidden_size * intermediate_size;
  if (qkv_bias) layer += q + 2 * kv;
  if (o_bias) layer += hidden_size;
  if (mlp_bias) layer += 2 * intermediate_size + hidden_size;
  if (qk_norm) layer += 2 * head_dim;
  const int64_t embeddings = vocab_size * hidden_size * (tie_embeddings ? 1 : 2);
  return num_layers * layer + embeddings + hidden_size;
}

int64_t ModelConfig::KvBytesPerToken(DType kv_dtype) const {
  const int64_t scales = kv_dtype == DType::kInt8 ? 4 * num_kv_heads : 0;  // f32, one per head
  return 2 * num_layers * (RowBytes(kv_dtype, num_kv_heads * head_dim) + scales);
}

Status ValidateConfig(const ModelConfig& c) {
  // head_dim: what the attention kernels are built for. The limits keep every product of two fields, times 8 bytes, far
  // inside 64 bits.
  const Bound bounds[] = {
      {"hidden_size", c.hidden_size, 1, 1 << 20},     {"num_layers", c.num_layers, 1, kMaxLayers},
      {"num_heads", c.num_heads, 1, 1 << 14},         {"num_kv_heads", c.num_kv_heads, 1, 1 << 14},
      {"head_dim", c.head_dim, 2, kMaxConfigHeadDim}, {"intermediate_size", c.intermediate_size, 1, 1 << 22},
      {"vocab_size", c.vocab_size, 1, 1 << 24},       {"max_position", c.max_position, 1, 1 << 30},
  };
  for (const Bound& b : bounds) {
    if (b.value >= b.low && b.value <= b.high) continue;
    return InvalidArgument(std::string(b.field) + " is " + std::to_string(b.value) + "; possible is " +
                               std::to_string(b.low) + " to " + std::to_string(b.high),
                           b.field);
  }
  if (c.num_heads % c.num_kv_heads != 0) {
    return InvalidArgument("num_heads " + std::to_string(c.num_heads) + " is not a multiple of num_kv_heads " +
                               std::to_string(c.num_kv_heads),
                           "num_kv_heads");
  }
  if (c.head_dim % 2 != 0) {
    return InvalidArgument("head_dim is " + std::to_string(c.head_dim) + "; RoPE needs an even number", "head_dim");
  }
  if (c.window.size() != static_cast<size_t>(c.num_layers)) {
    return InvalidArgument(
        "window has " + std::to_string(c.window.size()) + " entries for " + std::to_string(c.num_layers) + " layers",
        "window");
  }
  for (const int32_t w : c.window) {
    if (w < 0) return InvalidArgument("a sliding window is " + std::to_string(w) + "; 0 means none", "window");
  }
  if (!(c.rms_eps > 0.0f && c.rms_eps < 1.0f)) {
    return InvalidArgument("rms_eps is " + std::to_string(c.rms_eps) + "; possible is above 0 and below 1", "rms_eps");
  }
  const RopeConfig& r = c.rope;
  if (!(std::isfinite(r.theta) && r.theta > 0.0f)) {
    return InvalidArgument("rope theta is " + std::to_string(r.theta) + "; only positive numbers are possible",
                           "rope_theta");
  }
  if (!(r.factor >= 1.0f && r.factor <= 1e4f) && r.scaling != RopeScaling::kNone) {
    return InvalidArgument("the RoPE scaling factor is " + std::to_string(r.factor) + "; possible is 1 to 10000",
                           "factor");
  }
  if (!r.frequency_factors.empty() && r.frequency_factors.size() != static_cast<size_t>(c.head_dim / 2)) {
    return InvalidArgument("there are " + std::to_string(r.frequency_factors.size()) +
                           " RoPE frequency factors for head_dim " + std::to_string(c.head_dim));
  }
  if (r.scaling == RopeScaling::kDynamic || r.scaling == RopeScaling::kLlama3) {
    if (r.original_max_position < 1) {
      return InvalidArgument("original_max_position is " + std::to_string(r.original_max_position) +
                                 "; this RoPE scaling needs at least 1",
                             "original_max_position_embeddings");
    }
  }
  if (r.scaling == RopeScaling::kLlama3 && !(r.low_freq_factor > 0.0f && r.high_freq_factor > r.low_freq_factor)) {
    return InvalidArgument("llama3 RoPE scaling needs 0 < low_freq_factor < high_freq_factor, got " +
                               std::to_string(r.low_freq_factor) + " and " + std::to_string(r.high_freq_factor),
                           "low_freq_factor");
  }
  return Status();
}

}  // namespace tactus::compute
