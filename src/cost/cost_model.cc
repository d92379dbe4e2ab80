#include "cost/cost_model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cost/hybrid_model.h"

namespace tactus::cost {
namespace {

constexpr int64_t kTableTokens = 16384;
constexpr int64_t kTableRows = 2048;
constexpr double kGridChunk = 131072, kGridContext = 262144, kGridBatch = 2048;
constexpr double kActivationBytes = 2;   // bf16 between operators, whatever the weights' format
constexpr double kLogitBytes = 4;

struct Backend {
  const char* name;
  double cpu_overhead_ns;
};
// docs/cost_model.md, "CPU overhead", argues these.
constexpr Backend kBackends[] = {{"", 50e3}, {"vllm", 600e3}, {"sglang", 300e3}, {"trtllm", 300e3}};

Result<double> CpuOverheadNs(const Deployment& d) {
  for (const Backend& b : kBackends) {
    if (d.backend == b.name) return d.cpu_overhead_ns >= 0 ? static_cast<double>(d.cpu_overhead_ns) : b.cpu_overhead_ns;
  }
  return InvalidArgument(fmt::format("backend '{}' is not known; known are vllm, sglang, trtllm, or none", d.backend), "backend");
}

int64_t PerRank(int64_t heads, int32_t tp) { return std::max<int64_t>(1, heads / tp); }

Status CheckSplit(const Deployment& d, const ModelSpec& m) {
  if (d.tp < 1 || d.pp < 1 || d.tp > 1024 || d.pp > 1024) {
    return InvalidArgument(fmt::format("--tp {} and --pp {} must be between 1 and 1024", d.tp, d.pp), d.tp < 1 || d.tp > 1024 ? "tp" : "pp");
  }
  if (m.q_heads % d.tp != 0) {
    std::string fits;
    for (int32_t tp = 1; tp <= 64 && tp <= m.q_heads; ++tp) {
      if (m.q_heads % tp == 0 && (m.kv_heads % tp == 0 || tp % m.kv_heads == 0)) fits += fmt::format("{}{}", fits.empty() ? "" : ", ", tp);
    }
    return InvalidArgument(fmt::format("--tp {} does not divide the {} attention heads of {}; {} do", d.tp, m.q_heads, m.name, fits), "tp");
  }
  if (m.kv_heads % d.tp != 0 && d.tp % m.kv_heads != 0) {
    return InvalidArgument(fmt::format("--tp {} neither divides nor is a multiple of the {} KV heads of {}", d.tp, m.kv_heads, m.name), "tp");
  }
  if (d.pp > m.layers) {
    return InvalidArgument(fmt::format("--pp {} is more than the {} layers of {}; use at most {}", d.pp, m.layers, m.name, m.layers), "pp");
  }
  if (d.devices_per_node < 0 || d.network_gbytes_per_s < 0 || d.block_size < 1) {
    return InvalidArgument("devices per node and network bandwidth cannot be negative, and a block holds at least 1 token");
  }
  return Status();
}

}  // namespace

Result<std::unique_ptr<CostModel>> CostModel::Create(const Deployment& d) {
  TACTUS_ASSIGN_OR_RETURN(ModelSpec model, FindModel(d.model));
  TACTUS_ASSIGN_OR_RETURN(DeviceSpec device, FindDevice(d.device));
  TACTUS_RETURN_IF_ERROR(CheckSplit(d, model));
  TACTUS_RETURN_IF_ERROR([&] { return CpuOverheadNs(d).status(); }());
  if (d.devices_per_node > 0) device.group = d.devices_per_node;
  if (d.network_gbytes_per_s > 0) device.network_bandwidth = d.network_gbytes_per_s * 1e9;
  TACTUS_ASSIGN_OR_RETURN(WeightFormat format, FindWeightFormat(d.weight_dtype, device));
  if (d.kv_dtype != "bfloat16" && d.kv_dtype != "float16" && d.kv_dtype != "auto" && d.kv_dtype != "fp8") {
    return InvalidArgument(fmt::format("KV dtype '{}' is not known; known are bfloat16, fp8", d.kv_dtype), "kv-cache-dtype");
  }
  if (d.source != "auto" && d.source != "roofline" && d.source != "fitted") {
    return InvalidArgument(fmt::format("cost source '{}' is not known; known are auto, roofline, fitted", d.source), "cost");
  }
  std::unique_ptr<OperatorTimes> operators = MakeRoofline(device);
  return std::unique_ptr<CostModel>(
      std::make_unique<HybridModel>(d, std::move(model), std::move(device), std::move(format), std::move(operators)));
}

HybridModel::HybridModel(Deployment deployment, ModelSpec model, DeviceSpec device, WeightFormat format,
                         std::unique_ptr<OperatorTimes> operators)
    : deployment_(std::move(deployment)),
      model_(std::move(model)),
      device_(std::move(device)),
      format_(std::move(format)),
      operators_(std::move(operators)),
      chunk_grid_(kGridChunk, kGridContext),
      decode_grid_(kGridBatch, kGridContext) {
  attention_.q_heads = PerRank(model_.q_heads, deployment_.tp);
  attention_.kv_heads = PerRank(model_.kv_heads, deployment_.tp);
  attention_.head_dim = model_.head_dim;
  attention_.kv_bytes = deployment_.kv_dtype == "fp8" ? 1 : 2;
  attention_.window = model_.window;
  window_ = model_.window > 0 ? static_cast<double>(model_.window) : INFINITY;
  cpu_overhead_ns_ = CpuOverheadNs(deployment_).value();
  const double block_bytes = attention_.BytesPerToken() * deployment_.block_size * static_cast<double>(StageLayers(0));
  swap_block_ns_ = block_bytes / (device_.pcie_bandwidth * 0.8) * 1e9;
  FillTokenTables();
  FillAttentionTables();
}

// Layers are dealt as evenly as they go, the remainder to the first stages.
int64_t HybridModel::StageLayers(int32_t stage) const {
  return model_.layers / deployment_.pp + (stage < model_.layers % deployment_.pp ? 1 : 0);
}

double HybridModel::LayerTokensNs(int64_t t) const {
  if (t == 0) return 0;
  const OperatorTimes& o = *operators_;
  const ModelSpec& m = model_;
  const int32_t tp = deployment_.tp;
  const double tokens = static_cast<double>(t);
  const double hidden_bytes = tokens * static_cast<double>(m.hidden) * kActivationBytes;
  const int64_t q_width = attention_.q_heads * m.head_dim, kv_width = attention_.kv_heads * m.head_dim;
  const int64_t ffn = m.ffn / tp;

  double ns = o.GemmNs(format_, t, q_width + 2 * kv_width, m.hidden) + o.GemmNs(format_, t, m.hidden, q_width) +
              o.GemmNs(format_, t, m.gated ? 2 * ffn : ffn, m.hidden) + o.GemmNs(format_, t, m.hidden, ffn);
  // A norm reads the residual stream and the last operator's output and writes both the sum and its norm.
  const int32_t norms = m.parallel ? 1 : 2;
  ns += norms * o.ElementwiseNs(Elementwise::kNorm, 4 * hidden_bytes);
  const double kv_bytes = tokens * 2 * static_cast<double>(kv_width) * kActivationBytes;
  const double qk_bytes = tokens * static_cast<double>(q_width + kv_width) * kActivationBytes;
  if (m.rope) ns += o.ElementwiseNs(Elementwise::kRope, 2 * qk_bytes);
  if (m.qk_norm) ns += o.ElementwiseNs(Elementwise::kNorm, 2 * qk_bytes);
  ns += o.ElementwiseNs(Elementwise::kKvWrite, kv_bytes * (1 + attention_.kv_bytes / kActivationBytes));
  ns += o.ElementwiseNs(Elementwise::kActivation, (m.gated ? 3 : 2) * tokens * static_cast<double>(ffn) * kActivationBytes);
  if (m.parallel) ns += o.ElementwiseNs(Elementwise::kAdd, 3 * hidden_bytes);
  if (tp > 1) ns += (m.parallel ? 1 : 2) * o.AllReduceNs(hidden_bytes, tp);
  return ns;
}

double HybridModel::HeadNs(int64_t rows) const {
  if (rows == 0) return 0;
  const OperatorTimes& o = *operators_;
  // lm_head keeps 16 bits in every quantised checkpoint that servers run.
  WeightFormat format{"bfloat16", 2, 2, device_.bf16_flops};
  const int64_t share = (model_.vocab + deployment_.tp - 1) / deployment_.tp;
  double ns = o.GemmNs(format, rows, share, model_.hidden);
  if (deployment_.tp > 1) {
    ns += o.SendNs(kActivationBytes * static_cast<double>(rows * share) * (deployment_.tp - 1), deployment_.tp > device_.group);
  }
  return ns + o.ElementwiseNs(Elementwise::kSample, static_cast<double>(rows * model_.vocab) * kLogitBytes);
}

void HybridModel::FillTokenTables() {
  const double hidden_bytes = static_cast<double>(model_.hidden) * kActivationBytes;
  layer_.Fill(kTableTokens, [&](int64_t t) { return LayerTokensNs(t); });
  embed_.Fill(kTableTokens, [&](int64_t t) {
    return t == 0 ? 0.0 : operators_->ElementwiseNs(Elementwise::kEmbed, 2 * static_cast<double>(t) * hidden_bytes);
  });
  head_.Fill(kTableRows, [&](int64_t rows) { return HeadNs(rows); });
  // Every hop counts as the slowest one: over the network if some neighbours sit in different groups.
  const bool crosses = deployment_.tp * deployment_.pp > device_.group;
  send_.Fill(kTableTokens, [&](int64_t t) {
    return t == 0 ? 0.0 : operators_->SendNs(static_cast<double>(t) * hidden_bytes, crosses);
  });
}

double HybridModel::ChunkWorkNs(double tokens, double context) const {
  return std::max(work_flops_ns_ * attention_.ChunkFlops(tokens, context), work_bytes_ns_ * attention_.ChunkBytes(tokens, context));
}

void HybridModel::FillAttentionTables() {
  const double peak = operators_->PrefillPeakEfficiency(attention_);
  work_flops_ns_ = 1e9 / (device_.bf16_flops * peak);
  work_bytes_ns_ = 1e9 / (device_.bandwidth * peak);
  chunk_grid_.Fill([&](double tokens, double context) {
    if (tokens == 0) return 0.0;
    // A long chunk under a window is a row of pieces, each of which sees its own window.
    const double piece = std::min(tokens, window_);
    return operators_->PrefillNs(attention_, piece, std::min(context, window_)) * (tokens / piece);
  });
  decode_grid_.Fill([&](double batch, double mean_context) {
    return operators_->DecodeNs(attention_, batch, std::min(mean_context, window_));
  });
}

// Chunks of one step run in one kernel. Each has work that occupies the whole device, and a rest (alone it would not fill the
// device): the work adds up, the rests overlap. For one chunk that is its own time.
double HybridModel::AttentionNs(const StepShape& shape) const {
  double work = 0, rest = 0;
  for (const ChunkShape& chunk : shape.chunks) {
    if (chunk.tokens <= 0) continue;
    const double tokens = chunk.tokens, context = std::min<double>(chunk.context_tokens, window_);
    const double alone = chunk_grid_.At(tokens, chunk.context_tokens);
    const double own = std::min(alone, ChunkWorkNs(tokens, context));
    work += own;
    rest = std::max(rest, alone - own);
  }
  double ns = work + rest;
  if (shape.decodes > 0) {
    const double decodes = static_cast<double>(shape.decodes);
    ns += decode_grid_.At(decodes, static_cast<double>(shape.decode_context_tokens) / decodes);
  }
  return ns;
}

DurationNs HybridModel::StageTimeNs(const StepShape& shape, int32_t stage) const {
  const int64_t tokens = shape.tokens() + shape.padded_tokens;
  double ns = static_cast<double>(StageLayers(stage)) * (layer_.At(tokens) + AttentionNs(shape));
  if (stage == 0) {
    ns += embed_.At(tokens) + (tokens > 0 ? cpu_overhead_ns_ : 0);
    ns += static_cast<double>(shape.swap_blocks) * swap_block_ns_;
  }
  if (stage == deployment_.pp - 1) ns += head_.At(shape.logit_rows);
  return std::llround(ns);
}

DurationNs HybridModel::SendTimeNs(const StepShape& shape) const {
  return deployment_.pp > 1 ? std::llround(send_.At(shape.tokens() + shape.padded_tokens)) : 0;
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
  for (const ChunkShape& chunk : shape.chunks) attention += whole.ChunkFlops(chunk.tokens, std::min<double>(chunk.context_tokens, window_));
  attention += 4.0 * static_cast<double>(model_.q_heads * model_.head_dim) * static_cast<double>(shape.decode_context_tokens);
  return static_cast<double>(model_.layers) * (2 * static_cast<double>(model_.LayerParameters()) * tokens + attention) +
         2 * static_cast<double>(model_.vocab * model_.hidden) * static_cast<double>(shape.logit_rows);
}

double HybridModel::StepBytes(const StepShape& shape) const {
  const double kv_token = 2.0 * static_cast<double>(model_.kv_heads * model_.head_dim) * attention_.kv_bytes;
  double kv_tokens = static_cast<double>(shape.decode_context_tokens);
  for (const ChunkShape& chunk : shape.chunks) kv_tokens += std::min<double>(chunk.context_tokens, window_) + chunk.tokens;
  const double layer = static_cast<double>(model_.LayerParameters()) * format_.weight_bytes + kv_token * kv_tokens;
  const double head = shape.logit_rows > 0 ? static_cast<double>(model_.vocab * model_.hidden) * 2 : 0;
  return static_cast<double>(model_.layers) * layer + head;
}

std::string HybridModel::Describe() const {
  return fmt::format("{} on {}, tp {}, pp {}: roofline of the device's figures", model_.name, device_.name, deployment_.tp, deployment_.pp);
}

std::string HybridModel::Extrapolation(const StepShape&) const { return ""; }

}  // namespace tactus::cost
