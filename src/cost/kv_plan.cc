// KV capacity beside the weights: the same plan as in `tactus serve`, for devices that are not present.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "compute/config/block_work.h"
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
  // At the widest point a token holds gate and up, their product, three copies of the residual's streams (in, norm,
  // out) and the inputs of layers, 16 bits each.
  int64_t inner = 0;
  for (const compute::LayerGroup& group : compute::GroupLayers(m.layers))
    inner = std::max(inner, compute::WorkOf(compute::ShareOf(group.layer, tp), m.hidden).inner);
  const int64_t token = 2 * (inner + 3 * m.streams() * m.hidden + m.layer_inputs());
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

int64_t WeightBytesPerDevice(const ModelSpec& m, const WeightFormat& format, int32_t tp, int32_t pp, int32_t ep) {
  std::vector<int64_t> elements(m.layers.size());  // of each layer
  for (const compute::LayerGroup& group : compute::GroupLayers(m.layers)) {
    const int64_t share = compute::WorkOf(compute::ShareOf(group.layer, tp, ep), m.hidden).elements();
    for (const int64_t l : group.at) elements[static_cast<size_t>(l)] = share;
  }
  int64_t largest = 0;
  for (int32_t stage = 0; stage < pp; ++stage) {
    const auto [first, count] = LayersOfStage(m.num_layers(), stage, pp);
    largest =
        std::max(largest, std::accumulate(elements.begin() + first, elements.begin() + first + count, int64_t{0}));
  }
  // The first stage has the embedding and other tables, the last the head; with one stage both are here.
  const int64_t tables = ((pp == 1 && !m.tied ? 2 : 1) * m.vocab * m.hidden + m.tables) / tp + m.token_projections +
                         (pp == 1 ? m.logit_projections : 0);
  return static_cast<int64_t>(static_cast<double>(largest) * format.weight_bytes) + 2 * tables;
}

// Whether the devices of a stage may share the attention of every layer.
bool DividesHeads(const ModelSpec& m, int32_t tp) {
  return std::all_of(m.layers.begin(), m.layers.end(), [tp](const compute::Layer& layer) {
    const compute::AttentionBlock* const a = compute::AttentionOf(layer);
    return a == nullptr || (a->heads % tp == 0 && (a->kv_heads % tp == 0 || tp % a->kv_heads == 0));
  });
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
  plan.kv_bytes_per_token = static_cast<int64_t>(KvTokenBytes());
  plan.weight_bytes_per_device = WeightBytesPerDevice(model_, format_, tp, pp, deployment_.ep);
  const auto usable = static_cast<int64_t>(static_cast<double>(device_.memory_bytes) * utilization);
  // The stage with the most KV decides.
  double most = 0;
  for (int32_t stage = 0; stage < pp; ++stage) most = std::max(most, StageKvTokenBytes(stage));
  const auto token_bytes = static_cast<int64_t>(most);
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
      if (p > model_.num_layers() || !DividesHeads(model_, t)) continue;
      const int64_t needed =
          WeightBytesPerDevice(model_, format_, t, p, deployment_.ep) + ActivationBytes(model_, t, step_tokens);
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
