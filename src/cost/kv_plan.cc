// KV capacity beside the weights: the same plan as in `tactus serve`, for devices that are not present.
#include <algorithm>

#include <fmt/format.h>

#include "cost/hybrid_model.h"

namespace tactus::cost {
namespace {

constexpr double kGiB = 1073741824.0;
// Kernel modules, communication buffers and captured graphs.
constexpr int64_t kRuntimeBytes = int64_t{256} << 20;
// Rows of logits in the largest step: f32, their softmax and the sampler's sorted copy.
constexpr int64_t kLogitRows = 256;
constexpr int64_t kLogitRowBytes = 3 * 4;

int64_t ActivationBytes(const ModelSpec& m, int32_t tp, int64_t max_step_tokens) {
  // At the widest point a token holds gate and up, their product, and three copies of the residual stream (in, norm,
  // out), 16 bits each.
  const int64_t token = 2 * ((m.gated ? 3 : 2) * (m.ffn / tp) + 3 * m.hidden);
  return max_step_tokens * token + std::min<int64_t>(kLogitRows, max_step_tokens) * m.vocab * kLogitRowBytes +
         kRuntimeBytes;
}

// The largest n from 0 to `most` for which `fits` holds; `fits` holds up to some n.
template <class Fits>
int64_t LargestThatFits(int64_t most, const Fits& fits) {
  int64_t low = 0, high = std::max<int64_t>(0, most);
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    fits(middle) ? low = middle : high = middle - 1;
  }
  return low;
}

}  // namespace

int64_t WeightBytesPerDevice(const ModelSpec& m, const WeightFormat& format, int32_t tp, int32_t pp) {
  const int64_t layers = (m.layers + pp - 1) / pp;
  // KV heads that tp does not divide are stored twice.
  const int64_t kv_width = std::max<int64_t>(1, m.kv_heads / tp) * m.head_dim;
  const int64_t q_width = m.q_heads / tp * m.head_dim;
  const int64_t layer = m.hidden * (2 * q_width + 2 * kv_width) + (m.gated ? 3 : 2) * m.hidden * (m.ffn / tp);
  // The first stage has the embedding, the last the head; with one stage both are here.
  const int64_t tables = (pp == 1 && !m.tied ? 2 : 1) * m.vocab * m.hidden / tp;
  return static_cast<int64_t>(static_cast<double>(layers * layer) * format.weight_bytes) + 2 * tables;
}

Result<KvPlan> HybridModel::PlanKv(double utilization, int32_t block_size, int64_t max_step_tokens,
                                   LargestStep largest) const {
  if (!(utilization > 0 && utilization <= 1)) {
    return InvalidArgument(fmt::format("--gpu-memory-utilization is {}; it is a share in (0, 1]", utilization),
                           "gpu-memory-utilization");
  }
  if (block_size < 1 || max_step_tokens < 1) {
    return InvalidArgument(
        fmt::format("a memory plan needs blocks of at least 1 token and steps of at least 1, got {} and {}", block_size,
                    max_step_tokens));
  }
  const int32_t tp = deployment_.tp, pp = deployment_.pp;
  KvPlan plan;
  plan.kv_bytes_per_token = static_cast<int64_t>(
      2.0 * static_cast<double>(model_.layers * model_.kv_heads * model_.head_dim) * attention_.kv_bytes);
  plan.weight_bytes_per_device = WeightBytesPerDevice(model_, format_, tp, pp);
  const auto usable = static_cast<int64_t>(static_cast<double>(device_.memory_bytes) * utilization);
  // The stage with the most layers decides.
  const auto token_bytes = static_cast<int64_t>(attention_.BytesPerToken() * static_cast<double>(StageLayers(0)));
  // A step longer than this is not planned, even for many prompts.
  int64_t step_tokens = std::min(max_step_tokens, std::max<int64_t>(model_.context, 16384));
  if (largest == LargestStep::kOfAllThatKvHolds) {
    const int64_t room = usable - plan.weight_bytes_per_device;
    const int64_t blocks = LargestThatFits(room / (token_bytes * block_size), [&](int64_t n) {
      return n * token_bytes * block_size + ActivationBytes(model_, tp, std::min(max_step_tokens, n * block_size)) <=
             room;
    });
    step_tokens = std::min(max_step_tokens, std::max<int64_t>(1, blocks) * block_size);
  }
  plan.activation_bytes_per_device = ActivationBytes(model_, tp, step_tokens);
  const int64_t left = usable - plan.weight_bytes_per_device - plan.activation_bytes_per_device;
  if (left >= token_bytes * block_size) {
    plan.num_blocks = left / (token_bytes * block_size);
    // The rest would hold KV whose tokens no step could compute at once.
    if (largest == LargestStep::kOfAllThatKvHolds && step_tokens < max_step_tokens)
      plan.num_blocks = std::min(plan.num_blocks, step_tokens / block_size);
    plan.kv_bytes_per_device = plan.num_blocks * block_size * token_bytes;
    return plan;
  }
  std::string fits = "no tp x pp up to 64 devices holds it";
  for (int32_t devices = 2; devices <= 64 && fits[0] == 'n'; devices *= 2) {
    for (int32_t t = std::min(devices, 8); t >= 1; t /= 2) {
      const int32_t p = devices / t;
      if (p > model_.layers || model_.q_heads % t != 0 || (model_.kv_heads % t != 0 && t % model_.kv_heads != 0))
        continue;
      const int64_t needed = WeightBytesPerDevice(model_, format_, t, p) + ActivationBytes(model_, t, step_tokens);
      // Reserves a tenth of the memory for KV: a device that barely holds the weights serves no request.
      if (static_cast<double>(needed) > 0.9 * static_cast<double>(usable)) continue;
      fits = fmt::format("--tp {} --pp {} fits", t, p);
      break;
    }
  }
  return InvalidArgument(
      fmt::format(
          "{} does not fit {}: weights {:.2f} GiB + activations of {} tokens {:.2f} GiB + one KV block = "
          "{:.2f} GiB per device, but {:.2f} GiB "
          "({:.0f} % of {:.2f}) are available; {}, or use a narrower --weight-dtype, or smaller steps (--token-budget)",
          model_.name, device_.name, static_cast<double>(plan.weight_bytes_per_device) / kGiB, step_tokens,
          static_cast<double>(plan.activation_bytes_per_device) / kGiB,
          static_cast<double>(plan.weight_bytes_per_device + plan.activation_bytes_per_device +
                              token_bytes * block_size) /
              kGiB,
          static_cast<double>(usable) / kGiB, utilization * 100, static_cast<double>(device_.memory_bytes) / kGiB,
          fits),
      "model");
}

}  // namespace tactus::cost
