#include "cost/hybrid_model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cost/step_tables/step_table.h"

namespace tactus::cost {
namespace {

constexpr int64_t kTableTokens = 16384;
constexpr int64_t kTableRows = 2048;
constexpr double kLogitBytes = 4;
// Share of a PCIe link's bandwidth that block copies reach.
constexpr double kCopyEfficiency = 0.8;

int64_t PerRank(int64_t heads, int32_t tp) {
  return std::max<int64_t>(1, heads / tp);
}

double KvBytes(const Deployment& d) {
  return d.kv_dtype == "fp8" ? 1.0 : 2.0;
}

VisibleSpan SpanOf(const compute::AttentionBlock& a) {
  VisibleSpan span;
  if (a.window > 0) span.window = static_cast<double>(a.window);
  if (a.chunk > 0) span.chunk = static_cast<double>(a.chunk);
  return span;
}

// KV tokens that the decodes read, by the mean of their contexts.
double DecodeKvTokens(const StepShape& shape, const VisibleSpan& span) {
  const auto decodes = static_cast<double>(shape.decodes), tokens = static_cast<double>(shape.decode_context_tokens);
  return std::min(tokens, decodes * span.most());
}

int64_t Tokens(const StepShape& shape) {
  return shape.tokens() + shape.padded_tokens;
}

int64_t Sequences(const StepShape& shape) {
  return shape.decodes + static_cast<int64_t>(shape.chunks.size());
}

}  // namespace

AttentionShape AttentionOf(const compute::AttentionBlock& a, const Deployment& d) {
  return {PerRank(a.heads, d.tp), PerRank(a.kv_heads, d.tp), a.head_dim, KvBytes(d)};
}

StageLayers LayersOfStage(int64_t layers, int32_t stage, int32_t pp) {
  const int64_t each = layers / pp, more = layers % pp;
  return {stage * each + std::min<int64_t>(stage, more), each + (stage < more ? 1 : 0)};
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
      host_(host) {
  FillKinds();
  FillTokenTables();
  const double block_bytes = StageKvTokenBytes(0) * deployment_.block_size;
  swap_block_ns_ = block_bytes / (device_.pcie_bandwidth * kCopyEfficiency) * 1e9;
}

void HybridModel::FillKinds() {
  for (const compute::LayerGroup& group : compute::GroupLayers(model_.layers)) {
    Kind kind{.layer = group.layer,
              .work = compute::WorkOf(group.layer, model_.hidden),
              .layers = static_cast<double>(group.at.size())};
    for (int32_t stage = 0; stage < deployment_.pp; ++stage) {
      const auto [first, count] = LayersOfStage(model_.num_layers(), stage, deployment_.pp);
      kind.in_stage.push_back(
          std::count_if(group.at.begin(), group.at.end(), [&](int64_t l) { return l >= first && l < first + count; }));
    }
    if (const compute::AttentionBlock* const a = compute::AttentionOf(group.layer)) {
      const AttentionShape shape = AttentionOf(*a, deployment_);
      const VisibleSpan span = SpanOf(*a);
      const auto same = std::find_if(attention_.begin(), attention_.end(),
                                     [&](const AttentionTables& t) { return t.shape() == shape && t.span() == span; });
      kind.attention = static_cast<size_t>(same - attention_.begin());
      if (same == attention_.end()) attention_.emplace_back(*operators_, shape, span);
    }
    kinds_.push_back(std::move(kind));
  }
}

double HybridModel::KvTokenBytes() const {
  double elements = 0;
  for (const Kind& kind : kinds_) elements += kind.layers * static_cast<double>(kind.work.kv);
  return elements * KvBytes(deployment_);
}

// One device's K and V of a token, of the layers of one stage.
double HybridModel::StageKvTokenBytes(int32_t stage) const {
  double bytes = 0;
  for (const Kind& kind : kinds_) {
    if (kind.work.kv > 0)
      bytes += attention_[*kind.attention].shape().BytesPerToken() *
               static_cast<double>(kind.in_stage[static_cast<size_t>(stage)]);
  }
  return bytes;
}

std::vector<LayerOperator> HybridModel::Operators(const Kind& kind) const {
  const int32_t tp = deployment_.tp;
  return OperatorsOf(compute::ShareOf(kind.layer, tp),
                     {.times = operators_.get(),
                      .format = format_,
                      .router = SixteenBits(device_),
                      .hidden = model_.hidden,
                      .kv_bytes = KvBytes(deployment_),
                      .tp = tp,
                      .ep = deployment_.ep,
                      // Between nodes the hops' figures are NCCL's, launched from the host, and include its launch.
                      .all_reduce_launch_ns = tp <= device_.node ? host_.all_reduce_ns : 0});
}

void HybridModel::FillTokenTables() {
  const OperatorTimes& o = *operators_;
  const ModelSpec& m = model_;
  const int32_t tp = deployment_.tp;
  for (Kind& kind : kinds_) {
    const std::vector<LayerOperator> operators = Operators(kind);
    kind.tokens.Fill(kTableTokens, [&](int64_t t) {
      double products_ns = 0, rest_ns = 0;
      for (const LayerOperator& of : operators) (of.product ? products_ns : rest_ns) += t > 0 ? of.ns(t) : 0;
      return products_ns + rest_ns;
    });
    const auto of_all_ns = [&](int64_t t) {
      double ns = 0;
      for (const LayerOperator& of : operators) ns += of.of_all_replicas ? of.ns(t) : 0;
      return ns;
    };
    // The mean of fewer tokens than replicas is below 1: what no token adds remains there.
    kind.of_all.Fill(deployment_.ep > 1 ? kTableTokens : 1,
                     [&](int64_t t) { return t > 0 ? of_all_ns(t) : std::max(0.0, 2 * of_all_ns(1) - of_all_ns(2)); });
  }

  const double hidden_bytes = static_cast<double>(m.hidden) * kActivationBytes;
  // Matrices of no layer make the streams beside the first, inputs of layers, and the sum of the streams.
  const auto product = [&](int64_t elements) -> std::function<double(int64_t)> {
    if (elements == 0) return [](int64_t) { return 0.0; };
    return o.Gemm(SixteenBits(device_), elements / m.hidden, m.hidden);
  };
  const auto before = product(m.token_projections), after = product(m.logit_projections);
  // A row of the embedding makes every stream; layers' inputs are read from their table and written.
  const int64_t streams = m.streams();
  const double embed_bytes =
      static_cast<double>(1 + streams) * hidden_bytes + 2 * kActivationBytes * static_cast<double>(m.layer_inputs());
  embed_.Fill(kTableTokens, [&](int64_t t) {
    return t == 0 ? 0.0 : o.ElementwiseNs(Elementwise::kEmbed, static_cast<double>(t) * embed_bytes) + before(t);
  });

  // lm_head keeps 16 bits in the quantised checkpoints of servers; its shares are gathered for the sampler.
  const int64_t share = (m.vocab + tp - 1) / tp;
  const auto head = o.Gemm(SixteenBits(device_), share, m.hidden);
  head_.Fill(kTableRows, [&](int64_t rows) {
    if (rows == 0) return 0.0;
    const double gathered = kActivationBytes * static_cast<double>(rows * share) * (tp - 1);
    return head(rows) + after(rows) + (tp > 1 ? o.SendNs(gathered, tp) : 0.0) +
           o.ElementwiseNs(Elementwise::kSample, static_cast<double>(rows * m.vocab) * kLogitBytes);
  });

  // Every device sends the whole residual, of all streams, to its peer in the next stage. Every hop costs as much as
  // the slowest.
  const int32_t devices = tp * deployment_.pp;
  send_.Fill(kTableTokens, [&](int64_t t) {
    return t == 0 ? 0.0 : o.SendNs(static_cast<double>(t * streams) * hidden_bytes, devices);
  });
}

bool HybridModel::ReadsTogether(const Kind& kind, const StepShape& shape) const {
  return kind.attention.has_value() && attention_[*kind.attention].ReadsTogether(shape);
}

AttentionParts HybridModel::Apart(const Kind& kind, const StepShape& shape) const {
  return kind.attention.has_value() ? attention_[*kind.attention].Apart(shape) : AttentionParts();
}

// Prefixes are read together where that is faster.
double HybridModel::LayerNs(const Kind& kind, const StepShape& shape) const {
  const double apart = LayerWith(kind, shape, Apart(kind, shape));
  if (!ReadsTogether(kind, shape)) return apart;
  return std::min(apart, LayerWith(kind, shape, attention_[*kind.attention].Cascade(shape)));
}

// Nano-batches are two halves, each of which reads the weights, so small steps are better whole. The decodes have a
// separate kernel, so a chunk does not slow them as it does in a shared kernel.
double HybridModel::LayerWith(const Kind& kind, const StepShape& shape, const AttentionParts& attention) const {
  const int64_t tokens = shape.tokens() + shape.padded_tokens;
  const CountTable& layer = kind.tokens;
  const double whole = layer.At(tokens) + attention.chunks_ns + attention.decodes_ns;
  if (!nano_ || shape.decodes == 0) return whole;
  // Two halves are never faster than the whole, even where tables are extrapolated.
  const double linear_ns = std::max(layer.At(tokens), layer.At(tokens / 2) + layer.At(tokens - tokens / 2));
  return std::min(whole, deployment_.overlap_fit.Together(linear_ns + attention.chunks_ns, attention.own_kernel_ns));
}

DurationNs HybridModel::StageTimeNs(const StepShape& shape, int32_t stage) const {
  const int64_t tokens = shape.tokens() + shape.padded_tokens;
  double ns = 0;
  for (const Kind& kind : kinds_) {
    const int64_t layers = kind.in_stage[static_cast<size_t>(stage)];
    if (layers == 0) continue;
    ns += static_cast<double>(layers) * std::max(LayerNs(kind, shape), tokens > 0 ? host_.layer_ns : 0);
  }
  return std::llround(std::min(AroundLayersNs(ns, shape, stage), kLongestStepNs));
}

// The layers of a stage, and what is before and after them.
double HybridModel::AroundLayersNs(double ns, const StepShape& shape, int32_t stage) const {
  const int64_t tokens = Tokens(shape);
  const double host_ns = tokens > 0 ? host_.StageNs(stage, deployment_.pp, Sequences(shape)) : 0;
  if (stage == 0) {
    ns += embed_.At(tokens) + host_ns;
    ns += static_cast<double>(shape.swap_blocks) * swap_block_ns_;
  }
  if (stage > 0) ns += host_ns;
  if (stage == deployment_.pp - 1) ns += head_.At(shape.logit_rows);
  return ns;
}

// In every layer the replicas wait for each other twice: for the tokens of all, and for the sums of all devices'
// experts. So the slowest decides all that is before, and the experts have the mean of the replicas' tokens. A replica
// without tokens computes its experts all the same, so its factor counts there.
DurationNs HybridModel::TogetherNs(std::span<const JointStep> steps) const {
  int64_t tokens = 0;
  double most_factor = 0, around_ns = 0, ns = 0;
  for (const JointStep& step : steps) {
    tokens += Tokens(step.shape);
    most_factor = std::max(most_factor, step.factor);
    around_ns = std::max(around_ns, step.factor * AroundLayersNs(0, step.shape, 0));
  }
  const double mean = static_cast<double>(tokens) / deployment_.ep;
  for (const Kind& kind : kinds_) {
    if (tokens == 0) break;
    double own_ns = 0;
    for (const JointStep& step : steps)
      own_ns = std::max(own_ns, step.factor * (LayerNs(kind, step.shape) - kind.of_all.At(Tokens(step.shape))));
    ns += kind.layers * std::max(own_ns + most_factor * kind.of_all.Between(mean), most_factor * host_.layer_ns);
  }
  return std::llround(std::min(ns + around_ns, kLongestStepNs));
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
  double flops = 0;
  for (const Kind& kind : kinds_) {
    double attention = 0;
    if (const compute::AttentionBlock* const a = compute::AttentionOf(kind.layer)) {
      const AttentionShape whole{a->heads, a->kv_heads, a->head_dim, KvBytes(deployment_)};
      const VisibleSpan span = attention_[*kind.attention].span();
      for (const ChunkShape& chunk : shape.chunks)
        attention += whole.ChunkFlops(chunk.tokens, span.Seen(chunk.context_tokens, chunk.tokens));
      attention += 4.0 * static_cast<double>(a->q_width()) * DecodeKvTokens(shape, span);
    }
    flops += kind.layers * (2 * static_cast<double>(kind.work.token_elements()) * tokens + attention);
  }
  const auto head = static_cast<double>(model_.vocab * model_.hidden + model_.logit_projections);
  return flops + 2 * static_cast<double>(model_.token_projections) * tokens +
         2 * head * static_cast<double>(shape.logit_rows);
}

double HybridModel::StepBytes(const StepShape& shape) const {
  const double tokens = static_cast<double>(shape.tokens() + shape.padded_tokens);
  double bytes = 0;
  for (const Kind& kind : kinds_) {
    const VisibleSpan span = kind.attention.has_value() ? attention_[*kind.attention].span() : VisibleSpan();
    double kv_tokens = DecodeKvTokens(shape, span);
    for (const ChunkShape& chunk : shape.chunks)
      kv_tokens += span.Seen(chunk.context_tokens, chunk.tokens) + chunk.tokens;
    if (ReadsTogether(kind, shape)) {
      for (const PrefixShape& prefix : shape.prefixes)
        kv_tokens -= static_cast<double>(prefix.tokens) * (prefix.decodes - 1);
    }
    bytes += kind.layers * (kind.work.ElementsRead(tokens) * format_.weight_bytes +
                            static_cast<double>(kind.work.kv) * KvBytes(deployment_) * kv_tokens);
  }
  const auto head = static_cast<double>(model_.vocab * model_.hidden + model_.logit_projections);
  return bytes + (tokens > 0 ? static_cast<double>(model_.token_projections) * 2 : 0) +
         (shape.logit_rows > 0 ? head * 2 : 0);
}

std::vector<StepPart> HybridModel::StepParts(const StepShape& shape) const {
  const int64_t tokens = shape.tokens() + shape.padded_tokens;
  std::vector<StepPart> parts;
  double sum = 0;
  const auto add = [&](const std::string& name, const char* kind, double ns) {
    if (std::abs(ns) < 1e-3) return;  // nothing, or a rounding error
    sum += ns;
    const auto same = std::find_if(parts.begin(), parts.end(), [&](const StepPart& p) { return p.name == name; });
    if (same != parts.end()) same->ns += ns;
    if (same == parts.end()) parts.push_back({name, kind, ns});
  };
  double whole_ns = 0, together_ns = 0, waiting_ns = 0;
  for (const Kind& kind : kinds_) {
    if (tokens > 0) {
      for (const LayerOperator& of : Operators(kind)) add(of.name, of.kind, kind.layers * of.ns(tokens));
    }
    const AttentionParts apart = Apart(kind, shape);
    add("attention of chunks", "attention", kind.layers * apart.chunks_ns);
    add("attention of decodes", "attention", kind.layers * apart.decodes_ns);
    const double whole = kind.tokens.At(tokens) + apart.chunks_ns + apart.decodes_ns, layer_ns = LayerNs(kind, shape);
    whole_ns += kind.layers * whole;
    together_ns += kind.layers * (layer_ns - whole);
    waiting_ns += kind.layers * std::max(0.0, host_.layer_ns - layer_ns);
  }
  // Tables never fall and end in a straight line; a step with overlap or with prefixes read once is shorter than its
  // parts.
  add("tables: no step faster than a smaller one", "correction", whole_ns - sum);
  add("overlap of nano-batches, prefixes read once", "correction", together_ns);
  if (tokens > 0) add("kernels wait to be launched", "host", waiting_ns);
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

bool HybridModel::uses_peers() const {
  const int32_t tp = deployment_.tp, pp = deployment_.pp, ep = deployment_.ep, node = device_.node;
  const auto beyond_links = [&](int32_t devices) { return std::min(devices, node) > device_.group; };
  return (tp > 1 && beyond_links(tp)) || (pp > 1 && tp * pp <= node && beyond_links(tp * pp)) ||
         (ep > 1 && 2 * tp <= node && beyond_links(tp * ep));
}

std::string HybridModel::Describe() const {
  std::string nodes;  // set where the network is involved, or another PCIe than the device's usual
  if (device_.other_peers && uses_peers()) {
    const std::string bandwidth =
        device_.peer_bandwidth > 0 ? fmt::format("{:g} GB/s, ", device_.peer_bandwidth / 1e9) : "";
    nodes = fmt::format(", PCIe of a node {}{:g} us", bandwidth, device_.peer_hop_ns / 1e3);
  }
  if (deployment_.tp * std::max(deployment_.pp, deployment_.ep) > device_.node) {
    nodes += fmt::format(", nodes of {} ({:g} GB/s of {} for each device, {:g} us)", device_.node,
                         device_.network_bandwidth / 1e9, device_.network, device_.network_hop_ns / 1e3);
  }
  const std::string overlap =
      nano_ ? fmt::format("; nano-batches, {:.2f} times as fast at best as one operator after the other",
                          2 / deployment_.overlap_fit.Together(1, 1))
            : "";
  const std::string scale = cost::Describe(deployment_.scale);
  const std::string ep = deployment_.ep > 1 ? fmt::format(", experts over {} replicas", deployment_.ep) : "";
  return fmt::format("{} on {}, tp {}, pp {}{}{}: {}{}{}; {}{}", model_.name, device_.name, deployment_.tp,
                     deployment_.pp, ep, nodes, from_.text, scale.empty() ? "" : "; scaled: ", scale,
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
