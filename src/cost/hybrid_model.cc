#include "cost/hybrid_model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cost/step_tables/step_table.h"

namespace tactus::cost {
namespace {

constexpr int64_t kTableTokens = 16384;
constexpr int64_t kTableRows = 2048;
constexpr double kGridChunk = 131072, kGridContext = 262144, kGridBatch = 2048;
constexpr double kActivationBytes = 2;  // bf16 between operators, for any weight format
constexpr double kLogitBytes = 4;
// Share of a PCIe link's bandwidth that block copies reach.
constexpr double kCopyEfficiency = 0.8;

int64_t PerRank(int64_t heads, int32_t tp) {
  return std::max<int64_t>(1, heads / tp);
}

int64_t Sequences(const StepShape& shape) {
  return shape.decodes + static_cast<int64_t>(shape.chunks.size());
}

}  // namespace

AttentionShape AttentionOf(const ModelSpec& m, const Deployment& d) {
  return {PerRank(m.q_heads, d.tp), PerRank(m.kv_heads, d.tp), m.head_dim, d.kv_dtype == "fp8" ? 1.0 : 2.0};
}

HybridModel::HybridModel(Deployment deployment, ModelSpec model, DeviceSpec device, WeightFormat format, HostTimes host,
                         std::unique_ptr<OperatorTimes> operators, OperatorSource from)
    : deployment_(std::move(deployment)),
      model_(std::move(model)),
      device_(std::move(device)),
      format_(std::move(format)),
      operators_(std::move(operators)),
      from_(std::move(from)),
      nano_(deployment_.overlap == "nano"),
      attention_(AttentionOf(model_, deployment_)),
      window_(model_.window > 0 ? static_cast<double>(model_.window) : INFINITY),
      host_(host),
      adds_(kGridChunk, kGridContext),
      alone_(kGridChunk, kGridContext),
      decode_(kGridBatch, kGridContext),
      beside_(kGridBatch, kGridContext) {
  const double block_bytes = attention_.BytesPerToken() * deployment_.block_size * static_cast<double>(StageLayers(0));
  swap_block_ns_ = block_bytes / (device_.pcie_bandwidth * kCopyEfficiency) * 1e9;
  FillTokenTables();
  FillAttentionTables();
}

// Layers are distributed as evenly as possible, the remainder to the first stages.
int64_t HybridModel::StageLayers(int32_t stage) const {
  return model_.layers / deployment_.pp + (stage < model_.layers % deployment_.pp ? 1 : 0);
}

std::vector<HybridModel::LayerOperator> HybridModel::LayerOperators() const {
  const OperatorTimes& o = *operators_;
  const ModelSpec& m = model_;
  const int32_t tp = deployment_.tp;
  const int64_t q_width = attention_.q_heads * m.head_dim, kv_width = attention_.kv_heads * m.head_dim;
  const int64_t ffn = m.ffn / tp;
  // Between nodes the hops' figures are NCCL's, launched from the host, and include its launch.
  const double launch_ns = tp <= device_.node ? host_.all_reduce_ns : 0;
  const int32_t blocks = m.parallel ? 1 : 2;  // attention and feed-forward, which a parallel layer combines
  const auto small = [&o](Elementwise op, double bytes_per_token, int32_t times = 1) {
    return [&o, op, bytes_per_token, times](int64_t t) {
      return times * o.ElementwiseNs(op, static_cast<double>(t) * bytes_per_token);
    };
  };
  const double hidden_bytes = static_cast<double>(m.hidden) * kActivationBytes;
  const double q_bytes = static_cast<double>(q_width) * kActivationBytes;
  const double kv_bytes = static_cast<double>(kv_width) * kActivationBytes;  // of K, or of V
  std::vector<LayerOperator> all = {
      {"QKV product", "linear", true, o.Gemm(format_, q_width + 2 * kv_width, m.hidden)},
      {"output product", "linear", true, o.Gemm(format_, m.hidden, q_width)},
      {m.gated ? "gate and up products" : "up product", "linear", true,
       o.Gemm(format_, m.gated ? 2 * ffn : ffn, m.hidden)},
      {"down product", "linear", true, o.Gemm(format_, m.hidden, ffn)},
      // A norm reads the residual stream and the last operator's output and writes both the sum and its norm.
      {"norms", "elementwise", false, small(Elementwise::kNorm, 4 * hidden_bytes, blocks)},
  };
  if (m.parallel) all.push_back({"residual sum", "elementwise", false, small(Elementwise::kAdd, 3 * hidden_bytes)});
  if (m.rope) all.push_back({"RoPE", "elementwise", false, small(Elementwise::kRope, 2 * (q_bytes + kv_bytes))});
  if (m.qk_norm) all.push_back({"QK norm", "elementwise", false, small(Elementwise::kNorm, 2 * (q_bytes + kv_bytes))});
  all.push_back({"KV write", "elementwise", false,
                 small(Elementwise::kKvWrite, 2 * kv_bytes * (1 + attention_.kv_bytes / kActivationBytes))});
  all.push_back({"activation", "elementwise", false,
                 small(Elementwise::kActivation, (m.gated ? 3 : 2) * static_cast<double>(ffn) * kActivationBytes)});
  if (tp > 1) {
    all.push_back({"all-reduces", "communication", false, [&o, hidden_bytes, tp, blocks, launch_ns](int64_t t) {
                     return blocks * (o.AllReduceNs(static_cast<double>(t) * hidden_bytes, tp) + launch_ns);
                   }});
  }
  return all;
}

void HybridModel::FillTokenTables() {
  const OperatorTimes& o = *operators_;
  const ModelSpec& m = model_;
  const int32_t tp = deployment_.tp;
  const std::vector<LayerOperator> operators = LayerOperators();
  layer_.Fill(kTableTokens, [&](int64_t t) {
    double products_ns = 0, rest_ns = 0;
    for (const LayerOperator& of : operators) (of.product ? products_ns : rest_ns) += t > 0 ? of.ns(t) : 0;
    return products_ns + rest_ns;
  });

  const double hidden_bytes = static_cast<double>(m.hidden) * kActivationBytes;
  embed_.Fill(kTableTokens, [&](int64_t t) {
    return t == 0 ? 0.0 : o.ElementwiseNs(Elementwise::kEmbed, 2 * static_cast<double>(t) * hidden_bytes);
  });

  // lm_head keeps 16 bits in the quantised checkpoints of servers; its shares are gathered for the sampler.
  const int64_t share = (m.vocab + tp - 1) / tp;
  const auto head = o.Gemm({"bfloat16", 2, 2, device_.bf16_flops}, share, m.hidden);
  head_.Fill(kTableRows, [&](int64_t rows) {
    if (rows == 0) return 0.0;
    const double gathered = kActivationBytes * static_cast<double>(rows * share) * (tp - 1);
    return head(rows) + (tp > 1 ? o.SendNs(gathered, tp) : 0.0) +
           o.ElementwiseNs(Elementwise::kSample, static_cast<double>(rows * m.vocab) * kLogitBytes);
  });

  // Every device sends the whole residual stream to its peer in the next stage. Every hop costs as much as the slowest.
  const int32_t devices = tp * deployment_.pp;
  send_.Fill(kTableTokens,
             [&](int64_t t) { return t == 0 ? 0.0 : o.SendNs(static_cast<double>(t) * hidden_bytes, devices); });
}

void HybridModel::FillAttentionTables() {
  const OperatorTimes& o = *operators_;
  prefill_base_ns_ = o.PrefillBaseNs(attention_);
  // A long chunk under a window is a row of pieces, each attending to its own window.
  adds_.Fill([&](double tokens, double context) {
    if (tokens == 0) return 0.0;
    const double piece = std::min(tokens, window_);
    return o.PrefillAddsNs(attention_, piece, std::min(context, window_)) * (tokens / piece);
  });
  alone_.Fill([&](double tokens, double context) {
    if (tokens == 0) return 0.0;
    const double piece = std::min(tokens, window_), rest = tokens / piece - 1;
    return o.PrefillAloneNs(attention_, piece, std::min(context, window_)) +
           rest * o.PrefillAddsNs(attention_, piece, std::min(context, window_));
  });
  decode_.Fill([&](double batch, double mean_context) {
    return batch == 0 ? 0.0 : o.DecodeNs(attention_, batch, std::min(mean_context, window_));
  });
  beside_.Fill([&](double batch, double mean_context) {
    if (batch == 0) return 0.0;
    // A chunk costs at least the kernel's base, and a step with it is not faster than without.
    const double context = std::min(mean_context, window_);
    return std::max(o.DecodeBesideChunkNs(attention_, batch, context),
                    o.DecodeNs(attention_, batch, context) - prefill_base_ns_);
  });
}

// Windows cut off the front of a sequence, and with it the shared part.
bool HybridModel::ReadsTogether(const StepShape& shape) const {
  return !shape.prefixes.empty() && std::isinf(window_);
}

// The chunks of one step run in one kernel: see OperatorTimes.
HybridModel::AttentionParts HybridModel::Apart(const StepShape& shape) const {
  double sum = prefill_base_ns_, longest = 0;
  for (const ChunkShape& chunk : shape.chunks) {
    sum += adds_.At(chunk.tokens, chunk.context_tokens);
    longest = std::max(longest, alone_.At(chunk.tokens, chunk.context_tokens));
  }
  if (shape.chunks.empty()) sum = 0;
  return PartsOf(shape, sum, longest, shape.decode_context_tokens);
}

// Cascade attention (Juravsky et al. 2024, Ye et al. 2024): a prefix is one more chunk in the chunks' kernel, with one
// query per decode that shares it; the decodes' kernel reads their own parts. The merge of both, a few hundred bytes
// per head, is neglected.
HybridModel::AttentionParts HybridModel::Cascade(const StepShape& shape) const {
  double sum = prefill_base_ns_, longest = 0;
  const auto add = [&](int32_t tokens, int32_t context) {
    sum += adds_.At(tokens, context);
    longest = std::max(longest, alone_.At(tokens, context));
  };
  for (const ChunkShape& chunk : shape.chunks) add(chunk.tokens, chunk.context_tokens);
  int64_t own_tokens = shape.decode_context_tokens;
  for (const PrefixShape& prefix : shape.prefixes) {
    add(prefix.decodes, prefix.tokens);
    own_tokens -= int64_t{prefix.tokens} * prefix.decodes;
  }
  return PartsOf(shape, sum, longest, own_tokens);
}

HybridModel::AttentionParts HybridModel::PartsOf(const StepShape& shape, double chunks_sum_ns, double longest_ns,
                                                 int64_t own_tokens) const {
  AttentionParts parts;
  parts.chunks_ns = std::max(chunks_sum_ns, longest_ns);
  if (shape.decodes == 0) return parts;
  const double decodes = static_cast<double>(shape.decodes), context = static_cast<double>(own_tokens) / decodes;
  parts.own_kernel_ns = decode_.At(decodes, context);
  parts.decodes_ns = shape.chunks.empty() ? parts.own_kernel_ns : beside_.At(decodes, context);
  return parts;
}

// Prefixes are read together where that is faster.
double HybridModel::LayerNs(const StepShape& shape) const {
  const double apart = LayerWith(shape, Apart(shape));
  return ReadsTogether(shape) ? std::min(apart, LayerWith(shape, Cascade(shape))) : apart;
}

// Nano-batches are two halves, each of which reads the weights, so small steps are better whole. The decodes have a
// separate kernel, so a chunk does not slow them as it does in a shared kernel.
double HybridModel::LayerWith(const StepShape& shape, const AttentionParts& attention) const {
  const int64_t tokens = shape.tokens() + shape.padded_tokens;
  const double whole = layer_.At(tokens) + attention.chunks_ns + attention.decodes_ns;
  if (!nano_ || shape.decodes == 0) return whole;
  // Two halves are never faster than the whole, even where tables are extrapolated.
  const double linear_ns = std::max(layer_.At(tokens), layer_.At(tokens / 2) + layer_.At(tokens - tokens / 2));
  return std::min(whole, deployment_.overlap_fit.Together(linear_ns + attention.chunks_ns, attention.own_kernel_ns));
}

DurationNs HybridModel::StageTimeNs(const StepShape& shape, int32_t stage) const {
  const int64_t tokens = shape.tokens() + shape.padded_tokens;
  double ns = static_cast<double>(StageLayers(stage)) * std::max(LayerNs(shape), tokens > 0 ? host_.layer_ns : 0);
  const double host_ns = tokens > 0 ? host_.StageNs(stage, deployment_.pp, Sequences(shape)) : 0;
  if (stage == 0) {
    ns += embed_.At(tokens) + host_ns;
    ns += static_cast<double>(shape.swap_blocks) * swap_block_ns_;
  }
  if (stage > 0) ns += host_ns;
  if (stage == deployment_.pp - 1) ns += head_.At(shape.logit_rows);
  return std::llround(std::min(ns, kLongestStepNs));
}

DurationNs HybridModel::SendTimeNs(const StepShape& shape) const {
  if (deployment_.pp == 1) return 0;
  return std::llround(std::min(send_.At(shape.tokens() + shape.padded_tokens), kLongestStepNs));
}

DurationNs HybridModel::StepTimeNs(const StepShape& shape) const {
  if (deployment_.pp == 1) return StageTimeNs(shape, 0);
  DurationNs ns = SendTimeNs(shape) * (deployment_.pp - 1);
  for (int32_t stage = 0; stage < deployment_.pp; ++stage) ns += StageTimeNs(shape, stage);
  return ns;
}

double HybridModel::StepFlops(const StepShape& shape) const {
  const double tokens = static_cast<double>(shape.tokens() + shape.padded_tokens);
  double attention = 0;
  AttentionShape whole = attention_;
  whole.q_heads = model_.q_heads;
  whole.kv_heads = model_.kv_heads;
  for (const ChunkShape& chunk : shape.chunks)
    attention += whole.ChunkFlops(chunk.tokens, std::min<double>(chunk.context_tokens, window_));
  attention +=
      4.0 * static_cast<double>(model_.q_heads * model_.head_dim) * static_cast<double>(shape.decode_context_tokens);
  return static_cast<double>(model_.layers) * (2 * static_cast<double>(model_.LayerParameters()) * tokens + attention) +
         2 * static_cast<double>(model_.vocab * model_.hidden) * static_cast<double>(shape.logit_rows);
}

double HybridModel::StepBytes(const StepShape& shape) const {
  const double kv_token = 2.0 * static_cast<double>(model_.kv_heads * model_.head_dim) * attention_.kv_bytes;
  double kv_tokens = static_cast<double>(shape.decode_context_tokens);
  for (const ChunkShape& chunk : shape.chunks)
    kv_tokens += std::min<double>(chunk.context_tokens, window_) + chunk.tokens;
  if (ReadsTogether(shape)) {
    for (const PrefixShape& prefix : shape.prefixes) {
      kv_tokens -= static_cast<double>(prefix.tokens) * (prefix.decodes - 1);
    }
  }
  const double layer = static_cast<double>(model_.LayerParameters()) * format_.weight_bytes + kv_token * kv_tokens;
  const double head = shape.logit_rows > 0 ? static_cast<double>(model_.vocab * model_.hidden) * 2 : 0;
  return static_cast<double>(model_.layers) * layer + head;
}

std::vector<StepPart> HybridModel::StepParts(const StepShape& shape) const {
  const auto layers = static_cast<double>(model_.layers);
  const int64_t tokens = shape.tokens() + shape.padded_tokens;
  std::vector<StepPart> parts;
  double sum = 0;
  const auto add = [&](std::string name, const char* kind, double ns) {
    if (std::abs(ns) < 1e-3) return;  // nothing, or a rounding error
    parts.push_back({std::move(name), kind, ns});
    sum += ns;
  };
  if (tokens > 0) {
    for (const LayerOperator& of : LayerOperators()) add(of.name, of.kind, layers * of.ns(tokens));
  }
  const AttentionParts apart = Apart(shape);
  add("attention of chunks", "attention", layers * apart.chunks_ns);
  add("attention of decodes", "attention", layers * apart.decodes_ns);
  // Tables never fall and end in a straight line; a step with overlap or with prefixes read once is shorter than its
  // parts.
  const double whole = layer_.At(tokens) + apart.chunks_ns + apart.decodes_ns;
  add("tables: no step faster than a smaller one", "correction", layers * whole - sum);
  add("overlap of nano-batches, prefixes read once", "correction", layers * (LayerNs(shape) - whole));
  if (tokens > 0) add("kernels wait to be launched", "host", layers * std::max(0.0, host_.layer_ns - LayerNs(shape)));
  add("embedding", "head", embed_.At(tokens));
  add("logits and sampling", "head", head_.At(shape.logit_rows));
  add("sends between stages", "communication", static_cast<double>(SendTimeNs(shape)) * (deployment_.pp - 1));
  add("copies of swapped blocks", "communication", static_cast<double>(shape.swap_blocks) * swap_block_ns_);
  double host_ns = 0;
  for (int32_t stage = 0; stage < deployment_.pp && tokens > 0; ++stage)
    host_ns += host_.StageNs(stage, deployment_.pp, Sequences(shape));
  add("host", "host", host_ns);
  return parts;
}

std::string HybridModel::Describe() const {
  std::string nodes;  // set where the network is involved
  if (deployment_.tp * deployment_.pp > device_.node) {
    nodes = fmt::format(", nodes of {} ({:g} GB/s of {} for each device, {:g} us)", device_.node,
                        device_.network_bandwidth / 1e9, device_.network, device_.network_hop_ns / 1e3);
  }
  const std::string overlap =
      nano_ ? fmt::format("; nano-batches, {:.2f} times as fast at best as one operator after the other",
                          2 / deployment_.overlap_fit.Together(1, 1))
            : "";
  const std::string scale = cost::Describe(deployment_.scale);
  return fmt::format("{} on {}, tp {}, pp {}{}: {}{}{}; {}{}", model_.name, device_.name, deployment_.tp,
                     deployment_.pp, nodes, from_.text, scale.empty() ? "" : "; scaled: ", scale,
                     cost::Describe(host_, deployment_.pp), overlap);
}

std::string HybridModel::Extrapolation(const StepShape& most) const {
  const FitCoverage& v = from_.coverage;
  std::string beyond;
  const auto note = [&](const char* what, double value, double measured) {
    if (measured <= 0 || value <= measured) return;
    beyond += fmt::format("{}{} {:.0f} (measured up to {:.0f}: {:.1f} x beyond)", beyond.empty() ? "" : "; ", what,
                          value, measured, value / measured);
  };
  double chunk = 0;
  for (const ChunkShape& c : most.chunks) chunk = std::max<double>(chunk, c.tokens);
  note("tokens per step", static_cast<double>(most.tokens() + most.padded_tokens), v.most_tokens);
  note("tokens per chunk", chunk, v.most_chunk);
  note("decodes", static_cast<double>(most.decodes), v.most_batch);
  if (most.decodes > 0)
    note("mean context of decodes", static_cast<double>(most.decode_context_tokens) / static_cast<double>(most.decodes),
         v.most_context);
  return beyond;
}

}  // namespace tactus::cost
